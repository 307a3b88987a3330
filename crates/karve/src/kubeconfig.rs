//! Kubeconfig files for the administrator and the components.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::pki::Identity;

/// A kubeconfig with everything in it, so that it can be copied elsewhere.
pub fn render(cluster: &str, server: &str, authority_pem: &str, user: &str, identity: &Identity) -> String {
    let encode = |text: &str| STANDARD.encode(text);
    format!(
        "apiVersion: v1
kind: Config
current-context: {cluster}
clusters:
- name: {cluster}
  cluster:
    server: {server}
    certificate-authority-data: {authority}
contexts:
- name: {cluster}
  context:
    cluster: {cluster}
    user: {user}
users:
- name: {user}
  user:
    client-certificate-data: {certificate}
    client-key-data: {key}
",
        authority = encode(authority_pem),
        certificate = encode(&identity.certificate_pem),
        key = encode(&identity.key_pem),
    )
}
