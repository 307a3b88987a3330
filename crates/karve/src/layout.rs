//! Where a cluster keeps its files. Every command finds its cluster by this.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;

const DEFAULT_ROOT: &str = "/var/lib/karve";

/// Which cluster a command is about.
#[derive(Args, Clone, Debug)]
pub struct ClusterArgs {
    /// Data directory of the cluster [default: /var/lib/karve/NAME]
    #[arg(long, global = true, env = "KARVE_DATA_DIR")]
    data_dir: Option<PathBuf>,

    /// Name of the cluster; several clusters can run on one machine
    #[arg(long, global = true, env = "KARVE_NAME", default_value = "karve")]
    name: String,
}

/// The files of one cluster.
#[derive(Clone, Debug)]
pub struct Layout {
    pub name: String,
    pub root: PathBuf,
}

impl ClusterArgs {
    pub fn layout(&self) -> Result<Layout> {
        let valid = !self.name.is_empty()
            && self.name.len() <= 32
            && self
                .name
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        anyhow::ensure!(
            valid,
            "the cluster's name {:?} must be 1 to 32 lower-case letters, digits or dashes",
            self.name
        );
        let root = self
            .data_dir
            .clone()
            .unwrap_or_else(|| Path::new(DEFAULT_ROOT).join(&self.name));
        let root = std::path::absolute(&root).with_context(|| format!("failed to resolve {}", root.display()))?;
        Ok(Layout {
            name: self.name.clone(),
            root,
        })
    }
}

impl Layout {
    pub fn store(&self) -> PathBuf {
        self.root.join("store")
    }

    pub fn pki(&self) -> PathBuf {
        self.root.join("pki")
    }

    pub fn node(&self) -> PathBuf {
        self.root.join("node")
    }

    /// The data of the volumes of the StorageClass `local`, beside what the node makes again by itself.
    pub fn volumes(&self) -> PathBuf {
        self.root.join("volumes")
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.root.join("kubeconfig")
    }

    /// Who runs this cluster right now, and with which ports and names.
    pub fn run_file(&self) -> PathBuf {
        self.root.join("run.json")
    }

    pub fn log_file(&self) -> PathBuf {
        self.root.join("karve.log")
    }

    pub fn create(&self) -> Result<()> {
        create_private_dir(&self.root)?;
        create_private_dir(&self.pki())
    }
}

pub fn create_private_dir(path: &Path) -> Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .with_context(|| {
            format!(
                "failed to create {}; run as root or choose another --data-dir",
                path.display()
            )
        })
}

pub fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("failed to read {}", path.display()))
}

/// Replaces a file in one step; it never exists half-written or readable by others.
pub fn write_private(path: &Path, content: &[u8]) -> Result<()> {
    let staged = path.with_extension("new");
    let write = || -> std::io::Result<()> {
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&staged)?;
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&staged, path)
    };
    write().with_context(|| format!("failed to write {}", path.display()))
}
