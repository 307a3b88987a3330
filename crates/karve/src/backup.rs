//! `karve backup` and `karve restore`: a cluster's objects in one file.

use std::fs::{File, OpenOptions};
use std::io::{BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt;

use crate::component;
use crate::layout::Layout;
use crate::run_file::RunFile;
use crate::say;

const PATH: &str = "/debug/karve/backup";

#[derive(clap::Args)]
pub struct BackupArgs {
    /// File to write; must not exist yet
    file: PathBuf,
    /// Kubeconfig of the API server [default: the cluster's own]
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
}

#[derive(clap::Args)]
pub struct RestoreArgs {
    /// File written by `karve backup`
    file: PathBuf,
}

/// Writes all objects of a running cluster to a file, which is there only once it is whole.
pub async fn save(layout: &Layout, args: &BackupArgs) -> Result<()> {
    if args.file.exists() {
        bail!("{} already exists; choose another file name", args.file.display());
    }
    let kubeconfig = args.kubeconfig.clone().unwrap_or_else(|| layout.kubeconfig());
    let client = component::connect(&kubeconfig)?;
    let mut body = client.open(Request::get(PATH).body(Bytes::new())?).await?;
    let unfinished = unfinished_name(&args.file);
    let mut file = create(&unfinished)?;
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.context("the connection was closed before the backup was complete; try again")?;
        if let Some(data) = frame.data_ref() {
            file.write_all(data)
                .with_context(|| format!("failed to write {}", unfinished.display()))?;
            bytes += data.len();
        }
    }
    file.sync_all()?;
    std::fs::rename(&unfinished, &args.file)?;
    say::result(format_args!("{}: {bytes} bytes", args.file.display()))?;
    Ok(())
}

/// Makes the store of a cluster that has none yet from a backup.
pub fn restore(layout: &Layout, args: &RestoreArgs) -> Result<()> {
    if RunFile::read(layout)?.is_some_and(|run| run.is_running()) {
        bail!(
            "cluster {} is running; restore to a new cluster with --name or --data-dir",
            layout.name
        );
    }
    let file = File::open(&args.file).with_context(|| format!("failed to read {}", args.file.display()))?;
    std::fs::create_dir_all(&layout.root)?;
    let revision = store::embedded::restore(&mut BufReader::new(file), &layout.store())?;
    say::result(format_args!(
        "restored cluster {} at revision {revision}; start it with `karve up`",
        layout.name
    ))?;
    say::result(format_args!(
        "a backup does not contain certificates and keys; to keep service account tokens valid, copy the pki directory of the old cluster"
    ))?;
    Ok(())
}

fn unfinished_name(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".unfinished");
    name.into()
}

/// Secrets are in it: nobody else may read it.
fn create(path: &Path) -> Result<File> {
    let opened = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path);
    opened.with_context(|| format!("failed to write {}", path.display()))
}
