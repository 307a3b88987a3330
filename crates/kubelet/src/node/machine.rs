//! What the machine is and has, read from the kernel.

use std::collections::BTreeMap;
use std::fs;

use crate::pressure::{Measurements, Signal, Thresholds};

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

impl Machine {
    pub fn detect(measured: &Measurements) -> Machine {
        let uname = rustix::system::uname();
        Machine {
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: measured.capacity(Signal::MemoryAvailable),
            disk_bytes: measured.capacity(Signal::NodefsAvailable),
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

    /// What pods may ask for: all but what the thresholds keep free.
    pub fn allocatable(&self, max_pods: u32, thresholds: &Thresholds) -> BTreeMap<String, String> {
        let mut allocatable = self.capacity(max_pods);
        let free = |signal, capacity: u64| capacity.saturating_sub(thresholds.reserve(signal, capacity));
        let memory = free(Signal::MemoryAvailable, self.memory_bytes) / 1024;
        let disk = free(Signal::NodefsAvailable, self.disk_bytes);
        allocatable.insert("memory".to_owned(), format!("{memory}Ki"));
        allocatable.insert("ephemeral-storage".to_owned(), disk.to_string());
        allocatable
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocatable_is_what_the_thresholds_leave() {
        let machine = Machine {
            memory_bytes: 1 << 30,
            disk_bytes: 1000 << 30,
            ..Machine::default()
        };
        let of = |text: &str| machine.allocatable(110, &text.parse().unwrap());
        let upstream = machine.allocatable(110, &Thresholds::upstream());
        assert_eq!(upstream["memory"], format!("{}Ki", (1 << 20) - 100 * 1024));
        assert_eq!(upstream["ephemeral-storage"], (900u64 << 30).to_string());
        assert_eq!(
            of("nodefs.available<1Gi")["ephemeral-storage"],
            (999u64 << 30).to_string()
        );
        assert_eq!(of("")["memory"], machine.capacity(110)["memory"]);
    }
}
