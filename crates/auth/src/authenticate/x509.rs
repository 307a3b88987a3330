//! Client certificates: the common name is the user, the organisations are its groups.

use ring::digest::{SHA256, digest};
use x509_parser::der_parser::Oid;
use x509_parser::der_parser::asn1_rs::oid;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::User;

#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    #[error("cannot parse the client certificate")]
    Unreadable,
    #[error("the client certificate has no common name")]
    Nameless,
    #[error("the client certificate has more than one UID")]
    SeveralUids,
}

/// The attribute of a subject that is the user's UID.
const UID: Oid<'static> = oid!(1.3.6.1.4.1.57683.2);
/// Tells by which credential a user came, for the audit log.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// Whom a certificate names, and from when until when, in seconds since 1970.
#[derive(Clone, Debug)]
pub struct Subject {
    pub user: User,
    pub issued: i64,
    pub expires: i64,
}

/// The user of a certificate that TLS has already verified against the client CA.
pub fn user(der: &[u8]) -> Result<Subject, CertificateError> {
    let (_, certificate) = X509Certificate::from_der(der).map_err(|_| CertificateError::Unreadable)?;
    let subject = certificate.subject();
    let name = subject
        .iter_common_name()
        .next()
        .and_then(|name| name.as_str().ok())
        .unwrap_or_default();
    if name.is_empty() {
        return Err(CertificateError::Nameless);
    }
    let groups: Vec<&str> = subject
        .iter_organization()
        .filter_map(|group| group.as_str().ok())
        .collect();
    let mut user = User::new(name, &groups).authenticated();
    let mut uids = subject.iter_by_oid(&UID).filter_map(|uid| uid.as_str().ok());
    user.uid = uids.next().unwrap_or_default().to_owned();
    if uids.next().is_some() {
        return Err(CertificateError::SeveralUids);
    }
    let fingerprint: String = digest(&SHA256, der)
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    user.extra
        .insert(CREDENTIAL_ID.to_owned(), vec![format!("X509SHA256={fingerprint}")]);
    let validity = certificate.validity();
    Ok(Subject {
        user,
        issued: validity.not_before.timestamp(),
        expires: validity.not_after.timestamp(),
    })
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};

    fn certificate(entries: &[(DnType, &str)]) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, value) in entries {
            params.distinguished_name.push(kind.clone(), *value);
        }
        params
            .self_signed(&KeyPair::generate().unwrap())
            .unwrap()
            .der()
            .to_vec()
    }

    #[test]
    fn the_subject_names_user_and_groups() {
        let der = certificate(&[
            (DnType::CommonName, "system:node:one"),
            (DnType::OrganizationName, "system:nodes"),
        ]);
        let user = super::user(&der).unwrap().user;
        assert_eq!(user.name, "system:node:one");
        assert_eq!(user.groups, ["system:nodes", "system:authenticated"]);
        assert_eq!(user.node_name(), Some("one"));
        let id = &user.extra["authentication.kubernetes.io/credential-id"];
        assert!(id[0].starts_with("X509SHA256=") && id[0].len() == 11 + 64, "{id:?}");
        assert!(user.uid.is_empty());
        let uid = || DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2]);
        let user = super::user(&certificate(&[(DnType::CommonName, "a"), (uid(), "u1")]))
            .unwrap()
            .user;
        assert_eq!(user.uid, "u1");
    }

    #[test]
    fn a_certificate_without_a_name_is_no_user() {
        assert!(super::user(&certificate(&[(DnType::OrganizationName, "system:masters")])).is_err());
        assert!(super::user(b"nonsense").is_err());
    }
}
