//! Which encoding a client sends and which it wants.

use api::{Error, Reason};
use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};

use crate::request::Query;

/// What is said to those who name no media type that there is.
const UNKNOWN_TYPES: &str = "406: Not Acceptable";

/// How bytes on the wire are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    Json,
    /// JSON for people to read, of answers alone.
    PrettyJson,
    Protobuf,
    Yaml,
}

/// The shape in which a client wants objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Object,
    Table,
    PartialMetadata,
    /// The same of a list, which is another kind.
    PartialMetadataList,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub encoding: Encoding,
    pub shape: Shape,
    /// Whether tables and metadata are wanted as `meta.k8s.io/v1beta1`.
    pub is_beta: bool,
}

/// One clause of `Accept`.
struct Clause<'a> {
    media_type: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
    quality: f32,
}

impl Encoding {
    pub fn media_type(self) -> &'static str {
        match self {
            Encoding::Json | Encoding::PrettyJson => "application/json",
            Encoding::Protobuf => "application/vnd.kubernetes.protobuf",
            Encoding::Yaml => "application/yaml",
        }
    }

    /// The encoding of a whole media type.
    fn from_media_type(media_type: &str) -> Option<Encoding> {
        match media_type {
            "application/json" => Some(Encoding::Json),
            "application/vnd.kubernetes.protobuf" => Some(Encoding::Protobuf),
            "application/yaml" => Some(Encoding::Yaml),
            _ => None,
        }
    }

    /// The same for one that may leave the choice to the server.
    fn from_range(media_type: &str) -> Option<Encoding> {
        match media_type {
            "*/*" | "application/*" | "" => Some(Encoding::Json),
            other => Encoding::from_media_type(other),
        }
    }
}

impl<'a> Clause<'a> {
    fn parse(text: &'a str) -> Clause<'a> {
        let mut parts = text.split(';').map(str::trim);
        let media_type = parts.next().unwrap_or_default();
        let parameters: Vec<_> = parts.filter_map(|part| part.split_once('=')).collect();
        let quality = parameters.iter().find(|(key, _)| *key == "q");
        Clause {
            media_type,
            // What is no number is wanted least, as upstream has it.
            quality: quality.map_or(1.0, |(_, value)| value.parse().unwrap_or(0.0)),
            parameters,
        }
    }

    /// All clauses, the most wanted first; among equals those that say more, and then the earlier ones.
    fn all(accept: &'a str) -> Vec<Clause<'a>> {
        let mut clauses: Vec<Clause<'a>> = accept.split(',').map(Clause::parse).collect();
        clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality).then(a.wildcards().cmp(&b.wildcards())));
        clauses
    }

    fn wildcards(&self) -> usize {
        self.media_type.split('/').filter(|part| *part == "*").count()
    }

    fn wanted(&self, shapes: bool) -> Option<Wanted> {
        let mut encoding = Encoding::from_range(self.media_type)?;
        let (mut kind, mut group, mut version) = ("", "", "");
        for (key, value) in &self.parameters {
            match *key {
                "as" => kind = value,
                "g" => group = value,
                "v" => version = value,
                "pretty" if *value == "1" && encoding == Encoding::Json => encoding = Encoding::PrettyJson,
                _ => {}
            }
        }
        let shape = match (kind, group, version) {
            ("", ..) => Shape::Object,
            // A table has cells of any type, which protobuf does not.
            ("Table", ..) if encoding == Encoding::Protobuf => return None,
            ("Table", "meta.k8s.io", "v1" | "v1beta1") if shapes => Shape::Table,
            ("PartialObjectMetadata", "meta.k8s.io", "v1" | "v1beta1") if shapes => Shape::PartialMetadata,
            ("PartialObjectMetadataList", "meta.k8s.io", "v1" | "v1beta1") if shapes => Shape::PartialMetadataList,
            _ => return None,
        };
        Some(Wanted {
            encoding,
            shape,
            is_beta: shape != Shape::Object && version == "v1beta1",
        })
    }
}

/// The encoding of a request's body; a missing content type means JSON.
pub fn content(headers: &HeaderMap) -> Result<Encoding, Error> {
    let value = header(headers, CONTENT_TYPE);
    let media_type = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let encoding = match value {
        "" => Some(Encoding::Json),
        _ => Encoding::from_media_type(&media_type),
    };
    encoding.ok_or_else(|| {
        Error::new(
            Reason::UnsupportedMediaType,
            "the body of the request was in an unknown format - accepted media types include: application/json, \
             application/yaml, application/vnd.kubernetes.protobuf",
        )
    })
}

/// The most wanted clause of `Accept` that can be served. `shapes` says whether this request can be answered as a table
/// or as metadata only.
pub fn wanted(headers: &HeaderMap, query: &Query, shapes: bool) -> Result<Wanted, Error> {
    first_wanted(headers, query, |clause| clause.wanted(shapes))
}

/// The same for custom resources, whose objects have no protobuf form.
pub fn wanted_of_custom(headers: &HeaderMap, query: &Query) -> Result<Wanted, Error> {
    let has_form = |wanted: &Wanted| wanted.encoding != Encoding::Protobuf || wanted.shape != Shape::Object;
    first_wanted(headers, query, |clause| clause.wanted(true).filter(has_form))
}

/// How a failure is encoded. Upstream writes for people where it has nothing that the client takes.
pub fn error_encoding(headers: &HeaderMap, query: &Query) -> Encoding {
    wanted(headers, query, true).map_or(Encoding::PrettyJson, |wanted| wanted.encoding)
}

