//! CertificateSigningRequest: a wish for a certificate, approved by one and signed by another.

use std::collections::HashMap;

use crate::names::{dns1123_label, dns1123_subdomain, path_segment};
use crate::print::{self, AGE, NAME, or_none};
use crate::{
    Column, FieldError, Fields, Path, Problems, Requester, Resource, Rules, Subresource, Value, Verb, repeats,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use schema::ownership::Filter;
use serde_json::json;

pub static CERTIFICATE_SIGNING_REQUEST: Resource = Resource::cluster(
    "certificates.k8s.io",
    "v1",
    "CertificateSigningRequest",
    "certificatesigningrequests",
    "certificatesigningrequest",
)
.short(&["csr"])
.with_subresources(&[
    Subresource::new("approval", &[Verb::Get, Verb::Patch, Verb::Update])
        .changing(&[&["status"], &["metadata", "annotations"], &["metadata", "labels"]])
        .owning(Filter {
            only: None,
            without: &[&["spec"], &["status", "certificate"]],
        }),
    Subresource::STATUS,
])
.converting_field_labels()
.resetting_on_update(&[&["spec"], &["status"]])
.resetting_on_status_update(&[&["spec"], &["status", "conditions"]])
.with_rules(&CertificateSigningRequestRules);

struct CertificateSigningRequestRules;

impl Rules for CertificateSigningRequestRules {
    /// Who asks is for the server to say; see `fill_requester`.
    fn prepare_create(&self, request: &mut Value) {
        request.set("status", json!({}));
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        new.set("spec", old["spec"].clone());
    }

    fn validate(&self, request: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let (spec, path) = (&request["spec"], Path::new("spec"));
        let request = spec.text("request");
        let decoded = BASE64.decode(request).unwrap_or_default();
        if !begins_request(&decoded) {
            let shown = spec["request"].clone();
            problems.invalid(&path, "request", shown, "PEM block type must be CERTIFICATE REQUEST");
        }
        validate_usages(spec, &path, &mut problems);
        validate_signer(spec.text("signerName"), &path, &mut problems);
        if let Some(seconds) = spec["expirationSeconds"].as_i64()
            && seconds < SHORTEST_SECONDS
        {
            let detail = "may not specify a duration less than 600 seconds (10 minutes)";
            problems.invalid(&path, "expirationSeconds", seconds, detail);
        }
        problems.into_vec()
    }

    /// An approval says yes or no, once; a signer adds the certificate.
    fn validate_subresource_update(&self, subresource: &str, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        if subresource == "approval" {
            let all = ["Approved", "Denied", "Failed"];
            validate_conditions(&new["status"], &old["status"], &all, &mut problems);
        }
        problems.into_vec()
    }

    fn prepare_subresource_update(&self, _subresource: &str, new: &mut Value, old: &Value) {
        // A certificate comes from its signer alone.
        match old["status"].get("certificate") {
            Some(certificate) => new.ensure("status").set("certificate", certificate.clone()),
            None => drop(new.ensure("status").remove("certificate")),
        }
    }

    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        path_segment(name, prefix)
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let (new, old) = (&new["status"], &old["status"]);
        if new["certificate"] != old["certificate"] {
            validate_certificate(new.text("certificate"), &mut problems);
        }
        validate_conditions(new, old, &["Failed"], &mut problems);
        if !old.text("certificate").is_empty() && new["certificate"] != old["certificate"] {
            let detail = "updates may not modify existing certificate content";
            problems.forbidden(&Path::new("status"), "certificate", detail);
        }
        problems.into_vec()
    }

    fn field(&self, request: &Value, path: &str) -> Option<String> {
        (path == "spec.signerName").then(|| request["spec"].text("signerName").to_owned())
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, request: &Value, now: i64) -> Vec<Value> {
        let spec = &request["spec"];
        let duration = spec["expirationSeconds"]
            .as_i64()
            .map(print::duration)
            .unwrap_or_default();
        vec![
            print::name(request),
            print::age(request, now),
            or_none(spec.text("signerName")),
            spec.text("username").into(),
            or_none(duration),
            state(&request["status"]).into(),
        ]
    }

    fn fill_requester(&self, request: &mut Value, requester: &Requester<'_>) {
        let spec = request.ensure("spec");
        for field in ["username", "uid", "groups", "extra"] {
            spec.remove(field);
        }
        spec.set("username", requester.name);
        if !requester.uid.is_empty() {
            spec.set("uid", requester.uid);
        }
        if !requester.groups.is_empty() {
            spec.set("groups", json!(requester.groups));
        }
        if !requester.extra.is_empty() {
            spec.set("extra", json!(requester.extra));
        }
    }

    /// Conditions say when they were written, and when they became what they are.
    fn stamp_conditions(&self, new: &mut Value, old: &Value, now: &str) {
        let conditions = old["status"].list("conditions").iter().rev();
        let before: HashMap<&Value, &Value> = conditions.map(|known| (&known["type"], known)).collect();
        let Some(status) = new.child_mut("status") else { return };
        for condition in status.list_mut("conditions") {
            let known = before.get(&condition["type"]);
            condition.fill_absent("lastUpdateTime", now);
            if condition["lastTransitionTime"].is_null() {
                let same = known.filter(|known| known["status"] == condition["status"]);
                let since = same.map_or_else(|| now.into(), |known| known["lastTransitionTime"].clone());
                condition.set("lastTransitionTime", since);
            }
        }
    }
}

