//! Profiles that confine containers.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::cases::{Case, Need};
use crate::pods::{Pod, Settled, container, pod_spec};
use crate::verdict::{Verdict, blocked, judge, succeeded};
use crate::world::{Namespace, World};

pub const SECCOMP_PROFILES: Case = Case {
    name: "containers/seccomp-profiles",
    class: "",
    must_not: "A container whose seccomp profile is not there, or lies outside of the profiles' directory, runs without one.",
    needs: &[],
    run: seccomp_profiles,
};

pub const APPARMOR_MISSING: Case = Case {
    name: "containers/apparmor-missing",
    class: "",
    must_not: "A container whose AppArmor profile cannot be enforced runs without it.",
    needs: &[],
    run: apparmor_missing,
};

pub const APPARMOR_PROFILES: Case = Case {
    name: "containers/apparmor-profiles",
    class: "",
    must_not: "On a kernel with AppArmor a container that asks for the runtime's profile runs unconfined.",
    needs: &[Need::AppArmor],
    run: apparmor_profiles,
};

/// A pod of the administrator, or the words with which it was not even taken.
fn try_pod<'a>(namespace: &'a Namespace<'a>, context: Value) -> Result<Result<Pod<'a>, String>> {
    let mut main = container(&["wait"]);
    main["securityContext"] = context;
    let name = format!("profile-{}", namespace.world.number());
    let made = namespace.world.admin.post(
        &namespace.path("pods"),
        &json!({"metadata": {"name": name}, "spec": pod_spec(vec![main], json!([]))}),
    )?;
    Ok(match made.is_success() {
        true => Ok(Pod { namespace, name }),
        false => Err(made.summary()),
    })
}

/// Refused, or running in a way that `confined` approves of.
fn never_weaker(
    namespace: &Namespace<'_>,
    what: &str,
    context: Value,
    confined: impl Fn(&Pod<'_>) -> Result<bool>,
) -> Result<Verdict> {
    let pod = match try_pod(namespace, context)? {
        Err(refusal) => return blocked(format!("{what}: {refusal}")),
        Ok(pod) => pod,
    };
    match pod.settled()? {
        Settled::Refused(why) => blocked(format!("{what}: {why}")),
        Settled::Ran if confined(&pod)? => blocked(format!("{what}: the container runs, confined")),
        Settled::Ran => succeeded(format!("{what}: the container runs without it")),
    }
}

fn seccomp_profiles(world: &World) -> Result<Verdict> {
    let namespace = world.namespace(json!({}))?;
    let runtime = try_pod(&namespace, json!({"seccompProfile": {"type": "RuntimeDefault"}}))?;
    let runtime = runtime.map_err(anyhow::Error::msg)?;
    runtime.running()?;
    ensure!(
        runtime.must(&["status", "Seccomp"])? == "2",
        "the runtime's own profile has no effect"
    );
    let outside = world.cluster.dir().join("allow.json");
    fs::write(&outside, r#"{"defaultAction": "SCMP_ACT_ALLOW"}"#)?;

    let up = format!("{}{}", "../".repeat(10), outside.display()).replace("//", "/");
    let mut attempts = Vec::new();
    for profile in [
        "not-there.json",
        &up,
        "a/../../../../allow.json",
        &outside.to_string_lossy(),
    ] {
        let context = json!({"seccompProfile": {"type": "Localhost", "localhostProfile": profile}});
        attempts.push(never_weaker(&namespace, profile, context, |_| Ok(false))?);
    }
    judge(&attempts)
}

fn apparmor_missing(world: &World) -> Result<Verdict> {
    let namespace = world.namespace(json!({}))?;
    let unconfined = try_pod(&namespace, json!({"appArmorProfile": {"type": "Unconfined"}}))?;
    unconfined
        .map_err(anyhow::Error::msg)?
        .running()
        .context("a container that asks for no profile")?;
    let context = json!({"appArmorProfile": {"type": "Localhost", "localhostProfile": "nobody-has-loaded-this"}});
    let mut attempts = vec![never_weaker(
        &namespace,
        "a profile that is not loaded",
        context,
        |_| Ok(false),
    )?];
    let context = json!({"appArmorProfile": {"type": "RuntimeDefault"}});
    attempts.push(never_weaker(&namespace, "the runtime's profile", context, is_confined)?);
    judge(&attempts)
}

fn apparmor_profiles(world: &World) -> Result<Verdict> {
    let namespace = world.namespace(json!({}))?;
    let context = json!({"appArmorProfile": {"type": "RuntimeDefault"}});
    let pod = try_pod(&namespace, context)?.map_err(anyhow::Error::msg)?;
    if let Settled::Refused(why) = pod.settled()? {
        return blocked(format!("refused: {why}"));
    }
    let label = pod.act(&["read", "/proc/self/attr/current"])?;
    ensure!(label.ok, "the container does not know its profile: {}", label.error);
    let label = label.text().trim().to_owned();
    if !label.ends_with("(enforce)") {
        return succeeded(format!("the container runs as {label:?}"));
    }
    let mount = pod.act(&["mount", "tmpfs", "/tmp", "tmpfs"])?;
    ensure!(!mount.ok, "a confined container mounts");
    blocked(format!("the container runs as {label:?}"))
}

fn is_confined(pod: &Pod<'_>) -> Result<bool> {
    let label = pod.act(&["read", "/proc/self/attr/current"])?;
    Ok(label.ok && label.text().trim().ends_with("(enforce)"))
}
