use std::net::Ipv4Addr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use client::destination::Destinations;
use rcgen::{CertificateParams, DnType, KeyPair, SanType};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use serde_json::json;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::testing::{noon, objects};

const NODES: &str = "
metadata: {name: one}
status:
  addresses: [{type: InternalIP, address: 203.0.113.1}, {type: Hostname, address: one}, {type: InternalDNS, address: kubernetes}]
  daemonEndpoints: {kubeletEndpoint: {Port: 10250}}
---
metadata: {name: two}
status:
  addresses: [{type: InternalIP, address: 203.0.113.2}, {type: InternalIP, address: 203.0.113.3}]
  daemonEndpoints: {kubeletEndpoint: {Port: 10250}}
---
metadata: {name: liar}
status:
  addresses:
  - {type: InternalIP, address: 203.0.113.3}
  - {type: InternalIP, address: 203.0.113.100}
  - {type: InternalIP, address: 203.0.113.101}
  - {type: InternalIP, address: 203.0.113.102}
  - {type: InternalIP, address: 127.0.0.1}
  - {type: InternalIP, address: '::ffff:127.0.0.1'}
  - {type: InternalIP, address: 10.96.0.1}
  - {type: Hostname, address: 203.0.113.50}
  daemonEndpoints: {kubeletEndpoint: {Port: 30250}}
---
metadata: {name: web.default.svc}
status: {addresses: [{type: InternalIP, address: 203.0.113.9}]}
---
metadata: {name: api.example.com}
status: {addresses: [{type: InternalIP, address: 203.0.113.10}]}";

/// A request as it is stored, for node `name` and asked by it unless said otherwise.
struct Asked {
    name: &'static str,
    organization: &'static str,
    user: &'static str,
    groups: Value,
    signer: &'static str,
    usages: Value,
    names: Vec<SanType>,
}

fn dns(name: &str) -> SanType {
    SanType::DnsName(name.try_into().unwrap())
}

fn ip(text: &str) -> SanType {
    SanType::IpAddress(text.parse().unwrap())
}

fn asked(name: &'static str, names: Vec<SanType>) -> Asked {
    Asked {
        name,
        organization: "system:nodes",
        user: name,
        groups: json!(["system:nodes", "system:authenticated"]),
        signer: KUBELET_SERVING,
        usages: json!(["digital signature", "server auth"]),
        names,
    }
}

impl Asked {
    fn request(&self, key: &KeyPair) -> SigningRequest {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        let common_name = format!("system:node:{}", self.name);
        params.distinguished_name.push(DnType::CommonName, common_name);
        params
            .distinguished_name
            .push(DnType::OrganizationName, self.organization);
        params.subject_alt_names.clone_from(&self.names);
        let pem = params.serialize_request(key).unwrap().pem().unwrap();
        let request = json!({
            "metadata": {"name": "csr-1", "resourceVersion": "3", "creationTimestamp": "2026-01-01T12:00:00Z"},
            "spec": {
                "request": BASE64.encode(pem), "signerName": self.signer, "usages": self.usages,
                "username": format!("system:node:{}", self.user), "groups": self.groups,
            },
        });
        serde_json::from_value(request).unwrap()
    }

    fn judged(&self) -> Result<Vec<String>, String> {
        let serving = KubeletServing {
            destinations: Destinations {
                server: Some("203.0.113.100:6443".parse().unwrap()),
                services: Some((Ipv4Addr::new(10, 96, 0, 0), 16)),
            },
            server_names: vec!["api.example.com".to_owned(), "203.0.113.102".to_owned()],
        };
        let view = View {
            serving: &serving,
            nodes: &objects(NODES),
            servers: vec!["203.0.113.101".parse().unwrap()],
        };
        let proof = view.judge(&self.request(&KeyPair::generate().unwrap()))?;
        Ok(proof.at.iter().map(ToString::to_string).collect())
    }
}

#[test]
fn a_node_has_to_show_that_it_is_where_it_asks_to_serve() {
    let at = asked("one", vec![dns("one"), ip("203.0.113.1")]).judged();
    assert_eq!(at.unwrap(), ["203.0.113.1:10250"]);
    // A name alone is not proof: whoever joins chooses it.
    let refused = asked("one", vec![dns("one")]).judged().unwrap_err();
    assert!(refused.contains("names no address"), "{refused}");
}