const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// Whether the first block is a request. Text may stand before it, as tools print it for people.
fn begins_request(pem: &[u8]) -> bool {
    let mut lines = pem.split(|byte| *byte == b'\n');
    let first = lines.find(|line| line.starts_with(b"-----BEGIN "));
    first.is_some_and(|line| line.trim_ascii_end() == b"-----BEGIN CERTIFICATE REQUEST-----")
}

fn validate_usages(spec: &Value, path: &Path, problems: &mut Problems) {
    let usages = spec.list("usages");
    if usages.is_empty() {
        problems.required(path, "usages", "");
    }
    let repeated = repeats(usages);
    for (index, usage) in usages.iter().enumerate() {
        let path = path.child("usages").index(index);
        if usage.as_str().is_none_or(|usage| !USAGES.contains(&usage)) {
            problems.extend([FieldError::not_supported(&path, usage.clone(), &USAGES)]);
        }
        if repeated[index] {
            problems.duplicate(&path, "", usage.clone());
        }
    }
}

/// A domain of at least two labels, and one path below it.
fn validate_signer(signer: &str, path: &Path, problems: &mut Problems) {
    let field = "signerName";
    if signer.is_empty() {
        return problems.required(path, field, "");
    }
    if signer == "kubernetes.io/legacy-unknown" {
        let detail = "the legacy signerName is not allowed via this API version";
        problems.invalid(path, field, signer, detail);
    }
    let parts: Vec<&str> = signer.split('/').collect();
    let [domain, name] = parts[..] else {
        let detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        return problems.invalid(path, field, signer, detail);
    };
    let labelled = |label: &str, found: Vec<String>| -> Vec<String> {
        let told = |problem: String| format!("validating label {label:?}: {problem}");
        found.into_iter().map(told).collect()
    };
    for label in domain.split('.') {
        problems.form(path, field, domain, labelled(label, dns1123_label(label, false)));
    }
    if domain.split('.').count() < 2 {
        problems.invalid(
            path,
            field,
            domain,
            "should be a domain with at least two segments separated by dots",
        );
    }
    for label in name.split('.') {
        problems.form(path, field, name, labelled(label, dns1123_subdomain(label, false)));
    }
}

fn validate_certificate(certificate: &str, problems: &mut Problems) {
    let decoded = BASE64.decode(certificate).unwrap_or_default();
    let text = String::from_utf8_lossy(&decoded);
    if !certificate.is_empty() && !text.contains("-----BEGIN CERTIFICATE-----") {
        let detail = "must contain at least one CERTIFICATE PEM block";
        problems.invalid(&Path::new("status"), "certificate", "<certificate data>", detail);
    }
}

/// Conditions stay once they are there, and only those that the writer is for can be added.
fn validate_conditions(new: &Value, old: &Value, addable: &[&str], problems: &mut Problems) {
    let path = Path::new("status");
    let repeated = repeats(new.list("conditions").iter().map(|condition| condition.text("type")));
    for (index, condition) in new.list("conditions").iter().enumerate() {
        let path = path.child("conditions").index(index);
        let (kind, state) = (condition.text("type"), condition.text("status"));
        problems.needs(condition, &path, "type");
        let states: &[&str] = match kind {
            "Approved" | "Denied" | "Failed" => &["True"],
            _ => &["False", "True", "Unknown"],
        };
        if state.is_empty() {
            problems.required(&path, "status", "");
        } else if !states.contains(&state) {
            problems.extend([FieldError::not_supported(&path.child("status"), state, states)]);
        }
        if repeated[index] {
            problems.duplicate(&path, "type", kind);
        }
    }
    let holds = |status: &Value, name: &str| {
        status
            .list("conditions")
            .iter()
            .any(|condition| condition.text("type") == name)
    };
    for name in ["Approved", "Denied", "Failed"] {
        if holds(old, name) && !holds(new, name) {
            let detail = format!("updates may not remove a condition of type {name:?}");
            problems.forbidden(&path, "conditions", detail);
        }
        if !holds(old, name) && holds(new, name) && !addable.contains(&name) {
            let detail = format!("updates may not add a condition of type {name:?}");
            problems.forbidden(&path, "conditions", detail);
        }
    }
    if holds(new, "Approved") && holds(new, "Denied") {
        let detail = "Approved and Denied conditions are mutually exclusive";
        problems.invalid(&path, "conditions", "Denied", detail);
    }
}

fn state(status: &Value) -> String {
    let holds = |name: &str| {
        status
            .list("conditions")
            .iter()
            .any(|condition| condition.text("type") == name)
    };
    let mut state = match (holds("Denied"), holds("Approved")) {
        (true, _) => "Denied",
        (false, true) => "Approved",
        (false, false) => "Pending",
    }
    .to_owned();
    if holds("Failed") {
        state.push_str(",Failed");
    }
    if !status.text("certificate").is_empty() {
        state.push_str(",Issued");
    }
    state
}

const SHORTEST_SECONDS: i64 = 600;

const COLUMNS: &[Column] = &[
    NAME,
    AGE,
    print::text("SignerName", "Who is to sign."),
    print::text("Requestor", "Who asks."),
    print::text("RequestedDuration", "For how long the certificate is asked for."),
    print::text("Condition", "How far the request has come."),
];
