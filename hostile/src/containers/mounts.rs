//! Volumes where the runtime expects its own file systems.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::host_process;
use crate::cases::Case;
use crate::image::{Image, Tar};
use crate::pods::{MAIN, Pod, Settled, container, container_of, pod_spec};
use crate::verdict::{Verdict, blocked, judge, succeeded};
use crate::world::{Namespace, World};

pub const OVER_PROC: Case = Case {
    name: "containers/over-proc",
    class: "CVE-2019-16884, CVE-2025-52881",
    must_not: "A volume in place of /proc takes what the runtime writes there, so that a container runs without its confinement.",
    needs: &[],
    run: over_proc,
};

pub const LINKS_IN_DEV: Case = Case {
    name: "containers/links-in-dev",
    class: "CVE-2025-31133, CVE-2025-52565",
    must_not: "Links in place of /dev/null and /dev/console make the runtime mount the kernel's files where a container can write them.",
    needs: &[],
    run: links_in_dev,
};

pub const RECURSIVE_READ_ONLY: Case = Case {
    name: "containers/recursive-read-only",
    class: "",
    must_not: "A mount below one that is read-only to its depth is writable.",
    needs: &[],
    run: recursive_read_only,
};

/// Files that a runtime writes while it makes a container; here they are the attacker's.
const WRITTEN_BY_RUNTIMES: &[&str] = &[
    "self/attr/exec",
    "self/attr/apparmor/exec",
    "thread-self/attr/exec",
    "sys/net/ipv4/ip_local_port_range",
    "self/oom_score_adj",
];

fn over_proc(world: &World) -> Result<Verdict> {
    let namespace = world.namespace(json!({}))?;
    judge(&[by_mount(&namespace)?, by_image_volume(world, &namespace)?])
}

/// A volume that looks like /proc, filled by a container before.
fn by_mount(namespace: &Namespace<'_>) -> Result<Verdict> {
    let mut fill = Vec::new();
    for file in WRITTEN_BY_RUNTIMES {
        let (dir, _) = file.rsplit_once('/').context("all are in directories")?;
        fill.extend([
            "mkdir".to_owned(),
            format!("/fake/{dir}"),
            "then".into(),
            "write".into(),
            format!("/fake/{file}"),
            "untouched".into(),
            "then".into(),
        ]);
    }
    fill.extend(["read".to_owned(), format!("/fake/{}", WRITTEN_BY_RUNTIMES[0])]);
    let fill: Vec<&str> = fill.iter().map(String::as_str).collect();
    let marker = format!("/never-{}", namespace.world.number());
    let mut first = container(&fill);
    first["name"] = json!("fill");
    first["volumeMounts"] = json!([{"name": "fake", "mountPath": "/fake"}]);
    let mut main = container(&["until", &marker]);
    main["volumeMounts"] = json!([{"name": "fake", "mountPath": "/proc"}]);
    main["securityContext"] = json!({"seccompProfile": {"type": "RuntimeDefault"}});
    let mut watcher = container(&["wait"]);
    watcher["name"] = json!("watcher");
    watcher["volumeMounts"] = json!([{"name": "fake", "mountPath": "/fake"}]);
    let mut spec = pod_spec(vec![watcher, main], json!([{"name": "fake", "emptyDir": {}}]));
    spec["initContainers"] = json!([first]);
    spec["securityContext"] = json!({"sysctls": [{"name": "net.ipv4.ip_local_port_range", "value": "40000 50000"}]});
    let pod = namespace.pod(spec)?;
    let state = pod.wait("start or refuse", |pod| {
        let statuses = pod["status"]["containerStatuses"].as_array()?;
        let main = statuses.iter().find(|status| status["name"] == MAIN)?;
        let watcher = statuses.iter().find(|status| status["name"] == "watcher")?;
        let settled = main["state"]["running"].is_object()
            || main["state"]["terminated"].is_object()
            || main["state"]["waiting"]["message"].is_string();
        (watcher["state"]["running"].is_object() && settled).then(|| main["state"].clone())
    })?;
    for file in WRITTEN_BY_RUNTIMES {
        let found = pod.act_in("watcher", &["read", &format!("/fake/{file}")])?;
        if found.text() != "untouched" {
            return succeeded(format!(
                "the runtime wrote {:?} to {file} of the attacker",
                found.text()
            ));
        }
    }
    match state["running"].is_object() {
        false => blocked(format!("a volume at /proc: {state}")),
        true => confined("a volume at /proc", &marker),
    }
}

