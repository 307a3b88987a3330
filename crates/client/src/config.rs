//! Where an API server is and how to prove who we are.

use std::io;
use std::path::{Path, PathBuf};

/// Where a pod finds its own credentials.
const SERVICE_ACCOUNT_DIR: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// What [`crate::HttpTransport`] needs to know of an API server.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// `https://host:port`, optionally with a path prefix.
    pub server: String,
    /// PEM certificates that the server's must chain up to; without them the system's are used.
    pub certificate_authority: Option<Source>,
    /// A PEM certificate chain and its key.
    pub client_certificate: Option<(Source, Source)>,
    pub token: Option<Token>,
    /// A user name and a password for HTTP basic authentication.
    pub basic: Option<(String, String)>,
    /// Checks the server's certificate against this name instead of the host in `server`.
    pub tls_server_name: Option<String>,
    /// Accepts any certificate. For tests against throw-away servers only.
    pub insecure_skip_tls_verify: bool,
    pub impersonate: Impersonate,
    /// The namespace that commands use when none is named.
    pub namespace: String,
}

/// Acting as someone else, which the server must allow.
#[derive(Clone, Debug, Default)]
pub struct Impersonate {
    pub user: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: Vec<(String, Vec<String>)>,
}

/// Bytes that are given, or that stand in a file which may change while we run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    Data(Vec<u8>),
    File(PathBuf),
}

/// A bearer token.
#[derive(Clone, PartialEq, Eq)]
pub enum Token {
    Text(String),
    /// Read again once a minute, as service account tokens are rotated.
    File(PathBuf),
}

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("could not read {path}: {source}")]
    Read { path: PathBuf, source: io::Error },
    #[error("{path} is not a kubeconfig: {message}")]
    Syntax { path: String, message: String },
    #[error("the kubeconfig has no {kind} named {name:?}")]
    Missing { kind: &'static str, name: String },
    #[error("the kubeconfig sets no current context; name one or set current-context")]
    NoContext,
    #[error("{field} is not valid base64")]
    Base64 { field: &'static str },
    #[error("{field} is not supported: {hint}")]
    Unsupported { field: &'static str, hint: &'static str },
    #[error("{server:?} is not the address of a server: {message}")]
    Server { server: String, message: String },
    #[error("{what} cannot be used: {message}")]
    Certificate { what: &'static str, message: String },
    #[error("not running in a cluster: {variable} is not set")]
    NotInCluster { variable: &'static str },
}

impl Config {
    /// The configuration that the kubelet gives to every pod.
    pub fn in_cluster() -> Result<Config, ConfigError> {
        let variable = |variable| std::env::var(variable).map_err(|_| ConfigError::NotInCluster { variable });
        let host = variable("KUBERNETES_SERVICE_HOST")?;
        let port = variable("KUBERNETES_SERVICE_PORT")?;
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        let directory = Path::new(SERVICE_ACCOUNT_DIR);
        let namespace = std::fs::read_to_string(directory.join("namespace")).unwrap_or_default();
        Ok(Config {
            server: format!("https://{host}:{port}"),
            certificate_authority: Some(Source::File(directory.join("ca.crt"))),
            token: Some(Token::File(directory.join("token"))),
            namespace: namespace.trim().to_owned(),
            ..Config::default()
        })
    }
}

impl Source {
    pub fn read(&self) -> Result<Vec<u8>, ConfigError> {
        match self {
            Source::Data(data) => Ok(data.clone()),
            Source::File(path) => std::fs::read(path).map_err(|source| ConfigError::Read {
                path: path.clone(),
                source,
            }),
        }
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Token::Text(_) => formatter.write_str("Text(…)"),
            Token::File(path) => formatter.debug_tuple("File").field(path).finish(),
        }
    }
}
