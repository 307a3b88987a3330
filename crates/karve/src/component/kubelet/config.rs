//! `--config` and `--config-dir`: KubeletConfiguration files, turned into the flags that say the same.
//!
//! A flag that stands on the command line counts more than a file, a drop-in more than the file of `--config`, and a later
//! drop-in more than an earlier one. A field that this kubelet does not act on is refused by name unless it has the value
//! that upstream gives it by default.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
const KIND: &str = "KubeletConfiguration";
/// Files of `--config-dir` are read if their names end like this.
const DROP_IN: &str = "conf";

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("failed to read the kubelet configuration {path}: {source}")]
    Read { path: String, source: std::io::Error },
    #[error("failed to parse the kubelet configuration {path}: {message}")]
    Decode { path: String, message: String },
    #[error("{path} has apiVersion {api_version:?} and kind {kind:?}; expected {KIND} of {API_VERSION}")]
    Kind {
        path: String,
        api_version: String,
        kind: String,
    },
    #[error("unknown field {0:?} of {KIND}")]
    Unknown(String),
    #[error("{field} {value} of {KIND} is not supported; remove it")]
    Unsupported { field: String, value: String },
    #[error("{field} {value} of {KIND} has the wrong type")]
    Type { field: String, value: String },
}

/// How a field's value is written as a flag's.
#[derive(Clone, Copy)]
enum Form {
    Text,
    /// A list, joined by commas.
    List,
    /// A map, as `key=value` joined by commas.
    Map,
    /// A map of signals, as `signal<amount` joined by commas.
    Thresholds,
    /// A list of taints, as `key=value:effect` joined by commas.
    Taints,
    /// Headers of several values each, as one flag `name:value` for each value.
    Headers,
    /// A flag without a value.
    Switch,
}

/// What a field of the file is as a flag.
const FLAGS: &[(&str, &str, Form)] = &[
    ("address", "address", Form::Text),
    ("allowedUnsafeSysctls", "allowed-unsafe-sysctls", Form::List),
    ("authentication.x509.clientCAFile", "client-ca-file", Form::Text),
    ("cgroupRoot", "cgroup-root", Form::Text),
    ("clusterDNS", "cluster-dns", Form::List),
    ("clusterDomain", "cluster-domain", Form::Text),
    ("containerLogMaxFiles", "container-log-max-files", Form::Text),
    ("containerLogMaxSize", "container-log-max-size", Form::Text),
    ("containerRuntimeEndpoint", "container-runtime-endpoint", Form::Text),
    ("enableSystemLogQuery", "enable-system-log-query", Form::Switch),
    ("evictionHard", "eviction-hard", Form::Thresholds),
    ("fileCheckFrequency", "file-check-frequency", Form::Text),
    ("httpCheckFrequency", "http-check-frequency", Form::Text),
    ("imageGCHighThresholdPercent", "image-gc-high-threshold", Form::Text),
    ("imageGCLowThresholdPercent", "image-gc-low-threshold", Form::Text),
    ("kubeReserved", "kube-reserved", Form::Map),
    ("maxPods", "max-pods", Form::Text),
    ("podLogsDir", "pod-logs-dir", Form::Text),
    ("podPidsLimit", "pod-max-pids", Form::Text),
    ("port", "port", Form::Text),
    ("providerID", "provider-id", Form::Text),
    ("registerWithTaints", "register-with-taints", Form::Taints),
    ("resolvConf", "resolv-conf", Form::Text),
    ("serverTLSBootstrap", "rotate-server-certificates", Form::Switch),
    ("staticPodPath", "pod-manifest-path", Form::Text),
    ("staticPodURL", "manifest-url", Form::Text),
    ("staticPodURLHeader", "manifest-url-header", Form::Headers),
    ("systemReserved", "system-reserved", Form::Map),
    ("tlsCertFile", "tls-cert-file", Form::Text),
    ("tlsPrivateKeyFile", "tls-private-key-file", Form::Text),
];

/// Fields whose parts are looked at one by one.
const NESTED: &[&str] = &[
    "authentication",
    "authentication.anonymous",
    "authentication.webhook",
    "authentication.x509",
    "authorization",
    "authorization.webhook",
    "crashLoopBackOff",
    "logging",
    "memorySwap",
    "userNamespaces",
];

