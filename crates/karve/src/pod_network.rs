//! Which network connects the pods of a node: the built-in one, or the plugins that an administrator configured.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::{Deserialize, Serialize};

/// Who connects pods.
#[derive(Args, Clone, Debug)]
pub struct CniArgs {
    /// Pod network: `bridge` is built in; `cni` uses CNI plugins, which have to enforce NetworkPolicies themselves;
    /// `auto` uses CNI plugins if --cni-conf-dir contains a configuration when the node is first started
    #[arg(long, default_value = "auto", value_parser = ["auto", "bridge", "cni"])]
    pod_network: String,
    /// Directory with the configuration of CNI networks
    #[arg(long, default_value = "/etc/cni/net.d")]
    cni_conf_dir: PathBuf,
    /// Directory with the CNI plugins
    #[arg(long, value_delimiter = ',', default_value = "/opt/cni/bin,/usr/lib/cni")]
    cni_bin_dir: Vec<PathBuf>,
}

/// Where the plugins of a node's pod network are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CniDirs {
    pub conf_dir: PathBuf,
    pub bin_dirs: Vec<PathBuf>,
}

impl CniArgs {
    /// The plugins to be called for pods of a node whose files are at `root_dir`. A node keeps the network that it was
    /// started with: its pods are connected to it.
    pub fn dirs(&self, root_dir: &Path) -> Option<CniDirs> {
        let is_kept = |directory: &str| root_dir.join(directory).exists();
        let wanted = match self.pod_network.as_str() {
            "bridge" => false,
            "cni" => true,
            _ => is_kept(CNI_DIR) || !is_kept(BRIDGE_DIR) && network::cni::is_configured(&self.cni_conf_dir),
        };
        wanted.then(|| CniDirs {
            conf_dir: self.cni_conf_dir.clone(),
            bin_dirs: self.cni_bin_dir.clone(),
        })
    }
}

/// Where in a node's directory its pod network remembers what it did.
pub const BRIDGE_DIR: &str = "network";
pub const CNI_DIR: &str = "cni";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugins_are_called_if_they_were_configured_when_the_node_was_first_started() {
        let dir = tempfile::tempdir().unwrap();
        let (conf_dir, root_dir) = (dir.path().join("net.d"), dir.path().join("node"));
        let uses = |network: &str| {
            let args = CniArgs {
                pod_network: network.to_owned(),
                cni_conf_dir: conf_dir.clone(),
                cni_bin_dir: Vec::new(),
            };
            args.dirs(&root_dir).is_some()
        };
        assert_eq!((uses("auto"), uses("bridge"), uses("cni")), (false, false, true));
        std::fs::create_dir_all(&conf_dir).unwrap();
        assert!(!uses("auto"));
        std::fs::write(conf_dir.join("10-net.conflist"), "broken").unwrap();
        assert_eq!((uses("auto"), uses("bridge")), (true, false));
        std::fs::create_dir_all(root_dir.join(BRIDGE_DIR)).unwrap();
        assert!(!uses("auto"), "its pods are connected to the bridge");
        std::fs::remove_dir(root_dir.join(BRIDGE_DIR)).unwrap();
        std::fs::create_dir(root_dir.join(CNI_DIR)).unwrap();
        std::fs::remove_dir_all(&conf_dir).unwrap();
        assert!(uses("auto"), "its pods are connected by plugins");
    }
}
