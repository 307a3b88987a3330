//! Users whom a proxy in front of the server has authenticated, and names in headers.
//!
//! Who is a proxy shows by a certificate of an authority that signs nothing else. Such a certificate is a proxy's and
//! never a user's: its authority is not the one of users.

use std::collections::BTreeMap;
use std::sync::Arc;

use auth::User;
use http::{HeaderMap, HeaderValue};
use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls_pki_types::{CertificateDer, UnixTime};
use tracing::debug;

use super::authenticate::client_certificate;
use crate::peer::ClientCertificate;
use crate::request::unescape;

/// Which proxies are believed, and where they write whom they have seen.
pub struct FrontProxyOptions {
    /// The authorities of proxies.
    pub authorities: RootCertStore,
    /// The authorities of users.
    pub client_authorities: RootCertStore,
    /// The common names of proxies; any when there are none.
    pub allowed_names: Vec<String>,
    pub username_headers: Vec<String>,
    pub uid_headers: Vec<String>,
    pub group_headers: Vec<String>,
    pub extra_prefixes: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
#[error("cannot use the certificate authorities of front proxies: {0}")]
pub struct FrontProxyError(String);

/// The same, ready to judge.
pub struct FrontProxies {
    proxies: Arc<dyn ClientCertVerifier>,
    clients: Arc<dyn ClientCertVerifier>,
    options: FrontProxyOptions,
}

impl FrontProxies {
    pub fn new(options: FrontProxyOptions) -> Result<FrontProxies, FrontProxyError> {
        let verifier = |roots: &RootCertStore| -> Result<Arc<dyn ClientCertVerifier>, FrontProxyError> {
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let built = WebPkiClientVerifier::builder_with_provider(Arc::new(roots.clone()), provider).build();
            built.map_err(|error| FrontProxyError(error.to_string()))
        };
        Ok(FrontProxies {
            proxies: verifier(&options.authorities)?,
            clients: verifier(&options.client_authorities)?,
            options,
        })
    }

    /// Whom a connection's certificate names, and whether it is a proxy's. TLS took it because one of the authorities
    /// signed it; which one decides what it is good for.
    pub fn judge(&self, chain: &[CertificateDer<'_>]) -> (Option<ClientCertificate>, bool) {
        let Some((leaf, others)) = chain.split_first() else {
            return (None, false);
        };
        let signed =
            |verifier: &Arc<dyn ClientCertVerifier>| verifier.verify_client_cert(leaf, others, UnixTime::now()).is_ok();
        let shown = client_certificate(leaf);
        let allowed = &self.options.allowed_names;
        let is_allowed = shown
            .as_ref()
            .is_some_and(|shown| allowed.is_empty() || allowed.contains(&shown.user.name));
        let is_proxy = is_allowed && signed(&self.proxies);
        let user = shown.filter(|_| signed(&self.clients));
        (user, is_proxy)
    }

    /// The user that a proxy's request names; `None` when it names none.
    pub fn user(&self, headers: &HeaderMap) -> Option<User> {
        let name = first(headers, &self.options.username_headers)?;
        let mut user = User {
            name,
            uid: first(headers, &self.options.uid_headers).unwrap_or_default(),
            groups: all(headers, &self.options.group_headers),
            extra: BTreeMap::new(),
        };
        for (header, value) in headers {
            let keys = self.options.extra_prefixes.iter();
            let mut keys = keys.filter_map(|prefix| header.as_str().strip_prefix(prefix.to_lowercase().as_str()));
            if let (Some(key), Some(value)) = (keys.next(), text(value)) {
                user.extra.entry(extra_key(key)).or_default().push(value);
            }
        }
        debug!(user = user.name, "A front proxy authenticated the user of a request");
        Some(user.authenticated())
    }
}

fn first(headers: &HeaderMap, names: &[String]) -> Option<String> {
    all(headers, names).into_iter().find(|value| !value.is_empty())
}

fn all(headers: &HeaderMap, names: &[String]) -> Vec<String> {
    let values = names.iter().flat_map(|name| headers.get_all(name.to_lowercase()));
    values.filter_map(text).collect()
}

fn text(value: &HeaderValue) -> Option<String> {
    String::from_utf8(value.as_bytes().to_vec()).ok()
}

/// Keys may be escaped, because names of headers cannot have all characters.
fn extra_key(key: &str) -> String {
    match unescape(key.as_bytes()) {
        Some(unescaped) => String::from_utf8_lossy(&unescaped).into_owned(),
        None => key.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

    use super::*;

    struct Authority {
        issuer: Issuer<'static, KeyPair>,
        roots: RootCertStore,
    }

    fn authority() -> Authority {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).expect("a certificate");
        let mut roots = RootCertStore::empty();
        roots.add(certificate.der().clone()).expect("an authority");
        let issuer = Issuer::new(params, key);
        Authority { issuer, roots }
    }

    impl Authority {
        fn sign(&self, name: &str, group: &str) -> Vec<CertificateDer<'static>> {
            let mut params = CertificateParams::new(Vec::new()).expect("names");
            params.distinguished_name.push(DnType::CommonName, name);
            params.distinguished_name.push(DnType::OrganizationName, group);
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
            let key = KeyPair::generate().expect("a key");
            let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
            vec![certificate.der().clone()]
        }
    }

