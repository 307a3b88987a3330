//! The kernel's own files and calls.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::cases::Case;
use crate::pods::{Settled, container, pod_spec};
use crate::verdict::{Verdict, judge};
use crate::world::World;

pub const KERNEL_FILES: Case = Case {
    name: "containers/kernel-files",
    class: "",
    must_not: "A container changes the kernel's settings or reads what is masked.",
    needs: &[],
    run: kernel_files,
};

pub const SYSTEM_CALLS: Case = Case {
    name: "containers/system-calls",
    class: "",
    must_not: "A container calls what the default profile does not allow, or makes namespaces and mounts.",
    needs: &[],
    run: system_calls,
};

pub const SYSCTLS_OF_THE_HOST: Case = Case {
    name: "containers/sysctls-of-the-host",
    class: "",
    must_not: "A pod in the host's network or IPC namespace changes the host's sysctls.",
    needs: &[],
    run: sysctls_of_the_host,
};

const WRITTEN: &[(&str, &str)] = &[
    ("/proc/sys/kernel/core_pattern", "|/tmp/evil"),
    ("/proc/sys/kernel/modprobe", "/tmp/evil"),
    ("/proc/sys/kernel/randomize_va_space", "0"),
    ("/proc/sys/vm/overcommit_memory", "1"),
    ("/proc/sys/fs/suid_dumpable", "2"),
    ("/proc/sysrq-trigger", "h"),
    ("/proc/irq/0/smp_affinity", "1"),
    ("/sys/kernel/uevent_helper", "/tmp/evil"),
    ("/sys/kernel/mm/transparent_hugepage/enabled", "never"),
    ("/sys/fs/cgroup/release_agent", "/tmp/evil"),
    ("/sys/fs/cgroup/cgroup.procs", "1"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "-1"),
    ("/sys/fs/cgroup/memory.max", "max"),
    ("/proc/self/oom_score_adj", "-1000"),
];

const MASKED: &[&str] = &[
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/sched_debug",
    "/proc/interrupts",
    "/sys/firmware/memmap",
    "/sys/devices/virtual/powercap",
    "/proc/acpi/wakeup",
    "/proc/scsi/scsi",
];

fn kernel_files(world: &World) -> Result<Verdict> {
    let namespace = world.namespace(json!({}))?;
    let pod = namespace.attacker()?;
    ensure!(
        pod.act(&["write", "/tmp/x", "x"])?.ok,
        "the container can write nothing at all"
    );
    ensure!(
        pod.act(&["read", "/proc/sys/kernel/core_pattern"])?.ok,
        "the container cannot even read its kernel's settings"
    );
    let mut attempts = Vec::new();
    for (path, value) in WRITTEN {
        let before = fs::read_to_string(path).ok();
        let done = pod.act(&["write", path, value])?;
        attempts.push(match done.ok {
            true => Verdict::Succeeded(format!(
                "{path} was written; it was {before:?}{}",
                put_back(path, before.as_deref())
            )),
            false => Verdict::Blocked(format!("{path}: {}", done.error)),
        });
    }
    for path in MASKED {
        let done = pod.act(&["read", path])?;
        let seen = done.ok && !done.text().is_empty();
        attempts.push(match seen {
            true => Verdict::Succeeded(format!("{path} was read")),
            false => Verdict::Blocked(format!("{path}: {}", if done.ok { "empty" } else { &done.error })),
        });
    }
    judge(&attempts)
}

/// Undoes an attack that got through, for the machine is others' too. Says so where it cannot.
fn put_back(path: &str, before: Option<&str>) -> String {
    let Some(before) = before else {
        return String::new();
    };
    // Of several choices the one in brackets is in force.
    let chosen = before.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    let value = chosen.map_or(before, |(value, _)| value);
    match fs::write(path, value) {
        Ok(()) => String::new(),
        Err(error) => format!(" and could not be put back: {error}"),
    }
}

