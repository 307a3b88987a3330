//! Probes and hooks: what is called, and how often.

use super::Context;
use crate::names::{port_name, port_number};
use crate::{Fields, Path, Problems, Value};

const KINDS: [&str; 5] = ["exec", "httpGet", "tcpSocket", "grpc", "sleep"];

pub fn validate_lifecycle(context: &Context, container: &Value, path: &Path, problems: &mut Problems) {
    let lifecycle = &container["lifecycle"];
    let path = path.child("lifecycle");
    for hook in ["postStart", "preStop"] {
        if lifecycle[hook].is_object() {
            validate_handler(&lifecycle[hook], &path.child(hook), problems);
            validate_sleep(context, &lifecycle[hook], &path.child(hook), problems);
        }
    }
}

pub fn validate_probes(container: &Value, path: &Path, problems: &mut Problems) {
    for kind in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let probe = &container[kind];
        if !probe.is_object() {
            continue;
        }
        let path = path.child(kind);
        validate_handler(probe, &path, problems);
        for field in [
            "initialDelaySeconds",
            "timeoutSeconds",
            "periodSeconds",
            "successThreshold",
            "failureThreshold",
        ] {
            problems.not_negative(probe, &path, field);
        }
        let grace = &probe["terminationGracePeriodSeconds"];
        match kind {
            "readinessProbe" if !grace.is_null() => {
                let detail = "must not be set for readinessProbes";
                problems.invalid(&path, "terminationGracePeriodSeconds", grace.clone(), detail);
            }
            "readinessProbe" => {}
            _ if probe.number("successThreshold") != 1 => {
                problems.invalid(&path, "successThreshold", probe.number("successThreshold"), "must be 1");
            }
            _ => {}
        }
        if grace.as_i64().is_some_and(|seconds| seconds <= 0) {
            problems.invalid(
                &path,
                "terminationGracePeriodSeconds",
                grace.clone(),
                "must be greater than 0",
            );
        }
    }
}

fn validate_handler(handler: &Value, path: &Path, problems: &mut Problems) {
    let mut present = KINDS.into_iter().filter(|kind| handler[*kind].is_object());
    let Some(first) = present.next() else {
        return problems.required(path, "", "must specify a handler type");
    };
    let action = &handler[first];
    let action_path = path.child(first);
    match first {
        "exec" if action.list("command").is_empty() => problems.required(&action_path, "command", ""),
        "httpGet" => {
            problems.needs(action, &action_path, "path");
            validate_port(&action["port"], &action_path, problems);
            problems.one_of(action, &action_path, "scheme", &["HTTP", "HTTPS"]);
            for header in action.list("httpHeaders") {
                validate_header(header.text("name"), &action_path, problems);
            }
        }
        "tcpSocket" | "grpc" => validate_port(&action["port"], &action_path, problems),
        _ => {}
    }
    for other in present {
        problems.forbidden(path, other, "may not specify more than 1 handler type");
    }
}

/// A port by number, or by the name that a container gave it.
pub fn validate_port(port: &Value, path: &Path, problems: &mut Problems) {
    match port.as_str() {
        Some(name) => problems.form(path, "port", name, port_name(name)),
        None => {
            let number = port.as_i64().unwrap_or_default();
            problems.form(path, "port", number, port_number(number));
        }
    }
}

fn validate_header(name: &str, path: &Path, problems: &mut Problems) {
    let fine = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if !fine {
        let detail = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex \
                      used for validation is '[-A-Za-z0-9]+')";
        problems.invalid(path, "httpHeaders", name, detail);
    }
}

fn validate_sleep(context: &Context, hook: &Value, path: &Path, problems: &mut Problems) {
    let Some(seconds) = hook["sleep"]["seconds"].as_i64() else {
        return;
    };
    let grace = context.spec.number("terminationGracePeriodSeconds");
    if !(0..=grace).contains(&seconds) {
        let detail = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
        problems.invalid(path, "sleep", seconds, detail);
    }
}
