//! A runtime of its own for each test, and the images and requests they share.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use cri::{Runtime, v1};
use network::{Cidr, NetworkError, PodAddresses, PodNetwork, SandboxNetwork};
use parking_lot::Mutex;
use runtime::{Embedded, Options};

pub const IMAGE: &str = "test/busybox:1";
const BUSYBOX: &str = "/usr/bin/busybox";
const APPLETS: &[&str] = &[
    "sh", "cat", "echo", "sleep", "id", "ls", "kill", "true", "stty", "nc", "touch", "mknod", "dd", "mount", "mkdir",
];

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Whether this machine can run the tests; says so loudly when it cannot.
pub fn able() -> bool {
    let missing = if !rustix::process::geteuid().is_root() {
        "root"
    } else if !Path::new(BUSYBOX).exists() {
        "a static busybox"
    } else {
        return true;
    };
    assert!(
        std::env::var_os("KARVE_REQUIRE_ALL").is_none(),
        "these tests need {missing}"
    );
    eprintln!("SKIPPED: these tests need {missing}");
    false
}

/// A network that connects nothing, and remembers for whom.
#[derive(Default)]
pub struct NoNetwork {
    pub connected: Mutex<BTreeSet<String>>,
}

#[async_trait]
impl PodNetwork for NoNetwork {
    async fn setup(&self, sandbox: &SandboxNetwork) -> Result<PodAddresses, NetworkError> {
        assert!(sandbox.netns_path.exists());
        self.connected.lock().insert(sandbox.id.clone());
        Ok(PodAddresses {
            ips: vec![IpAddr::V4(Ipv4Addr::new(10, 9, 8, 7))],
            gateways: vec![IpAddr::V4(Ipv4Addr::new(10, 9, 8, 1))],
            interface: "eth0".into(),
        })
    }

    async fn teardown(&self, sandbox: &SandboxNetwork) -> Result<(), NetworkError> {
        self.connected.lock().remove(&sandbox.id);
        Ok(())
    }

    async fn status(&self) -> Result<(), NetworkError> {
        Ok(())
    }

    async fn reconcile(&self, live: &[SandboxNetwork]) -> Result<(), NetworkError> {
        let is_live = |id: &String| live.iter().any(|sandbox| sandbox.id == *id);
        self.connected.lock().retain(is_live);
        Ok(())
    }

    async fn update_pod_cidrs(&self, _: &[Cidr]) -> Result<(), NetworkError> {
        Ok(())
    }
}

pub struct Bed {
    pub dir: tempfile::TempDir,
    pub cgroup: PathBuf,
    pub network: Arc<NoNetwork>,
    runtime: Option<Arc<Embedded>>,
}

impl std::ops::Deref for Bed {
    type Target = Embedded;

    fn deref(&self) -> &Embedded {
        self.runtime.as_ref().unwrap()
    }
}

