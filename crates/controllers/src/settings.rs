//! What controllers take from the cluster's configuration.

use std::fmt;
use std::net::IpAddr;

use client::destination::Destinations;

/// All of it; the default is a cluster in which others sign, publish and give out addresses.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The PEM bundle that pods verify the API server with; without it no `kube-root-ca.crt` is published.
    pub root_ca: Option<String>,
    /// Signs the certificates that were approved; without it somebody else does.
    pub signing: Option<SigningAuthority>,
    /// The networks of all pods, one of each address family at most (`10.244.0.0/16`); every node gets a block of each.
    /// Without them nodes get their blocks from someone else.
    pub cluster_cidrs: Vec<String>,
    /// The prefix lengths of the nodes' blocks; upstream's defaults are 24 and 64.
    pub node_cidr_mask_size_ipv4: Option<u8>,
    pub node_cidr_mask_size_ipv6: Option<u8>,
    /// Approves the serving certificates of kubelets that can show where they are; without it an administrator does, as in
    /// upstream's clusters.
    pub kubelet_serving: Option<KubeletServing>,
    /// The address of the kube-dns Service when the nodes run the built-in name server behind it. Without it the
    /// Service's endpoints are somebody else's.
    pub cluster_dns: Option<IpAddr>,
}

/// The authority that signs for the cluster, as PEM.
#[derive(Clone)]
pub struct SigningAuthority {
    pub certificate_pem: String,
    pub key_pem: String,
}

impl fmt::Debug for SigningAuthority {
    /// The key is nobody's business.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SigningAuthority").finish_non_exhaustive()
    }
}

/// What no kubelet can have.
#[derive(Clone, Debug, Default)]
pub struct KubeletServing {
    /// What is known of the addresses of Services and of the API server.
    pub destinations: Destinations,
}