/// Fields that may have these values and no others, as JSON. What is not in this list must be empty.
const FIXED: &[(&str, &str)] = &[
    ("authentication.anonymous.enabled", "false"),
    ("authentication.webhook.cacheTTL", "\"2m0s\""),
    ("authentication.webhook.enabled", "true"),
    ("authorization.mode", "\"Webhook\""),
    ("authorization.webhook.cacheAuthorizedTTL", "\"5m0s\""),
    ("authorization.webhook.cacheUnauthorizedTTL", "\"30s\""),
    ("cgroupDriver", "\"cgroupfs\""),
    ("cgroupsPerQOS", "true"),
    ("configMapAndSecretChangeDetectionStrategy", "\"Watch\""),
    ("containerLogMaxWorkers", "1"),
    ("containerLogMonitorInterval", "\"10s\""),
    ("contentType", "\"application/vnd.kubernetes.protobuf\""),
    ("cpuCFSQuota", "true"),
    ("cpuCFSQuotaPeriod", "\"100ms\""),
    ("cpuManagerPolicy", "\"none\""),
    ("cpuManagerReconcilePeriod", "\"10s\""),
    ("crashLoopBackOff.maxContainerRestartPeriod", "\"5m0s\""),
    ("enableControllerAttachDetach", "true"),
    ("enableDebuggingHandlers", "true"),
    ("enableServer", "true"),
    ("enableSystemLogHandler", "true"),
    ("enforceNodeAllocatable", "[\"pods\"]"),
    ("eventBurst", "100"),
    ("eventRecordQPS", "50"),
    ("evictionPressureTransitionPeriod", "\"5m0s\""),
    ("imageMinimumGCAge", "\"2m0s\""),
    (
        "imagePullCredentialsVerificationPolicy",
        "\"NeverVerifyPreloadedImages\"",
    ),
    ("kubeAPIBurst", "100"),
    ("kubeAPIQPS", "50"),
    ("localStorageCapacityIsolation", "true"),
    ("logging.flushFrequency", "\"5s\""),
    ("logging.format", "\"text\""),
    ("makeIPTablesUtilChains", "true"),
    ("memoryManagerPolicy", "\"None\""),
    ("nodeLeaseDurationSeconds", "40"),
    ("nodeStatusMaxImages", "50"),
    ("nodeStatusReportFrequency", "\"5m0s\""),
    ("nodeStatusUpdateFrequency", "\"10s\""),
    ("registerNode", "true"),
    ("rotateCertificates", "false"),
    ("topologyManagerPolicy", "\"none\""),
    ("topologyManagerScope", "\"container\""),
    ("userNamespaces.idsPerPod", "65536"),
    ("volumeStatsAggPeriod", "\"1m0s\""),
];

/// All other fields that upstream has; those of the lists above are known, too.
const OTHERS: &[&str] = &[
    "cpuManagerPolicyOptions",
    "enableContentionProfiling",
    "enableDebugFlagsHandler",
    "enableProfilingHandler",
    "evictionMaxPodGracePeriod",
    "evictionMinimumReclaim",
    "evictionSoft",
    "evictionSoftGracePeriod",
    "failCgroupV1",
    "failSwapOn",
    "featureGates",
    "hairpinMode",
    "healthzBindAddress",
    "healthzPort",
    "imageMaximumGCAge",
    "imageServiceEndpoint",
    "iptablesDropBit",
    "iptablesMasqueradeBit",
    "kernelMemcgNotification",
    "kubeReservedCgroup",
    "kubeletCgroups",
    "logging.options",
    "logging.verbosity",
    "logging.vmodule",
    "maxOpenFiles",
    "maxParallelImagePulls",
    "memoryReservationPolicy",
    "memorySwap.swapBehavior",
    "memoryThrottlingFactor",
    "mergeDefaultEvictionSettings",
    "oomScoreAdj",
    "podCIDR",
    "podsPerCore",
    "preloadedImagesVerificationAllowlist",
    "protectKernelDefaults",
    "qosReserved",
    "readOnlyPort",
    "registryBurst",
    "registryPullQPS",
    "reservedMemory",
    "reservedSystemCPUs",
    "runOnce",
    "runtimeRequestTimeout",
    "seccompDefault",
    "serializeImagePulls",
    "showHiddenMetricsForVersion",
    "shutdownGracePeriod",
    "shutdownGracePeriodByPodPriority",
    "shutdownGracePeriodCriticalPods",
    "singleProcessOOMKill",
    "streamingConnectionIdleTimeout",
    "syncFrequency",
    "systemCgroups",
    "systemReservedCgroup",
    "tlsCipherSuites",
    "tlsCurvePreferences",
    "tlsMinVersion",
    "topologyManagerPolicyOptions",
    "tracing",
    "volumePluginDir",
];