    fn proxies(proxy: &Authority, client: &Authority, allowed: &[&str]) -> FrontProxies {
        let texts = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>();
        let options = FrontProxyOptions {
            authorities: proxy.roots.clone(),
            client_authorities: client.roots.clone(),
            allowed_names: texts(allowed),
            username_headers: texts(&["X-Remote-User"]),
            uid_headers: texts(&["X-Remote-Uid"]),
            group_headers: texts(&["X-Remote-Group"]),
            extra_prefixes: texts(&["X-Remote-Extra-"]),
        };
        FrontProxies::new(options).expect("sound options")
    }

    /// Whoever holds the proxy's authority makes proxies, not administrators; and the other way round.
    #[test]
    fn a_certificate_is_good_for_what_its_authority_signs() {
        let (proxy, client, stranger) = (authority(), authority(), authority());
        let proxies = proxies(&proxy, &client, &["front-proxy"]);
        let judge = |chain: Vec<CertificateDer<'static>>| {
            let (user, is_proxy) = proxies.judge(&chain);
            (user.map(|shown| shown.user.name.clone()), is_proxy)
        };
        assert_eq!(judge(proxy.sign("front-proxy", "system:masters")), (None, true));
        assert_eq!(
            judge(proxy.sign("admin", "system:masters")),
            (None, false),
            "not one of the allowed names"
        );
        assert_eq!(
            judge(client.sign("front-proxy", "dev")),
            (Some("front-proxy".to_owned()), false)
        );
        assert_eq!(judge(stranger.sign("front-proxy", "system:masters")), (None, false));
        assert_eq!(judge(Vec::new()), (None, false));
    }

    #[test]
    fn headers_name_the_user() {
        let (proxy, client) = (authority(), authority());
        let proxies = proxies(&proxy, &client, &[]);
        let mut headers = HeaderMap::new();
        assert!(proxies.user(&headers).is_none());
        headers.insert("x-remote-group", HeaderValue::from_static("system:masters"));
        assert!(proxies.user(&headers).is_none(), "a group alone is nobody");
        headers.insert("x-remote-user", HeaderValue::from_static("jane"));
        headers.append("x-remote-group", HeaderValue::from_static("dev"));
        headers.insert("x-remote-extra-acme.io%2fscope", HeaderValue::from_static("a"));
        let user = proxies.user(&headers).expect("a user");
        assert_eq!(user.name, "jane");
        assert_eq!(user.groups, ["system:masters", "dev", "system:authenticated"]);
        assert_eq!(user.extra["acme.io/scope"], ["a"]);
    }
}
