//! What the machine is and has, read from the kernel.

use std::collections::BTreeMap;
use std::fs;

use super::reserved::Reserved;
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

    /// What pods may ask for: all but what is reserved and what the thresholds keep free.
    pub fn allocatable(&self, max_pods: u32, thresholds: &Thresholds, reserved: &Reserved) -> BTreeMap<String, String> {
        let mut allocatable = self.capacity(max_pods);
        let free = |signal, capacity: u64, reserved: u64| {
            let kept = thresholds.reserve(signal, capacity);
            capacity.saturating_sub(kept).saturating_sub(reserved)
        };
        let memory = free(Signal::MemoryAvailable, self.memory_bytes, reserved.memory_bytes) / 1024;
        let disk = free(
            Signal::NodefsAvailable,
            self.disk_bytes,
            reserved.ephemeral_storage_bytes,
        );
        let cpu = self.cpu_milli_for_pods(reserved);
        let cpu = match cpu % 1000 {
            0 => (cpu / 1000).to_string(),
            _ => format!("{cpu}m"),
        };
        allocatable.insert("cpu".to_owned(), cpu);
        allocatable.insert("memory".to_owned(), format!("{memory}Ki"));
        allocatable.insert("ephemeral-storage".to_owned(), disk.to_string());
        allocatable
    }
}

impl Machine {
    /// Processors for pods, in thousandths.
    pub fn cpu_milli_for_pods(&self, reserved: &Reserved) -> u64 {
        (self.cpus as u64 * 1000).saturating_sub(reserved.cpu_milli)
    }

    /// Memory that pods may use before the kernel ends some of them.
    pub fn memory_for_pods(&self, reserved: &Reserved) -> u64 {
        self.memory_bytes.saturating_sub(reserved.memory_bytes)
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
        let none = Reserved::default();
        let of = |text: &str| machine.allocatable(110, &text.parse().unwrap(), &none);
        let upstream = machine.allocatable(110, &Thresholds::upstream(), &none);
        assert_eq!(upstream["memory"], format!("{}Ki", (1 << 20) - 100 * 1024));
        assert_eq!(upstream["ephemeral-storage"], (900u64 << 30).to_string());
        assert_eq!(
            of("nodefs.available<1Gi")["ephemeral-storage"],
            (999u64 << 30).to_string()
        );
        assert_eq!(of("")["memory"], machine.capacity(110)["memory"]);
    }

    #[test]
    fn what_is_reserved_is_promised_to_nobody() {
        let machine = Machine {
            cpus: 4,
            memory_bytes: 8 << 30,
            disk_bytes: 10 << 30,
            ..Machine::default()
        };
        let of = |text: &str| machine.allocatable(110, &"".parse().unwrap(), &text.parse().unwrap());
        let some = of("cpu=500m,memory=1Gi,ephemeral-storage=1Gi");
        assert_eq!((some["cpu"].as_str(), some["pods"].as_str()), ("3500m", "110"));
        assert_eq!(some["memory"], format!("{}Ki", 7 << 20));
        assert_eq!(some["ephemeral-storage"], (9u64 << 30).to_string());
        assert_eq!(of("cpu=1")["cpu"], "3");
        assert_eq!(of("cpu=99")["cpu"], "0");
    }
}