/// A liar's word about an address changes nothing for the kubelet that answers there; who lies has to show its key there.
#[test]
fn a_node_is_not_kept_from_its_certificate_by_another_that_claims_its_address() {
    let at = asked("two", vec![dns("two"), ip("203.0.113.3")]).judged();
    assert_eq!(at.unwrap(), ["203.0.113.3:10250"]);
}

#[test]
fn nobody_asks_for_another() {
    let own = || asked("one", vec![dns("one")]);
    for wrong in [
        Asked { user: "two", ..own() },
        Asked {
            groups: json!(["system:authenticated"]),
            ..own()
        },
        Asked {
            organization: "system:masters",
            ..own()
        },
        Asked {
            usages: json!(["digital signature", "server auth", "client auth"]),
            ..own()
        },
        Asked {
            usages: json!(["digital signature", "client auth"]),
            ..own()
        },
        asked("nobody", vec![dns("nobody")]),
    ] {
        assert!(wrong.judged().is_err(), "{}", wrong.user);
    }
}

/// Whatever its Node says: each of these belongs to somebody else, or to nobody.
#[test]
fn a_node_serves_under_no_name_and_no_address_but_its_own() {
    for (name, wanted, why) in [
        ("one", dns("two"), "not the name of node"),
        ("one", dns("kubernetes"), "not the name of node"),
        ("one", dns("*.default.svc"), "not the name of node"),
        (
            "web.default.svc",
            dns("web.default.svc"),
            "a name of the API server or of Services",
        ),
        ("one", ip("203.0.113.2"), "not in status.addresses"),
        ("liar", ip("203.0.113.50"), "not in status.addresses"),
        ("liar", ip("203.0.113.3"), "an address of node \"two\" too"),
        ("liar", ip("203.0.113.100"), "an address of an API server"),
        ("liar", ip("203.0.113.101"), "an address of an API server"),
        ("liar", ip("203.0.113.102"), "an address of an API server"),
        ("api.example.com", dns("API.example.com"), "not the name of node"),
        (
            "api.example.com",
            dns("api.example.com"),
            "a name of the API server or of Services",
        ),
        ("liar", ip("127.0.0.1"), "a loopback address"),
        ("liar", ip("::ffff:127.0.0.1"), "a loopback address"),
        ("liar", ip("10.96.0.1"), "belongs to Services"),
        ("one", SanType::URI("spiffe://x".try_into().unwrap()), "subjectAltName"),
        (
            "one",
            SanType::Rfc822Name("a@b.c".try_into().unwrap()),
            "subjectAltName",
        ),
    ] {
        let refused = asked(name, vec![dns(name), wanted]).judged().unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
}

/// A server on loopback that holds a key.
async fn serve(key: &KeyPair) -> SocketAddr {
    let certificate = CertificateParams::default().self_signed(key).unwrap();
    let private = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move { acceptor.accept(stream).await.map(drop) });
        }
    });
    address
}

#[tokio::test]
async fn only_who_holds_the_key_everywhere_has_shown_it() {
    let (own, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let (here, there) = (serve(&own).await, serve(&other).await);
    let nowhere = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let pem = asked("one", vec![dns("one")]).request(&own).pem().unwrap();
    let public_key = Wanted::parse(&pem).unwrap().public_key;
    let proof = |at: &[SocketAddr]| Proof {
        at: at.to_vec(),
        public_key: public_key.clone(),
    };
    assert_eq!(proof(&[here]).check().await, Ok(()));
    for at in [&[there][..], &[here, there], &[nowhere], &[here, nowhere]] {
        assert!(proof(at).check().await.is_err(), "{at:?}");
    }
}

#[test]
fn a_request_that_waits_says_why_and_is_looked_at_again() {
    let request = asked("one", vec![dns("one")]).request(&KeyPair::generate().unwrap());
    let at = |seconds: u64| {
        let attempt = Attempt {
            now: noon().plus(Duration::from_secs(seconds)),
            ..Attempt::default()
        };
        put_off(&request, "why".to_owned(), &attempt).to_string()
    };
    assert_eq!(at(0), "again after 2s\n");
    assert_eq!(at(10), "event Warning NotApproved: why\nagain after 2s\n");
    assert_eq!(at(20), "again after 2s\n");
    assert_eq!(at(900), "event Warning NotApproved: why\n");
}
