//! What controllers take from the cluster's configuration.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::Arc;

use api::ObjectMeta;
use auth::authenticate::{KeyError, ServiceAccounts};
use client::destination::Destinations;

/// All of it; the default is a cluster in which others sign, publish and give out addresses.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The PEM bundle that pods verify the API server with; without it no `kube-root-ca.crt` is published.
    pub root_ca: Option<String>,
    /// Signs the tokens that Secrets of service accounts hold; without it such Secrets stay as they are.
    pub token_signer: Option<TokenSigner>,
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
    /// Gives Services of type LoadBalancer their addresses; without it somebody else does.
    pub load_balancer: Option<LoadBalancer>,
}

/// Where the addresses of LoadBalancers come from, and which ports they must not have at the nodes' own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadBalancer {
    pub source: AddressSource,
    pub node_ports: RangeInclusive<u16>,
    /// Protocols and ports of the control plane's components.
    pub reserved_ports: BTreeSet<(String, u16)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressSource {
    /// Those of all nodes that are ready.
    Nodes,
    /// One for each Service, which the network outside leads to the nodes.
    Pool(Vec<AddressRange>),
}

/// Addresses of one family: `192.0.2.0/28`, `192.0.2.1-192.0.2.9` or one alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    ipv4: bool,
    first: u128,
    last: u128,
}

impl AddressRange {
    pub fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.ipv4 && (self.first..=self.last).contains(&number(address))
    }

    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + use<> {
        let ipv4 = self.ipv4;
        (self.first..=self.last).map(move |number| match ipv4 {
            true => Ipv4Addr::from(u32::try_from(number).unwrap_or(u32::MAX)).into(),
            false => Ipv6Addr::from(number).into(),
        })
    }
}

/// What is no range of addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no range of addresses, such as 192.0.2.0/28 or 192.0.2.1-192.0.2.9")]
pub struct AddressRangeError(String);

impl FromStr for AddressRange {
    type Err = AddressRangeError;

    fn from_str(text: &str) -> Result<AddressRange, AddressRangeError> {
        parse_range(text).ok_or_else(|| AddressRangeError(text.to_owned()))
    }
}

fn parse_range(text: &str) -> Option<AddressRange> {
    if let Some((first, last)) = text.split_once('-') {
        let (first, last): (IpAddr, IpAddr) = (first.parse().ok()?, last.parse().ok()?);
        let fits = first.is_ipv4() == last.is_ipv4() && first <= last;
        return fits.then(|| AddressRange {
            ipv4: first.is_ipv4(),
            first: number(first),
            last: number(last),
        });
    }
    let (address, prefix) = text
        .split_once('/')
        .map_or((text, None), |(address, prefix)| (address, Some(prefix)));
    let address: IpAddr = address.parse().ok()?;
    let bits = if address.is_ipv4() { 32 } else { 128 };
    let prefix: u32 = prefix.map_or(Some(bits), |prefix| prefix.parse().ok())?;
    let host_bits = bits.checked_sub(prefix)?;
    let hosts = 1_u128.checked_shl(host_bits).map_or(u128::MAX, |size| size - 1);
    let first = number(address) & !hosts;
    Some(AddressRange {
        ipv4: address.is_ipv4(),
        first,
        last: first | hosts,
    })
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
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

/// The key that signs tokens of service accounts.
#[derive(Clone)]
pub struct TokenSigner(Arc<ServiceAccounts>);

impl TokenSigner {
    pub fn new(accounts: Arc<ServiceAccounts>) -> TokenSigner {
        TokenSigner(accounts)
    }

    /// The token of an account for one of its Secrets.
    pub(crate) fn sign(&self, namespace: &str, account: &ObjectMeta, secret: &str) -> Result<String, KeyError> {
        self.0
            .issue_secret_token(namespace, &account.name, &account.uid, secret)
    }
}

impl fmt::Debug for TokenSigner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TokenSigner").finish_non_exhaustive()
    }
}

/// What no kubelet can have.
#[derive(Clone, Debug, Default)]
pub struct KubeletServing {
    /// What is known of the addresses of Services and of the API server.
    pub destinations: Destinations,
    /// The names that the API server is reached by.
    pub server_names: Vec<String>,
}
