//! Who attackers are: certificates of the cluster's own authority, as its users have them.

use std::net::IpAddr;
use std::path::Path;

use anyhow::{Context, Result};
use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair, SanType};

use crate::wire::tls::Identity;

/// The authority, whose key the attackers do not have: it only tells them apart.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub key_pem: String,
}

impl Authority {
    pub fn open(pki: &Path) -> Result<Self> {
        let read = |name: &str| {
            let path = pki.join(name);
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        let (certificate_pem, key_pem) = (read("ca.crt")?, read("ca.key")?);
        let issuer = Issuer::from_ca_cert_pem(&certificate_pem, KeyPair::from_pem(&key_pem)?)?;
        Ok(Self { issuer, key_pem })
    }

    /// A client of this name and these groups.
    pub fn client(&self, name: &str, groups: &[&str]) -> Result<Identity> {
        let mut params = subject(name, groups);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params)
    }

    fn sign(&self, params: CertificateParams) -> Result<Identity> {
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Identity {
            certificate_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
        })
    }
}

/// A certificate that nobody but its owner has signed.
pub fn self_signed(address: IpAddr) -> Result<Identity> {
    let key = KeyPair::generate()?;
    let mut params = subject("attacker", &[]);
    params.subject_alt_names = vec![SanType::IpAddress(address), SanType::DnsName("localhost".try_into()?)];
    let certificate = params.self_signed(&key)?;
    Ok(Identity {
        certificate_pem: certificate.pem(),
        key_pem: key.serialize_pem(),
    })
}

/// A request for a certificate, PEM, as CertificateSigningRequests carry it.
pub fn signing_request(name: &str, groups: &[&str], addresses: &[IpAddr]) -> Result<String> {
    let mut params = subject(name, groups);
    params.subject_alt_names = addresses.iter().map(|address| SanType::IpAddress(*address)).collect();
    Ok(params.serialize_request(&KeyPair::generate()?)?.pem()?)
}

fn subject(name: &str, groups: &[&str]) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    for group in groups {
        params.distinguished_name.push(DnType::OrganizationName, *group);
    }
    params.distinguished_name.push(DnType::CommonName, name);
    params
}
