//! Sandboxes: from RunPodSandbox to RemovePodSandbox.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use cri::v1;
use network::{PortMapping, Protocol, SandboxNetwork};
use parking_lot::Mutex;

use super::events::EventKind;
use super::names::sandbox_name;
use super::records::{self, SandboxRecord};
use super::{Embedded, doing, new_id, now_ns};
use crate::link::{Link, LinkError, Report};
use crate::plan;
use crate::protocol::{Answer, Call, Ended};

/// One sandbox. Its record and configuration never change; `state` does.
pub struct Sandbox {
    pub record: SandboxRecord,
    pub config: v1::PodSandboxConfig,
    pub state: Mutex<SandboxState>,
    /// Held by calls that change the sandbox as a whole, so that those of a retrying kubelet follow each other.
    pub changing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
pub struct SandboxState {
    /// None when the sandbox is not ready, and never will be again.
    pub running: Option<Running>,
}

#[derive(Clone)]
pub struct Running {
    pub link: Arc<Link>,
    pub pause_pid: i32,
}

impl Sandbox {
    pub fn new(record: SandboxRecord, config: v1::PodSandboxConfig, running: Option<Running>) -> Self {
        let state = Mutex::new(SandboxState { running });
        Self {
            record,
            config,
            state,
            changing: tokio::sync::Mutex::default(),
        }
    }

    pub fn running(&self) -> Option<Running> {
        self.state.lock().running.clone()
    }

    pub fn set_running(&self, running: Running) {
        self.state.lock().running = Some(running);
    }

    /// The supervisor's link, for calls that need a running sandbox.
    pub fn link(&self) -> cri::Result<Arc<Link>> {
        let running = self.running().map(|running| running.link);
        running.ok_or_else(|| cri::Error::precondition(format!("sandbox {} is not ready", self.record.id)))
    }

    pub fn network(&self) -> SandboxNetwork {
        let pid = self.running().map_or(0, |running| running.pause_pid);
        sandbox_network(&self.record.id, &self.config, pid)
    }

    pub fn mark(&self, stage: &'static str) {
        mark(stage, &self.config);
    }
}

fn mark(stage: &'static str, config: &v1::PodSandboxConfig) {
    if let Some(pod) = &config.metadata {
        trace::mark(stage, format!("pods/{}/{}", pod.namespace, pod.name), pod.uid.clone());
    }
}

impl Embedded {
    pub(super) async fn run_sandbox(&self, request: v1::RunPodSandboxRequest) -> cri::Result<String> {
        let config = request
            .config
            .ok_or_else(|| cri::Error::invalid("a sandbox needs a configuration"))?;
        if config.metadata.is_none() {
            return Err(cri::Error::invalid("sandbox config must include metadata"));
        }
        let id = new_id()?;
        let mut spec = plan::sandbox(&id, &config, &request.runtime_handler)?;
        if let Some(why) = spec.user_namespace.and_then(|_| self.user_namespaces().err()) {
            return Err(cri::Error::unsupported(format!(
                "this node cannot run pods in user namespaces: {why}"
            )));
        }
        let reserved = self.names.reserve("sandbox", sandbox_name(&config), &id)?;
        // A host without the file has nothing to say, and neither have its pods.
        let host = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        spec.files = plan::files(&spec, config.dns_config.as_ref(), host);
        let result = self.create_sandbox(
            SandboxRecord {
                id,
                created_at_ns: now_ns(),
                spec,
                ips: Vec::new(),
                runtime_handler: request.runtime_handler,
            },
            config,
        );
        result.await.inspect(|_| reserved.keep())
    }

    async fn create_sandbox(&self, mut record: SandboxRecord, config: v1::PodSandboxConfig) -> cri::Result<String> {
        let id = record.id.clone();
        let made = async {
            self.make_sandbox_files(&record, &config)?;
            let running = self.start_supervisor(&record).await?;
            mark("runtime/namespaces-created", &config);
            let connected = self.connect_network(&record, &config, running.pause_pid).await;
            match connected {
                Ok(ips) => Ok((running, ips)),
                Err(error) => {
                    // The answer comes when everything has ended; if it does not, nobody is left to tell.
                    let _ = running.link.call(Call::Stop).await;
                    Err(error)
                }
            }
        };
        let written = match made.await {
            Ok((running, ips)) => {
                record.ips = ips;
                let written = records::write(&self.sandbox_record(&id), &record, &config);
                written.map(|()| running).map_err(doing("recording the sandbox"))
            }
            Err(error) => Err(error),
        };
        match written {
            Ok(running) => {
                let sandbox = Arc::new(Sandbox::new(record, config, Some(running)));
                sandbox.mark("runtime/sandbox-ready");
                self.sandboxes.write().insert(id.clone(), sandbox.clone());
                self.check_supervisor(&sandbox);
                Ok(id)
            }
            Err(error) => {
                self.remove_sandbox_files(&id);
                Err(error)
            }
        }
    }

