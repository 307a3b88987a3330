//! Signs what was approved, with the cluster's authority, if the signer that was asked for is one of the cluster's own.

use std::sync::Arc;
use std::time::Duration;

use api::Fields;
use api::kinds::certificate_signing_request::CERTIFICATE_SIGNING_REQUEST;
use async_trait::async_trait;
use auth::authenticate::to_pkcs8;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use client::when::Moment;
use client::{Cache, Key};
use rcgen::{ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, SerialNumber};
use serde_json::json;
use time::OffsetDateTime;

use super::request::Wanted;
use super::{KUBELET_CLIENT, KUBELET_SERVING, SigningRequest};
use crate::driver::{Attempt, Reconcile, Row, Setup};
use crate::plan::{Action, Patch, Plan};
use crate::settings::SigningAuthority;

pub const ROW: Row = Row {
    name: "certificatesigningrequest-signing",
    account: "certificate-controller",
    queue: "certificate",
    workers: 5,
    start,
};

const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
const UNKNOWN: &str = "kubernetes.io/legacy-unknown";
/// How long certificates are valid at most, and at least when somebody asks for less.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);
const SHORTEST: Duration = Duration::from_secs(600);
/// Clocks of nodes may differ.
const BACKDATE: Duration = Duration::from_secs(300);

struct Controller {
    authority: Option<SigningAuthority>,
    requests: Arc<Cache<SigningRequest>>,
}

fn start(setup: &mut Setup<'_>) -> Box<dyn Reconcile> {
    let requests = setup.cache::<SigningRequest>(&CERTIFICATE_SIGNING_REQUEST);
    setup.watch_own(&requests);
    Box::new(Controller {
        authority: setup.settings().signing.clone(),
        requests,
    })
}

#[async_trait]
impl Reconcile for Controller {
    async fn plan(&self, key: &Key, attempt: &Attempt) -> client::Result<Plan> {
        let (Some(request), Some(authority)) = (self.requests.get_key(key.as_str()), &self.authority) else {
            return Ok(Plan::nothing());
        };
        Ok(plan(&request, authority, attempt.now))
    }
}

fn plan(request: &SigningRequest, authority: &SigningAuthority, now: Moment) -> Plan {
    let signer = request.spec.text("signerName");
    let is_ours = [CLIENT, KUBELET_CLIENT, KUBELET_SERVING, UNKNOWN].contains(&signer);
    let is_done = !request.status.text("certificate").is_empty() || request.has("Failed") || request.has("Denied");
    if !is_ours || is_done || !request.has("Approved") {
        return Plan::nothing();
    }
    let wanted = request.pem().ok_or_else(|| "the request is not PEM".to_owned());
    let signed = wanted
        .and_then(|pem| Wanted::parse(&pem))
        .and_then(|wanted| check(request, &wanted).map(|()| wanted))
        .map_err(|error| ("SignerValidationFailure", error))
        .and_then(|wanted| sign(request, wanted, authority, now).map_err(|error| ("SigningFailure", error)));
    let status = match signed {
        Ok(pem) => json!({"certificate": BASE64.encode(pem)}),
        Err((reason, message)) => {
            let mut conditions = request.status.list("conditions").to_vec();
            conditions.push(json!({
                "type": "Failed", "status": "True", "reason": reason, "message": message,
                "lastUpdateTime": now.to_time(),
            }));
            json!({"conditions": conditions})
        }
    };
    let mut patch = Patch::new(
        &CERTIFICATE_SIGNING_REQUEST,
        &request.metadata,
        json!({"status": status}),
    )
    .at_revision(&request.metadata)
    .by_update();
    patch.subresource = "status";
    Plan {
        actions: vec![Action::Patch(patch)],
        ..Plan::default()
    }
}

/// Each signer stands for a purpose, and signs nothing else.
fn check(request: &SigningRequest, wanted: &Wanted) -> Result<(), String> {
    let usages = request.usages();
    match request.spec.text("signerName") {
        KUBELET_CLIENT => wanted.check_kubelet_client(&usages),
        KUBELET_SERVING => wanted.check_kubelet_serving(&usages),
        CLIENT => {
            let allowed = ["digital signature", "key encipherment", "client auth"];
            if let Some(other) = usages.iter().find(|usage| !allowed.contains(usage)) {
                return Err(format!("invalid usage for client certificate: {other}"));
            }
            match usages.contains(&"client auth") {
                true => Ok(()),
                false => Err("missing required usage for client certificate: client auth".to_owned()),
            }
        }
        _ => Ok(()),
    }
}

fn sign(
    request: &SigningRequest,
    mut wanted: Wanted,
    authority: &SigningAuthority,
    now: Moment,
) -> Result<String, String> {
    let key = KeyPair::from_pem(&to_pkcs8(&authority.key_pem)).map_err(|error| error.to_string())?;
    let issuer = Issuer::from_ca_cert_pem(&authority.certificate_pem, key).map_err(|error| error.to_string())?;
    let asked = request.spec["expirationSeconds"].as_u64().map(Duration::from_secs);
    let lifetime = asked.map_or(LONGEST, |asked| asked.clamp(SHORTEST, LONGEST));
    let at = |moment: Moment| OffsetDateTime::from_unix_timestamp(moment.seconds()).map_err(|error| error.to_string());
    let params = &mut wanted.params.params;
    params.not_before = at(Moment::from_seconds(now.seconds() - BACKDATE.as_secs() as i64))?;
    params.not_after = at(now.plus(lifetime))?.min(expiry(&authority.certificate_pem)?);
    // Whoever asks to be an authority does not become one.
    params.is_ca = IsCa::ExplicitNoCa;
    params.serial_number = Some(SerialNumber::from(clock::random_bytes().to_vec()));
    (params.key_usages, params.extended_key_usages) = purposes(&request.usages())?;
    let certificate = wanted.params.signed_by(&issuer).map_err(|error| error.to_string())?;
    Ok(certificate.pem())
}

