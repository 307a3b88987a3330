//! Why a plugin is not registered. Plugins are told, and administrators read it in logs.

use std::io;

#[derive(Debug, thiserror::Error)]
pub enum RegistrationError {
    #[error("RegisterPlugin error -- cannot open socket {socket}: {source}")]
    Open { socket: String, source: io::Error },
    #[error("RegisterPlugin error -- dial failed at socket {socket}, err: {source}")]
    Dial { socket: String, source: csi::Error },
    #[error("RegisterPlugin error -- failed to get plugin info using RPC GetInfo at socket {socket}, err: {source}")]
    Info { socket: String, source: csi::Error },
    #[error("RegisterPlugin error -- no handler registered for plugin type: {kind} at socket {socket}")]
    UnknownType { kind: String, socket: String },
    #[error("RegisterPlugin error -- plugin validation failed with err: {0}")]
    Invalid(#[from] InvalidPlugin),
    #[error("RegisterPlugin error -- plugin registration failed with err: {0}")]
    Driver(#[from] csi::Error),
    #[error("RegisterPlugin error -- plugin registration failed with err: {0}")]
    Endpoint(#[from] EndpointError),
    #[error("RegisterPlugin error -- plugin registration failed with err: {0}")]
    NodeInfo(#[from] NodeInfoError),
    #[error("RegisterPlugin error -- failed to send registration status at socket {socket}, err: {source}")]
    Notify { socket: String, source: csi::Error },
}

/// What a plugin says of itself that cannot be.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPlugin {
    #[error("{0:?} is not the name of a CSI driver")]
    Name(String),
    #[error("Plugin returned an empty list for supported versions")]
    NoVersions,
    #[error("None of the versions specified {0:?} are supported")]
    Versions(Vec<String>),
    #[error("Another driver with the same name is already registered with a higher supported version: {0:?}")]
    Taken(String),
    #[error("{0:?} is not an absolute path of a socket")]
    Endpoint(String),
    #[error("NodeGetInfo has an empty or overlong node ID")]
    NodeId,
    #[error("NodeGetInfo has the topology {0:?}, which cannot be a label of a node")]
    Topology(String),
}

#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    #[error("driver name {0} not found in the list of registered CSI drivers")]
    Unknown(String),
    #[error("failed to open the socket {path} of CSI driver {driver}: {source}")]
    Open {
        driver: String,
        path: String,
        source: io::Error,
    },
    #[error("{0}")]
    Connect(#[from] csi::Error),
}

#[derive(Debug, thiserror::Error)]
pub enum NodeInfoError {
    #[error("error updating CSINode: {0}")]
    CsiNode(#[source] client::Error),
    #[error("error updating node: {0}")]
    Node(#[source] client::Error),
    #[error(
        "error updating node: detected topology value collision: driver reported {key:?}:{reported:?} but existing label is \
         {key:?}:{existing:?}"
    )]
    Collision {
        key: String,
        reported: String,
        existing: String,
    },
}
