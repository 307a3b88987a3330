//! Who may approve and sign certificate requests, and what may not be asked for.

use std::sync::Arc;

use api::kinds::certificate_signing_request::CERTIFICATE_SIGNING_REQUEST;
use api::{Error, Fields};
use async_trait::async_trait;
use auth::authorize::Attributes as Question;
use auth::{Authorizer, Decision};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer;
use x509_parser::x509::X509Name;

use crate::{Attributes, Lookup, Operation, Plugin};

/// Approving needs the right `approve` on the signer.
pub struct Approval(pub Arc<dyn Authorizer>);
/// Writing a certificate or condition needs the right `sign` on the signer.
pub struct Signing(pub Arc<dyn Authorizer>);
/// Nobody gets a client certificate for the group that may do everything.
pub struct SubjectRestriction;

const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";
const MASTERS: &str = "system:masters";

#[async_trait]
impl Plugin for Approval {
    fn name(&self) -> &'static str {
        "CertificateApproval"
    }

    fn handles(&self, attributes: &Attributes) -> bool {
        attributes.operation == Operation::Update && attributes.is(&CERTIFICATE_SIGNING_REQUEST, "approval")
    }

    async fn validate(&self, attributes: &Attributes, _lookup: &dyn Lookup) -> Result<(), Error> {
        // The signer of the stored request counts: an approval cannot change it.
        let signer = attributes.old_object["spec"].text("signerName");
        if may(&*self.0, attributes, "approve", signer) {
            return Ok(());
        }
        Err(attributes.forbidden(format!(
            "user not permitted to approve requests with signerName {signer:?}"
        )))
    }
}

#[async_trait]
impl Plugin for Signing {
    fn name(&self) -> &'static str {
        "CertificateSigning"
    }

    fn handles(&self, attributes: &Attributes) -> bool {
        attributes.operation == Operation::Update && attributes.is(&CERTIFICATE_SIGNING_REQUEST, "status")
    }

    async fn validate(&self, attributes: &Attributes, _lookup: &dyn Lookup) -> Result<(), Error> {
        let (old, new) = (&attributes.old_object["status"], &attributes.object["status"]);
        if old["certificate"] == new["certificate"] && old["conditions"] == new["conditions"] {
            return Ok(());
        }
        let signer = attributes.old_object["spec"].text("signerName");
        if may(&*self.0, attributes, "sign", signer) {
            return Ok(());
        }
        Err(attributes.forbidden(format!(
            "user not permitted to sign requests with signerName {signer:?}"
        )))
    }
}

#[async_trait]
impl Plugin for SubjectRestriction {
    fn name(&self) -> &'static str {
        "CertificateSubjectRestriction"
    }

    fn handles(&self, attributes: &Attributes) -> bool {
        attributes.operation == Operation::Create && attributes.is(&CERTIFICATE_SIGNING_REQUEST, "")
    }

    async fn validate(&self, attributes: &Attributes, _lookup: &dyn Lookup) -> Result<(), Error> {
        let spec = &attributes.object["spec"];
        if spec.text("signerName") != CLIENT_SIGNER {
            return Ok(());
        }
        let Some(groups) = organisations(spec.text("request")) else {
            return Err(attributes.forbidden("failed to parse CSR: PEM block type must be CERTIFICATE REQUEST"));
        };
        if groups.iter().any(|group| group == MASTERS) {
            return Err(attributes.forbidden(format!(
                "use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed"
            )));
        }
        Ok(())
    }
}

/// Asks for the signer by its name, and for all signers of its domain.
fn may(authorizer: &dyn Authorizer, attributes: &Attributes, verb: &str, signer: &str) -> bool {
    let domain = signer.split_once('/').map_or(signer, |(domain, _)| domain);
    let wildcard = format!("{domain}/*");
    [signer, &wildcard].into_iter().any(|name| {
        let question = Question {
            version: "*",
            ..Question::resource(&attributes.user, verb, "certificates.k8s.io", "signers").named("", name)
        };
        matches!(authorizer.authorize(&question), Decision::Allow(_))
    })
}

/// The organisations of a request, which is PEM text in base64.
fn organisations(request: &str) -> Option<Vec<String>> {
    of_subject(request, |subject| {
        let groups = subject.iter_organization();
        groups
            .filter_map(|group| group.as_str().ok())
            .map(str::to_owned)
            .collect()
    })
}

/// The common name of a request, empty where it has none.
pub fn common_name(request: &str) -> Option<String> {
    of_subject(request, |subject| {
        let name = subject.iter_common_name().next().and_then(|name| name.as_str().ok());
        name.unwrap_or_default().to_owned()
    })
}

fn of_subject<T>(request: &str, read: impl Fn(&X509Name<'_>) -> T) -> Option<T> {
    let pem = STANDARD.decode(request).ok()?;
    let block = Pem::iter_from_buffer(&pem).next()?.ok()?;
    let (_, parsed) = X509CertificationRequest::from_der(&block.contents).ok()?;
    Some(read(&parsed.certification_request_info.subject))
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use rcgen::{CertificateParams, DnType, KeyPair};
    use serde_json::json;

    use super::*;
    use crate::testing::{Cluster, create, run, update};

    /// Allows the verb on the signers of one domain.
    struct Only(&'static str, &'static str);

    impl Authorizer for Only {
        fn authorize(&self, question: &Question) -> Decision {
            if question.verb == self.0 && question.name == self.1 {
                Decision::Allow(String::new())
            } else {
                Decision::NoOpinion(String::new())
            }
        }
    }

    #[test]
    fn a_signer_has_its_approvers_and_signers() {
        let request = json!({"metadata": {"name": "r"}, "spec": {"signerName": "example.com/mine"}});
        let mut signed = request.clone();
        signed["status"] = json!({"certificate": "c"});
        let approve = || Attributes {
            subresource: "approval".to_owned(),
            ..update(&CERTIFICATE_SIGNING_REQUEST, request.clone(), request.clone())
        };
        let sign = || Attributes {
            subresource: "status".to_owned(),
            ..update(&CERTIFICATE_SIGNING_REQUEST, request.clone(), signed.clone())
        };
        let cluster = Cluster::default();
        assert!(
            run(
                &Approval(Arc::new(Only("approve", "example.com/*"))),
                approve(),
                &cluster
            )
            .is_ok()
        );
        assert!(run(&Signing(Arc::new(Only("sign", "example.com/mine"))), sign(), &cluster).is_ok());
        expect![[r#"certificatesigningrequests.certificates.k8s.io "r" is forbidden: user not permitted to sign requests with signerName "example.com/mine""#]]
            .assert_eq(&run(&Signing(Arc::new(Only("approve", "example.com/mine"))), sign(), &cluster).unwrap_err());
    }

    #[test]
    fn nobody_asks_for_masters() {
        let ask = |group: &str| {
            let mut params = CertificateParams::default();
            params.distinguished_name.push(DnType::OrganizationName, group);
            let pem = params
                .serialize_request(&KeyPair::generate().unwrap())
                .unwrap()
                .pem()
                .unwrap();
            let spec = json!({"signerName": CLIENT_SIGNER, "request": STANDARD.encode(pem)});
            let object = json!({"metadata": {"name": "r"}, "spec": spec});
            run(
                &SubjectRestriction,
                create(&CERTIFICATE_SIGNING_REQUEST, object),
                &Cluster::default(),
            )
        };
        assert!(ask("developers").is_ok());
        expect![[r#"certificatesigningrequests.certificates.k8s.io "r" is forbidden: use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed"#]]
            .assert_eq(&ask("system:masters").unwrap_err());
    }
}
