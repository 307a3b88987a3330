//! Kubeconfig files for the administrator and the components.

use std::fs;
use std::path::Path;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::pki::Identity;

/// A kubeconfig that is younger than this is used again. Its certificate is good for a year.
const LONGEST_USE: Duration = Duration::from_secs(30 * 24 * 3600);

/// Whether the file leads to this server by this authority, and was written not long ago.
pub fn is_current(path: &Path, cluster: &str, server: &str, authority_pem: &str) -> bool {
    let age = fs::metadata(path).and_then(|metadata| metadata.modified());
    let is_young = age.is_ok_and(|at| at.elapsed().is_ok_and(|age| age < LONGEST_USE));
    let Ok(text) = fs::read_to_string(path) else {
        return false;
    };
    let has = |line: String| text.lines().any(|found| found.trim() == line);
    is_young
        && has(format!("current-context: {cluster}"))
        && has(format!("server: {server}"))
        && has(format!(
            "certificate-authority-data: {}",
            STANDARD.encode(authority_pem)
        ))
        && text.lines().any(|found| found.trim().starts_with("client-key-data: "))
}

/// A kubeconfig with everything in it, so that it can be copied elsewhere.
pub fn render(cluster: &str, server: &str, authority_pem: &str, user: &str, identity: &Identity) -> String {
    let credentials = format!(
        "    client-certificate-data: {}\n    client-key-data: {}\n",
        STANDARD.encode(&identity.certificate_pem),
        STANDARD.encode(&identity.key_pem),
    );
    render_with(cluster, server, authority_pem, user, &credentials)
}

/// A kubeconfig of somebody whose certificate and key are in a file that changes.
pub fn render_with_file(cluster: &str, server: &str, authority_pem: &str, user: &str, file: &Path) -> String {
    // As JSON, which is how YAML writes any text.
    let path = serde_json::Value::from(file.to_string_lossy());
    let credentials = format!("    client-certificate: {path}\n    client-key: {path}\n");
    render_with(cluster, server, authority_pem, user, &credentials)
}

fn render_with(cluster: &str, server: &str, authority_pem: &str, user: &str, credentials: &str) -> String {
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
{credentials}",
        authority = STANDARD.encode(authority_pem),
    )
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn a_kubeconfig_is_kept_while_it_leads_to_the_same_server_and_is_young() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kubeconfig");
        let url = "https://127.0.0.1:6443";
        assert!(!is_current(&path, "one", url, "ca"), "there is none");
        let identity = Identity {
            certificate_pem: "certificate".into(),
            key_pem: "key".into(),
        };
        fs::write(&path, render("one", url, "ca", "admin", &identity)).unwrap();
        assert!(is_current(&path, "one", url, "ca"));
        assert!(!is_current(&path, "two", url, "ca"));
        assert!(!is_current(&path, "one", "https://127.0.0.1:644", "ca"));
        assert!(!is_current(&path, "one", url, "another ca"));
        let old = SystemTime::UNIX_EPOCH;
        fs::File::open(&path).unwrap().set_modified(old).unwrap();
        assert!(
            !is_current(&path, "one", url, "ca"),
            "its certificate would end too soon"
        );
        fs::write(&path, "").unwrap();
        assert!(!is_current(&path, "one", url, "ca"), "it was emptied");
    }
}