    fn make_sandbox_files(&self, record: &SandboxRecord, config: &v1::PodSandboxConfig) -> cri::Result<()> {
        let failed = doing("making the sandbox's directory");
        std::fs::create_dir(self.sandbox_dir(&record.id)).map_err(&failed)?;
        if !config.log_directory.is_empty() {
            std::fs::create_dir_all(&config.log_directory).map_err(doing("making the pod's log directory"))?;
        }
        Ok(())
    }

    async fn start_supervisor(&self, record: &SandboxRecord) -> cri::Result<Running> {
        let dir = self.sandbox_dir(&record.id);
        let link = Link::spawn(&self.zygote, &dir, self.reporter(&record.id))?;
        match link.call(Call::CreateSandbox(record.spec.clone())).await {
            Ok(Answer::Sandbox { pause_pid }) => Ok(Running {
                link: Arc::new(link),
                pause_pid,
            }),
            Ok(_) => Err(LinkError::Unexpected.into()),
            Err(LinkError::Ended) => {
                let log = self.zygote.log_path();
                Err(cri::Error::internal(format!(
                    "the pod's supervisor ended at once: see {}",
                    log.display()
                )))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// What to do with a supervisor's reports: they come in order, from one task.
    pub(super) fn reporter(&self, sandbox_id: &str) -> impl Fn(Report) + Send + 'static {
        let (runtime, sandbox_id) = (self.itself.clone(), sandbox_id.to_owned());
        move |report| {
            let Some(runtime) = runtime.upgrade() else { return };
            match report {
                Report::Ended(Ended::Container { container, exit }) => runtime.container_ended(&container, exit),
                Report::Ended(Ended::Sandbox) => runtime.sandbox_ended(&sandbox_id),
                Report::Ended(Ended::Process { .. }) => {}
                Report::Gone => runtime.supervisor_gone(&sandbox_id),
            }
        }
    }

    async fn connect_network(
        &self,
        record: &SandboxRecord,
        config: &v1::PodSandboxConfig,
        pause_pid: i32,
    ) -> cri::Result<Vec<IpAddr>> {
        if !record.spec.own_network {
            return Ok(Vec::new());
        }
        let network = sandbox_network(&record.id, config, pause_pid);
        let addresses = self.network.setup(&network).await.map_err(|error| {
            cri::Error::internal(format!("failed to setup network for sandbox {:?}: {error}", record.id))
        })?;
        mark("runtime/network-ready", config);
        Ok(addresses.ips)
    }

    /// Ends everything in a sandbox. What has ended already is left alone.
    pub(super) async fn stop_sandbox(&self, sandbox: &Arc<Sandbox>) -> cri::Result<()> {
        let _changing = sandbox.changing.lock().await;
        let network = async {
            match sandbox.record.spec.own_network {
                true => self.network.teardown(&sandbox.network()).await.map_err(|error| {
                    cri::Error::internal(format!(
                        "failed to teardown network for sandbox {:?}: {error}",
                        sandbox.record.id
                    ))
                }),
                false => Ok(()),
            }
        };
        let Some(running) = sandbox.running() else {
            return network.await;
        };
        let (stopped, disconnected) = tokio::join!(running.link.call(Call::Stop), network);
        match stopped {
            // The supervisor may close its connection before we read its answer.
            Ok(_) | Err(LinkError::Ended) => {}
            Err(error) => return Err(error.into()),
        }
        sandbox.state.lock().running = None;
        for container in self.containers_of(&sandbox.record.id) {
            self.presume_ended(&container);
        }
        sandbox.mark("runtime/sandbox-stopped");
        // Supervisors leave their directory to us.
        let _ = std::fs::remove_dir_all(self.sandbox_dir(&sandbox.record.id));
        disconnected
    }

    pub(super) async fn remove_sandbox(&self, sandbox: &Arc<Sandbox>) -> cri::Result<()> {
        self.stop_sandbox(sandbox).await?;
        for container in self.containers_of(&sandbox.record.id) {
            self.remove_container_of(&container).await?;
        }
        self.sandboxes.write().remove(&sandbox.record.id);
        self.names.release(&sandbox_name(&sandbox.config));
        self.cpu_samples.forget(&sandbox.record.id);
        self.remove_sandbox_files(&sandbox.record.id);
        Ok(())
    }

    pub(super) fn remove_sandbox_files(&self, id: &str) {
        let removed = [
            std::fs::remove_dir_all(self.sandbox_dir(id)),
            std::fs::remove_file(self.sandbox_record(id)),
        ];
        for error in removed.into_iter().filter_map(Result::err) {
            if error.kind() != std::io::ErrorKind::NotFound {
                tracing::warn!(sandbox = id, %error, "Failed to remove the files of a sandbox");
            }
        }
    }

    /// The pod's namespaces have gone; its supervisor is killing the rest and will report it.
    fn sandbox_ended(&self, id: &str) {
        if let Ok(sandbox) = self.sandbox(id) {
            tracing::warn!(
                sandbox = id,
                "Pause process of a sandbox was killed; stopping the sandbox"
            );
            let running = sandbox.state.lock().running.take();
            if let Some(running) = running {
                self.emit_sandbox(id, EventKind::Stopped);
                // The link must live until the supervisor has told of the last container.
                tokio::spawn(async move { running.link.call(Call::Stop).await });
            }
        }
    }

    /// A supervisor has ended. Unless it was told to, it was killed, and nobody looks after the containers any more.
    fn supervisor_gone(&self, id: &str) {
        let Ok(sandbox) = self.sandbox(id) else { return };
        let Some(running) = sandbox.state.lock().running.take() else {
            return;
        };
        if sandbox.changing.try_lock().is_err() {
            // It is being stopped, and whoever does it records the end.
            sandbox.state.lock().running = Some(running);
            return;
        }
        tracing::warn!(
            sandbox = id,
            "Supervisor of a sandbox was killed; killing its containers"
        );
        self.emit_sandbox(id, EventKind::Stopped);
        self.kill_leftovers(id, running.pause_pid);
        for container in self.containers_of(id) {
            self.presume_ended(&container);
        }
    }

    /// A supervisor that ended while its sandbox was not known yet has reported it to nobody.
    pub(super) fn check_supervisor(&self, sandbox: &Sandbox) {
        if sandbox.running().is_some_and(|running| running.link.is_closed()) {
            self.supervisor_gone(&sandbox.record.id);
        }
    }

    /// Kills what a supervisor that is no more has left behind.
    pub(super) fn kill_leftovers(&self, sandbox_id: &str, pause_pid: i32) {
        for container in self.containers_of(sandbox_id) {
            let cgroup = &container.record.spec.cgroup.path;
            self.layout.kill(cgroup);
            if let Err(error) = self.layout.remove(cgroup) {
                tracing::warn!(container = container.record.id, %error, "Failed to remove the cgroup of a container that has ended");
            }
        }
        if is_pause(pause_pid)
            && let Some(pid) = rustix::process::Pid::from_raw(pause_pid)
        {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

/// Whether a process is a pause process, and not one that was given its number later.
fn is_pause(pid: i32) -> bool {
    std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("comm")).is_ok_and(|comm| comm == "pause\n")
}

fn sandbox_network(id: &str, config: &v1::PodSandboxConfig, pause_pid: i32) -> SandboxNetwork {
    let pod = config.metadata.clone().unwrap_or_default();
    SandboxNetwork {
        id: id.to_owned(),
        netns_path: format!("/proc/{pause_pid}/ns/net").into(),
        namespace: pod.namespace,
        name: pod.name,
        uid: pod.uid,
        hostname: config.hostname.clone(),
        port_mappings: config.port_mappings.iter().filter_map(port_mapping).collect(),
    }
}

/// A container port without a host port is only information.
fn port_mapping(mapping: &v1::PortMapping) -> Option<PortMapping> {
    let port = |number: i32| u16::try_from(number).ok().filter(|number| *number != 0);
    Some(PortMapping {
        host_ip: mapping.host_ip.parse().ok(),
        host_port: port(mapping.host_port)?,
        container_port: port(mapping.container_port)?,
        protocol: match mapping.protocol() {
            v1::Protocol::Tcp => Protocol::Tcp,
            v1::Protocol::Udp => Protocol::Udp,
            v1::Protocol::Sctp => Protocol::Sctp,
        },
    })
}
