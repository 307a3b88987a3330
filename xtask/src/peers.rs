//! The real peers of `interop/`, built on demand.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::tools::{is_on_path, output, root};

/// What the tests start.
const NEEDED: &[&str] = &[
    "schema-oracle",
    "pod-security",
    "kubectl",
    "older-kubectl",
    "ginkgo",
    "e2e.test",
    "cri-clean",
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    "coredns",
];

/// The images that they start.
const IMAGES: &[&str] = &["pause", "busybox", "agnhost"];

/// Builds upstream's programs unless they are in the cache, and returns their paths in the same order.
pub fn build(names: &[String]) -> Result<Vec<PathBuf>> {
    let mut command = Command::new(root().join("interop/build.sh"));
    match names.is_empty() {
        true => command.args(NEEDED),
        false => command.args(names),
    };
    Ok(output(&mut command)?.lines().map(PathBuf::from).collect())
}

/// Builds the archives of test images unless they are in the cache, and returns their paths in the same order.
pub fn images(names: &[&str]) -> Result<Vec<PathBuf>> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let printed = output(Command::new(root().join("interop/images.sh")).args(names))?;
    Ok(printed.lines().map(PathBuf::from).collect())
}

/// Installs the Python client unless it is in the cache, and returns the python that has it.
pub fn python() -> Result<PathBuf> {
    let printed = output(&mut Command::new(root().join("interop/python.sh")))?;
    Ok(PathBuf::from(printed.trim()))
}

/// Builds our program on kube-rs unless it is in the cache, and returns its path.
pub fn kube_rs() -> Result<PathBuf> {
    let printed = output(&mut Command::new(root().join("interop/kube-rs.sh")))?;
    Ok(PathBuf::from(printed.trim()))
}

/// Everything that the tests start.
pub fn build_needed() -> Result<()> {
    build(&[])?;
    images(IMAGES)?;
    kube_rs()?;
    match is_on_path("python3") {
        true => python().map(drop),
        // The scenario that needs it says so.
        false => Ok(()),
    }
}
