//! Where a webhook is reached: at a URL or through a service.

use crate::names::{dns1035_label, dns1123_subdomain, port_number};
use crate::{Fields, MAX_WHOLE, Path, Problems, Value, repeats};

const FORM: &str = "; desired format: https://host[/path]";

/// The parts of a URL that decide whether a webhook may have it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Parts<'a> {
    scheme: &'a str,
    user: &'a str,
    host: &'a str,
    query: &'a str,
    fragment: &'a str,
}

pub fn validate_url(url: &str, path: &Path, problems: &mut Problems) {
    let parts = match parse(url) {
        Ok(parts) => parts,
        Err(why) => {
            let detail = format!("url must be a valid URL: parse {url:?}: {why}{FORM}");
            return problems.required(path, "", &detail);
        }
    };
    if !parts.scheme.eq_ignore_ascii_case("https") {
        let detail = format!("'https' is the only allowed URL scheme{FORM}");
        problems.invalid(path, "", parts.scheme.to_lowercase(), detail);
    }
    if parts.host.is_empty() {
        problems.invalid(path, "", "", format!("host must be specified{FORM}"));
    }
    for (part, detail) in [
        (parts.user, "user information is not permitted in the URL"),
        (parts.fragment, "fragments are not permitted in the URL"),
        (parts.query, "query parameters are not permitted in the URL"),
    ] {
        if !part.is_empty() {
            problems.invalid(path, "", part, detail);
        }
    }
}

fn parse(url: &str) -> Result<Parts<'_>, String> {
    if url.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
        return Err("net/url: invalid control character in URL".to_owned());
    }
    let (rest, fragment) = url.split_once('#').unwrap_or((url, ""));
    let is_scheme = |text: &str| {
        let usual = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
        text.starts_with(|first: char| first.is_ascii_alphabetic()) && text.bytes().all(usual)
    };
    let (scheme, rest) = match rest.split_once(':') {
        Some(("", _)) => return Err("missing protocol scheme".to_owned()),
        Some((scheme, rest)) if is_scheme(scheme) => (scheme, rest),
        Some((first, _)) if !first.contains('/') => {
            return Err("first path segment in URL cannot contain colon".to_owned());
        }
        _ => ("", rest),
    };
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = rest.strip_prefix("//").unwrap_or_default();
    let authority = authority.split('/').next().unwrap_or_default();
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let after = host.rsplit_once(']').map_or(host, |(_, after)| after);
    if let Some((_, port)) = after.rsplit_once(':')
        && !port.bytes().all(|byte| byte.is_ascii_digit())
    {
        return Err(format!("invalid port {:?} after host", format!(":{port}")));
    }
    Ok(Parts {
        scheme,
        user,
        host,
        query,
        fragment,
    })
}

/// Upstream says `namespace` where the name is missing, and the reverse.
pub fn validate_service(service: &Value, path: &Path, problems: &mut Problems) {
    for (field, shown) in [("name", "namespace"), ("namespace", "name")] {
        if service.text(field).is_empty() {
            problems.required(path, shown, "");
        }
    }
    validate_port(service, path, problems);
    let Some(url_path) = service["path"].as_str().filter(|path| !matches!(*path, "" | "/")) else {
        return;
    };
    if url_path == "//" {
        return problems.invalid(path, "path", url_path, "segment[0] may not be empty");
    }
    if !url_path.starts_with('/') {
        problems.invalid(path, "path", url_path, "must start with a '/'");
    }
    let mut rest = url_path.chars();
    rest.next();
    let rest = rest.as_str();
    let steps = rest.strip_suffix('/').unwrap_or(rest).split('/').enumerate();
    let details = steps.flat_map(|(index, step)| match step {
        "" => vec![format!("segment[{index}] may not be empty")],
        step => {
            let found = dns1123_subdomain(step, false).into_iter();
            found.map(|problem| format!("segment[{index}]: {problem}")).collect()
        }
    });
    for detail in details.take(MAX_WHOLE) {
        problems.invalid(path, "path", url_path, detail);
    }
}

/// The versions of reviews that a webhook understands; one of them has to be one that servers send.
pub fn validate_review_versions(webhook: &Value, path: &Path, field: &str, missing: &str, problems: &mut Problems) {
    let versions: Vec<&str> = webhook.list(field).iter().filter_map(Value::as_str).collect();
    if versions.is_empty() {
        return problems.required(path, field, missing);
    }
    let repeated = repeats(&versions);
    for (index, version) in versions.iter().enumerate() {
        let place = path.child(field).index(index);
        if repeated[index] {
            problems.invalid(&place, "", *version, "duplicate version");
            continue;
        }
        problems.form(&place, "", *version, dns1035_label(version, false));
    }
    if !versions.iter().any(|version| matches!(*version, "v1" | "v1beta1")) {
        let detail = "must include at least one of v1, v1beta1";
        problems.invalid(path, field, webhook[field].clone(), detail);
    }
}

/// The port of a service in front of a webhook or another API server.
pub fn validate_port(service: &Value, path: &Path, problems: &mut Problems) {
    let port = service.number("port");
    for problem in port_number(port) {
        problems.invalid(path, "port", port, format!("port is not valid: {problem}"));
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::json;

    use super::*;

    fn check(found: impl Fn(&mut Problems), expect: Expect) {
        let mut problems = Problems::default();
        found(&mut problems);
        let found: Vec<String> = problems.into_vec().iter().map(ToString::to_string).collect();
        expect.assert_eq(&found.join("\n"));
    }

    #[test]
    fn a_url_has_a_host_and_nothing_secret() {
        let of = |url: &'static str| move |problems: &mut Problems| validate_url(url, &Path::new("url"), problems);
        check(of("https://hooks.example.com:8443/x"), expect![""]);
        check(of("https://[::1]:8443"), expect![""]);
        check(
            of("http://u:p@h/x?a=b#c"),
            expect![[r#"
                url: Invalid value: "http": 'https' is the only allowed URL scheme; desired format: https://host[/path]
                url: Invalid value: "u:p": user information is not permitted in the URL
                url: Invalid value: "c": fragments are not permitted in the URL
                url: Invalid value: "a=b": query parameters are not permitted in the URL"#]],
        );
        check(
            of("https://h:x"),
            expect![[
                r#"url: Required value: url must be a valid URL: parse "https://h:x": invalid port ":x" after host; desired format: https://host[/path]"#
            ]],
        );
    }

    #[test]
    fn a_service_has_a_name_a_namespace_and_a_clean_path() {
        let of = |service: Value| move |problems: &mut Problems| validate_service(&service, &Path::new("s"), problems);
        check(
            of(json!({"name": "s", "namespace": "n", "port": 443, "path": "/a/b.c/"})),
            expect![""],
        );
        check(
            of(json!({"name": "s", "port": 0, "path": "/a//B"})),
            expect![[r#"
                s.name: Required value
                s.port: Invalid value: 0: port is not valid: must be between 1 and 65535, inclusive
                s.path: Invalid value: "/a//B": segment[1] may not be empty
                s.path: Invalid value: "/a//B": segment[2]: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#]],
        );
    }
}
