//! The forms of names, keys and values, and what is wrong with a text that does not have its form.
//!
//! Each function returns the problems in upstream's words; an empty list means that the text is fine. With `prefix` the
//! text is a `generateName`: a suffix follows, so it may end in a dash.

use std::net::IpAddr;

const DNS1123_LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and \
     must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const DNS1123_SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' \
     or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const DNS_SEARCH_PATH: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', \
     '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation \
     is '_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')";
const DNS1035_LABEL: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
     alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
     validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const LABEL_KEY: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
     alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
     '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
     and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used \
     for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const CONFIG_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' \
     (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
const ENVIRONMENT_NAME: &str = "a valid environment variable name must consist only of printable ASCII characters other \
     than '='";

const C_IDENTIFIER: &str = "a valid C identifier must start with alphabetic character or '_', followed by a string of \
     alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is \
     '[A-Za-z_][A-Za-z0-9_]*')";
const WILDCARD_SUBDOMAIN: &str = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, \
     which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. \
     '*.example.com', regex used for validation is '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

const LABEL_BYTES: usize = 63;
const SUBDOMAIN_BYTES: usize = 253;
const PORT_NAME_BYTES: usize = 15;

pub fn dns1123_label(name: &str, prefix: bool) -> Vec<String> {
    let name = mask_trailing_dash(name, prefix);
    let mut problems = too_long(&name, LABEL_BYTES);
    if !is_dns1123_label(&name) {
        problems.push(
            if is_dns1123_subdomain(&name) {
                "must not contain dots"
            } else {
                DNS1123_LABEL
            }
            .to_owned(),
        );
    }
    problems
}

pub fn dns1123_subdomain(name: &str, prefix: bool) -> Vec<String> {
    let name = mask_trailing_dash(name, prefix);
    let mut problems = too_long(&name, SUBDOMAIN_BYTES);
    if !is_dns1123_subdomain(&name) {
        problems.push(DNS1123_SUBDOMAIN.to_owned());
    }
    problems
}

pub fn dns1035_label(name: &str, prefix: bool) -> Vec<String> {
    let name = mask_trailing_dash(name, prefix);
    let mut problems = too_long(&name, LABEL_BYTES);
    if !is_dns1123_label(&name) || name.starts_with(|first: char| first.is_ascii_digit()) {
        problems.push(DNS1035_LABEL.to_owned());
    }
    problems
}

/// All hosts below a domain: `*.example.com`.
pub fn wildcard_subdomain(name: &str) -> Vec<String> {
    let mut problems = too_long(name, SUBDOMAIN_BYTES);
    if !name.strip_prefix("*.").is_some_and(is_dns1123_subdomain) {
        problems.push(WILDCARD_SUBDOMAIN.to_owned());
    }
    problems
}

/// A name as variables have it in most languages.
pub fn c_identifier(name: &str) -> Vec<String> {
    let usual = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let starts = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    match starts && name.bytes().all(usual) {
        true => Vec::new(),
        false => vec![C_IDENTIFIER.to_owned()],
    }
}

/// A subdomain that may have underscores, as search paths of a resolver do.
pub fn dns_search_path(name: &str) -> Vec<String> {
    let mut problems = too_long(name, SUBDOMAIN_BYTES);
    let is_label = |label: &str| is_dns1123_label(&label.strip_prefix('_').unwrap_or(label).replace('_', "-"));
    if !name.split('.').all(is_label) {
        problems.push(DNS_SEARCH_PATH.to_owned());
    }
    problems
}

/// A name that only has to fit into a URL path, as roles have.
pub fn path_segment(name: &str, prefix: bool) -> Vec<String> {
    if !prefix && matches!(name, "." | "..") {
        return vec![format!("may not be '{name}'")];
    }
    let forbidden = ["/", "%"].into_iter().filter(|text| name.contains(text));
    forbidden.map(|text| format!("may not contain '{text}'")).collect()
}

