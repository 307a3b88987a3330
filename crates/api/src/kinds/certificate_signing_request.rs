//! CertificateSigningRequest: a wish for a certificate, approved by one and signed by another.

use crate::names::dns1123_subdomain;
use crate::print::{self, AGE, NAME, or_none};
use crate::{Column, FieldError, Fields, Path, Problems, Resource, Rules, Subresource, Value, Verb};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
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
    Subresource::new("approval", &[Verb::Get, Verb::Patch, Verb::Update]),
    Subresource::STATUS,
])
.with_rules(&CertificateSigningRequestRules);

struct CertificateSigningRequestRules;

impl Rules for CertificateSigningRequestRules {
    /// Who asks is for the server to say: the registry fills in the user of the request.
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
        if !decoded.starts_with(b"-----BEGIN CERTIFICATE REQUEST-----") {
            problems.invalid(&path, "request", request, "PEM block type must be CERTIFICATE REQUEST");
        }
        if spec.list("usages").is_empty() {
            problems.required(&path, "usages", "");
        }
        let signer = spec.text("signerName");
        if problems.needs(spec, &path, "signerName") {
            match signer.split_once('/') {
                Some((domain, name)) if !name.is_empty() => {
                    problems.form(&path, "signerName", domain, dns1123_subdomain(domain, false));
                }
                _ => problems.invalid(
                    &path,
                    "signerName",
                    signer,
                    "must be a fully qualified domain and path of the form 'example.com/signer-name'",
                ),
            }
        }
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
            let path = Path::new("status");
            validate_conditions(&new["status"], &old["status"], &["Approved", "Denied"], &mut problems);
            if new["status"]["certificate"] != old["status"]["certificate"] {
                problems.forbidden(&path, "certificate", "updates may not set certificate content");
            }
        }
        problems.into_vec()
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let (new, old) = (&new["status"], &old["status"]);
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
}

/// Conditions stay once they are there, and only those that the writer is for can be added.
fn validate_conditions(new: &Value, old: &Value, addable: &[&str], problems: &mut Problems) {
    let path = Path::new("status");
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