fn system_calls(world: &World) -> Result<Verdict> {
    let namespace = world.namespace(json!({}))?;
    let mut main = container(&["wait"]);
    main["securityContext"] = json!({"seccompProfile": {"type": "RuntimeDefault"}});
    let pod = namespace.pod(pod_spec(vec![main], json!([])))?;
    pod.running()?;
    let through = pod.must(&["syscalls"])?;
    let through = through.as_object().context("no list")?;
    let mut attempts = vec![match through.is_empty() {
        true => Verdict::Blocked("all calls of the list were refused".to_owned()),
        false => Verdict::Succeeded(format!("calls got past the filter: {through:?}")),
    }];
    for (source, target, kind) in [
        ("proc", "/tmp", "proc"),
        ("sysfs", "/tmp", "sysfs"),
        ("cgroup2", "/tmp", "cgroup2"),
        ("tmpfs", "/tmp", "tmpfs"),
    ] {
        let done = pod.act(&["mount", source, target, kind])?;
        attempts.push(match done.ok {
            true => Verdict::Succeeded(format!("{kind} was mounted")),
            false => Verdict::Blocked(format!("mounting {kind}: {}", done.error)),
        });
    }
    let handle = pod.act(&["handle", "/etc/passwd"])?;
    attempts.push(match handle.ok {
        true => Verdict::Succeeded(format!("a handle opened the host's root: {}", handle.value)),
        false => Verdict::Blocked(format!("a handle: {}", handle.error)),
    });
    judge(&attempts)
}

fn sysctls_of_the_host(world: &World) -> Result<Verdict> {
    let namespace = world.namespace(json!({}))?;
    let mut honest = pod_spec(vec![container(&["wait"])], json!([]));
    honest["securityContext"] = json!({"sysctls": [{"name": "net.ipv4.ip_local_port_range", "value": "40000 50000"}]});
    let pod = namespace.pod(honest)?;
    pod.running()?;
    let seen = pod.must(&["read", "/proc/sys/net/ipv4/ip_local_port_range"])?;
    ensure!(
        seen.as_str().is_some_and(|text| text.contains("40000")),
        "a sysctl of the pod's own has no effect"
    );

    let mut attempts = Vec::new();
    for (field, name, value, path) in [
        (
            "hostNetwork",
            "net.ipv4.ip_local_port_range",
            "40001 50001",
            "/proc/sys/net/ipv4/ip_local_port_range",
        ),
        (
            "hostNetwork",
            "net.ipv4.ip_unprivileged_port_start",
            "77",
            "/proc/sys/net/ipv4/ip_unprivileged_port_start",
        ),
        (
            "hostIPC",
            "kernel.shm_rmid_forced",
            "1",
            "/proc/sys/kernel/shm_rmid_forced",
        ),
    ] {
        let before = fs::read_to_string(path)?;
        let mut spec = pod_spec(vec![container(&["wait"])], json!([]));
        spec[field] = json!(true);
        spec["securityContext"] = json!({"sysctls": [{"name": name, "value": value}]});
        let made = world.admin.post(
            &namespace.path("pods"),
            &json!({"metadata": {"name": format!("sysctl-{}", world.number())}, "spec": spec}),
        )?;
        let why = if made.is_success() {
            let name = made.json()["metadata"]["name"]
                .as_str()
                .context("a pod without a name")?
                .to_owned();
            match (crate::pods::Pod {
                namespace: &namespace,
                name,
            })
            .settled()?
            {
                Settled::Ran => "the pod runs".to_owned(),
                Settled::Refused(why) => why,
            }
        } else {
            made.summary()
        };
        let after = fs::read_to_string(path)?;
        if after != before {
            fs::write(path, &before)?;
            attempts.push(Verdict::Succeeded(format!(
                "{name} of the host became {}",
                after.trim()
            )));
        } else {
            attempts.push(Verdict::Blocked(format!("{field} and {name}: {why}")));
        }
    }
    judge(&attempts)
}
