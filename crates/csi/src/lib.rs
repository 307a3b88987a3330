//! The container storage interface (CSI): how a kubelet has volumes mounted by drivers, and how these tell it of themselves.
//!
//! Start with [`NodeClient`], the calls on one driver, and [`RegistrationClient`], the calls on the socket by which it makes
//! itself known. Both take the socket as an open descriptor: whoever may put files into the kubelet's directories must not
//! choose by a link what is connected to. What a driver answers is bounded in size and time, and nothing else of it is
//! believed here. [`v1`] and [`registration`] have the messages, and the services for drivers that are written in tests.
//!
//! This crate knows no Kubernetes objects and mounts nothing. It depends on no other crate of Karve.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod capabilities;
mod client;
mod error;

pub use capabilities::NodeCapabilities;
pub use client::{NodeClient, RegistrationClient};
pub use error::{Code, Error, Result};

/// The messages of `pluginregistration`, as prost generates them from `proto/`.
#[allow(clippy::all, missing_docs)]
pub mod registration {
    tonic::include_proto!("pluginregistration");
}

/// The messages of `csi.v1`, as prost generates them from `proto/`.
#[allow(clippy::all, missing_docs)]
pub mod v1 {
    tonic::include_proto!("csi.v1");

    /// Requests with secrets show which volume they are about and nothing else.
    macro_rules! without_secrets {
        ($($Request:ident),*) => {
            $(
                impl std::fmt::Debug for $Request {
                    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.debug_struct(stringify!($Request))
                            .field("volume_id", &self.volume_id)
                            .finish_non_exhaustive()
                    }
                }
            )*
        };
    }
    without_secrets!(
        NodeStageVolumeRequest,
        NodePublishVolumeRequest,
        NodeExpandVolumeRequest
    );
}
