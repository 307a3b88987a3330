//! What the machine is and has, read from the kernel.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Memory kept free of pods, and the pressure line: upstream's default eviction threshold.
const MEMORY_RESERVE: u64 = 100 << 20;
/// The part of the disk kept free of pods.
const DISK_RESERVE_PERCENT: u64 = 10;
/// The part of the disk, and of all process numbers, below which there is pressure.
const PRESSURE_PERCENT: u64 = 10;

#[derive(Clone, Debug, Default)]
pub struct Machine {
    pub cpus: usize,
    pub memory_bytes: u64,
    pub disk_bytes: u64,
    pub machine_id: String,
    pub system_uuid: String,
    pub boot_id: String,
    pub kernel_version: String,
    pub os_image: String,
    pub architecture: &'static str,
}

/// What is running out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    pub memory: bool,
    pub disk: bool,
    pub pids: bool,
}

impl Machine {
    /// `root` lies on the disk that pods use.
    pub fn detect(root: &Path) -> Machine {
        let uname = rustix::system::uname();
        let (disk_bytes, _) = disk(root).unwrap_or_default();
        Machine {
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: memory("MemTotal"),
            disk_bytes,
            machine_id: first_line("/etc/machine-id"),
            system_uuid: first_line("/sys/class/dmi/id/product_uuid"),
            boot_id: first_line("/proc/sys/kernel/random/boot_id"),
            kernel_version: uname.release().to_string_lossy().into_owned(),
            os_image: os_image(&fs::read_to_string("/etc/os-release").unwrap_or_default()),
            architecture: architecture(),
        }
    }

    pub fn capacity(&self, max_pods: u32) -> BTreeMap<String, String> {
        let kib = |bytes: u64| format!("{}Ki", bytes / 1024);
        BTreeMap::from([
            ("cpu".to_owned(), self.cpus.to_string()),
            ("memory".to_owned(), kib(self.memory_bytes)),
            ("ephemeral-storage".to_owned(), kib(self.disk_bytes)),
            ("pods".to_owned(), max_pods.to_string()),
        ])
    }

    pub fn allocatable(&self, max_pods: u32) -> BTreeMap<String, String> {
        let mut allocatable = self.capacity(max_pods);
        let memory = self.memory_bytes.saturating_sub(MEMORY_RESERVE) / 1024;
        let disk = self.disk_bytes / 100 * (100 - DISK_RESERVE_PERCENT);
        allocatable.insert("memory".to_owned(), format!("{memory}Ki"));
        allocatable.insert("ephemeral-storage".to_owned(), disk.to_string());
        allocatable
    }
}

impl Pressure {
    pub fn detect(root: &Path) -> Pressure {
        let disk = disk(root).is_some_and(|(total, free)| free < total / 100 * PRESSURE_PERCENT);
        let number = |path: &str| first_line(path).parse::<u64>().ok();
        let (max, used) = (number("/proc/sys/kernel/pid_max"), processes());
        Pressure {
            memory: memory("MemAvailable") < MEMORY_RESERVE,
            disk,
            pids: max
                .is_some_and(|max| used.is_some_and(|used| max.saturating_sub(used) < max / 100 * PRESSURE_PERCENT)),
        }
    }
}

fn disk(root: &Path) -> Option<(u64, u64)> {
    let stat = rustix::fs::statvfs(root).ok()?;
    Some((stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize))
}

/// All tasks of the machine: the second half of the fourth word of `loadavg`.
fn processes() -> Option<u64> {
    let load = fs::read_to_string("/proc/loadavg").ok()?;
    load.split_whitespace().nth(3)?.split_once('/')?.1.parse().ok()
}

fn memory(field: &str) -> u64 {
    let info = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = info.lines().find(|line| line.split(':').next() == Some(field));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

fn os_image(release: &str) -> String {
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.unwrap_or("Linux").trim_matches('"').to_owned()
}

fn first_line(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().next().unwrap_or_default().trim().to_owned()
}

/// As Go names it.
pub fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "powerpc64" => "ppc64le",
        other => other,
    }
}
