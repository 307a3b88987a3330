//! The cluster under test.

use std::path::Path;

use anyhow::{Context, Result};

use super::ConformanceArgs;
use super::table::Test;
use crate::cluster::{Karve, Kubectl, Setup, Upstream};
use crate::{dist, peers};

/// Images beyond those that many groups start.
const GROUP_IMAGES: &[(&str, &[&str])] = &[
    ("G08", &["etcd", "sample-apiserver"]),
    ("G31", &["nonewprivs"]),
    ("G32", &["kitten"]),
];

pub enum Subject {
    Karve(Box<Karve>),
    Upstream(Upstream),
}

impl Subject {
    /// Starts the cluster with the images that the tests start, and fails unless it is in order.
    pub fn start(args: &ConformanceArgs, tests: &[Test], nodes: usize, out: &Path) -> Result<Self> {
        let images = if nodes > 0 { images(tests) } else { Vec::new() };
        if args.upstream {
            return Upstream::start(&images).map(Self::Upstream);
        }
        let archives = peers::images(&images)?;
        let setup = Setup {
            binary: match &args.karve {
                Some(path) => std::path::absolute(path)?,
                None => dist::release()?,
            },
            runtime: args.runtime,
            store: args.store,
            nodes,
            pullable: archives.clone(),
            logs: out.join("cluster"),
        };
        // The log of one run is enough.
        let _ = std::fs::remove_dir_all(&setup.logs);
        let cluster = Karve::start(&setup).context("the cluster is not fit to be tested")?;
        for archive in &archives {
            cluster.import(archive)?;
        }
        Ok(Self::Karve(Box::new(cluster)))
    }

    pub fn kubectl(&self) -> Result<Kubectl> {
        match self {
            Self::Karve(cluster) => cluster.kubectl(),
            Self::Upstream(cluster) => cluster.kubectl(),
        }
    }
}

fn images(tests: &[Test]) -> Vec<&'static str> {
    let mut images = vec!["pause", "busybox", "agnhost"];
    for (group, more) in GROUP_IMAGES {
        if tests.iter().any(|test| test.group == *group) {
            images.extend(*more);
        }
    }
    images
}
