//! Who is at the other end of a connection.

use std::net::IpAddr;
use std::sync::Arc;

use auth::User;

/// Where a request came from.
#[derive(Clone, Debug)]
pub enum Peer {
    /// A TLS connection, with whom the client's verified certificate names if it sent one.
    Tls {
        certificate: Option<ClientCertificate>,
        address: Option<IpAddr>,
        /// Whether the certificate is that of a proxy, which names users in headers.
        is_front_proxy: bool,
    },
    /// A component in this process, which has proved who it is by being here.
    InProcess(Arc<User>),
}

#[derive(Clone, Debug)]
pub struct ClientCertificate {
    pub user: Arc<User>,
    /// When it begins to be valid and when it ends, in seconds since 1970.
    pub issued: i64,
    pub expires: i64,
}

impl Peer {
    /// Where the connection comes from; components in this process have no address.
    pub fn address(&self) -> Option<IpAddr> {
        match self {
            Peer::Tls { address, .. } => *address,
            Peer::InProcess(_) => None,
        }
    }
}
