//! The cluster under test.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;

use super::table::Test;
use crate::cluster::{Karve, Kubectl, Runtime, Setup, Store, Upstream};
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

/// Which cluster is tested.
#[derive(Args, Clone, Debug)]
pub struct SubjectArgs {
    /// The binary to test; built when it is not given
    #[arg(long)]
    pub karve: Option<PathBuf>,
    /// Nodes of the cluster, each in a network namespace of its own
    #[arg(long, default_value_t = 1, conflicts_with = "upstream")]
    pub nodes: usize,
    #[arg(long, value_enum, default_value = "embedded")]
    pub runtime: Runtime,
    #[arg(long, value_enum, default_value = "embedded")]
    pub store: Store,
    /// Test upstream's own components instead, to learn what this machine cannot do
    #[arg(long)]
    pub upstream: bool,
}

impl Default for SubjectArgs {
    fn default() -> Self {
        Self {
            karve: None,
            nodes: 1,
            runtime: Runtime::Embedded,
            store: Store::Embedded,
            upstream: false,
        }
    }
}

impl Subject {
    /// Starts the cluster with the images that the tests start, and fails unless it is in order.
    pub fn start(args: &SubjectArgs, nodes: usize, images: &[&str], out: &Path) -> Result<Self> {
        let images = if nodes > 0 { images } else { &[] };
        if args.upstream {
            return Upstream::start(images).map(Self::Upstream);
        }
        let archives = peers::images(images)?;
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

/// The images that conformance tests start.
pub fn images(tests: &[Test]) -> Vec<&'static str> {
    let mut images = vec!["pause", "busybox", "agnhost"];
    for (group, more) in GROUP_IMAGES {
        if tests.iter().any(|test| test.group == *group) {
            images.extend(*more);
        }
    }
    images
}
