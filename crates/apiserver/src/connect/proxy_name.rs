//! What a proxy's path names.

use api::Error;

/// `[scheme:]name[:port]`.
#[derive(Debug, PartialEq, Eq)]
pub struct ProxyName {
    pub tls: bool,
    pub name: String,
    /// A number or the name of a port; empty when none is given.
    pub port: String,
}

impl ProxyName {
    /// `kind` is what the path should name: a node, a pod or a service.
    pub fn parse(text: &str, kind: &str) -> Result<ProxyName, Error> {
        let parts: Vec<&str> = text.split(':').collect();
        let parsed = match parts.as_slice() {
            [name] => Some(("", *name, "")),
            [name, port] => Some(("", *name, *port)),
            [scheme, name, port] => Some((*scheme, *name, *port)),
            _ => None,
        };
        let valid = parsed.filter(|(scheme, name, _)| !name.is_empty() && matches!(*scheme, "" | "http" | "https"));
        let (scheme, name, port) =
            valid.ok_or_else(|| Error::bad_request(format!("invalid {kind} request {text:?}")))?;
        Ok(ProxyName {
            tls: scheme == "https",
            name: name.to_owned(),
            port: port.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_have_a_scheme_and_a_port() {
        let parsed = |text: &str| {
            ProxyName::parse(text, "pod")
                .map(|name| format!("{} {} {}", name.tls, name.name, name.port))
                .map_err(|error| error.message)
        };
        assert_eq!(parsed("web").unwrap(), "false web ");
        assert_eq!(parsed("web:http").unwrap(), "false web http");
        assert_eq!(parsed("https:web:443").unwrap(), "true web 443");
        assert_eq!(parsed("https:web:").unwrap(), "true web ");
        for wrong in ["ftp:web:21", "a:b:c:d", "", ":80", "http::80"] {
            assert_eq!(parsed(wrong).unwrap_err(), format!("invalid pod request {wrong:?}"));
        }
    }
}
