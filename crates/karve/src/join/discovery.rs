//! Who the server is, before it is trusted: its ConfigMap `cluster-info` is read from whoever answers, must be signed by
//! the token and name the authority whose hash was given, and must then be the same from a server which that authority
//! vouches for.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use client::{Config, HttpTransport, Source, Transport, TransportError};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use serde::Deserialize;
use serde_json::Value;

use super::{ASK_EVERY, TELL_EVERY};
use crate::cluster_info::{INFO, INFO_NAMESPACE};
use crate::say;
use crate::token::{AuthorityHash, BootstrapToken};

/// Whoever answers is not trusted yet, neither with memory nor with time.
const MAX_ANSWER_BYTES: usize = 1 << 20;
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a token that was just made may take to sign.
const SIGNATURE_PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 15 });

#[derive(Deserialize)]
struct Kubeconfig {
    clusters: Vec<NamedCluster>,
}

#[derive(Deserialize)]
struct NamedCluster {
    cluster: Cluster,
}

#[derive(Deserialize)]
struct Cluster {
    #[serde(rename = "certificate-authority-data")]
    authority: String,
}

/// The authority of the cluster behind `server`, as PEM.
pub async fn discover(server: &str, token: &BootstrapToken, hash: &AuthorityHash) -> Result<String> {
    let anybody = HttpTransport::new(Config {
        server: server.to_owned(),
        insecure_skip_tls_verify: true,
        ..Config::default()
    })?;
    let kubeconfig = signed_kubeconfig(&anybody, server, token).await?;
    let authority = pinned_authority(&kubeconfig, hash)
        .with_context(|| format!("the server at {server} is not the expected one"))?;
    let verified = HttpTransport::new(Config {
        server: server.to_owned(),
        certificate_authority: Some(Source::Data(authority.clone().into_bytes())),
        ..Config::default()
    })?;
    let again = ask(&verified)
        .await
        .with_context(|| format!("the certificate of the server at {server} is not signed by the CA {hash}"))?;
    ensure!(
        again["data"]["kubeconfig"] == kubeconfig.as_str(),
        "the server at {server} returned inconsistent cluster information; the connection may be intercepted"
    );
    Ok(authority)
}

/// What `cluster-info` says, vouched for by somebody who knows the token.
async fn signed_kubeconfig(transport: &HttpTransport, server: &str, token: &BootstrapToken) -> Result<String> {
    let (mut told, mut answered): (Option<Instant>, Option<Instant>) = (None, None);
    loop {
        match ask(transport).await {
            Ok(info) => {
                let since = *answered.get_or_insert_with(Instant::now);
                let signature = info["data"][format!("jws-kubeconfig-{}", token.id)].as_str();
                match (info["data"]["kubeconfig"].as_str(), signature) {
                    (Some(content), Some(signature)) => {
                        ensure!(
                            token.has_signed(content, signature),
                            "the server at {server} rejected token {}: its secret part is wrong, or the server is \
                             not the expected one",
                            token.id
                        );
                        return Ok(content.to_owned());
                    }
                    _ if since.elapsed() > SIGNATURE_PATIENCE => bail!(
                        "the server at {server} does not know token {}: it is wrong, has expired or was deleted; create \
                         a new one with `karve token create`",
                        token.id
                    ),
                    _ => {}
                }
            }
            Err(AskError::Transport(error)) if error.is_temporary() => {
                if told.is_none_or(|at| at.elapsed() >= TELL_EVERY) {
                    say::remark(format_args!("waiting for the API server at {server}: {error}"));
                    told = Some(Instant::now());
                }
            }
            Err(error) => return Err(error).with_context(|| format!("failed to discover the cluster at {server}")),
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
}

#[derive(Debug, thiserror::Error)]
enum AskError {
    #[error(transparent)]
    Transport(#[from] TransportError),
    #[error("no response within {} seconds", ANSWER_TIMEOUT.as_secs())]
    Timeout,
    #[error(
        "failed to read ConfigMap {INFO_NAMESPACE}/{INFO} without credentials ({0}); check that the URL is a Kubernetes API server"
    )]
    Status(StatusCode),
    #[error("failed to parse its response: {0}")]
    Answer(String),
}

async fn ask(transport: &HttpTransport) -> Result<Value, AskError> {
    let path = format!("/api/v1/namespaces/{INFO_NAMESPACE}/configmaps/{INFO}");
    let request = Request::get(path).body(Bytes::new()).map_err(TransportError::from)?;
    let asking = async {
        let answer = transport.send(request).await?;
        if answer.status() != StatusCode::OK {
            return Err(AskError::Status(answer.status()));
        }
        let body = Limited::new(answer.into_body(), MAX_ANSWER_BYTES).collect().await;
        let body = body.map_err(|error| AskError::Answer(error.to_string()))?.to_bytes();
        serde_json::from_slice(&body).map_err(|error| AskError::Answer(error.to_string()))
    };
    let answer = tokio::time::timeout(ANSWER_TIMEOUT, asking).await;
    answer.map_err(|_| AskError::Timeout)?
}

/// The certificates in a kubeconfig that are of the authority with this hash.
fn pinned_authority(kubeconfig: &str, hash: &AuthorityHash) -> Result<String> {
    let parsed: Kubeconfig =
        serde_saphyr::from_str(kubeconfig).context("its cluster information is not a kubeconfig")?;
    let cluster = parsed
        .clusters
        .into_iter()
        .next()
        .context("its kubeconfig has no cluster")?
        .cluster;
    let bundle = STANDARD
        .decode(cluster.authority)
        .context("its CA certificate is not valid base64")?;
    let own = hash.select(&String::from_utf8(bundle)?)?;
    ensure!(
        !own.is_empty(),
        "its CA does not match {hash}; compare with the output of `karve token create`"
    );
    Ok(own.iter().map(|certificate| pem(certificate)).collect())
}

fn pem(der: &[u8]) -> String {
    let encoded = STANDARD.encode(der);
    let lines: Vec<&str> = encoded
        .as_bytes()
        .chunks(64)
        .filter_map(|line| std::str::from_utf8(line).ok())
        .collect();
    format!(
        "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
        lines.join("\n")
    )
}

#[cfg(test)]
mod tests;