/// Puts the flags that configuration files stand for among the arguments of `karve kubelet`, unless they are there already.
pub fn expand(arguments: &mut Vec<OsString>) -> Result<(), ConfigError> {
    let Some(command) = arguments.iter().skip(1).position(|argument| argument == "kubelet") else {
        return Ok(());
    };
    let given = &arguments[command + 2..];
    let Some(config) = read(
        flag_value(given, "config").as_deref(),
        flag_value(given, "config-dir").as_deref(),
    )?
    else {
        return Ok(());
    };
    let flags = flags_of(&config)?;
    let missing = flags.into_iter().filter(|(flag, _)| !is_given(given, flag));
    let missing: Vec<OsString> = missing.map(|(_, argument)| OsString::from(argument)).collect();
    arguments.extend(missing);
    Ok(())
}

fn flag_value(given: &[OsString], flag: &str) -> Option<PathBuf> {
    let long = format!("--{flag}");
    let mut found = None;
    for (index, argument) in given.iter().enumerate() {
        let text = argument.to_string_lossy();
        if text == long {
            found = given.get(index + 1).map(PathBuf::from);
        } else if let Some(value) = text.strip_prefix(&format!("{long}=")) {
            found = Some(PathBuf::from(value));
        }
    }
    found
}

fn is_given(given: &[OsString], flag: &str) -> bool {
    let mut texts = given.iter().map(|argument| argument.to_string_lossy());
    texts.any(|text| {
        let rest = text.strip_prefix("--").and_then(|text| text.strip_prefix(flag));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
    })
}

/// The file and the drop-ins as one object; none if there is neither.
fn read(file: Option<&Path>, directory: Option<&Path>) -> Result<Option<Value>, ConfigError> {
    let mut files: Vec<PathBuf> = file.into_iter().map(Path::to_owned).collect();
    if let Some(directory) = directory {
        let failed = |source| ConfigError::Read {
            path: directory.display().to_string(),
            source,
        };
        let entries = directory.read_dir().map_err(failed)?;
        let paths: Result<Vec<PathBuf>, _> = entries.map(|entry| Ok(entry.map_err(failed)?.path())).collect();
        let mut drop_ins = paths?;
        drop_ins.retain(|path| path.extension() == Some(OsStr::new(DROP_IN)));
        drop_ins.sort();
        files.extend(drop_ins);
    }
    if file.is_none() && directory.is_none() {
        return Ok(None);
    }
    let mut whole = json!({});
    for path in files {
        merge(&mut whole, read_one(&path)?);
    }
    Ok(Some(whole))
}

fn read_one(path: &Path) -> Result<Value, ConfigError> {
    let shown = path.display().to_string();
    let data = std::fs::read(path).map_err(|source| ConfigError::Read {
        path: shown.clone(),
        source,
    })?;
    let decoded = schema::decode_untyped_yaml(&data);
    let problem = |message: String| ConfigError::Decode {
        path: shown.clone(),
        message,
    };
    let decoded = decoded.map_err(|error| problem(error.to_string()))?;
    if let Some(duplicate) = decoded.problems.into_iter().next() {
        return Err(problem(duplicate));
    }
    let text = |field: &str| decoded.value[field].as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    if (api_version.as_str(), kind.as_str()) != (API_VERSION, KIND) {
        return Err(ConfigError::Kind {
            path: shown,
            api_version,
            kind,
        });
    }
    Ok(decoded.value)
}

/// Maps are merged, everything else is replaced.
fn merge(target: &mut Value, change: Value) {
    match (target, change) {
        (Value::Object(target), Value::Object(change)) => {
            for (key, value) in change {
                merge(target.entry(key).or_insert(Value::Null), value);
            }
        }
        (target, change) => *target = change,
    }
}

