//! What volumes take of the disk, and who else reads them there.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::cases::Case;
use crate::pods::{Done, container, pod_spec};
use crate::verdict::{Verdict, blocked, succeeded};
use crate::world::World;

pub const SIZE_LIMIT: Case = Case {
    name: "volumes/size-limit",
    class: "",
    must_not: "A pod that fills an emptyDir or its own layer beyond its limit stays.",
    needs: &[],
    run: size_limit,
};

pub const LOCAL_USERS: Case = Case {
    name: "volumes/local-users",
    class: "",
    must_not: "A user of the machine who is not root reads Secrets, tokens or keys from its disk, or reaches a socket there.",
    needs: &[],
    run: local_users,
};

const NOBODY: u32 = 65534;

fn size_limit(world: &World) -> Result<Verdict> {
    let namespace = world.namespace(json!({}))?;
    let bytes = (24 << 20).to_string();
    let mut volume = container(&["fill", "/v/full", &bytes, "then", "wait"]);
    volume["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    let limited = namespace.pod(pod_spec(
        vec![volume],
        json!([{"name": "v", "emptyDir": {"sizeLimit": "10Mi"}}]),
    ))?;
    let mut layer = container(&["fill", "/full", &bytes, "then", "wait"]);
    layer["resources"] = json!({"limits": {"ephemeral-storage": "10Mi"}});
    let heavy = namespace.pod(pod_spec(vec![layer], json!([])))?;
    let mut modest = container(&["fill", "/v/some", "1000000", "then", "wait"]);
    modest["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    modest["resources"] = json!({"limits": {"ephemeral-storage": "10Mi"}});
    let modest = namespace.pod(pod_spec(
        vec![modest],
        json!([{"name": "v", "emptyDir": {"sizeLimit": "10Mi"}}]),
    ))?;

    let mut reasons = Vec::new();
    for pod in [&limited, &heavy] {
        match pod.ended() {
            Ok(ended) => reasons.push(format!("{}: {}", ended["status"]["reason"], ended["status"]["message"])),
            Err(error) => return succeeded(format!("a pod stays beyond its limit: {error:#}")),
        }
    }
    ensure!(
        modest.read()?["status"]["phase"] == "Running",
        "a pod within its limits was ended too"
    );
    blocked(reasons.join("; "))
}

fn local_users(world: &World) -> Result<Verdict> {
    let namespace = world.namespace(json!({}))?;
    let value = format!("value-of-a-secret-{}", world.number());
    world.admin.must_post(
        &namespace.path("secrets"),
        &json!({"metadata": {"name": "s"}, "stringData": {"key": value}}),
    )?;
    let mut main = container(&["wait"]);
    main["volumeMounts"] = json!([{"name": "s", "mountPath": "/s"}]);
    let mut spec = pod_spec(vec![main], json!([{"name": "s", "secret": {"secretName": "s"}}]));
    spec["automountServiceAccountToken"] = json!(true);
    let pod = namespace.pod(spec)?;
    pod.running()?;
    ensure!(
        pod.act(&["read", "/s/key"])?.text() == value,
        "the pod does not see its secret"
    );

    let (mut found, mut keys, mut sockets) = (Vec::new(), Vec::new(), Vec::new());
    for root in [world.cluster.data_dir(), "/run/karve".into()] {
        holding(&root, &value, 12, &mut found);
        holding(&root, "PRIVATE KEY-----", 2, &mut keys);
        sockets_below(&root, 12, &mut sockets);
    }
    ensure!(!found.is_empty(), "root does not find the secret either");
    ensure!(keys.len() > 2, "root does not find the keys either");
    ensure!(!sockets.is_empty(), "root does not find a socket either");
    let program = world.cluster.dir().join("reader");
    fs::copy("/proc/self/exe", &program)?;
    let honest = world.cluster.dir().join("for-everybody");
    fs::write(&honest, "x")?;
    ensure!(
        as_nobody(&program, "read", &honest)?.ok,
        "nobody cannot read what is for everybody"
    );
    let mut open = Vec::new();
    for (action, paths) in [("read", &found), ("read", &keys), ("connect", &sockets)] {
        for path in paths {
            if as_nobody(&program, action, path)?.ok {
                open.push(format!("{action} {}", path.display()));
            }
        }
    }
    match open.is_empty() {
        true => blocked(format!(
            "{} files hold the secret and {} keys, which only root reads, as it alone reaches {} sockets",
            found.len(),
            keys.len(),
            sockets.len()
        )),
        false => succeeded(format!("any user can {}", open.join(", "))),
    }
}

fn sockets_below(dir: &Path, depth: u32, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() && depth > 0 {
            sockets_below(&entry.path(), depth - 1, found);
        } else if kind.is_socket() {
            found.push(entry.path());
        }
    }
}

/// Files with this text; those of the kernel's own file systems aside.
fn holding(dir: &Path, text: &str, depth: u32, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() && depth > 0 {
            holding(&entry.path(), text, depth - 1, found);
        } else if kind.is_file() && fs::read(entry.path()).is_ok_and(|bytes| contains(&bytes, text.as_bytes())) {
            found.push(entry.path());
        }
    }
}

fn contains(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|window| window == text)
}

fn as_nobody(program: &Path, action: &str, path: &Path) -> Result<Done> {
    let output = Command::new(program)
        .args(["inside", action])
        .arg(path)
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .context("cannot run as nobody")?;
    let line = String::from_utf8_lossy(&output.stdout).into_owned();
    serde_json::from_str(&line).with_context(|| format!("nobody said {line:?}"))
}
