//! The model and its backend, kept in step. What a failure leaves undone is remembered here and made up for.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use client::Key;
use network::{Protocol, netlink};

use crate::backend::{Backend, BackendError, Wanted};
use crate::conntrack::UdpTargets;
use crate::model::{FrontendAddress, ServicePort, ServiceTable};

/// What is to be so, the way to make it so, and what is still to be done.
pub struct Applied<B> {
    services: ServiceTable,
    protected: BTreeSet<SocketAddr>,
    backend: B,
    /// The backend missed a change, or nobody knows what the kernel has.
    in_doubt: bool,
    /// Where UDP packets may have been led elsewhere than they should be. An address stays here until the connections to it
    /// have been looked through, whatever fails before.
    unclean: BTreeSet<FrontendAddress>,
    forget: ForgetConnections,
}

/// Forgets the UDP connections that lead elsewhere than they should.
type ForgetConnections = fn(&UdpTargets) -> Result<usize, netlink::Error>;

impl<B: Backend> Applied<B> {
    /// With no Services known; the first [`Applied::apply`] should bring all of them.
    pub fn new(backend: B) -> Applied<B> {
        Applied {
            services: ServiceTable::default(),
            protected: BTreeSet::new(),
            backend,
            in_doubt: true,
            unclean: BTreeSet::new(),
            forget: UdpTargets::clean,
        }
    }

    /// Makes the given Services' ports what they are now; none for a Service that is gone. They count from here on: after
    /// an error the next call makes up for it, even if it brings nothing.
    pub fn apply(&mut self, services: BTreeMap<Key, Vec<ServicePort>>) -> Result<(), BackendError> {
        let step = self.services.replace(services);
        self.unclean.extend(udp_places(step.old.iter().chain(&step.new)));
        if !self.in_doubt {
            let applied = self.backend.apply(&step);
            self.doubt(applied);
        }
        self.settle()
    }

    /// Lets connections to these endpoints be as they are, whatever Services say.
    pub fn protect(&mut self, endpoints: BTreeSet<SocketAddr>) -> Result<(), BackendError> {
        let before = std::mem::replace(&mut self.protected, endpoints);
        if !self.in_doubt && before != self.protected {
            let protected = self.backend.protect(&before, &self.protected);
            self.doubt(protected);
        }
        self.settle()
    }

    /// Compares everything with the kernel's state and mends what differs.
    pub fn resync(&mut self) -> Result<(), BackendError> {
        self.in_doubt = true;
        self.unclean.extend(udp_places(self.services.ports()));
        self.settle()
    }

    fn doubt(&mut self, done: Result<(), BackendError>) {
        if let Err(error) = done {
            tracing::warn!(%error, "Failed to change packet rules; comparing all of them");
            self.in_doubt = true;
        }
    }

    /// Makes up for what is still to be done.
    fn settle(&mut self) -> Result<(), BackendError> {
        if self.in_doubt {
            self.backend.resync(Wanted {
                services: &self.services,
                protected: &self.protected,
            })?;
            self.in_doubt = false;
        }
        if !self.unclean.is_empty() {
            let targets = UdpTargets::new(&self.unclean, &self.services);
            (self.forget)(&targets).map_err(BackendError::Conntrack)?;
            self.unclean.clear();
        }
        Ok(())
    }
}

fn udp_places<'a>(ports: impl Iterator<Item = &'a ServicePort>) -> impl Iterator<Item = FrontendAddress> {
    ports
        .filter(|port| port.protocol == Protocol::Udp)
        .flat_map(|port| port.frontends.iter().map(|frontend| frontend.address))
}

#[cfg(test)]
mod tests;