/// An image that declares /proc as a volume, as the first of these holes was used.
fn by_image_volume(world: &World, namespace: &Namespace<'_>) -> Result<Verdict> {
    let name = "hostile.test/volume-proc:1";
    let image = Image::honest(name, vec![world.base.clone()])
        .with_config("Volumes", json!({"/proc": {}, "/sys": {}, "/dev": {}}));
    world.import(&image)?;
    let marker = format!("/never-{}", world.number());
    let mut main = container_of(name, &["until", &marker]);
    main["securityContext"] = json!({"seccompProfile": {"type": "RuntimeDefault"}});
    let pod = namespace.pod(pod_spec(vec![main], json!([])))?;
    match pod.settled()? {
        Settled::Refused(why) => blocked(format!("an image with /proc as a volume: {why}")),
        Settled::Ran => {
            let kernel = pod.act(&["read", "/proc/self/status"])?;
            ensure!(
                kernel.ok && kernel.text().contains("Seccomp"),
                "the container's /proc is not the kernel's: {kernel:?}"
            );
            confined("an image with /proc as a volume", &marker)
        }
    }
}

/// Whether a process has its filter, as the host sees it.
fn confined(what: &str, marker: &str) -> Result<Verdict> {
    let pid = host_process(marker)?;
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status
        .lines()
        .find(|line| line.starts_with("Seccomp:"))
        .context("no line about seccomp")?;
    match line.ends_with('2') {
        true => blocked(format!("{what}: the container runs with its filter")),
        false => succeeded(format!("{what}: the container runs without its filter ({line})")),
    }
}

/// What must be read-only whatever is in /dev.
const GUARDED: &[&str] = &["/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger"];
/// What must be masked; writing to it goes nowhere.
const MASKED: &[&str] = &["/proc/kcore", "/proc/keys", "/proc/timer_list"];

fn links_in_dev(world: &World) -> Result<Verdict> {
    let namespace = world.namespace(json!({}))?;
    let links = [
        ("null", "/proc/sys/kernel/core_pattern"),
        ("console", "/proc/sysrq-trigger"),
        ("pts", "/proc/sys/kernel"),
        ("ptmx", "/proc/sys/kernel/core_pattern"),
    ];
    let before = fs::read_to_string("/proc/sys/kernel/core_pattern")?;

    let mut layer = Tar::default().directory("dev", 0o755);
    for (name, target) in links {
        layer = layer.symlink(&format!("dev/{name}"), target);
    }
    let image = "hostile.test/links-in-dev:1";
    world.import(&Image::honest(image, vec![world.base.clone(), layer.finish()]))?;
    let mut attempts = Vec::new();
    for tty in [false, true] {
        let mut main = container_of(image, &["wait"]);
        main["tty"] = json!(tty);
        attempts.push(guarded(
            &namespace.pod(pod_spec(vec![main], json!([])))?,
            "links in the image",
        )?);
        let pod = namespace.pod(with_volume_at_dev(&links, tty))?;
        attempts.push(guarded(&pod, "links in a volume at /dev")?);
    }
    let after = fs::read_to_string("/proc/sys/kernel/core_pattern")?;
    if after != before {
        fs::write("/proc/sys/kernel/core_pattern", before.trim_end())?;
        attempts.push(Verdict::Succeeded(format!("the host's core_pattern became {after:?}")));
    }
    judge(&attempts)
}

