//! Where the server is.

use http::Uri;
use rustls_pki_types::ServerName;

use crate::{Config, ConfigError};

#[derive(Clone, Debug)]
pub(super) struct Address {
    pub tls: bool,
    pub host: String,
    pub port: u16,
    /// `host:port` as it stands in the `Host` header.
    pub authority: String,
    /// A path that goes before every request's, without a slash at its end.
    pub prefix: String,
    /// The name that the server's certificate must be for.
    pub server_name: ServerName<'static>,
}

impl Address {
    pub fn parse(config: &Config) -> Result<Address, ConfigError> {
        let problem = |message: &str| ConfigError::Server {
            server: config.server.clone(),
            message: message.to_owned(),
        };
        let uri: Uri = config.server.parse().map_err(|_| problem("it is not a URL"))?;
        let tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(problem("it must begin with https://")),
        };
        let authority = uri.authority().ok_or_else(|| problem("it names no host"))?;
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        let name = config.tls_server_name.clone().unwrap_or_else(|| host.clone());
        Ok(Address {
            tls,
            port: authority.port_u16().unwrap_or(if tls { 443 } else { 80 }),
            authority: authority.as_str().to_owned(),
            prefix: uri.path().trim_end_matches('/').to_owned(),
            server_name: ServerName::try_from(name).map_err(|_| problem("its host is not a DNS name or an address"))?,
            host,
        })
    }

    pub fn scheme(&self) -> &'static str {
        if self.tls { "https" } else { "http" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(server: &str) -> Result<Address, ConfigError> {
        Address::parse(&Config {
            server: server.to_owned(),
            ..Config::default()
        })
    }

    #[test]
    fn a_server_is_a_url_with_an_optional_path() {
        let address = parse("https://[::1]:6443/k8s/clusters/c1/").unwrap();
        assert_eq!((address.host.as_str(), address.port), ("::1", 6443));
        assert_eq!(address.authority, "[::1]:6443");
        assert_eq!(address.prefix, "/k8s/clusters/c1");
        assert_eq!(parse("https://api.example").unwrap().port, 443);
        assert_eq!(
            parse("api.example:6443").unwrap_err().to_string(),
            "\"api.example:6443\" is not the address of a server: it must begin with https://"
        );
    }
}