/// The flags, by name and as they are written.
fn flags_of(config: &Value) -> Result<Vec<(&'static str, String)>, ConfigError> {
    let mut flags = Vec::new();
    // By name, for whether a map keeps its order is up to other users of the same dependency.
    let fields: BTreeMap<&String, &Value> = config.as_object().into_iter().flatten().collect();
    for (field, value) in fields {
        if field != "apiVersion" && field != "kind" {
            flags_of_field(field, value, &mut flags)?;
        }
    }
    Ok(flags)
}

fn flags_of_field(field: &str, value: &Value, flags: &mut Vec<(&'static str, String)>) -> Result<(), ConfigError> {
    let wrong = || ConfigError::Type {
        field: field.to_owned(),
        value: value.to_string(),
    };
    if NESTED.contains(&field) {
        let parts = match value {
            Value::Null => return Ok(()),
            Value::Object(parts) => parts,
            _ => return Err(wrong()),
        };
        return parts
            .iter()
            .try_for_each(|(part, value)| flags_of_field(&format!("{field}.{part}"), value, flags));
    }
    if let Some((_, flag, form)) = FLAGS.iter().find(|(name, ..)| *name == field) {
        if !is_zero(value) {
            let values = form.values(value).ok_or_else(wrong)?;
            flags.extend(values.into_iter().map(|value| (*flag, format!("--{flag}{value}"))));
        }
        return Ok(());
    }
    let fixed = FIXED.iter().find(|(name, _)| *name == field);
    if fixed.is_none() && !OTHERS.contains(&field) {
        return Err(ConfigError::Unknown(field.to_owned()));
    }
    let is_default = fixed.is_some_and(|(_, default)| is_same(value, default));
    let switched_off = value == &Value::Bool(false) && fixed.is_some_and(|(_, default)| *default == "true");
    match is_default || (is_zero(value) && !switched_off) {
        true => Ok(()),
        false => Err(ConfigError::Unsupported {
            field: field.to_owned(),
            value: value.to_string(),
        }),
    }
}

/// Durations are the same however they are written.
fn is_same(value: &Value, default: &str) -> bool {
    let default: Value = serde_json::from_str(default).unwrap_or_default();
    let duration = |value: &Value| schema::parse_duration(value.as_str()?).ok();
    *value == default || duration(value).is_some_and(|own| duration(&default) == Some(own))
}

/// What upstream takes for "not set".
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty() || text == "0" || schema::parse_duration(text) == Ok(0),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_zero),
    }
}

