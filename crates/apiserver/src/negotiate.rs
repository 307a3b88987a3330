//! Which encoding a client sends and which it wants.

use api::{Error, Reason};
use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE};

/// How bytes on the wire are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    Json,
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
}

impl Encoding {
    pub fn media_type(self) -> &'static str {
        match self {
            Encoding::Json => "application/json",
            Encoding::Protobuf => "application/vnd.kubernetes.protobuf",
            Encoding::Yaml => "application/yaml",
        }
    }

    fn from_media_type(media_type: &str) -> Option<Encoding> {
        match media_type {
            "application/json" | "*/*" | "application/*" | "" => Some(Encoding::Json),
            "application/vnd.kubernetes.protobuf" => Some(Encoding::Protobuf),
            "application/yaml" => Some(Encoding::Yaml),
            _ => None,
        }
    }
}

/// The encoding of a request's body; a missing content type means JSON.
pub fn content(headers: &HeaderMap) -> Result<Encoding, Error> {
    let value = header(headers, CONTENT_TYPE);
    let media_type = value.split(';').next().unwrap_or_default().trim();
    Encoding::from_media_type(media_type).ok_or_else(|| {
        Error::new(
            Reason::UnsupportedMediaType,
            "the body of the request was in an unknown format - accepted media types include: application/json, \
             application/yaml, application/vnd.kubernetes.protobuf",
        )
    })
}

/// The first clause of `Accept` that can be served. `shapes` says whether this request can be answered as a table or
/// as metadata only.
pub fn wanted(headers: &HeaderMap, shapes: bool) -> Result<Wanted, Error> {
    let accept = header(headers, ACCEPT);
    if accept.is_empty() {
        return Ok(Wanted {
            encoding: Encoding::Json,
            shape: Shape::Object,
        });
    }
    accept
        .split(',')
        .find_map(|clause| clause_wanted(clause, shapes))
        .ok_or_else(|| not_acceptable(accept))
}

/// The same for custom resources, whose objects have no protobuf form.
pub fn wanted_of_custom(headers: &HeaderMap) -> Result<Wanted, Error> {
    let accept = header(headers, ACCEPT);
    let has_form = |wanted: &Wanted| wanted.encoding != Encoding::Protobuf || wanted.shape != Shape::Object;
    match accept.is_empty() {
        true => wanted(headers, true),
        false => accept
            .split(',')
            .find_map(|clause| clause_wanted(clause, true).filter(has_form))
            .ok_or_else(|| not_acceptable(accept)),
    }
}

fn clause_wanted(clause: &str, shapes: bool) -> Option<Wanted> {
    let mut parts = clause.split(';').map(str::trim);
    let encoding = Encoding::from_media_type(parts.next().unwrap_or_default())?;
    let (mut kind, mut group, mut version) = ("", "", "");
    for (key, value) in parts.filter_map(|part| part.split_once('=')) {
        match key {
            "as" => kind = value,
            "g" => group = value,
            "v" => version = value,
            _ => {}
        }
    }
    let shape = match (kind, group, version) {
        ("", ..) => Shape::Object,
        ("Table", "meta.k8s.io", "v1" | "v1beta1") if shapes => Shape::Table,
        ("PartialObjectMetadata", "meta.k8s.io", "v1" | "v1beta1") if shapes => Shape::PartialMetadata,
        ("PartialObjectMetadataList", "meta.k8s.io", "v1" | "v1beta1") if shapes => Shape::PartialMetadataList,
        _ => return None,
    };
    Some(Wanted { encoding, shape })
}

/// Media types that nobody knows are refused before it is known what the request is for.
fn not_acceptable(accept: &str) -> Error {
    let media_type = |clause: &str| clause.split(';').next().unwrap_or_default().trim().to_owned();
    let known = accept
        .split(',')
        .any(|clause| Encoding::from_media_type(&media_type(clause)).is_some());
    let message = match known {
        true => {
            "only the following media types are accepted: application/json, application/yaml, \
             application/vnd.kubernetes.protobuf"
        }
        false => "406: Not Acceptable",
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

    fn check(accept: &str, expected: Option<(Encoding, Shape)>) {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, accept.parse().unwrap());
        let found = wanted(&headers, true)
            .ok()
            .map(|wanted| (wanted.encoding, wanted.shape));
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
    }
}
