//! A container as its pod describes it.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserializer, Visitor};
use serde::{Deserialize, Serialize};

use super::{ContainerKind, RestartPolicy, SecurityContext};

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Container {
    pub name: String,
    pub image: String,
    pub command: Vec<String>,
    pub args: Vec<String>,
    pub working_dir: String,
    pub ports: Vec<ContainerPort>,
    pub env_from: Vec<EnvFrom>,
    pub env: Vec<EnvVar>,
    pub resources: Resources,
    pub resize_policy: Vec<ResizePolicy>,
    pub volume_mounts: Vec<VolumeMount>,
    pub volume_devices: Vec<VolumeDevice>,
    pub liveness_probe: Option<Probe>,
    pub readiness_probe: Option<Probe>,
    pub startup_probe: Option<Probe>,
    pub lifecycle: Lifecycle,
    pub termination_message_path: String,
    pub termination_message_policy: TerminationMessagePolicy,
    pub image_pull_policy: PullPolicy,
    pub security_context: SecurityContext,
    pub restart_policy: Option<RestartPolicy>,
    /// The first that matches decides before the policy does.
    pub restart_policy_rules: Vec<RestartRule>,
    pub stdin: bool,
    pub stdin_once: bool,
    pub tty: bool,
    /// Only ephemeral containers: whose process namespace to share.
    pub target_container_name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerPort {
    pub name: String,
    pub container_port: u16,
    pub host_port: u16,
    #[serde(rename = "hostIP")]
    pub host_ip: String,
    pub protocol: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Resources {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RestartRule {
    pub action: RestartAction,
    pub exit_codes: Option<ExitCodes>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum RestartAction {
    #[default]
    Restart,
    RestartAllContainers,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ExitCodes {
    /// `In` or `NotIn`.
    pub operator: String,
    pub values: Vec<i32>,
}

/// What a change of one resource means for a running container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ResizePolicy {
    pub resource_name: String,
    /// `NotRequired` or `RestartContainer`.
    pub restart_policy: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EnvFrom {
    pub prefix: String,
    pub config_map_ref: Option<ObjectReference>,
    pub secret_ref: Option<ObjectReference>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ObjectReference {
    pub name: String,
    pub optional: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EnvVar {
    pub name: String,
    pub value: String,
    pub value_from: Option<EnvSource>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EnvSource {
    pub field_ref: Option<FieldRef>,
    pub resource_field_ref: Option<ResourceFieldRef>,
    pub config_map_key_ref: Option<KeyRef>,
    pub secret_key_ref: Option<KeyRef>,
    pub file_key_ref: Option<FileKeyRef>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct FieldRef {
    pub field_path: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ResourceFieldRef {
    pub container_name: String,
    pub resource: String,
    pub divisor: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct KeyRef {
    pub name: String,
    pub key: String,
    pub optional: bool,
}

/// A variable of a file in a volume of the pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct FileKeyRef {
    pub volume_name: String,
    pub path: String,
    pub key: String,
    pub optional: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VolumeMount {
    pub name: String,
    pub mount_path: String,
    pub read_only: bool,
    pub recursive_read_only: Option<String>,
    pub sub_path: String,
    pub sub_path_expr: String,
    pub mount_propagation: Option<String>,
}

/// Why a mount cannot be read-only recursively, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecursiveReadOnlyError {
    #[error("volume {0:?} requested recursive read-only mode, but it is not read-only")]
    NotReadOnly(String),
    #[error(
        "volume {volume:?} requested recursive read-only mode, but it is not compatible with propagation {propagation:?}"
    )]
    Propagation { volume: String, propagation: String },
    #[error("volume {0:?} requested recursive read-only mode, but it is not supported by the runtime")]
    NotSupported(String),
    #[error("unknown recursive read-only mode {0:?}")]
    UnknownMode(String),
}

impl VolumeMount {
    /// Whether everything below the mount is to be read-only too, on a runtime that can or cannot do that.
    pub fn is_recursive_read_only(&self, supported: bool) -> Result<bool, RecursiveReadOnlyError> {
        let volume = self.name.clone();
        let mode = match self.recursive_read_only.as_deref() {
            None | Some("Disabled") => return Ok(false),
            Some(mode) => mode,
        };
        if !self.read_only {
            return Err(RecursiveReadOnlyError::NotReadOnly(volume));
        }
        if let Some(propagation) = self.mount_propagation.as_deref().filter(|mode| *mode != "None") {
            let propagation = propagation.to_owned();
            return Err(RecursiveReadOnlyError::Propagation { volume, propagation });
        }
        match (mode, supported) {
            ("IfPossible", _) => Ok(supported),
            ("Enabled", true) => Ok(true),
            ("Enabled", false) => Err(RecursiveReadOnlyError::NotSupported(volume)),
            (other, _) => Err(RecursiveReadOnlyError::UnknownMode(other.to_owned())),
        }
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VolumeDevice {
    pub name: String,
    pub device_path: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Lifecycle {
    pub post_start: Option<Handler>,
    pub pre_stop: Option<Handler>,
    pub stop_signal: Option<String>,
}

/// What a probe or a hook does. Exactly one is set, as the API server has checked.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Handler {
    pub exec: Option<ExecAction>,
    pub http_get: Option<HttpGet>,
    pub tcp_socket: Option<TcpSocket>,
    pub grpc: Option<GrpcAction>,
    pub sleep: Option<SleepAction>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ExecAction {
    pub command: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HttpGet {
    pub path: String,
    pub port: PortRef,
    pub host: String,
    pub scheme: String,
    pub http_headers: Vec<HttpHeader>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct HttpHeader {
    pub name: String,
    pub value: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct TcpSocket {
    pub port: PortRef,
    pub host: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct GrpcAction {
    pub port: u16,
    pub service: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct SleepAction {
    pub seconds: i64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Probe {
    #[serde(flatten)]
    pub handler: Handler,
    pub initial_delay_seconds: i32,
    pub timeout_seconds: i32,
    pub period_seconds: i32,
    pub success_threshold: i32,
    pub failure_threshold: i32,
    pub termination_grace_period_seconds: Option<i64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum TerminationMessagePolicy {
    #[default]
    File,
    FallbackToLogsOnError,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum PullPolicy {
    #[default]
    IfNotPresent,
    Always,
    Never,
}

/// Why a probe or hook has no port to go to, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    #[error("couldn't find port: {0:?} in container {1:?}")]
    UnknownName(String, String),
    #[error("invalid port number: {0}")]
    InvalidNumber(i64),
}

/// An `IntOrString` that names a port by number or by the name it has in `ports`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortRef {
    Number(i64),
    Name(String),
}

impl Default for PortRef {
    fn default() -> PortRef {
        PortRef::Number(0)
    }
}

impl<'de> Deserialize<'de> for PortRef {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<PortRef, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = PortRef;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a port's number or name")
            }
            fn visit_i64<E>(self, number: i64) -> Result<PortRef, E> {
                Ok(PortRef::Number(number))
            }
            fn visit_u64<E>(self, number: u64) -> Result<PortRef, E> {
                Ok(PortRef::Number(i64::try_from(number).unwrap_or(i64::MAX)))
            }
            fn visit_str<E>(self, name: &str) -> Result<PortRef, E> {
                Ok(PortRef::Name(name.to_owned()))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

impl Container {
    pub fn init_kind(&self) -> ContainerKind {
        match self.restart_policy {
            Some(RestartPolicy::Always) => ContainerKind::Sidecar,
            _ => ContainerKind::Init,
        }
    }

    /// What the first rule that matches an exit code says.
    pub fn restart_rule(&self, exit_code: i32) -> Option<RestartAction> {
        let matches = |rule: &&RestartRule| {
            rule.exit_codes.as_ref().is_some_and(|codes| {
                let listed = codes.values.contains(&exit_code);
                match codes.operator.as_str() {
                    "In" => listed,
                    "NotIn" => !listed,
                    _ => false,
                }
            })
        };
        self.restart_policy_rules.iter().find(matches).map(|rule| rule.action)
    }

    /// The number behind a port's name.
    pub fn port(&self, port: &PortRef) -> Result<u16, PortError> {
        let number = match port {
            PortRef::Number(number) => *number,
            PortRef::Name(name) => {
                let named = self.ports.iter().find(|port| port.name == *name);
                let named = named.ok_or_else(|| PortError::UnknownName(name.clone(), self.name.clone()))?;
                i64::from(named.container_port)
            }
        };
        let valid = u16::try_from(number).ok().filter(|number| *number > 0);
        valid.ok_or(PortError::InvalidNumber(number))
    }

    /// Changes when the container must be replaced: its name or its image. The value is the one upstream's kubelet
    /// computes, so that neither takes the other's containers for outdated.
    pub fn hash(&self) -> String {
        let json = format!(
            "{{\"image\":{},\"name\":{}}}",
            go_json(&self.image),
            go_json(&self.name)
        );
        let bytes: Vec<String> = json.bytes().map(|byte| byte.to_string()).collect();
        let dumped = format!("([]uint8)[{}]", bytes.join(" "));
        // FNV-1a, 32 bit.
        let hash = dumped.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        });
        format!("{hash:x}")
    }
}

/// A string as Go's encoder writes it, which escapes what HTML and JavaScript would trip over.
fn go_json(text: &str) -> String {
    let escapes = [
        ('<', "\\u003c"),
        ('>', "\\u003e"),
        ('&', "\\u0026"),
        ('\u{2028}', "\\u2028"),
        ('\u{2029}', "\\u2029"),
    ];
    let quoted = serde_json::Value::from(text).to_string();
    escapes
        .iter()
        .fold(quoted, |text, (character, escape)| text.replace(*character, escape))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recursive_read_only_mounts_need_a_read_only_mount_that_stays_private() {
        let check = |mount: &str, supported: bool| {
            let mount: VolumeMount = serde_saphyr::from_str(mount).unwrap();
            mount
                .is_recursive_read_only(supported)
                .map_err(|error| error.to_string())
        };
        let refused = |why: &str| {
            Err(format!(
                "volume \"v\" requested recursive read-only mode, but it is {why}"
            ))
        };
        assert_eq!(check("{name: v, readOnly: true}", true), Ok(false));
        assert_eq!(check("{name: v, recursiveReadOnly: Disabled}", true), Ok(false));
        let possible = "{name: v, readOnly: true, recursiveReadOnly: IfPossible, mountPropagation: None}";
        assert_eq!((check(possible, true), check(possible, false)), (Ok(true), Ok(false)));
        let enabled = "{name: v, readOnly: true, recursiveReadOnly: Enabled}";
        assert_eq!(check(enabled, true), Ok(true));
        assert_eq!(check(enabled, false), refused("not supported by the runtime"));
        assert_eq!(
            check("{name: v, recursiveReadOnly: IfPossible}", true),
            refused("not read-only")
        );
        assert_eq!(
            check(
                "{name: v, readOnly: true, recursiveReadOnly: Enabled, mountPropagation: HostToContainer}",
                true
            ),
            refused("not compatible with propagation \"HostToContainer\"")
        );
    }

    #[test]
    fn hashes_are_upstreams() {
        let hash = |name: &str, image: &str| {
            let (name, image) = (name.to_owned(), image.to_owned());
            Container {
                name,
                image,
                ..Container::default()
            }
            .hash()
        };
        assert_eq!(hash("web", "nginx:1"), "855627a5");
        assert_eq!(hash("a", "registry.k8s.io/pause:3.10"), "6c7e48f1");
        assert_eq!(hash("x", "odd<&>\"\\é\u{2028}"), "18cc568");
        assert_eq!(hash("", ""), "edd67cc4");
    }
}
