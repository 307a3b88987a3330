//! The certificates of the API server itself.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use anyhow::{Context, Result};
use apiserver::{KUBELET_CLIENT, ServiceNetwork};

use super::apiserver::ApiServerArgs;
use crate::layout::Layout;
use crate::pki::{Authority, Identity};
use crate::renewal::Renewed;

/// The certificates by which this server proves who it is: given as files that are read again when they change, or made
/// here and made anew before they expire.
pub struct OwnCertificates {
    pub serving: Arc<Renewed>,
    pub kubelet_client: Arc<Renewed>,
    pub front_proxy: Arc<Renewed>,
}

impl OwnCertificates {
    pub fn new(
        layout: &Layout,
        args: &ApiServerArgs,
        authority: &Arc<Authority>,
        (advertise, network): (IpAddr, ServiceNetwork),
    ) -> Result<OwnCertificates> {
        let serving = match (&args.tls_cert_file, &args.tls_private_key_file) {
            (Some(certificate), Some(key)) => Renewed::from_files("kube-apiserver", certificate, key),
            _ => {
                let (authority, args, current) = (authority.clone(), args.clone(), args.clone());
                // This machine may get another address, at which the server is reached from then on.
                Renewed::for_occasion(
                    "kube-apiserver",
                    move || current.advertised().to_string(),
                    move || serving_identity(&args, &authority, advertise, network),
                )
            }
        };
        let kubelet_client = match (&args.kubelet_client_certificate, &args.kubelet_client_key) {
            (Some(certificate), Some(key)) => Renewed::from_files("kubelet client", certificate, key),
            _ => {
                let authority = authority.clone();
                Renewed::new("kubelet client", move || authority.client(KUBELET_CLIENT, &[]))
            }
        };
        let front_proxy = match (&args.proxy_client_cert_file, &args.proxy_client_key_file) {
            (Some(certificate), Some(key)) => Renewed::from_files("front proxy client", certificate, key),
            _ => {
                let authority = Authority::open_front_proxy(layout)?;
                Renewed::new("front proxy client", move || {
                    authority.client("front-proxy-client", &[])
                })
            }
        };
        Ok(OwnCertificates {
            serving: serving.context("invalid serving certificate")?,
            kubelet_client: kubelet_client.context("invalid client certificate for kubelets")?,
            front_proxy: front_proxy.context("invalid client certificate for API servers behind APIServices")?,
        })
    }

    pub fn all(&self) -> Vec<Arc<Renewed>> {
        vec![
            self.serving.clone(),
            self.kubelet_client.clone(),
            self.front_proxy.clone(),
        ]
    }
}

/// A certificate for every name and address that clients reach this server at.
fn serving_identity(
    args: &ApiServerArgs,
    authority: &Authority,
    advertise: IpAddr,
    network: ServiceNetwork,
) -> Result<Identity> {
    let mut names = vec![
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "localhost",
    ];
    let mut addresses = vec![
        IpAddr::V4(Ipv4Addr::LOCALHOST),
        advertise,
        IpAddr::V4(network.address(1)),
    ];
    let current = args.advertised();
    if !addresses.contains(&current) {
        addresses.push(current);
    }
    for extra in &args.tls_san {
        match extra.parse() {
            Ok(address) => addresses.push(address),
            Err(_) => names.push(extra),
        }
    }
    authority.server("kube-apiserver", &names, &addresses)
}
