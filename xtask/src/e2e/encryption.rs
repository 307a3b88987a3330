//! Encryption at rest beside upstream: both API servers on one etcd, with the same EncryptionConfiguration. What one
//! writes the other reads, and keys are rotated under both.

use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::World;
use super::workload::step;
use crate::bench::http::Connection;
use crate::cluster::workdir::WorkDir;
use crate::differential::servers::{self, ETCD, Server};
use crate::differential::{cases::Request, in_a_network};
use crate::signals::wait_for;
use crate::tools;

/// Upstream looks at its configuration once a minute.
const PATIENCE: Duration = Duration::from_secs(180);
const PROVIDERS: &[&str] = &["aescbc", "aesgcm", "secretbox"];
const SECRET: &str = "not-to-be-found-on-any-disk";

pub fn is_upstreams(world: &World) -> Result<()> {
    for provider in PROVIDERS {
        step(provider);
        in_a_network(|| check(world, provider)).with_context(|| format!("with {provider}"))?;
    }
    Ok(())
}

fn check(world: &World, provider: &str) -> Result<()> {
    let dir = WorkDir::create()?;
    let path = dir.path();
    servers::prepare(path, "")?;
    let configuration = path.join("encryption.yaml");
    std::fs::write(&configuration, encryption(provider, &["key1"]))?;
    let flags = [
        format!("--encryption-provider-config={}", configuration.display()),
        "--encryption-provider-config-automatic-reload=true".to_owned(),
    ];
    let _etcd = servers::start_etcd(path)?;
    let theirs = servers::upstream_on_etcd(path, &flags).with_context(|| last_words(path, "kube-apiserver"))?;
    let mut on_etcd = vec![format!("--etcd-servers={ETCD}")];
    on_etcd.extend(flags.clone());
    let ours = servers::karve_with(&world.binary, path, &on_etcd).with_context(|| last_words(path, "karve"))?;

    write(&theirs, "theirs")?;
    write(&ours, "ours")?;
    for name in ["theirs", "ours"] {
        ensure!(read(&ours, name)? == SECRET, "karve reads {name:?} wrongly");
        ensure!(read(&theirs, name)? == SECRET, "upstream reads {name:?} wrongly");
        is_encrypted_by(name, provider, "key1")?;
    }
    rotate(&configuration, provider, &ours, &theirs)
}

/// A new key is made known to both before either writes by it, as upstream's documents say.
fn rotate(configuration: &Path, provider: &str, ours: &Server, theirs: &Server) -> Result<()> {
    std::fs::write(configuration, encryption(provider, &["key2", "key1"]))?;
    for (server, name) in [(ours, "ours"), (theirs, "theirs")] {
        wait_for("the new key", PATIENCE, || {
            write(server, name).ok()?;
            is_encrypted_by(name, provider, "key2").ok()
        })?;
    }
    for name in ["theirs", "ours"] {
        ensure!(read(ours, name)? == SECRET && read(theirs, name)? == SECRET, "{name:?}");
    }
    Ok(())
}

fn encryption(provider: &str, keys: &[&str]) -> String {
    let keys = keys.iter().map(|name| {
        let key: Vec<u8> = name.bytes().cycle().take(32).collect();
        json!({"name": name, "secret": STANDARD.encode(key)})
    });
    let provider = json!({provider: {"keys": keys.collect::<Vec<_>>()}});
    let identity = json!({"identity": {}});
    json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration",
        "resources": [{"resources": ["secrets"], "providers": [provider, identity]}],
    })
    .to_string()
}

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

/// Creates the Secret, or changes it: only what is written anew is encrypted anew.
fn write(server: &Server, name: &str) -> Result<()> {
    let now = format!("{:?}", std::time::SystemTime::now());
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "annotations": {"written": now}},
        "stringData": {"value": SECRET},
    });
    let create = Request {
        method: "POST".to_owned(),
        path: SECRETS.to_owned(),
        content_type: "application/json".to_owned(),
        body: secret.to_string(),
        ..Request::default()
    };
    let change = Request {
        method: "PUT".to_owned(),
        path: format!("{SECRETS}/{name}"),
        ..create.clone()
    };
    let mut client = server.connect()?;
    let created = client.ask(&create)?;
    let answer = if created.status == 409 {
        client.ask(&change)?
    } else {
        created
    };
    ensure!(
        matches!(answer.status, 200 | 201),
        "{}",
        String::from_utf8_lossy(&answer.body)
    );
    Ok(())
}

fn read(server: &Server, name: &str) -> Result<String> {
    let request = Request {
        method: "GET".to_owned(),
        path: format!("{SECRETS}/{name}"),
        accept: "application/json".to_owned(),
        ..Request::default()
    };
    let answer = server.connect()?.ask(&request)?;
    ensure!(answer.status == 200, "{}", String::from_utf8_lossy(&answer.body));
    let object: Value = serde_json::from_slice(&answer.body)?;
    let value = object["data"]["value"].as_str().context("the Secret has no value")?;
    Ok(String::from_utf8(STANDARD.decode(value)?)?)
}

/// What stands in etcd, by etcd's own word.
fn is_encrypted_by(name: &str, provider: &str, key: &str) -> Result<()> {
    let place = STANDARD.encode(format!("/registry/secrets/default/{name}"));
    let body = json!({ "key": place }).to_string();
    let head = format!(
        "POST /v3/kv/range HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n",
        body.len()
    );
    let stream = TcpStream::connect(ETCD.trim_start_matches("http://"))?;
    let answer = Connection::over(stream).exchange(&head, body.as_bytes())?;
    let answer: Value = serde_json::from_slice(&answer.body)?;
    let value = answer["kvs"][0]["value"].as_str().context("etcd has no such key")?;
    let value = STANDARD.decode(value)?;
    let prefix = format!("k8s:enc:{provider}:v1:{key}:");
    ensure!(value.starts_with(prefix.as_bytes()), "{name:?} is not stored by {key}");
    let holds = value.windows(SECRET.len()).any(|window| window == SECRET.as_bytes());
    ensure!(!holds, "{name:?} is in etcd as plain text");
    Ok(())
}

fn last_words(dir: &Path, name: &str) -> String {
    tools::last_lines(&dir.join(format!("{name}.log")), 10)
}
