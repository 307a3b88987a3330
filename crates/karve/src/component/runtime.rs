//! `karve runtime`: the embedded container runtime alone, behind a CRI socket for any kubelet.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use kubelet::StreamServer;
use network::Cidr;
use rustix::fs::Mode;
use tokio::net::{UnixListener, UnixStream};

use crate::layout::Layout;
use crate::node::{NodeFootprint, NodeRuntime, Policies};
use crate::run_file::RunFile;
use crate::{control, say, stop};

/// Flags of the runtime and of the pod network that it brings along.
#[derive(Args, Clone, Debug)]
pub struct RuntimeArgs {
    /// CRI socket to serve, accessible only to root [default: unix:///run/karve/NAME/cri.sock]
    #[arg(long)]
    listen: Option<String>,
    /// CIDR range of this node's pods [default: set by the kubelet]
    #[arg(long)]
    pod_cidr: Option<Cidr>,
    /// CIDR range of all pods; traffic between them is not masqueraded
    #[arg(long, default_value = "10.244.0.0/16")]
    cluster_cidr: Cidr,
    /// CIDR range of all Services
    #[arg(long, default_value = "10.96.0.0/16")]
    service_cluster_ip_range: Cidr,
    /// Parent cgroup of pods for which the kubelet sets none [default: derived from --name]
    #[arg(long)]
    cgroup_parent: Option<String>,
    /// Name of the pod network's bridge [default: derived from --name]
    #[arg(long)]
    bridge: Option<String>,
    /// Mirror to try before a registry, as in docker.io=https://mirror.example:5000; * matches every registry. Can be
    /// repeated
    #[arg(long, value_name = "REGISTRY=URL")]
    registry_mirror: Vec<runtime::Mirror>,
}

pub async fn run(layout: &Layout, args: RuntimeArgs) -> Result<()> {
    RunFile::ensure_stopped(layout).await?;
    layout.create()?;
    let mut footprint =
        NodeFootprint::of_runtime(layout, args.pod_cidr, args.cluster_cidr, args.service_cluster_ip_range);
    if let Some(bridge) = args.bridge {
        footprint.bridge = bridge;
    }
    footprint.registry_mirrors = args.registry_mirror;
    if let Some(parent) = args.cgroup_parent {
        footprint.cgroup_root = parent;
    }
    RunFile::new("", Some(footprint.clone())).write(layout)?;
    let NodeRuntime::Embedded(runtime, _) = footprint.open_runtime(Policies::Unknown).await? else {
        bail!("failed to open the embedded runtime");
    };
    let socket = match &args.listen {
        Some(endpoint) => socket_path(endpoint)?,
        None => footprint.state_dir.join("cri.sock"),
    };
    let listener = listen(&socket).await?;
    let _control = control::serve(&footprint.state_dir, runtime.clone())?;
    let streams = StreamServer::bind(runtime.clone()).await;
    let streams = streams.context("failed to listen on loopback for streaming requests")?;
    say::remark(format_args!(
        "container runtime of {} is listening at unix://{}",
        layout.name,
        socket.display()
    ));
    let mut stop = stop::on_signal();
    tokio::select! {
        ended = cri::serve_with_streams(listener, runtime, streams.clone()) => ended?,
        () = streams.serve() => {}
        _ = stop.wait_for(|stop| *stop) => {}
    }
    // Pods go on; the socket of a runtime that is gone would only make kubelets wait.
    std::fs::remove_file(&socket).with_context(|| format!("failed to remove {}", socket.display()))
}

fn socket_path(endpoint: &str) -> Result<PathBuf> {
    let path = Path::new(endpoint.strip_prefix("unix://").unwrap_or(endpoint));
    anyhow::ensure!(
        path.is_absolute(),
        "--listen {endpoint}: must be a Unix socket, unix:///PATH"
    );
    Ok(path.to_owned())
}

/// Takes the place of a socket that nobody answers at any more, and of nothing else.
async fn listen(path: &Path) -> Result<UnixListener> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => bail!(
            "{} exists and is not a socket; remove it or choose another --listen",
            path.display()
        ),
        Ok(_) if UnixStream::connect(path).await.is_ok() => bail!(
            "{} is in use by another process; stop it or choose another --listen",
            path.display()
        ),
        Ok(_) => std::fs::remove_file(path).with_context(|| format!("failed to replace {}", path.display()))?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(|| format!("failed to inspect {}", path.display())),
    }
    // Whoever reaches the socket is root on this machine, so it is never open to others, not even for a moment.
    let before = rustix::process::umask(Mode::RWXG | Mode::RWXO | Mode::XUSR);
    let bound = UnixListener::bind(path);
    rustix::process::umask(before);
    bound.with_context(|| format!("failed to listen on {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn endpoints_are_unix_sockets() {
        assert_eq!(socket_path("unix:///run/a.sock").unwrap(), Path::new("/run/a.sock"));
        assert_eq!(socket_path("/run/a.sock").unwrap(), Path::new("/run/a.sock"));
        assert!(socket_path("tcp://127.0.0.1:1").is_err());
    }

    #[tokio::test]
    async fn the_socket_is_for_root_alone_and_replaces_only_dead_ones() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cri.sock");
        let first = listen(&path).await.unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(
            listen(&path)
                .await
                .unwrap_err()
                .to_string()
                .contains("is in use by another process")
        );
        drop(first);
        assert!(listen(&path).await.is_ok());
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(listen(&file).await.is_err());
    }
}
