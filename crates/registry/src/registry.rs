//! The registry itself: which resources there are, where their objects are kept, and reading one of them.
//!
//! Only this crate writes to the store. Reads take a snapshot and never wait for writers. A write is decoded, prepared,
//! admitted and validated as a value, encoded once, and committed on condition of the revision it was made from.

use std::collections::HashMap;
use std::sync::Arc;

use api::{Error, Resource};
use arc_swap::ArcSwap;
use client::destination::Destinations;
use store::{Entry, Revision, Snapshot, Store};

use crate::allocate::Services;
use crate::custom_resources::CustomResources;
use crate::decoded::Decoded;
use crate::errors::{not_served, store_error};
use crate::health;
use crate::metrics::StoreMetrics;
use crate::namespace_locks::NamespaceLocks;
use crate::served::{Address, Served, Stored, row_address};
use crate::watch::Hub;

/// How often a write without a revision of its own is tried again when somebody else was faster.
pub(crate) const MAX_CONFLICT_RETRIES: usize = 32;

pub struct Registry {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) hub: Hub,
    pub(crate) metrics: Arc<StoreMetrics>,
    pub admission: admission::Chain,
    pub services: Services,
    /// Where objects must not lead connections of this server.
    pub destinations: Destinations,
    /// Sorted by group, version and plural name.
    pub(crate) served: Vec<Arc<Served>>,
    /// The same by their names and by where their rows are: every request looks up many of them.
    by_names: HashMap<Address<'static>, Arc<Served>>,
    by_row: HashMap<usize, Arc<Served>>,
    /// The custom ones, replaced as a whole when a definition changes.
    pub(crate) custom_resources: ArcSwap<CustomResources>,
    root: String,
    pub(crate) namespace_locks: NamespaceLocks,
    pub(crate) decoded: Decoded,
}

/// How many objects there are of a resource.
pub struct ObjectCount {
    pub group: &'static str,
    pub resource: &'static str,
    pub objects: usize,
    /// The changes of them that the store has told of.
    pub events: u64,
}

impl Registry {
    pub fn new(
        store: Arc<dyn Store>,
        root: &str,
        admission: admission::Chain,
        services: Services,
        metrics: Arc<StoreMetrics>,
    ) -> Registry {
        let hub = Hub::new(store.clone());
        let mut served: Vec<Arc<Served>> = api::kinds::all()
            .iter()
            .map(|resource| Arc::new(Served::new(resource, &hub, root, &metrics)))
            .collect();
        served.sort_by_key(|served| served.address());
        Registry {
            store,
            hub,
            metrics,
            admission,
            destinations: Destinations {
                server: None,
                services: Some((services.network.base, services.network.prefix_length)),
            },
            services,
            by_names: served.iter().map(|served| (served.address(), served.clone())).collect(),
            by_row: served
                .iter()
                .map(|served| (row_address(served.resource), served.clone()))
                .collect(),
            served,
            custom_resources: ArcSwap::default(),
            root: root.to_owned(),
            namespace_locks: NamespaceLocks::default(),
            decoded: Decoded::default(),
        }
    }

    /// A resource that is served, built in or custom.
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Served>> {
        match built_in(&self.by_names, (group, version, plural)) {
            Some(served) => Some(served.clone()),
            None => self.custom_resources.load().find(group, version, plural).cloned(),
        }
    }

    /// The served form of a resource, built in or custom.
    pub(crate) fn find_row(&self, resource: &Resource) -> Option<Arc<Served>> {
        match self.by_row.get(&row_address(resource)) {
            Some(served) => Some(served.clone()),
            None => self.find(resource.group, resource.version, resource.plural),
        }
    }

    /// The served form of a built-in resource.
    pub fn served(&self, resource: &'static Resource) -> Result<&Arc<Served>, Error> {
        self.by_row
            .get(&row_address(resource))
            .ok_or_else(|| Error::internal(format!("{} is not served", resource.qualified())))
    }

