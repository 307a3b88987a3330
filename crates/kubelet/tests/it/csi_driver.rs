//! A CSI driver for tests: volumes are directories that it binds. It writes down every call, and can be told to fail, to hang
//! and to lie.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use csi::registration::registration_server::{Registration, RegistrationServer};
use csi::registration::{InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse};
use csi::v1;
use csi::v1::node_server::{Node, NodeServer};
use csi::v1::node_service_capability::{Rpc, Type, rpc};
use csi::v1::volume_capability::AccessType;
use parking_lot::Mutex;
use rustix::mount::{MountFlags, UnmountFlags, mount_bind, mount_remount, unmount};
use tokio::net::UnixListener;
use tokio::task::JoinHandle;
use tonic::{Request, Response, Status};

/// What a call does instead of what it is for.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Refuses, this often.
    Refuse(Status, usize),
    /// Answers never.
    Hang,
    /// Says that it is done and does nothing.
    Lie,
}

pub struct Driver {
    pub state: Arc<State>,
    endpoint: PathBuf,
    registration: PathBuf,
    servers: Vec<JoinHandle<()>>,
}

pub struct State {
    pub name: String,
    /// Where volumes are, each a directory with its handle as its name.
    pub volumes: PathBuf,
    pub stages: bool,
    pub mounts_groups: bool,
    calls: Mutex<Vec<Call>>,
    faults: Mutex<BTreeMap<&'static str, Fault>>,
    statuses: Mutex<Vec<RegistrationStatus>>,
}

/// A call, as far as tests look at it.
#[derive(Clone, Debug, Default)]
pub struct Call {
    pub method: &'static str,
    pub volume: String,
    pub path: String,
    pub staging: String,
    pub secrets: BTreeMap<String, String>,
    pub volume_context: BTreeMap<String, String>,
    pub publish_context: BTreeMap<String, String>,
    pub capability: Option<v1::VolumeCapability>,
    pub readonly: bool,
    pub bytes: i64,
}

impl State {
    pub fn new(name: &str, volumes: PathBuf) -> State {
        State {
            name: name.to_owned(),
            volumes,
            stages: true,
            mounts_groups: false,
            calls: Mutex::default(),
            faults: Mutex::default(),
            statuses: Mutex::default(),
        }
    }

    pub fn calls(&self, method: &str) -> Vec<Call> {
        let calls = self.calls.lock();
        calls.iter().filter(|call| call.method == method).cloned().collect()
    }

    pub fn set_fault(&self, method: &'static str, fault: Option<Fault>) {
        let mut faults = self.faults.lock();
        match fault {
            Some(fault) => _ = faults.insert(method, fault),
            None => _ = faults.remove(method),
        }
    }

    /// The last word of the kubelet about the registration.
    pub fn status(&self) -> Option<RegistrationStatus> {
        self.statuses.lock().last().cloned()
    }

