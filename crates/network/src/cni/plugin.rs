//! Calling one plugin: a program that is told what to do by its environment and its standard input.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use super::CniError;
use super::config::{NetworkConfig, plugin_type};
use crate::{POD_INTERFACE, SandboxNetwork};

/// A plugin that takes longer is ended; upstream's runtimes allow as much.
const TIMEOUT: Duration = Duration::from_secs(120);
/// What of a plugin's answer is kept for an error that is not in the protocol's form.
const EXCERPT_BYTES: usize = 400;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Add,
    Check,
    Delete,
}

impl Verb {
    fn name(self) -> &'static str {
        match self {
            Verb::Add => "ADD",
            Verb::Check => "CHECK",
            Verb::Delete => "DEL",
        }
    }
}

/// An error as plugins report it.
#[derive(Debug, Deserialize)]
struct Report {
    code: u32,
    msg: String,
    #[serde(default)]
    details: String,
}

/// Calls a plugin of the network and gives what it printed: a result for `ADD`, nothing otherwise.
pub async fn call(
    verb: Verb,
    network: &NetworkConfig,
    plugin: &Map<String, Value>,
    sandbox: &SandboxNetwork,
    previous: Option<&Value>,
    bin_dirs: &[PathBuf],
) -> Result<Vec<u8>, CniError> {
    let name = plugin_type(plugin).unwrap_or_default().to_owned();
    let program = find(&name, bin_dirs)?;
    let input = input(network, plugin, sandbox, previous).to_string();
    let run = |source| CniError::Run {
        plugin: name.clone(),
        source,
    };
    let mut child = Command::new(&program)
        .env_clear()
        .envs(environment(verb, sandbox, bin_dirs))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(run)?;
    let stdin = child.stdin.take();
    let work = async {
        if let Some(mut stdin) = stdin {
            // A plugin that does not read its input may be done already; its answer counts.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
        child.wait_with_output().await
    };
    let finished = tokio::time::timeout(TIMEOUT, work).await;
    let output = finished
        .map_err(|_| CniError::Timeout { plugin: name.clone() })?
        .map_err(run)?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let detail = String::from_utf8_lossy(if output.stdout.is_empty() {
        &output.stderr
    } else {
        &output.stdout
    });
    Err(CniError::Refused {
        plugin: name,
        verb: verb.name(),
        reason: reason(&output.stdout).unwrap_or_else(|| excerpt(&detail, &output.status)),
    })
}

pub fn find(name: &str, bin_dirs: &[PathBuf]) -> Result<PathBuf, CniError> {
    let candidates = bin_dirs.iter().map(|directory| directory.join(name));
    let found = candidates.into_iter().find(|path| path.is_file());
    found.ok_or_else(|| CniError::NoPlugin {
        plugin: name.to_owned(),
        directories: join(bin_dirs, ", "),
    })
}

fn reason(stdout: &[u8]) -> Option<String> {
    let report: Report = serde_json::from_slice(stdout).ok()?;
    let details = if report.details.is_empty() {
        String::new()
    } else {
        format!(": {}", report.details)
    };
    Some(format!("{}{details} (code {})", report.msg, report.code))
}

fn excerpt(text: &str, status: &std::process::ExitStatus) -> String {
    let text: String = text.trim().chars().take(EXCERPT_BYTES).collect();
    format!("{status}: {text}")
}

fn join(directories: &[PathBuf], separator: &str) -> String {
    let texts: Vec<String> = directories.iter().map(|path| path.display().to_string()).collect();
    texts.join(separator)
}

fn environment(verb: Verb, sandbox: &SandboxNetwork, bin_dirs: &[PathBuf]) -> Vec<(&'static str, String)> {
    let pod = format!(
        "IgnoreUnknown=1;K8S_POD_NAMESPACE={};K8S_POD_NAME={};K8S_POD_INFRA_CONTAINER_ID={};K8S_POD_UID={}",
        sandbox.namespace, sandbox.name, sandbox.id, sandbox.uid
    );
    let netns = namespace(&sandbox.netns_path, verb);
    vec![
        ("CNI_COMMAND", verb.name().to_owned()),
        ("CNI_CONTAINERID", sandbox.id.clone()),
        ("CNI_NETNS", netns),
        ("CNI_IFNAME", POD_INTERFACE.to_owned()),
        ("CNI_ARGS", pod),
        ("CNI_PATH", join(bin_dirs, ":")),
        // Plugins run iptables and the like.
        (
            "PATH",
            std::env::var("PATH").unwrap_or_else(|_| DEFAULT_PATH.to_owned()),
        ),
    ]
}

const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A pod whose namespace is gone is taken down with an empty one, as the protocol says.
fn namespace(path: &Path, verb: Verb) -> String {
    if verb == Verb::Delete && !path.exists() {
        return String::new();
    }
    path.display().to_string()
}

/// The plugin's own configuration, the network's fields, what plugins before it did, and what the pod asks for as
/// far as the plugin says it can do it.
fn input(
    network: &NetworkConfig,
    plugin: &Map<String, Value>,
    sandbox: &SandboxNetwork,
    previous: Option<&Value>,
) -> Value {
    let mut config = plugin.clone();
    config.insert("cniVersion".to_owned(), json!(network.cni_version));
    config.insert("name".to_owned(), json!(network.name));
    if let Some(previous) = previous {
        config.insert("prevResult".to_owned(), previous.clone());
    }
    let capabilities = config.remove("capabilities").unwrap_or_default();
    if capabilities["portMappings"] == true {
        let mappings: Vec<Value> = sandbox.port_mappings.iter().map(port_mapping).collect();
        config.insert("runtimeConfig".to_owned(), json!({"portMappings": mappings}));
    }
    Value::Object(config)
}

fn port_mapping(mapping: &crate::PortMapping) -> Value {
    let protocol = match mapping.protocol {
        crate::Protocol::Tcp => "tcp",
        crate::Protocol::Udp => "udp",
        crate::Protocol::Sctp => "sctp",
    };
    let host_ip = mapping.host_ip.map(|ip| ip.to_string()).unwrap_or_default();
    json!({
        "hostPort": mapping.host_port,
        "containerPort": mapping.container_port,
        "protocol": protocol,
        "hostIP": host_ip,
    })
}