/// A failed test leaves nothing running either.
impl Drop for Bed {
    fn drop(&mut self) {
        let mut left = processes_of(&self.dir.path().display().to_string());
        for cgroup in cgroups(&self.cgroup) {
            for child in fs::read_dir(&cgroup)
                .unwrap()
                .flatten()
                .filter(|entry| entry.path().is_dir())
            {
                let listed = fs::read_to_string(child.path().join("cgroup.procs")).unwrap_or_default();
                left.extend(listed.lines().filter_map(|line| line.parse::<i32>().ok()));
            }
        }
        for pid in left.into_iter().filter_map(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        for cgroup in cgroups(&self.cgroup) {
            for child in fs::read_dir(&cgroup)
                .unwrap()
                .flatten()
                .filter(|entry| entry.path().is_dir())
            {
                for _ in 0..100 {
                    if fs::remove_dir(child.path()).is_ok() {
                        break;
                    }
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
            let _ = fs::remove_dir(cgroup);
        }
    }
}

impl Bed {
    pub async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let cgroup = PathBuf::from(format!("/karve-test-{}-{number}", std::process::id()));
        let network = Arc::new(NoNetwork::default());
        let runtime = open(dir.path(), &cgroup, &network).await;
        let bed = Self {
            dir,
            cgroup,
            network,
            runtime: Some(runtime),
        };
        bed.import(IMAGE, |_| {}).await;
        bed
    }

    /// Drops the runtime and opens it again, as a restarted Karve does.
    pub async fn reopen(self) -> Self {
        self.reopen_after(|_| {}).await
    }

    /// Drops the runtime, does something to what it has left, and opens it again.
    pub async fn reopen_after(mut self, meanwhile: impl FnOnce(&Path)) -> Self {
        let runtime = self.runtime.take().unwrap();
        let weak = Arc::downgrade(&runtime);
        drop(runtime);
        wait_for("the old runtime to go", || weak.upgrade().is_none()).await;
        meanwhile(self.dir.path());
        self.runtime = Some(open(self.dir.path(), &self.cgroup, &self.network).await);
        self
    }

    /// Imports an image with busybox, and what `add` puts beside it.
    pub async fn import(&self, name: &str, add: impl FnOnce(&mut tar::Builder<Vec<u8>>)) {
        let archive = Archive {
            name,
            layers: vec![busybox_layer(add)],
            diff_ids: None,
        };
        let names = self.try_import(&archive).await.unwrap();
        assert_eq!(names, [format!("docker.io/{name}")]);
    }

    pub async fn try_import(&self, archive: &Archive<'_>) -> cri::Result<Vec<String>> {
        let path = self.dir.path().join("archive.tar");
        fs::write(&path, write_archive(archive)).unwrap();
        self.import_images(fs::File::open(&path).unwrap()).await
    }

    pub fn shared(&self) -> Arc<Embedded> {
        self.runtime.clone().unwrap()
    }

    pub async fn sandbox(&self) -> String {
        self.sandbox_with(|_| {}).await
    }

    pub async fn sandbox_with(&self, change: impl FnOnce(&mut v1::PodSandboxConfig)) -> String {
        let mut config = self.sandbox_config();
        change(&mut config);
        let request = v1::RunPodSandboxRequest {
            config: Some(config),
            runtime_handler: String::new(),
        };
        self.run_pod_sandbox(request).await.unwrap().pod_sandbox_id
    }

    pub fn sandbox_config(&self) -> v1::PodSandboxConfig {
        v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                name: "pod".into(),
                namespace: "default".into(),
                uid: "u-1".into(),
                // A name can be had once.
                attempt: NEXT.fetch_add(1, Ordering::Relaxed),
            }),
            hostname: "pod".into(),
            log_directory: self.dir.path().join("logs").display().to_string(),
            labels: [("app".to_owned(), "test".to_owned())].into(),
            linux: Some(v1::LinuxPodSandboxConfig {
                cgroup_parent: self.cgroup.display().to_string(),
                security_context: Some(v1::LinuxSandboxSecurityContext {
                    namespace_options: Some(private_pid()),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    pub fn container_config(&self, script: &str) -> v1::ContainerConfig {
        v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata {
                name: "main".into(),
                attempt: NEXT.fetch_add(1, Ordering::Relaxed),
            }),
            image: Some(v1::ImageSpec {
                image: IMAGE.into(),
                ..Default::default()
            }),
            command: vec!["sh".into(), "-c".into(), script.into()],
            log_path: "main.log".into(),
            linux: Some(v1::LinuxContainerConfig {
                security_context: Some(v1::LinuxContainerSecurityContext {
                    namespace_options: Some(private_pid()),
                    ..Default::default()
                }),
                resources: None,
            }),
            ..Default::default()
        }
    }

    pub async fn create(&self, sandbox: &str, config: v1::ContainerConfig) -> cri::Result<String> {
        let request = v1::CreateContainerRequest {
            pod_sandbox_id: sandbox.to_owned(),
            config: Some(config),
            sandbox_config: None,
        };
        Ok(self.create_container(request).await?.container_id)
    }

    pub async fn start(&self, container: &str) -> cri::Result<()> {
        let request = v1::StartContainerRequest {
            container_id: container.to_owned(),
        };
        self.start_container(request).await.map(drop)
    }

    /// Creates and starts a container that runs a script.
    pub async fn run(&self, sandbox: &str, script: &str) -> String {
        self.run_with(sandbox, script, |_| {}).await
    }

    pub async fn run_with(&self, sandbox: &str, script: &str, change: impl FnOnce(&mut v1::ContainerConfig)) -> String {
        let mut config = self.container_config(script);
        change(&mut config);
        let container = self.create(sandbox, config).await.unwrap();
        self.start(&container).await.unwrap();
        container
    }

    /// Runs a script to its end and answers its log without times, and its status.
    pub async fn run_to_end(
        &self,
        sandbox: &str,
        script: &str,
        change: impl FnOnce(&mut v1::ContainerConfig),
    ) -> (String, v1::ContainerStatus) {
        let _ = fs::remove_file(self.log_path());
        let container = self.run_with(sandbox, script, change).await;
        let status = self.ended(&container).await;
        (self.log(), status)
    }

    pub async fn status(&self, container: &str) -> v1::ContainerStatus {
        let request = v1::ContainerStatusRequest {
            container_id: container.to_owned(),
            verbose: false,
        };
        self.container_status(request).await.unwrap().status.unwrap()
    }

    pub async fn status_of_runtime(&self) -> v1::StatusResponse {
        Runtime::status(&**self, v1::StatusRequest::default()).await.unwrap()
    }

    /// Kills the `pause` process of a sandbox, or its `supervisor`.
    pub fn kill(&self, sandbox: &str, process: &str) {
        let pause = self.dir.path().join("state/sandboxes").join(sandbox).join("pause");
        let pause: i32 = fs::read_to_string(pause).unwrap().parse().unwrap();
        let status = fs::read_to_string(format!("/proc/{pause}/status")).unwrap();
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap();
        let pid = match process {
            "pause" => pause,
            _ => parent.trim().parse().unwrap(),
        };
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }

    /// The processes of a container, as the host numbers them.
    pub fn pids_of(&self, container: &str) -> Vec<i32> {
        let listed = cgroups(&self.cgroup.join(container))
            .into_iter()
            .map(|dir| dir.join("cgroup.procs"));
        let text: String = listed.filter_map(|file| fs::read_to_string(file).ok()).collect();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }

    pub async fn ended(&self, container: &str) -> v1::ContainerStatus {
        for _ in 0..500 {
            let status = self.status(container).await;
            if status.state() == v1::ContainerState::ContainerExited {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("container {container} did not end");
    }

    pub async fn exec(&self, container: &str, script: &str) -> v1::ExecSyncResponse {
        let request = v1::ExecSyncRequest {
            container_id: container.to_owned(),
            cmd: vec!["sh".into(), "-c".into(), script.into()],
            timeout: 10,
        };
        self.exec_sync(request).await.unwrap()
    }

    /// Runs a command in a container; an error where it cannot be executed.
    pub async fn try_exec(&self, container: &str, command: &[&str]) -> cri::Result<v1::ExecSyncResponse> {
        let request = v1::ExecSyncRequest {
            container_id: container.to_owned(),
            cmd: command.iter().map(|word| (*word).to_owned()).collect(),
            timeout: 10,
        };
        self.exec_sync(request).await
    }

    pub fn log_path(&self) -> PathBuf {
        self.dir.path().join("logs/main.log")
    }

    /// The container's log, each line without its time.
    pub fn log(&self) -> String {
        let text = fs::read_to_string(self.log_path()).unwrap();
        text.split_terminator('\n')
            .map(|line| format!("{}\n", line.split_once(' ').unwrap().1))
            .collect()
    }

    pub async fn remove(&self, sandbox: &str) {
        let stop = v1::StopPodSandboxRequest {
            pod_sandbox_id: sandbox.to_owned(),
        };
        self.stop_pod_sandbox(stop).await.unwrap();
        let remove = v1::RemovePodSandboxRequest {
            pod_sandbox_id: sandbox.to_owned(),
        };
        self.remove_pod_sandbox(remove).await.unwrap();
    }

    /// Removes every sandbox and checks that nothing is left of any: process, mount, cgroup, address or file.
    pub async fn finish(self) {
        let sandboxes = self
            .list_pod_sandbox(v1::ListPodSandboxRequest::default())
            .await
            .unwrap()
            .items;
        for sandbox in sandboxes {
            self.remove(&sandbox.id).await;
        }
        assert!(self.network.connected.lock().is_empty(), "addresses are left");
        let dir = self.dir.path().display().to_string();
        wait_for("processes to go", || processes_of(&dir).is_empty()).await;
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(&dir), "mounts are left");
        for part in ["root/sandboxes", "root/containers", "state/sandboxes"] {
            let left: Vec<_> = fs::read_dir(self.dir.path().join(part))
                .unwrap()
                .flatten()
                .map(|e| e.path())
                .collect();
            assert!(left.is_empty(), "files are left: {left:?}");
        }
        for cgroup in cgroups(&self.cgroup) {
            let left: Vec<_> = fs::read_dir(&cgroup)
                .unwrap()
                .flatten()
                .filter(|e| e.path().is_dir())
                .collect();
            assert!(left.is_empty(), "cgroups are left: {left:?}");
            // The pod's own cgroup is the kubelet's to remove; here that is us.
            fs::remove_dir(&cgroup).unwrap();
        }
    }
}

/// The security context of a container's configuration.
pub fn security(config: &mut v1::ContainerConfig) -> &mut v1::LinuxContainerSecurityContext {
    config.linux.as_mut().unwrap().security_context.as_mut().unwrap()
}

/// A volume of the host's.
pub fn volume(source: &Path, target: &str) -> v1::Mount {
    v1::Mount {
        container_path: target.into(),
        host_path: source.display().to_string(),
        ..Default::default()
    }
}

async fn open(dir: &Path, cgroup: &Path, network: &Arc<NoNetwork>) -> Arc<Embedded> {
    let options = Options {
        root_dir: dir.join("root"),
        state_dir: dir.join("state"),
        cgroup_parent: cgroup.to_owned(),
        supervisor_exe: env!("CARGO_BIN_EXE_runtime-testbed").into(),
        network: network.clone(),
        mirrors: Vec::new(),
    };
    runtime::open(options).await.unwrap()
}

fn private_pid() -> v1::NamespaceOption {
    v1::NamespaceOption {
        pid: v1::NamespaceMode::Container.into(),
        ..Default::default()
    }
}

pub async fn wait_for(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..500 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("waited in vain for {what}");
}

/// The supervisors and pause processes of one test, by what the zygote they come from was started with.
pub fn processes_of(dir: &str) -> Vec<i32> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let ours = processes.filter_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let command = fs::read(entry.path().join("cmdline")).ok()?;
        if fs::read_to_string(entry.path().join("comm")).ok()? == "karve-zygote\n" {
            return None;
        }
        let command = String::from_utf8_lossy(&command).into_owned();
        (pid != std::process::id() as i32 && command.contains(dir)).then_some(pid)
    });
    ours.collect()
}

/// The directories of a cgroup in all hierarchies.
pub fn cgroups(path: &Path) -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let hierarchies = mounts.lines().filter(|line| line.contains(" - cgroup"));
    let dirs = hierarchies.filter_map(|line| {
        let dir = Path::new(line.split(' ').nth(4)?).join(path.strip_prefix("/").unwrap());
        dir.is_dir().then_some(dir)
    });
    dirs.collect()
}