/// A certificate cannot be trusted for longer than who signed it.
fn expiry(pem: &str) -> Result<OffsetDateTime, String> {
    let (_, block) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).map_err(|error| error.to_string())?;
    let certificate = block.parse_x509().map_err(|error| error.to_string())?;
    Ok(certificate.validity().not_after.to_datetime())
}

/// What a certificate may be used for, in the words of the API.
fn purposes(usages: &[&str]) -> Result<(Vec<KeyUsagePurpose>, Vec<ExtendedKeyUsagePurpose>), String> {
    let (mut basic, mut extended) = (Vec::new(), Vec::new());
    for usage in usages {
        match *usage {
            "signing" | "digital signature" => basic.push(KeyUsagePurpose::DigitalSignature),
            "content commitment" => basic.push(KeyUsagePurpose::ContentCommitment),
            "key encipherment" => basic.push(KeyUsagePurpose::KeyEncipherment),
            "key agreement" => basic.push(KeyUsagePurpose::KeyAgreement),
            "data encipherment" => basic.push(KeyUsagePurpose::DataEncipherment),
            "cert sign" => basic.push(KeyUsagePurpose::KeyCertSign),
            "crl sign" => basic.push(KeyUsagePurpose::CrlSign),
            "encipher only" => basic.push(KeyUsagePurpose::EncipherOnly),
            "decipher only" => basic.push(KeyUsagePurpose::DecipherOnly),
            "any" => extended.push(ExtendedKeyUsagePurpose::Any),
            "server auth" => extended.push(ExtendedKeyUsagePurpose::ServerAuth),
            "client auth" => extended.push(ExtendedKeyUsagePurpose::ClientAuth),
            "code signing" => extended.push(ExtendedKeyUsagePurpose::CodeSigning),
            "email protection" | "s/mime" => extended.push(ExtendedKeyUsagePurpose::EmailProtection),
            "timestamping" => extended.push(ExtendedKeyUsagePurpose::TimeStamping),
            "ocsp signing" => extended.push(ExtendedKeyUsagePurpose::OcspSigning),
            other => return Err(format!("unrecognized usage {other:?}")),
        }
    }
    Ok((basic, extended))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use api::Value;
    use rcgen::{BasicConstraints, CertificateParams, DnType};

    use super::*;
    use crate::testing::noon;

    fn authority() -> SigningAuthority {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        SigningAuthority {
            certificate_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
        }
    }

    fn request(signer: &str, organization: &str, usages: Value) -> Arc<SigningRequest> {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "system:node:one");
        params.distinguished_name.push(DnType::OrganizationName, organization);
        let pem = params.serialize_request(&key).unwrap().pem().unwrap();
        let request = json!({
            "metadata": {"name": "one", "resourceVersion": "3"},
            "spec": {"request": BASE64.encode(pem), "signerName": signer, "usages": usages, "expirationSeconds": 3600},
            "status": {"conditions": [{"type": "Approved", "status": "True"}]},
        });
        Arc::new(serde_json::from_value(request).unwrap())
    }

    fn status(plan: &Plan) -> Value {
        match plan.actions.first() {
            Some(Action::Patch(patch)) => patch.body["status"].clone(),
            _ => Value::Null,
        }
    }

    #[test]
    fn an_approved_request_is_signed_for_what_it_asks() {
        let usages = json!(["digital signature", "client auth"]);
        let request = request(KUBELET_CLIENT, "system:nodes", usages);
        let written = status(&plan(&request, &authority(), noon()));
        let pem = BASE64.decode(written.text("certificate")).unwrap();
        let (_, block) = x509_parser::pem::parse_x509_pem(&pem).unwrap();
        let certificate = block.parse_x509().unwrap();
        assert_eq!(certificate.subject().to_string(), "CN=system:node:one, O=system:nodes");
        assert_eq!(certificate.validity().not_after.timestamp(), noon().seconds() + 3600);
        assert!(!certificate.is_ca());
        assert!(certificate.extended_key_usage().unwrap().unwrap().value.client_auth);
    }

    /// As kubeadm and openssl's older versions write it.
    #[test]
    fn an_authority_may_have_its_rsa_key_in_the_form_of_pkcs1() {
        let key_pem = include_str!("../../../auth/src/authenticate/service_account/rsa-test-key.pem");
        assert!(key_pem.starts_with("-----BEGIN RSA PRIVATE KEY-----"));
        let key = KeyPair::from_pem(&to_pkcs8(key_pem)).unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = SigningAuthority {
            certificate_pem: params.self_signed(&key).unwrap().pem(),
            key_pem: key_pem.to_owned(),
        };
        let request = request(
            KUBELET_CLIENT,
            "system:nodes",
            json!(["digital signature", "client auth"]),
        );
        let written = status(&plan(&request, &authority, noon()));
        assert!(!written.text("certificate").is_empty(), "{written}");
    }

    #[test]
    fn what_a_signer_does_not_stand_for_fails() {
        let usages = json!(["digital signature", "client auth"]);
        let request = request(KUBELET_CLIENT, "admins", usages);
        let written = status(&plan(&request, &authority(), noon()));
        assert_eq!(written["conditions"][1]["reason"], "SignerValidationFailure");
        assert_eq!(
            written["conditions"][1]["message"],
            "subject organization is not system:nodes"
        );
    }

    #[test]
    fn requests_for_other_signers_and_undecided_ones_are_left_alone() {
        let other = request("example.com/signer", "system:nodes", json!(["client auth"]));
        assert!(plan(&other, &authority(), noon()).actions.is_empty());
    }
}