/// The key of a label or annotation, a finalizer, the type of a condition: a name with an optional domain before it.
pub fn label_key(key: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let name = match key.split('/').collect::<Vec<_>>()[..] {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".to_owned());
            } else {
                let of_prefix = dns1123_subdomain(prefix, false).into_iter();
                problems.extend(of_prefix.map(|problem| format!("prefix part {}", in_bytes(&problem))));
            }
            name
        }
        _ => {
            return vec![format!(
                "a valid label key {LABEL_KEY} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    }
    problems.extend(
        too_long(name, LABEL_BYTES)
            .into_iter()
            .map(|problem| format!("name part {}", in_bytes(&problem))),
    );
    if !is_label_text(name) {
        problems.push(format!("name part {LABEL_KEY}"));
    }
    problems
}

/// The name of a controller: a path below a domain.
pub fn domain_prefixed_path(path: &str) -> Vec<String> {
    match path.split_once('/') {
        Some((domain, rest)) if !domain.is_empty() && !rest.is_empty() => {
            let mut problems = dns1123_subdomain(domain, false);
            let is_usual = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.~%!$&'()*+,;=:".contains(&byte);
            if !rest.bytes().all(is_usual) {
                problems
                    .push("Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')".to_owned());
            }
            problems
        }
        _ => vec!["must be a domain-prefixed path (such as \"acme.io/foo\")".to_owned()],
    }
}

pub fn label_value(value: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if value.len() > LABEL_BYTES {
        problems.push(format!("must be no more than {LABEL_BYTES} bytes"));
    }
    if !value.is_empty() && !is_label_text(value) {
        problems.push(LABEL_VALUE.to_owned());
    }
    problems
}

/// A key of a ConfigMap or Secret, which becomes a file name.
pub fn config_key(key: &str) -> Vec<String> {
    let mut problems = too_long(key, SUBDOMAIN_BYTES);
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    if key.is_empty() || !key.bytes().all(allowed) {
        problems.push(CONFIG_KEY.to_owned());
    }
    match key {
        "." => problems.push("must not be '.'".to_owned()),
        ".." => problems.push("must not be '..'".to_owned()),
        _ if key.starts_with("..") => problems.push("must not start with '..'".to_owned()),
        _ => {}
    }
    problems
}

pub fn environment_name(name: &str) -> Vec<String> {
    if name.is_empty() {
        return vec!["environment variable name must be non-empty".to_owned()];
    }
    let allowed = |byte: u8| (b' '..=b'~').contains(&byte) && byte != b'=';
    if name.bytes().all(allowed) {
        Vec::new()
    } else {
        vec![ENVIRONMENT_NAME.to_owned()]
    }
}

pub fn port_name(name: &str) -> Vec<String> {
    let mut problems = too_long(name, PORT_NAME_BYTES);
    let checks = [
        (
            !name.is_empty() && name.bytes().all(|byte| is_dns_byte(byte) || byte == b'-'),
            "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
        ),
        (
            name.bytes().any(|byte| byte.is_ascii_lowercase()),
            "must contain at least one letter (a-z)",
        ),
        (!name.contains("--"), "must not contain consecutive hyphens"),
        (
            !name.starts_with('-') && !name.ends_with('-'),
            "must not begin or end with a hyphen",
        ),
    ];
    problems.extend(
        checks
            .iter()
            .filter(|(fine, _)| !fine)
            .map(|(_, problem)| (*problem).to_owned()),
    );
    problems
}

pub fn port_number(port: i64) -> Vec<String> {
    if (1..=65535).contains(&port) {
        Vec::new()
    } else {
        vec!["must be between 1 and 65535, inclusive".to_owned()]
    }
}

pub fn ip_address(text: &str) -> Vec<String> {
    match text.parse::<IpAddr>() {
        Err(_) if has_leading_zeros(text) => vec!["must not have leading 0s".to_owned()],
        Err(_) => vec!["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".to_owned()],
        Ok(IpAddr::V6(address)) if address.to_ipv4_mapped().is_some() => {
            vec!["must not be an IPv4-mapped IPv6 address".to_owned()]
        }
        Ok(_) => Vec::new(),
    }
}

/// Whether it is an address, however it is written.
pub fn is_address(text: &str) -> bool {
    text.parse::<IpAddr>().is_ok() || has_leading_zeros(text)
}

/// Whether this would be an address if its numbers did not begin with zeros.
fn has_leading_zeros(text: &str) -> bool {
    let parts: Vec<Option<u32>> = text.split('.').map(|part| part.parse().ok()).collect();
    let fits = |part: &Option<u32>| part.is_some_and(|number| number <= 255);
    parts.len() == 4 && parts.iter().all(fits)
}

/// An address that a service can send traffic to.
pub fn endpoint_address(text: &str) -> Vec<String> {
    ip_address(text).into_iter().chain(special_address(text)).collect()
}

/// What is special about an address to which no service can send traffic. An IPv4 address stays what it is however it is
/// written.
pub fn special_address(text: &str) -> Vec<String> {
    let Some(address) = read_address(text) else {
        return Vec::new();
    };
    let (local, group) = match address {
        IpAddr::V4(address) => (address.is_link_local(), address.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(address) => (
            address.is_unicast_link_local(),
            address.segments()[0] & 0xff0f == 0xff02,
        ),
    };
    let checks = [
        (address.is_unspecified(), format!("may not be unspecified ({text})")),
        (
            address.is_loopback(),
            "may not be in the loopback range (127.0.0.0/8, ::1/128)".to_owned(),
        ),
        (
            local,
            "may not be in the link-local range (169.254.0.0/16, fe80::/10)".to_owned(),
        ),
        (
            group,
            "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)".to_owned(),
        ),
    ];
    let special = checks.into_iter().filter(|(holds, _)| *holds);
    special.map(|(_, problem)| problem).collect()
}

/// The address that a text means, even if it is not written as it should be.
fn read_address(text: &str) -> Option<IpAddr> {
    let padded = || -> Option<IpAddr> {
        let parts: Option<Vec<u8>> = text.split('.').map(|part| part.parse().ok()).collect();
        let parts: [u8; 4] = parts?.try_into().ok()?;
        Some(IpAddr::from(parts))
    };
    Some(text.parse().ok().or_else(padded)?.to_canonical())
}

pub fn cidr(text: &str) -> Vec<String> {
    let parsed = text.split_once('/').and_then(|(address, length)| {
        let address: IpAddr = address.parse().ok()?;
        if length.len() > 1 && length.starts_with('0') {
            return None;
        }
        let length: u32 = length.parse().ok()?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        (length <= bits).then(|| (address, bits - length))
    });
    let Some((address, host_bits)) = parsed else {
        let is_address = |address: &str| address.parse::<IpAddr>().is_ok();
        let is_padded = |number: &str| number.len() > 1 && number.starts_with('0') && number.parse::<u32>().is_ok();
        let zeros = |(address, length): (&str, &str)| {
            (!is_address(address) && has_leading_zeros(address)) || (is_address(address) && is_padded(length))
        };
        if text.split_once('/').is_some_and(zeros) {
            return vec!["must not have leading 0s in IP or prefix length".to_owned()];
        }
        return vec!["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)".to_owned()];
    };
    let number = match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    };
    let host = 1u128.checked_shl(host_bits).map_or(u128::MAX, |bit| bit - 1);
    if number & host == 0 {
        Vec::new()
    } else {
        vec!["must not have bits set beyond the prefix length".to_owned()]
    }
}

/// The address of an interface together with the length of its network.
pub fn interface_address(text: &str) -> Vec<String> {
    let parts = text.split_once('/');
    let fits = parts.is_some_and(
        |(address, length)| match (address.parse::<IpAddr>(), length.parse::<u32>()) {
            (Ok(IpAddr::V4(_)), Ok(length)) => length <= 32,
            (Ok(IpAddr::V6(_)), Ok(length)) => length <= 128,
            _ => false,
        },
    );
    match fits {
        true => Vec::new(),
        false => vec!["must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)".to_owned()],
    }
}

/// Upstream replaces the last two characters, so that the one before the dash is not looked at.
fn mask_trailing_dash(name: &str, prefix: bool) -> String {
    match name.len().checked_sub(2).and_then(|end| name.get(..end)) {
        Some(rest) if prefix && name.ends_with('-') => format!("{rest}a"),
        _ => name.to_owned(),
    }
}

fn too_long(text: &str, bytes: usize) -> Vec<String> {
    if text.len() > bytes {
        vec![format!("must be no more than {bytes} characters")]
    } else {
        Vec::new()
    }
}

/// Upstream counts bytes everywhere and says so in some places.
pub(crate) fn in_bytes(problem: &str) -> String {
    match problem.strip_suffix(" characters") {
        Some(most) if problem.starts_with("must be no more than") => format!("{most} bytes"),
        _ => problem.to_owned(),
    }
}

fn is_dns_byte(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

fn is_dns1123_label(label: &str) -> bool {
    let bytes = label.as_bytes();
    bytes.first().is_some_and(|&byte| is_dns_byte(byte))
        && bytes.last().is_some_and(|&byte| is_dns_byte(byte))
        && bytes.iter().all(|&byte| is_dns_byte(byte) || byte == b'-')
}

fn is_dns1123_subdomain(name: &str) -> bool {
    name.split('.').all(is_dns1123_label)
}

fn is_label_text(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn names_are_told_what_is_wrong_with_them() {
        assert_eq!(dns1123_label("web-1", false), [""; 0]);
        assert_eq!(dns1123_label("web-", true), [""; 0]);
        assert_eq!(dns1123_label("web.1", false), ["must not contain dots"]);
        assert_eq!(
            dns1123_subdomain(&"a".repeat(254), false),
            ["must be no more than 253 characters"]
        );
        expect![[r#"
            [
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
            ]
        "#]]
        .assert_debug_eq(&dns1123_label("Web", false));
        expect![[r#"
            [
                "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
            ]
        "#]]
        .assert_debug_eq(&dns1035_label("1web", false));
    }

    #[test]
    fn addresses_are_told_what_is_wrong_with_them() {
        assert_eq!(ip_address("10.0.0.1"), [""; 0]);
        assert_eq!(
            ip_address("::ffff:10.0.0.1"),
            ["must not be an IPv4-mapped IPv6 address"]
        );
        assert_eq!(
            endpoint_address("127.0.0.1"),
            ["may not be in the loopback range (127.0.0.0/8, ::1/128)"]
        );
        assert_eq!(
            endpoint_address("::ffff:127.0.0.1"),
            [
                "must not be an IPv4-mapped IPv6 address",
                "may not be in the loopback range (127.0.0.0/8, ::1/128)"
            ]
        );
        assert_eq!(
            endpoint_address("169.254.169.0254"),
            [
                "must not have leading 0s",
                "may not be in the link-local range (169.254.0.0/16, fe80::/10)"
            ]
        );
        assert_eq!(cidr("10.0.0.0/8"), [""; 0]);
        assert_eq!(cidr("::/0"), [""; 0]);
        assert_eq!(cidr("10.0.0.0/08"), ["must not have leading 0s in IP or prefix length"]);
        assert_eq!(cidr("10.0.0.1/8"), ["must not have bits set beyond the prefix length"]);
        assert_eq!(
            cidr("10.0.0.0/33"),
            ["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"]
        );
    }

    #[test]
    fn keys_and_values_are_told_what_is_wrong_with_them() {
        assert_eq!(label_key("app.kubernetes.io/name"), [""; 0]);
        assert_eq!(label_value(""), [""; 0]);
        expect![[r#"
            [
                "prefix part must be non-empty",
                "name part must be non-empty",
                "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
            ]
        "#]]
        .assert_debug_eq(&label_key("/"));
        expect![[r#"
            [
                "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
            ]
        "#]]
        .assert_debug_eq(&label_value("a b"));
        expect![[r#"
            [
                "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')",
                "must not start with '..'",
            ]
        "#]]
        .assert_debug_eq(&config_key("../x"));
    }
}
