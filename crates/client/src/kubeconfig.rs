//! Reading a kubeconfig file.

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use crate::config::Impersonate;
use crate::{Config, ConfigError, Source, Token};

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct Kubeconfig {
    current_context: String,
    clusters: Option<Vec<Named<Cluster>>>,
    contexts: Option<Vec<Named<Context>>>,
    users: Option<Vec<Named<User>>>,
}

#[derive(Deserialize)]
struct Named<T> {
    name: String,
    #[serde(alias = "cluster", alias = "context", alias = "user")]
    value: Option<T>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct Cluster {
    server: String,
    certificate_authority: String,
    certificate_authority_data: String,
    insecure_skip_tls_verify: bool,
    tls_server_name: String,
    proxy_url: String,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct Context {
    cluster: String,
    user: String,
    namespace: String,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct User {
    client_certificate: String,
    client_certificate_data: String,
    client_key: String,
    client_key_data: String,
    token: String,
    #[serde(rename = "tokenFile")]
    token_file: String,
    username: String,
    password: String,
    #[serde(rename = "as")]
    impersonate: String,
    as_uid: String,
    as_groups: Vec<String>,
    as_user_extra: std::collections::BTreeMap<String, Vec<String>>,
    exec: Option<serde_json::Value>,
    auth_provider: Option<serde_json::Value>,
}

/// The kubeconfig that is used when none is named: the first file in `KUBECONFIG`, or `~/.kube/config`.
pub fn default_kubeconfig_path() -> Option<PathBuf> {
    let from_variable = std::env::var_os("KUBECONFIG")
        .and_then(|paths| std::env::split_paths(&paths).find(|path| !path.as_os_str().is_empty()));
    from_variable.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".kube/config")))
}

impl Config {
    /// Reads a kubeconfig and takes `context`, or its current context.
    pub fn from_kubeconfig(path: &Path, context: Option<&str>) -> Result<Config, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
            path: path.to_owned(),
            source,
        })?;
        Config::from_kubeconfig_text(&text, path, context)
    }

    /// Like [`Config::from_kubeconfig`] for a text; relative paths in it are relative to the directory of `path`.
    pub fn from_kubeconfig_text(text: &str, path: &Path, context: Option<&str>) -> Result<Config, ConfigError> {
        let file: Kubeconfig = serde_saphyr::from_str(text).map_err(|error| ConfigError::Syntax {
            path: path.display().to_string(),
            message: error.to_string(),
        })?;
        let name = context.unwrap_or(&file.current_context);
        if name.is_empty() {
            return Err(ConfigError::NoContext);
        }
        let context = find("context", &file.contexts, name)?;
        let cluster = find("cluster", &file.clusters, &context.cluster)?;
        let user = match context.user.as_str() {
            "" => User::default(),
            user => find("user", &file.users, user)?,
        };
        let directory = path.parent().unwrap_or(Path::new("."));
        let mut config = user.credentials(directory)?;
        cluster.complete(&mut config, directory)?;
        config.namespace = context.namespace;
        Ok(config)
    }
}

fn find<T: Clone>(kind: &'static str, entries: &Option<Vec<Named<T>>>, name: &str) -> Result<T, ConfigError> {
    let mut entries = entries.iter().flatten();
    let entry = entries.find(|entry| entry.name == name);
    entry
        .and_then(|entry| entry.value.clone())
        .ok_or_else(|| ConfigError::Missing {
            kind,
            name: name.to_owned(),
        })
}

impl Cluster {
    fn complete(self, config: &mut Config, directory: &Path) -> Result<(), ConfigError> {
        if !self.proxy_url.is_empty() {
            return Err(ConfigError::Unsupported {
                field: "proxy-url",
                hint: "connect to the server without a proxy",
            });
        }
        config.server = self.server;
        config.insecure_skip_tls_verify = self.insecure_skip_tls_verify;
        config.tls_server_name = (!self.tls_server_name.is_empty()).then_some(self.tls_server_name);
        let field = "certificate-authority-data";
        config.certificate_authority = source(
            field,
            &self.certificate_authority_data,
            &self.certificate_authority,
            directory,
        )?;
        Ok(())
    }
}

impl User {
    fn credentials(self, directory: &Path) -> Result<Config, ConfigError> {
        if self.exec.is_some() {
            return Err(ConfigError::Unsupported {
                field: "exec",
                hint: "use a client certificate or a token",
            });
        }
        if self.auth_provider.is_some() {
            return Err(ConfigError::Unsupported {
                field: "auth-provider",
                hint: "upstream removed it as well; use a client certificate or a token",
            });
        }
        let certificate = source(
            "client-certificate-data",
            &self.client_certificate_data,
            &self.client_certificate,
            directory,
        )?;
        let key = source("client-key-data", &self.client_key_data, &self.client_key, directory)?;
        Ok(Config {
            client_certificate: certificate.zip(key),
            token: match (self.token.is_empty(), self.token_file.is_empty()) {
                (_, false) => Some(Token::File(directory.join(self.token_file))),
                (false, true) => Some(Token::Text(self.token)),
                (true, true) => None,
            },
            basic: (!self.username.is_empty()).then_some((self.username, self.password)),
            impersonate: Impersonate {
                user: self.impersonate,
                uid: self.as_uid,
                groups: self.as_groups,
                extra: self.as_user_extra.into_iter().collect(),
            },
            ..Config::default()
        })
    }
}

/// Inline data wins over a file, as it does for kubectl.
fn source(field: &'static str, data: &str, file: &str, directory: &Path) -> Result<Option<Source>, ConfigError> {
    if !data.is_empty() {
        let data = STANDARD.decode(data.trim());
        return Ok(Some(Source::Data(data.map_err(|_| ConfigError::Base64 { field })?)));
    }
    Ok((!file.is_empty()).then(|| Source::File(directory.join(file))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
apiVersion: v1
kind: Config
current-context: admin@karve
clusters:
- name: karve
  cluster:
    server: https://127.0.0.1:6443
    certificate-authority-data: Y2E=
contexts:
- name: admin@karve
  context: {cluster: karve, user: admin, namespace: web}
- name: broken
  context: {cluster: nowhere, user: admin}
users:
- name: admin
  user:
    client-certificate: pki/admin.crt
    client-key-data: a2V5
    as: jane
    as-groups: [dev]
preferences: {}
";

    fn load(context: Option<&str>) -> Result<Config, ConfigError> {
        Config::from_kubeconfig_text(TEXT, Path::new("/etc/karve/kubeconfig"), context)
    }

    #[test]
    fn the_current_context_names_cluster_and_user() {
        let config = load(None).unwrap();
        assert_eq!(config.server, "https://127.0.0.1:6443");
        assert_eq!(config.namespace, "web");
        assert_eq!(config.certificate_authority, Some(Source::Data(b"ca".to_vec())));
        let certificate = Source::File("/etc/karve/pki/admin.crt".into());
        assert_eq!(
            config.client_certificate,
            Some((certificate, Source::Data(b"key".to_vec())))
        );
        assert_eq!(config.impersonate.user, "jane");
        assert_eq!(config.impersonate.groups, ["dev"]);
    }

    #[test]
    fn what_is_missing_is_named() {
        let error = |context| load(Some(context)).unwrap_err().to_string();
        assert_eq!(error("other"), "the kubeconfig has no context named \"other\"");
        assert_eq!(error("broken"), "the kubeconfig has no cluster named \"nowhere\"");
    }
}