/// An image to be written as docker save does.
pub struct Archive<'a> {
    pub name: &'a str,
    /// Lowest first, as tars.
    pub layers: Vec<Vec<u8>>,
    /// What the image says its layers' digests are; None for the truth.
    pub diff_ids: Option<Vec<String>>,
}

/// A layer with busybox and a few accounts, and what `add` puts beside them.
pub fn busybox_layer(add: impl FnOnce(&mut tar::Builder<Vec<u8>>)) -> Vec<u8> {
    let mut layer = tar::Builder::new(Vec::new());
    layer.append_path_with_name(BUSYBOX, "bin/busybox").unwrap();
    for applet in APPLETS {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_size(0);
        header.set_mode(0o777);
        layer
            .append_link(&mut header, format!("bin/{applet}"), "busybox")
            .unwrap();
    }
    let passwd = "root:x:0:0:root:/root:/bin/sh\nweb:x:101:102:web:/srv:/bin/sh\n";
    append(&mut layer, "etc/passwd", passwd.as_bytes());
    append(&mut layer, "etc/group", b"root:x:0:\nweb:x:102:\nlogs:x:7:web\n");
    add(&mut layer);
    layer.into_inner().unwrap()
}

pub fn write_archive(image: &Archive<'_>) -> Vec<u8> {
    let digest = |layer: &Vec<u8>| {
        let digest = ring::digest::digest(&ring::digest::SHA256, layer);
        let hex: String = digest.as_ref().iter().map(|b| format!("{b:02x}")).collect();
        format!("sha256:{hex}")
    };
    let true_ids = || image.layers.iter().map(digest).collect();
    let diff_ids = image.diff_ids.clone().unwrap_or_else(true_ids);
    let config = format!(
        r#"{{"architecture":"amd64","os":"linux","config":{{"Cmd":["sh"],"Env":["PATH=/bin"]}},
            "rootfs":{{"type":"layers","diff_ids":{diff_ids:?}}}}}"#
    );
    let mut archive = tar::Builder::new(Vec::new());
    let names: Vec<_> = (0..image.layers.len()).map(|index| format!("{index}.tar")).collect();
    for (name, layer) in names.iter().zip(&image.layers) {
        append(&mut archive, name, layer);
    }
    append(&mut archive, "config.json", config.as_bytes());
    let manifest = format!(
        r#"[{{"Config":"config.json","RepoTags":["{}"],"Layers":{names:?}}}]"#,
        image.name
    );
    append(&mut archive, "manifest.json", manifest.as_bytes());
    archive.into_inner().unwrap()
}

fn append(archive: &mut tar::Builder<Vec<u8>>, name: &str, bytes: &[u8]) {
    let mut header = tar::Header::new_gnu();
    header.set_size(bytes.len() as u64);
    header.set_mode(0o644);
    archive.append_data(&mut header, name, bytes).unwrap();
}