    /// Where an object is kept. A namespace that does not fit the resource is an error whoever gives it: an object of the
    /// cluster must never be reached through the rights in a namespace.
    pub fn key(&self, served: &Served, namespace: &str, name: &str) -> Result<Arc<str>, Error> {
        match (served.resource.namespaced, namespace) {
            (true, "") => Err(Error::bad_request("Namespace parameter required.")),
            (true, namespace) => Ok([&served.prefix, namespace, "/", name].concat().into()),
            (false, "") => Ok([&served.prefix, name].concat().into()),
            (false, _) => Err(not_served()),
        }
    }

    /// How many objects there are of each built-in and custom resource, one line for all its versions.
    pub fn object_counts(&self) -> Vec<ObjectCount> {
        let custom_resources = self.custom_resources.load();
        let all = self.served.iter().chain(custom_resources.all());
        let stored = all.filter(|served| !served.resource.storage.is_empty());
        let mut counts: Vec<ObjectCount> = stored
            .map(|served| ObjectCount {
                group: served.resource.group,
                resource: served.resource.plural,
                objects: served.ring.objects(),
                events: served.ring.events(),
            })
            .collect();
        counts.sort_by_key(|count| (count.group, count.resource));
        counts.dedup_by_key(|count| (count.group, count.resource));
        counts
    }

    pub(crate) fn root(&self) -> &str {
        &self.root
    }

    /// The custom resources that are served now.
    pub fn custom_resources(&self) -> Arc<CustomResources> {
        self.custom_resources.load_full()
    }

    /// Feeds changes to watchers, for ever.
    pub async fn feed_watchers(&self) {
        self.hub.run().await;
    }

    /// The newest state that this process knows of.
    pub fn snapshot(&self) -> Arc<dyn Snapshot> {
        self.store.snapshot()
    }

    /// A state at least as new as every write acknowledged before the call.
    pub async fn latest(&self) -> Result<Arc<dyn Snapshot>, Error> {
        self.store.latest().await.map_err(store_error)
    }

    /// Why the store cannot be used at present, if it cannot.
    pub async fn check_store(&self) -> Result<(), String> {
        health::check_store(&*self.store).await
    }

    /// Why the store takes no larger state, if it is full.
    pub fn check_quota(&self) -> Result<(), String> {
        health::check_quota(&*self.store)
    }

    /// How much of its disk the store takes, if it knows.
    pub async fn disk_bytes(&self) -> Option<u64> {
        self.store.disk_bytes().await
    }

    /// Closes the store; nothing can be read or written afterwards.
    pub async fn close(&self) {
        self.store.close().await;
    }

    /// One object, at least as new as every write acknowledged before the call.
    /// One object in a state that is at least as new as a revision.
    pub async fn get_not_older(
        &self,
        served: &Served,
        (namespace, name): (&str, &str),
        revision: Revision,
    ) -> Result<Stored, Error> {
        let key = self.key(served, namespace, name)?;
        let asked = async { Ok(self.snapshot_not_older(revision).await?.get(&key)) };
        let entry = served.figures().get.time(asked).await.map_err(store_error)?;
        found(entry, served, name)
    }

    pub async fn get(&self, served: &Served, namespace: &str, name: &str) -> Result<Stored, Error> {
        let key = self.key(served, namespace, name)?;
        let asked = async { Ok(self.store.latest().await?.get(&key)) };
        let entry = served.figures().get.time(asked).await.map_err(store_error)?;
        found(entry, served, name)
    }

    pub fn get_at(
        &self,
        snapshot: &dyn Snapshot,
        served: &Served,
        namespace: &str,
        name: &str,
    ) -> Result<Stored, Error> {
        found(snapshot.get(&self.key(served, namespace, name)?), served, name)
    }
}

/// The map's keys live longer than what is asked for, which only a function of its own can forget.
fn built_in<'a>(map: &'a HashMap<Address<'a>, Arc<Served>>, address: Address<'a>) -> Option<&'a Arc<Served>> {
    map.get(&address)
}

fn found(entry: Option<Arc<Entry>>, served: &Served, name: &str) -> Result<Stored, Error> {
    entry
        .map(Stored::from)
        .ok_or_else(|| Error::not_found(served.resource, name))
}
