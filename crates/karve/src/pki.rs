//! The cluster's certificates and keys: made at first start, renewed before they expire.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use kubelet::ServingCertificate;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};

use crate::layout::{Layout, read, write_private};

const AUTHORITY_LIFETIME: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// Leaf certificates are made anew at every start, so this only bounds how long one process may run.
const LEAF_LIFETIME: Duration = Duration::from_secs(365 * 24 * 3600);
/// Clocks of nodes may differ.
const BACKDATE: Duration = Duration::from_secs(300);

/// The authority of one cluster.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub certificate_pem: String,
    /// For the controller that signs certificates.
    pub key_pem: String,
}

/// A certificate and its key, as PEM.
#[derive(Clone, Debug)]
pub struct Identity {
    pub certificate_pem: String,
    pub key_pem: String,
}

impl Identity {
    /// As what a kubelet serves with.
    pub fn serving(self) -> ServingCertificate {
        ServingCertificate::Given {
            chain: self.certificate_pem.into_bytes(),
            key: self.key_pem.into_bytes(),
        }
    }
}

impl Authority {
    /// Reads the cluster's authority, or makes it when there is none yet.
    pub fn open(layout: &Layout) -> Result<Authority> {
        Authority::open_named(layout, "ca", "kubernetes")
    }

    /// The authority for certificates that prove to other API servers that a request comes from ours.
    pub fn open_front_proxy(layout: &Layout) -> Result<Authority> {
        Authority::open_named(layout, "front-proxy-ca", "front-proxy-ca")
    }

    /// The authority of the store and of those who may use it.
    pub fn open_etcd(layout: &Layout) -> Result<Authority> {
        Authority::open_named(layout, "etcd-ca", "etcd-ca")
    }

    fn open_named(layout: &Layout, file: &str, common_name: &str) -> Result<Authority> {
        let path = |extension: &str| layout.pki().join(format!("{file}.{extension}"));
        let (certificate, key) = (path("crt"), path("key"));
        if !certificate.exists() {
            let made = make_authority(common_name)?;
            // The key first: a certificate without its key would lock the cluster.
            write_private(&key, made.key_pem.as_bytes())?;
            write_private(&certificate, made.certificate_pem.as_bytes())?;
        }
        let certificate_pem = read(&certificate)?;
        let key_pem = read(&key)?;
        let key_pair =
            KeyPair::from_pem(&key_pem).with_context(|| format!("{} is not a private key", key.display()))?;
        let issuer = Issuer::from_ca_cert_pem(&certificate_pem, key_pair)
            .with_context(|| format!("{} is not a certificate", certificate.display()))?;
        Ok(Authority {
            issuer,
            certificate_pem,
            key_pem,
        })
    }

    /// A certificate by which a client proves to be `name` in `groups`.
    pub fn client(&self, name: &str, groups: &[&str]) -> Result<Identity> {
        let mut params = leaf(name, ExtendedKeyUsagePurpose::ClientAuth)?;
        for group in groups {
            params.distinguished_name.push(DnType::OrganizationName, *group);
        }
        self.sign(params)
    }

    /// A certificate by which a kubelet proves which node it serves for.
    pub fn kubelet_server(&self, node: &str, address: IpAddr) -> Result<Identity> {
        let mut params = server_leaf(&format!("system:node:{node}"), &[node], &[address])?;
        params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
        self.sign(params)
    }

    /// A certificate by which a server proves to be reached under any of these names and addresses.
    pub fn server(&self, name: &str, dns_names: &[&str], addresses: &[IpAddr]) -> Result<Identity> {
        self.sign(server_leaf(name, dns_names, addresses)?)
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

/// A certificate by which a server shows its names though nobody vouches for it.
pub fn self_signed(name: &str, dns_names: &[&str]) -> Result<Identity> {
    let key = KeyPair::generate()?;
    let mut params = server_leaf(name, dns_names, &[])?;
    params.use_authority_key_identifier_extension = false;
    let certificate = params.self_signed(&key)?;
    Ok(Identity {
        certificate_pem: certificate.pem(),
        key_pem: key.serialize_pem(),
    })
}

/// The key that signs service account tokens, made at first start.
pub fn service_account_key(layout: &Layout) -> Result<String> {
    let path = layout.pki().join("sa.key");
    if !path.exists() {
        let key = KeyPair::generate()?;
        write_private(&path, key.serialize_pem().as_bytes())?;
    }
    read(&path)
}

fn make_authority(common_name: &str) -> Result<Identity> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::DigitalSignature,
        KeyUsagePurpose::KeyEncipherment,
        KeyUsagePurpose::KeyCertSign,
    ];
    set_validity(&mut params, AUTHORITY_LIFETIME)?;
    let certificate = params.self_signed(&key)?;
    Ok(Identity {
        certificate_pem: certificate.pem(),
        key_pem: key.serialize_pem(),
    })
}

fn server_leaf(name: &str, dns_names: &[&str], addresses: &[IpAddr]) -> Result<CertificateParams> {
    let mut params = leaf(name, ExtendedKeyUsagePurpose::ServerAuth)?;
    for dns_name in dns_names {
        params.subject_alt_names.push(SanType::DnsName((*dns_name).try_into()?));
    }
    params
        .subject_alt_names
        .extend(addresses.iter().map(|address| SanType::IpAddress(*address)));
    Ok(params)
}

fn leaf(name: &str, purpose: ExtendedKeyUsagePurpose) -> Result<CertificateParams> {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    params.extended_key_usages = vec![purpose];
    params.use_authority_key_identifier_extension = true;
    set_validity(&mut params, LEAF_LIFETIME)?;
    Ok(params)
}

fn set_validity(params: &mut CertificateParams, lifetime: Duration) -> Result<()> {
    let start = clock::since_epoch().saturating_sub(BACKDATE);
    let moment = |since_epoch: Duration| time::OffsetDateTime::from_unix_timestamp(since_epoch.as_secs() as i64);
    params.not_before = moment(start)?;
    params.not_after = moment(start + lifetime)?;
    Ok(())
}
