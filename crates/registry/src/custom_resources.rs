//! The table of custom resources, replaced as a whole when a definition changes, so that requests for built-in resources
//! never wait for it.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};

use api::Resource;
use api::custom::Definition;
use client::ServiceResolver;

use crate::custom::{self, Custom};
use crate::metrics::StoreMetrics;
use crate::served::Served;
use crate::watch::Hub;

/// What the served forms of custom resources are made with.
pub(crate) struct CustomResourceContext<'a> {
    pub hub: &'a Hub,
    pub root: &'a str,
    pub metrics: &'a StoreMetrics,
    /// Where webhooks that convert objects are found.
    pub services: Weak<dyn ServiceResolver>,
}

/// All custom resources that are served.
#[derive(Default)]
pub struct CustomResources {
    /// Sorted by group, version and plural name.
    served: Vec<Arc<Served>>,
    /// Groups with their versions, the preferred one first.
    group_versions: Vec<(&'static str, &'static str)>,
    /// The definitions behind them, by name.
    pub definitions: Vec<Arc<Definition>>,
}

impl CustomResources {
    /// The table of these definitions; what has not changed since `before` stays as it is.
    pub(crate) fn new(
        definitions: Vec<Arc<Definition>>,
        before: &CustomResources,
        within: &CustomResourceContext<'_>,
    ) -> CustomResources {
        let mut served = Vec::new();
        let mut kept = before.served_by_definition();
        for definition in definitions.iter().filter(|definition| definition.established) {
            let kept = kept.remove(&Arc::as_ptr(definition));
            served.extend(kept.unwrap_or_else(|| within.make_served(definition)));
        }
        served.sort_by_key(|served| served.address());
        served.dedup_by_key(|served| served.address());
        let mut group_versions: Vec<_> = served
            .iter()
            .map(|served| (served.resource.group, served.resource.version))
            .collect();
        group_versions.sort_by(|a, b| a.0.cmp(b.0).then(api::custom::compare_versions(a.1, b.1)));
        group_versions.dedup();
        CustomResources {
            served,
            group_versions,
            definitions,
        }
    }

    pub fn served(&self) -> impl Iterator<Item = &Arc<Served>> {
        self.served.iter()
    }

    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Served>> {
        let at = self
            .served
            .binary_search_by(|served| served.address().cmp(&(group, version, plural)));
        at.ok().map(|at| &self.served[at])
    }

    pub fn all(&self) -> impl Iterator<Item = &Arc<Served>> {
        self.served.iter()
    }

    pub fn resources(&self) -> impl Iterator<Item = &'static Resource> {
        self.served.iter().map(|served| served.resource)
    }

    pub fn group_versions(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.group_versions.iter().copied()
    }

    /// What is served, by the very definition that it stands for.
    fn served_by_definition(&self) -> HashMap<*const Definition, Vec<Arc<Served>>> {
        let mut found: HashMap<_, Vec<_>> = HashMap::new();
        for served in &self.served {
            if let Some(custom) = &served.custom {
                let same = found.entry(Arc::as_ptr(&custom.definition)).or_default();
                same.push(served.clone());
            }
        }
        found
    }

    /// Ends the watches on everything that `after` no longer has.
    pub(crate) fn retire_missing(&self, after: &CustomResources) {
        let kept: HashSet<*const Served> = after.served.iter().map(Arc::as_ptr).collect();
        for served in &self.served {
            if let (false, Some(custom)) = (kept.contains(&Arc::as_ptr(served)), &served.custom) {
                custom.retire();
            }
        }
    }
}

impl CustomResourceContext<'_> {
    /// The served form of one version of a definition.
    pub fn serve(&self, definition: &Arc<Definition>, at: usize) -> Arc<Served> {
        let custom = Custom::new(definition.clone(), at, &self.services);
        let row = custom::row(definition, &definition.versions[at]);
        Arc::new(Served::of_custom(row, custom, self.hub, self.root, self.metrics))
    }

    fn make_served(&self, definition: &Arc<Definition>) -> Vec<Arc<Served>> {
        let versions = definition.versions.iter().enumerate();
        let served = versions.filter(|(_, version)| version.served);
        served.map(|(at, _)| self.serve(definition, at)).collect()
    }
}