    /// True if the call is not to be carried out.
    async fn begin(&self, call: Call) -> Result<bool, Status> {
        let method = call.method;
        self.calls.lock().push(call);
        loop {
            let fault = {
                let mut faults = self.faults.lock();
                match faults.get_mut(method) {
                    Some(Fault::Refuse(_, 0)) => faults.remove(method).filter(|_| false),
                    Some(Fault::Refuse(status, left)) => {
                        *left -= 1;
                        return Err(status.clone());
                    }
                    other => other.cloned(),
                }
            };
            match fault {
                None => return Ok(false),
                Some(Fault::Lie) => return Ok(true),
                Some(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    }
}

impl Driver {
    /// Serves and registers at the kubelet whose directory this is.
    pub fn start(root: &Path, state: State) -> Driver {
        let socket = format!("{}-reg.sock", state.name);
        Driver::start_as(root, state, &socket)
    }

    /// The same by a socket of another name.
    pub fn start_as(root: &Path, state: State, socket: &str) -> Driver {
        let endpoint = root.join("plugins").join(socket);
        std::fs::create_dir_all(&endpoint).expect("a directory");
        std::fs::create_dir_all(root.join("plugins_registry")).expect("a directory");
        let mut driver = Driver {
            endpoint: endpoint.join("csi.sock"),
            registration: root.join("plugins_registry").join(socket),
            state: Arc::new(state),
            servers: Vec::new(),
        };
        driver.serve();
        driver.register_at(&driver.registration.clone());
        driver
    }

    /// Serves at a socket of its own, in place of one that was there.
    pub fn serve(&mut self) {
        let _ = std::fs::remove_file(&self.endpoint);
        let server = tonic::transport::Server::builder().add_service(NodeServer::from_arc(self.state.clone()));
        let incoming = incoming(&self.endpoint);
        self.servers.push(tokio::spawn(async move {
            let _ = server.serve_with_incoming(incoming).await;
        }));
    }

    /// Announces the driver by a socket.
    fn register_at(&mut self, socket: &Path) {
        let announced = Announced {
            state: self.state.clone(),
            endpoint: self.endpoint.display().to_string(),
        };
        let server = tonic::transport::Server::builder().add_service(RegistrationServer::new(announced));
        let incoming = incoming(socket);
        self.servers.push(tokio::spawn(async move {
            let _ = server.serve_with_incoming(incoming).await;
        }));
    }

    /// The driver's process ends, and its sockets with it.
    pub fn stop(&mut self) {
        for server in self.servers.drain(..) {
            server.abort();
        }
        let _ = std::fs::remove_file(&self.endpoint);
        let _ = std::fs::remove_file(&self.registration);
    }

    pub async fn wait_until_registered(&self) {
        let state = self.state.clone();
        let registered = || state.status().is_some_and(|status| status.plugin_registered);
        wait_until("the driver is registered", registered).await;
    }

    pub async fn wait_for_calls(&self, method: &str, count: usize) {
        let state = self.state.clone();
        let what = format!("{} calls of {method}", count);
        wait_until(&what, || state.calls(method).len() >= count).await;
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.stop();
    }
}

pub async fn wait_until(what: &str, wanted: impl Fn() -> bool) {
    let begun = Instant::now();
    while !wanted() {
        assert!(begun.elapsed() < Duration::from_secs(60), "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn incoming(path: &Path) -> impl futures_util::Stream<Item = std::io::Result<tokio::net::UnixStream>> + use<> {
    let listener = UnixListener::bind(path).expect("a socket");
    futures_util::stream::unfold(listener, |listener| async {
        let accepted = listener.accept().await.map(|(stream, _)| stream);
        Some((accepted, listener))
    })
}

struct Announced {
    state: Arc<State>,
    endpoint: String,
}

#[async_trait]
impl Registration for Announced {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: "CSIPlugin".to_owned(),
            name: self.state.name.clone(),
            endpoint: self.endpoint.clone(),
            supported_versions: vec!["1.0.0".to_owned()],
        }))
    }

    async fn notify_registration_status(
        &self,
        status: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        self.state.statuses.lock().push(status.into_inner());
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

fn internal(error: impl std::fmt::Display) -> Status {
    Status::internal(error.to_string())
}

fn is_mounted(path: &str) -> bool {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    table.lines().any(|line| line.split(' ').nth(4) == Some(path))
}

fn bind(source: &Path, target: &str) -> Result<(), Status> {
    if is_mounted(target) {
        return Ok(());
    }
    mount_bind(source, target).map_err(internal)
}

fn unbind(target: &str) -> Result<(), Status> {
    if is_mounted(target) {
        unmount(target, UnmountFlags::empty()).map_err(internal)?;
    }
    Ok(())
}

#[async_trait]
impl Node for State {
    async fn node_stage_volume(
        &self,
        request: Request<v1::NodeStageVolumeRequest>,
    ) -> Result<Response<v1::NodeStageVolumeResponse>, Status> {
        let request = request.into_inner();
        let is_block = is_block(&request.volume_capability);
        let call = Call {
            method: "stage",
            volume: request.volume_id.clone(),
            path: request.staging_target_path.clone(),
            secrets: request.secrets,
            volume_context: request.volume_context,
            publish_context: request.publish_context,
            capability: request.volume_capability,
            ..Call::default()
        };
        if !self.begin(call).await? && !is_block {
            bind(&self.volumes.join(request.volume_id), &request.staging_target_path)?;
        }
        Ok(Response::new(v1::NodeStageVolumeResponse {}))
    }

    async fn node_unstage_volume(
        &self,
        request: Request<v1::NodeUnstageVolumeRequest>,
    ) -> Result<Response<v1::NodeUnstageVolumeResponse>, Status> {
        let request = request.into_inner();
        let call = Call {
            method: "unstage",
            volume: request.volume_id,
            path: request.staging_target_path.clone(),
            ..Call::default()
        };
        if !self.begin(call).await? {
            unbind(&request.staging_target_path)?;
        }
        Ok(Response::new(v1::NodeUnstageVolumeResponse {}))
    }

    async fn node_publish_volume(
        &self,
        request: Request<v1::NodePublishVolumeRequest>,
    ) -> Result<Response<v1::NodePublishVolumeResponse>, Status> {
        let request = request.into_inner();
        let (target, is_block) = (request.target_path.clone(), is_block(&request.volume_capability));
        let call = Call {
            method: "publish",
            volume: request.volume_id.clone(),
            path: target.clone(),
            staging: request.staging_target_path.clone(),
            secrets: request.secrets,
            volume_context: request.volume_context,
            publish_context: request.publish_context,
            capability: request.volume_capability,
            readonly: request.readonly,
            ..Call::default()
        };
        if self.begin(call).await? {
            return Ok(Response::new(v1::NodePublishVolumeResponse {}));
        }
        if is_block {
            std::fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(&target)
                .map_err(internal)?;
            bind(Path::new("/dev/loop0"), &target)?;
            return Ok(Response::new(v1::NodePublishVolumeResponse {}));
        }
        let source = match request.staging_target_path.as_str() {
            "" => self.volumes.join(&request.volume_id),
            staging => PathBuf::from(staging),
        };
        // What is made for one pod begins to be when it is published.
        std::fs::create_dir_all(&source).map_err(internal)?;
        std::fs::create_dir_all(&target).map_err(internal)?;
        bind(&source, &target)?;
        if request.readonly {
            mount_remount(target.as_str(), MountFlags::BIND | MountFlags::RDONLY, "").map_err(internal)?;
        }
        Ok(Response::new(v1::NodePublishVolumeResponse {}))
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<v1::NodeUnpublishVolumeRequest>,
    ) -> Result<Response<v1::NodeUnpublishVolumeResponse>, Status> {
        let request = request.into_inner();
        let call = Call {
            method: "unpublish",
            volume: request.volume_id,
            path: request.target_path.clone(),
            ..Call::default()
        };
        if !self.begin(call).await? {
            unbind(&request.target_path)?;
            let _ = std::fs::remove_dir(&request.target_path);
            let _ = std::fs::remove_file(&request.target_path);
        }
        Ok(Response::new(v1::NodeUnpublishVolumeResponse {}))
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<v1::NodeGetVolumeStatsRequest>,
    ) -> Result<Response<v1::NodeGetVolumeStatsResponse>, Status> {
        let request = request.into_inner();
        let call = Call {
            method: "stats",
            volume: request.volume_id,
            path: request.volume_path,
            ..Call::default()
        };
        self.begin(call).await?;
        let usage = |unit: v1::volume_usage::Unit, total| v1::VolumeUsage {
            available: total - 1,
            total,
            used: 1,
            unit: unit.into(),
        };
        Ok(Response::new(v1::NodeGetVolumeStatsResponse {
            usage: vec![
                usage(v1::volume_usage::Unit::Bytes, 4711),
                usage(v1::volume_usage::Unit::Inodes, 47),
            ],
            volume_condition: None,
        }))
    }

    async fn node_expand_volume(
        &self,
        request: Request<v1::NodeExpandVolumeRequest>,
    ) -> Result<Response<v1::NodeExpandVolumeResponse>, Status> {
        let request = request.into_inner();
        let call = Call {
            method: "expand",
            volume: request.volume_id,
            path: request.volume_path,
            staging: request.staging_target_path,
            secrets: request.secrets,
            bytes: request.capacity_range.unwrap_or_default().required_bytes,
            ..Call::default()
        };
        self.begin(call).await?;
        Ok(Response::new(v1::NodeExpandVolumeResponse { capacity_bytes: 0 }))
    }

    async fn node_get_capabilities(
        &self,
        _: Request<v1::NodeGetCapabilitiesRequest>,
    ) -> Result<Response<v1::NodeGetCapabilitiesResponse>, Status> {
        let mut kinds = vec![rpc::Type::GetVolumeStats, rpc::Type::ExpandVolume];
        kinds.extend(self.stages.then_some(rpc::Type::StageUnstageVolume));
        kinds.extend(self.mounts_groups.then_some(rpc::Type::VolumeMountGroup));
        let capability = |kind: rpc::Type| v1::NodeServiceCapability {
            r#type: Some(Type::Rpc(Rpc { r#type: kind.into() })),
        };
        Ok(Response::new(v1::NodeGetCapabilitiesResponse {
            capabilities: kinds.into_iter().map(capability).collect(),
        }))
    }

    async fn node_get_info(
        &self,
        _: Request<v1::NodeGetInfoRequest>,
    ) -> Result<Response<v1::NodeGetInfoResponse>, Status> {
        let call = Call {
            method: "info",
            ..Call::default()
        };
        let lies = self.begin(call).await?;
        Ok(Response::new(v1::NodeGetInfoResponse {
            node_id: if lies {
                String::new()
            } else {
                "node-of-driver".to_owned()
            },
            max_volumes_per_node: 12,
            accessible_topology: Some(v1::Topology {
                segments: [(format!("topology.{}/zone", self.name), "z1".to_owned())].into(),
            }),
        }))
    }
}

fn is_block(capability: &Option<v1::VolumeCapability>) -> bool {
    let access = capability
        .as_ref()
        .and_then(|capability| capability.access_type.as_ref());
    matches!(access, Some(AccessType::Block(_)))
}
