//! Measures the runtime: how long a pod takes to start and to go, and what it costs in memory.
//!
//! Needs root. Run it as `cargo run --release -p runtime --example latency -- [PODS]`; it is its own supervisor and
//! uses the built-in image, without a network.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use cri::{Runtime, v1};
use network::{Cidr, NetworkError, PodAddresses, PodNetwork, SandboxNetwork};
use runtime::{Embedded, Options};

const CGROUP: &str = "/karve-latency";

fn main() {
    let mut args = std::env::args().skip(1);
    match args.next().as_deref() {
        Some(runtime::supervisor::SUBCOMMAND) => drop(runtime::supervisor::main(args)),
        Some(runtime::unpacker::SUBCOMMAND) => drop(runtime::unpacker::main()),
        Some("pause") => loop {
            std::thread::park();
        },
        pods => {
            let pods = pods.and_then(|pods| pods.parse().ok()).unwrap_or(50);
            let threads = tokio::runtime::Builder::new_multi_thread()
                .enable_all()
                .build()
                .unwrap();
            threads.block_on(measure(pods));
        }
    }
}

async fn measure(pods: usize) {
    let dir = tempfile::tempdir().unwrap();
    let exe = std::env::current_exe().unwrap();
    let options = Options {
        root_dir: dir.path().join("root"),
        state_dir: dir.path().join("state"),
        cgroup_parent: CGROUP.into(),
        supervisor_exe: exe,
        network: Arc::new(NoNetwork),
        mirrors: Vec::new(),
    };
    let began = Instant::now();
    let runtime = runtime::open(options).await.unwrap();
    println!("open                      {:?}", began.elapsed());
    let mut times = [const { Vec::new() }; 5];
    let mut sandboxes = Vec::new();
    for _ in 0..pods {
        let mut lap = Lap(Instant::now());
        let sandbox = run_sandbox(&runtime, dir.path()).await;
        times[0].push(lap.next());
        let container = create(&runtime, &sandbox).await;
        times[1].push(lap.next());
        let request = v1::StartContainerRequest {
            container_id: container.clone(),
        };
        runtime.start_container(request).await.unwrap();
        times[2].push(lap.next());
        sandboxes.push((sandbox, container));
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    let state = dir.path().join("state").display().to_string();
    let (private, processes) = private_memory(&state);
    for (sandbox, container) in sandboxes {
        let mut lap = Lap(Instant::now());
        let request = v1::StopContainerRequest {
            container_id: container,
            timeout: 0,
        };
        runtime.stop_container(request).await.unwrap();
        times[3].push(lap.next());
        let pod_sandbox_id = sandbox.clone();
        runtime
            .stop_pod_sandbox(v1::StopPodSandboxRequest { pod_sandbox_id })
            .await
            .unwrap();
        runtime
            .remove_pod_sandbox(v1::RemovePodSandboxRequest {
                pod_sandbox_id: sandbox,
            })
            .await
            .unwrap();
        times[4].push(lap.next());
    }
    for (name, times) in [
        "run sandbox",
        "create container",
        "start container",
        "stop container",
        "remove sandbox",
    ]
    .iter()
    .zip(&mut times)
    {
        times.sort_unstable();
        println!(
            "{name:<20} min {:>8.2?} p10 {:>8.2?} p50 {:>8.2?} p95 {:>8.2?}",
            times[0],
            times[times.len() / 10],
            times[times.len() / 2],
            times[times.len() * 95 / 100]
        );
    }
    println!(
        "memory of supervisor and pause: {} KiB per pod, {processes} processes",
        private / pods.max(1)
    );
    let together = Instant::now();
    let all = (0..30).map(|_| async {
        let sandbox = run_sandbox(&runtime, dir.path()).await;
        let container_id = create(&runtime, &sandbox).await;
        runtime
            .start_container(v1::StartContainerRequest { container_id })
            .await
            .unwrap();
        sandbox
    });
    let sandboxes = futures_util::future::join_all(all).await;
    println!("30 pods at once           {:?}", together.elapsed());
    let together = Instant::now();
    futures_util::future::join_all(
        sandboxes
            .into_iter()
            .map(|pod_sandbox_id| runtime.remove_pod_sandbox(v1::RemovePodSandboxRequest { pod_sandbox_id })),
    )
    .await;
    println!("and their removal         {:?}", together.elapsed());
    remove_cgroups();
}

struct Lap(Instant);

impl Lap {
    fn next(&mut self) -> Duration {
        let lap = self.0.elapsed();
        self.0 = Instant::now();
        lap
    }
}

async fn run_sandbox(runtime: &Embedded, dir: &Path) -> String {
    let namespaces = v1::NamespaceOption {
        pid: v1::NamespaceMode::Container.into(),
        ..Default::default()
    };
    let config = v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: "pod".into(),
            namespace: "bench".into(),
            ..Default::default()
        }),
        hostname: "pod".into(),
        log_directory: dir.join("logs").display().to_string(),
        linux: Some(v1::LinuxPodSandboxConfig {
            cgroup_parent: CGROUP.into(),
            security_context: Some(v1::LinuxSandboxSecurityContext {
                namespace_options: Some(namespaces),
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..Default::default()
    };
    let request = v1::RunPodSandboxRequest {
        config: Some(config),
        runtime_handler: String::new(),
    };
    runtime.run_pod_sandbox(request).await.unwrap().pod_sandbox_id
}

async fn create(runtime: &Embedded, sandbox: &str) -> String {
    let paths = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect();
    let config = v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata {
            name: "main".into(),
            attempt: 0,
        }),
        image: Some(v1::ImageSpec {
            image: runtime::BUILTIN_IMAGE.into(),
            ..Default::default()
        }),
        log_path: format!("{sandbox}.log"),
        linux: Some(v1::LinuxContainerConfig {
            security_context: Some(v1::LinuxContainerSecurityContext {
                namespace_options: Some(v1::NamespaceOption {
                    pid: v1::NamespaceMode::Container.into(),
                    ..Default::default()
                }),
                masked_paths: paths(&[
                    "/proc/acpi",
                    "/proc/kcore",
                    "/proc/keys",
                    "/proc/timer_list",
                    "/sys/firmware",
                ]),
                readonly_paths: paths(&["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]),
                seccomp: Some(v1::SecurityProfile::default()),
                ..Default::default()
            }),
            resources: Some(v1::LinuxContainerResources {
                memory_limit_in_bytes: 64 << 20,
                cpu_shares: 102,
                ..Default::default()
            }),
        }),
        ..Default::default()
    };
    let request = v1::CreateContainerRequest {
        pod_sandbox_id: sandbox.to_owned(),
        config: Some(config),
        sandbox_config: None,
    };
    runtime.create_container(request).await.unwrap().container_id
}

/// What the supervisors and pause processes have for themselves, in KiB, and how many there are.
fn private_memory(state: &str) -> (usize, usize) {
    let (mut total, mut count) = (0, 0);
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if !String::from_utf8_lossy(&command).contains(state) {
            continue;
        }
        let Ok(rollup) = std::fs::read_to_string(entry.path().join("smaps_rollup")) else {
            continue;
        };
        // Proportional, so that pages which a supervisor and its pause process share count once.
        let line = rollup.lines().find_map(|line| line.strip_prefix("Pss_Anon:")).unwrap();
        total += line.trim().trim_end_matches(" kB").parse::<usize>().unwrap();
        count += 1;
    }
    (total, count)
}

fn remove_cgroups() {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    for line in mounts.lines().filter(|line| line.contains(" - cgroup")) {
        if let Some(mount) = line.split(' ').nth(4) {
            let _ = std::fs::remove_dir(Path::new(mount).join(CGROUP.trim_start_matches('/')));
        }
    }
}

struct NoNetwork;

#[async_trait]
impl PodNetwork for NoNetwork {
    async fn setup(&self, _: &SandboxNetwork) -> Result<PodAddresses, NetworkError> {
        Ok(PodAddresses {
            ips: Vec::new(),
            gateways: Vec::new(),
            interface: String::new(),
        })
    }

    async fn teardown(&self, _: &SandboxNetwork) -> Result<(), NetworkError> {
        Ok(())
    }

    async fn status(&self) -> Result<(), NetworkError> {
        Ok(())
    }

    async fn reconcile(&self, _: &[SandboxNetwork]) -> Result<(), NetworkError> {
        Ok(())
    }

    async fn update_pod_cidrs(&self, _: &[Cidr]) -> Result<(), NetworkError> {
        Ok(())
    }
}