/// Refuses clients that do not take JSON, where there is nothing else.
pub fn require_json(headers: &HeaderMap) -> Result<(), Error> {
    let accept = header(headers, ACCEPT);
    let takes_json = |clause: &Clause<'_>| Encoding::from_range(clause.media_type) == Some(Encoding::Json);
    match accept.is_empty() || Clause::all(accept).iter().any(takes_json) {
        true => Ok(()),
        false => Err(Error::new(Reason::NotAcceptable, UNKNOWN_TYPES)),
    }
}

fn first_wanted(
    headers: &HeaderMap,
    query: &Query,
    of_clause: impl Fn(&Clause<'_>) -> Option<Wanted>,
) -> Result<Wanted, Error> {
    let accept = header(headers, ACCEPT);
    let found = match accept {
        "" => Some(Wanted {
            encoding: Encoding::Json,
            shape: Shape::Object,
            is_beta: false,
        }),
        _ => Clause::all(accept).iter().find_map(of_clause),
    };
    let mut wanted = found.ok_or_else(|| not_acceptable(accept))?;
    if wanted.encoding == Encoding::Json && is_for_people(headers, query) {
        wanted.encoding = Encoding::PrettyJson;
    }
    Ok(wanted)
}

/// Whether `?pretty` says that somebody reads the answer, or else the client is one that people use by hand.
fn is_for_people(headers: &HeaderMap, query: &Query) -> bool {
    match query.text("pretty") {
        Some(flag) => matches!(flag, "1" | "t" | "T" | "true" | "TRUE" | "True"),
        None => {
            let agent = header(headers, USER_AGENT);
            ["curl", "Wget", "Mozilla/5.0"]
                .iter()
                .any(|tool| agent.starts_with(tool))
        }
    }
}

/// Media types that nobody knows are refused before it is known what the request is for.
fn not_acceptable(accept: &str) -> Error {
    let is_known = |clause: &Clause<'_>| Encoding::from_range(clause.media_type).is_some();
    let message = match Clause::all(accept).iter().any(is_known) {
        true => {
            "only the following media types are accepted: application/json, application/yaml, \
             application/vnd.kubernetes.protobuf"
        }
        false => UNKNOWN_TYPES,
    };
    Error::new(Reason::NotAcceptable, message)
}

fn header(headers: &HeaderMap, name: http::HeaderName) -> &str {
    headers
        .get(name)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(given: &[(http::HeaderName, &str)]) -> HeaderMap {
        given
            .iter()
            .map(|(name, value)| (name.clone(), value.parse().unwrap()))
            .collect()
    }

    fn check(accept: &str, expected: Option<(Encoding, Shape)>) {
        let found = wanted(&headers(&[(ACCEPT, accept)]), &Query::default(), true);
        let found = found.ok().map(|wanted| (wanted.encoding, wanted.shape));
        assert_eq!(found, expected, "{accept}");
    }

    #[test]
    fn the_first_clause_that_can_be_served_wins() {
        check("application/json", Some((Encoding::Json, Shape::Object)));
        check(
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
            Some((Encoding::Json, Shape::Table)),
        );
        check(
            "application/vnd.kubernetes.protobuf,application/json",
            Some((Encoding::Protobuf, Shape::Object)),
        );
        check(
            "application/json;as=Kitten;v=v1;g=meta.k8s.io, */*",
            Some((Encoding::Json, Shape::Object)),
        );
        check("text/html", None);
        check("application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io", None);
    }

    #[test]
    fn what_is_wanted_more_or_named_in_full_comes_first() {
        let yaml = Some((Encoding::Yaml, Shape::Object));
        check("application/json;q=0.5,application/yaml;q=0.9", yaml);
        check("*/*;q=0.1,application/yaml;q=0.1", yaml);
        check("application/*,application/yaml", yaml);
        let json = Some((Encoding::Json, Shape::Object));
        check("application/json;q=0,application/yaml;q=x", json);
    }

    #[test]
    fn versions_of_tables_are_told_apart() {
        for (version, is_beta) in [("v1", false), ("v1beta1", true)] {
            let accept = format!("application/json;as=Table;v={version};g=meta.k8s.io");
            let found = wanted(&headers(&[(ACCEPT, &accept)]), &Query::default(), true).unwrap();
            assert_eq!(found.is_beta, is_beta, "{version}");
        }
    }

    #[test]
    fn people_get_lines_and_programs_do_not() {
        for (query, agent, accept, expected) in [
            ("", "curl/8.5.0", "*/*", Encoding::PrettyJson),
            ("pretty=false", "curl/8.5.0", "*/*", Encoding::Json),
            ("pretty", "Wget/1.2", "*/*", Encoding::PrettyJson),
            ("pretty=true", "kubectl/v1", "*/*", Encoding::PrettyJson),
            ("pretty=yes", "Mozilla/5.0", "*/*", Encoding::Json),
            ("", "kubectl/v1", "application/json;pretty=1", Encoding::PrettyJson),
            ("", "kubectl/v1", "application/json", Encoding::Json),
            ("pretty=1", "curl/8.5.0", "application/yaml", Encoding::Yaml),
        ] {
            let given = headers(&[(ACCEPT, accept), (USER_AGENT, agent)]);
            let found = wanted(&given, &Query::parse(query), true).unwrap();
            assert_eq!(found.encoding, expected, "{query} {agent} {accept}");
        }
    }

    #[test]
    fn content_types_are_whole_and_of_any_case() {
        let content = |text: &str| content(&headers(&[(CONTENT_TYPE, text)])).ok();
        assert_eq!(content("Application/JSON; Charset=utf-8"), Some(Encoding::Json));
        assert_eq!(content("application/yaml"), Some(Encoding::Yaml));
        assert_eq!(content("*/*"), None);
        assert_eq!(content("text/plain"), None);
    }
}