impl Form {
    /// What comes after the flag's name, for each time it is given.
    fn values(self, value: &Value) -> Option<Vec<String>> {
        let joined = |parts: Option<Vec<String>>| parts.map(|parts| vec![format!("={}", parts.join(","))]);
        match self {
            Form::Text => Some(vec![format!("={}", scalar(value)?)]),
            Form::Switch => (value == &Value::Bool(true)).then(|| vec![String::new()]),
            Form::List => joined(value.as_array()?.iter().map(scalar).collect()),
            Form::Map => joined(pairs(value, "=")),
            Form::Thresholds => joined(pairs(value, "<")),
            Form::Taints => joined(value.as_array()?.iter().map(taint).collect()),
            Form::Headers => {
                let mut headers = Vec::new();
                for (name, values) in value.as_object()? {
                    for value in values.as_array()? {
                        headers.push(format!("={name}:{}", value.as_str()?));
                    }
                }
                Some(headers)
            }
        }
    }
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

fn pairs(value: &Value, between: &str) -> Option<Vec<String>> {
    let pairs = value.as_object()?.iter();
    pairs
        .map(|(key, value)| Some(format!("{key}{between}{}", scalar(value)?)))
        .collect()
}

fn taint(taint: &Value) -> Option<String> {
    let text = |field: &str| taint[field].as_str().unwrap_or_default();
    (taint.is_object()).then(|| format!("{}={}:{}", text("key"), text("value"), text("effect")))
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(config: &str, expected: Expect) {
        let config = schema::parse_yaml(config.as_bytes()).unwrap();
        let text = match flags_of(&config) {
            Ok(flags) => flags.into_iter().map(|(_, flag)| flag).collect::<Vec<_>>().join(" "),
            Err(error) => error.to_string(),
        };
        expected.assert_eq(&text);
    }

    #[test]
    fn fields_become_flags() {
        check(
            "{maxPods: 20, clusterDNS: [10.0.0.1, 10.0.0.2], podPidsLimit: 100, serverTLSBootstrap: true}",
            expect!["--cluster-dns=10.0.0.1,10.0.0.2 --max-pods=20 --pod-max-pids=100 --rotate-server-certificates"],
        );
        check(
            "{evictionHard: {memory.available: 1Gi, nodefs.available: 5%}, systemReserved: {cpu: 500m}}",
            expect!["--eviction-hard=memory.available<1Gi,nodefs.available<5% --system-reserved=cpu=500m"],
        );
        check(
            "{registerWithTaints: [{key: a, value: b, effect: NoSchedule}], staticPodURLHeader: {X-A: [b, c]}}",
            expect!["--register-with-taints=a=b:NoSchedule --manifest-url-header=X-A:b --manifest-url-header=X-A:c"],
        );
    }

    #[test]
    fn what_tools_write_for_nothing_is_nothing() {
        check(
            "{authentication: {anonymous: {enabled: false}, webhook: {cacheTTL: 0s, enabled: true}, x509: {clientCAFile: /ca}}, \
             authorization: {mode: Webhook, webhook: {cacheAuthorizedTTL: 0s}}, cpuManagerReconcilePeriod: 0s, \
             imageMaximumGCAge: 0s, logging: {flushFrequency: 0, options: {json: {infoBufferSize: '0'}}, verbosity: 0}, \
             memorySwap: {}, nodeStatusReportFrequency: 300s, shutdownGracePeriod: 0s, staticPodPath: /etc/m}",
            expect!["--client-ca-file=/ca --pod-manifest-path=/etc/m"],
        );
    }

    #[test]
    fn what_would_do_nothing_is_refused_by_name() {
        check(
            "{shutdownGracePeriod: 30s}",
            expect![[r#"shutdownGracePeriod "30s" of KubeletConfiguration is not supported; remove it"#]],
        );
        check(
            "{authentication: {anonymous: {enabled: true}}}",
            expect!["authentication.anonymous.enabled true of KubeletConfiguration is not supported; remove it"],
        );
        check(
            "{cpuCFSQuota: false}",
            expect!["cpuCFSQuota false of KubeletConfiguration is not supported; remove it"],
        );
        check(
            "{nonsense: 1}",
            expect![[r#"unknown field "nonsense" of KubeletConfiguration"#]],
        );
        check(
            "{authentication: {other: 1}}",
            expect![[r#"unknown field "authentication.other" of KubeletConfiguration"#]],
        );
        check(
            "{maxPods: [1]}",
            expect!["maxPods [1] of KubeletConfiguration has the wrong type"],
        );
    }

    #[test]
    fn flags_count_more_than_drop_ins_and_those_more_than_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, fields: &str| {
            let text = format!("{{apiVersion: {API_VERSION}, kind: {KIND}, {fields}}}");
            std::fs::write(directory.path().join(name), text).unwrap();
        };
        write(
            "main.yaml",
            "maxPods: 1, port: 1, systemReserved: {cpu: '1', memory: 1Gi}",
        );
        write("20.conf", "port: 3");
        write("10.conf", "port: 2, systemReserved: {cpu: '2'}");
        write("30.yaml", "port: 4");
        let main = format!("--config={}", directory.path().join("main.yaml").display());
        let arguments = ["karve", "kubelet", "--max-pods", "9", &main, "--config-dir"];
        let mut arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        arguments.push(directory.path().into());
        expand(&mut arguments).unwrap();
        let added: Vec<&str> = arguments[7..].iter().filter_map(|argument| argument.to_str()).collect();
        assert_eq!(added, ["--port=3", "--system-reserved=cpu=2,memory=1Gi"]);
    }

    #[test]
    fn files_of_other_kinds_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.yaml");
        std::fs::write(&path, "{apiVersion: v1, kind: Pod}").unwrap();
        assert!(matches!(read(Some(&path), None), Err(ConfigError::Kind { .. })));
        std::fs::write(&path, "{").unwrap();
        assert!(matches!(read(Some(&path), None), Err(ConfigError::Decode { .. })));
        let missing = directory.path().join("missing");
        assert!(matches!(read(Some(&missing), None), Err(ConfigError::Read { .. })));
        assert!(matches!(read(None, Some(&missing)), Err(ConfigError::Read { .. })));
    }
}