fn with_volume_at_dev(links: &[(&str, &str)], tty: bool) -> Value {
    let mut actions = Vec::new();
    let places: Vec<String> = links.iter().map(|(name, _)| format!("/fake/{name}")).collect();
    for ((_, target), place) in links.iter().zip(&places) {
        actions.extend(["link", target, place.as_str(), "then"]);
    }
    actions.extend(["list", "/fake"]);
    let mut fill = container(&actions);
    fill["name"] = json!("fill");
    fill["volumeMounts"] = json!([{"name": "fake", "mountPath": "/fake"}]);
    let mut main = container(&["wait"]);
    main["tty"] = json!(tty);
    main["volumeMounts"] = json!([{"name": "fake", "mountPath": "/dev"}]);
    let mut spec = pod_spec(vec![main], json!([{"name": "fake", "emptyDir": {}}]));
    spec["initContainers"] = json!([fill]);
    spec
}

/// Whether the kernel's files are what they should be in a container that was made under such circumstances.
fn guarded(pod: &Pod<'_>, what: &str) -> Result<Verdict> {
    if let Settled::Refused(why) = pod.settled()? {
        return blocked(format!("{what}: {why}"));
    }
    if pod.read()?["status"]["phase"] != "Running" {
        return blocked(format!(
            "{what}: the container ended by itself: {}",
            pod.log_text(MAIN)?
        ));
    }
    for path in GUARDED {
        let written = pod.act(&["write", path, "|/tmp/evil"])?;
        if written.ok {
            return succeeded(format!("{what}: {path} was written"));
        }
    }
    for path in MASKED {
        let read = pod.act(&["read", path])?;
        if read.ok && !read.text().is_empty() {
            return succeeded(format!("{what}: {path} was read"));
        }
    }
    blocked(format!("{what}: the container runs, and the kernel's files are masked"))
}

fn recursive_read_only(world: &World) -> Result<Verdict> {
    let namespace = world.namespace(json!({}))?;
    let host = world.host_dir()?;
    let nested = host.join("nested");
    fs::create_dir(&nested)?;
    mount_tmpfs(&nested)?;
    let verdict = write_below(&namespace, &host);
    rustix::mount::unmount(&nested, rustix::mount::UnmountFlags::DETACH)?;
    verdict
}

fn write_below(namespace: &Namespace<'_>, host: &std::path::Path) -> Result<Verdict> {
    let pod_with = |mount: Value| {
        let mut main = container(&["wait"]);
        main["volumeMounts"] = json!([mount]);
        namespace.pod(pod_spec(
            vec![main],
            json!([{"name": "host", "hostPath": {"path": host}}]),
        ))
    };
    let honest = pod_with(json!({"name": "host", "mountPath": "/mnt"}))?;
    honest.running()?;
    honest.must(&["write", "/mnt/nested/honest", "x"])?;
    let pod = pod_with(json!({"name": "host", "mountPath": "/mnt", "readOnly": true, "recursiveReadOnly": "Enabled"}))?;
    if let Settled::Refused(why) = pod.settled()? {
        return blocked(why);
    }
    let read = pod.act(&["read", "/mnt/nested/honest"])?;
    ensure!(read.text() == "x", "the mount below is not even seen: {read:?}");
    let written = pod.act(&["write", "/mnt/nested/hostile", "x"])?;
    match written.ok {
        true => succeeded("a mount below one that is read-only to its depth was written"),
        false => blocked(written.error),
    }
}

fn mount_tmpfs(path: &std::path::Path) -> Result<()> {
    use rustix::mount::{MountFlags, mount};
    let none: Option<&std::ffi::CStr> = None;
    mount("tmpfs", path, "tmpfs", MountFlags::empty(), none).with_context(|| format!("cannot mount {}", path.display()))
}
