//! What a request for a certificate asks for, and what signers demand of it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use rcgen::{CertificateSigningRequestParams, DnType, DnValue, SanType};

/// The request with its subject. Its signature has been verified.
pub struct Wanted {
    pub params: CertificateSigningRequestParams,
    pub common_name: String,
    pub organization: String,
    /// The public key that is to be certified, as DER.
    pub public_key: Vec<u8>,
}

const NODES: &str = "system:nodes";
const NODE_PREFIX: &str = "system:node:";

impl Wanted {
    pub fn parse(pem: &str) -> Result<Wanted, String> {
        let params = CertificateSigningRequestParams::from_pem(pem).map_err(|error| error.to_string())?;
        let name = &params.params.distinguished_name;
        let text = |kind: DnType| name.get(&kind).map(text).unwrap_or_default();
        let (common_name, organization) = (text(DnType::CommonName), text(DnType::OrganizationName));
        let (attributes, public_key) = subject(pem)?;
        if attributes != name.iter().count() {
            return Err("subjects that repeat an attribute are not supported".to_owned());
        }
        Ok(Wanted {
            params,
            common_name,
            organization,
            public_key,
        })
    }

    /// The node that the subject names.
    pub fn node(&self) -> Option<&str> {
        self.common_name.strip_prefix(NODE_PREFIX)
    }

    pub fn dns_names(&self) -> impl Iterator<Item = &str> {
        let names = self.params.params.subject_alt_names.iter();
        names.filter_map(|name| match name {
            SanType::DnsName(name) => Some(name.as_str()),
            _ => None,
        })
    }

    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        let names = self.params.params.subject_alt_names.iter();
        names.filter_map(|name| match name {
            SanType::IpAddress(address) => Some(*address),
            _ => None,
        })
    }

    /// What the certificate by which a kubelet asks the server must be like.
    pub fn check_kubelet_client(&self, usages: &[&str]) -> Result<(), String> {
        self.check_organization()?;
        if let Some(name) = self.params.params.subject_alt_names.first() {
            let kind = match name {
                SanType::DnsName(_) => "DNS",
                SanType::Rfc822Name(_) => "Email",
                SanType::IpAddress(_) => "IP",
                _ => "URI",
            };
            return Err(format!("{kind} subjectAltNames are not allowed"));
        }
        self.check_node()?;
        check_usages(usages, "client auth")
    }

    /// What the certificate that a kubelet serves with must be like.
    pub fn check_kubelet_serving(&self, usages: &[&str]) -> Result<(), String> {
        self.check_organization()?;
        let names = &self.params.params.subject_alt_names;
        if !names
            .iter()
            .any(|name| matches!(name, SanType::DnsName(_) | SanType::IpAddress(_)))
        {
            return Err("DNS or IP subjectAltName is required".to_owned());
        }
        if names.iter().any(|name| matches!(name, SanType::Rfc822Name(_))) {
            return Err("Email subjectAltNames are not allowed".to_owned());
        }
        if names.iter().any(|name| matches!(name, SanType::URI(_))) {
            return Err("URI subjectAltNames are not allowed".to_owned());
        }
        check_usages(usages, "server auth")?;
        self.check_node()
    }

    fn check_organization(&self) -> Result<(), String> {
        match self.organization.as_str() {
            NODES => Ok(()),
            _ => Err("subject organization is not system:nodes".to_owned()),
        }
    }

    fn check_node(&self) -> Result<(), String> {
        match self.common_name.starts_with(NODE_PREFIX) {
            true => Ok(()),
            false => Err("subject common name does not begin with system:node:".to_owned()),
        }
    }
}

/// Keys that cannot encipher need not say that they do.
fn check_usages(usages: &[&str], purpose: &str) -> Result<(), String> {
    let said: BTreeSet<&str> = usages.iter().copied().collect();
    let short = BTreeSet::from(["digital signature", purpose]);
    let full = BTreeSet::from(["digital signature", "key encipherment", purpose]);
    match said == short || said == full {
        true => Ok(()),
        false => {
            let mut listed: Vec<&str> = full.into_iter().collect();
            listed.sort_unstable();
            Err(format!("usages did not match [{}]", listed.join(" ")))
        }
    }
}

/// How many attributes the subject has, of which signing keeps one of each kind; and its public key as DER.
fn subject(pem: &str) -> Result<(usize, Vec<u8>), String> {
    use x509_parser::prelude::FromDer;
    let unreadable = |error: &dyn std::fmt::Display| format!("the request cannot be read: {error}");
    let (_, block) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).map_err(|error| unreadable(&error))?;
    let request = x509_parser::certification_request::X509CertificationRequest::from_der(&block.contents);
    let (_, request) = request.map_err(|error| unreadable(&error))?;
    let info = &request.certification_request_info;
    Ok((info.subject.iter_attributes().count(), info.subject_pki.raw.to_vec()))
}

fn text(value: &DnValue) -> String {
    match value {
        DnValue::Utf8String(text) => text.clone(),
        DnValue::PrintableString(text) => text.as_str().to_owned(),
        DnValue::Ia5String(text) => text.as_str().to_owned(),
        // Other encodings are never part of a name that means something here.
        _ => String::new(),
    }
}
