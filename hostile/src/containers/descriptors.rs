//! What the runtime has open while it makes containers.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::cases::Case;
use crate::image::{ATTACKER, Image};
use crate::pods::{MAIN, Pod, container, container_of, pod_spec};
use crate::verdict::{Verdict, judge};
use crate::world::{Namespace, World};

pub const WORKING_DIRECTORY: Case = Case {
    name: "containers/working-directory",
    class: "CVE-2024-21626",
    must_not: "A working directory or a command below /proc/self/fd leads out of the container.",
    needs: &[],
    run: working_directory,
};

pub const LEFT_OPEN: Case = Case {
    name: "containers/left-open",
    class: "CVE-2024-21626",
    must_not: "A container's process or a command executed in it inherits descriptors of the runtime.",
    needs: &[],
    run: left_open,
};

/// Descriptors that a runtime could have; each is tried by a container of its own.
const DESCRIPTORS: std::ops::Range<u32> = 3..19;
/// The file of the host that is looked for.
const SECRET: &str = "hostile-secret-of-the-host";

fn working_directory(world: &World) -> Result<Verdict> {
    let file = world.cluster.dir().join("secret-of-the-host");
    fs::write(&file, SECRET)?;
    let target = file.to_string_lossy();
    let namespace = world.namespace(json!({}))?;
    let action = ["where", "then", "find-above", &target];
    let honest = namespace.pod(pod_spec(vec![container(&action)], json!([])))?;
    honest.ended()?;
    ensure!(
        honest.log(MAIN)?.first().is_some_and(|first| first.text() == "/"),
        "an honest working directory is not /"
    );

    let directories: Vec<String> = DESCRIPTORS.map(|number| format!("/proc/self/fd/{number}")).collect();
    let mut attempts = Vec::new();
    attempts.extend(by_specification(&namespace, &directories, &action)?);
    attempts.extend(by_image(world, &namespace, &action)?);
    attempts.extend(by_command(&namespace, &file.to_string_lossy())?);
    judge(&attempts)
}

/// One pod with a container for each directory.
fn by_specification(namespace: &Namespace<'_>, directories: &[String], action: &[&str]) -> Result<Vec<Verdict>> {
    let containers = directories
        .iter()
        .enumerate()
        .map(|(index, directory)| {
            let mut container = container(action);
            container["name"] = json!(format!("c{index}"));
            container["workingDir"] = json!(directory);
            container
        })
        .collect();
    let pod = namespace.pod(pod_spec(containers, json!([])))?;
    pod.wait("try all directories", |pod| {
        let statuses = pod["status"]["containerStatuses"].as_array()?;
        let over = |status: &Value| {
            let state = &status["state"];
            state["terminated"].is_object()
                || state["waiting"]["reason"]
                    .as_str()
                    .is_some_and(|why| why.contains("Error"))
        };
        (statuses.len() == directories.len() && statuses.iter().all(over)).then_some(())
    })?;
    (0..directories.len())
        .map(|index| judge_log(&pod, &format!("c{index}"), &directories[index]))
        .collect()
}

fn by_image(world: &World, namespace: &Namespace<'_>, action: &[&str]) -> Result<Vec<Verdict>> {
    let mut attempts = Vec::new();
    for number in [7, 8, 9] {
        let name = format!("hostile.test/directory:{number}");
        let directory = format!("/proc/self/fd/{number}");
        world.import(&Image::honest(&name, vec![world.base.clone()]).with_config("WorkingDir", json!(directory)))?;
        let pod = namespace.pod(pod_spec(vec![container_of(&name, action)], json!([])))?;
        pod.settled()?;
        attempts.push(judge_log(&pod, MAIN, &directory)?);
    }
    Ok(attempts)
}

/// Commands that are looked up below descriptors, in a new container and in one that is there.
fn by_command(namespace: &Namespace<'_>, secret: &str) -> Result<Vec<Verdict>> {
    let pod = namespace.attacker()?;
    let mut attempts = Vec::new();
    for number in DESCRIPTORS {
        for depth in [0, 6] {
            let command = format!("/proc/self/fd/{number}/{}hostile", "../".repeat(depth));
            let executed = pod.execute(MAIN, &[&command, "inside", "where", "then", "find-above", secret]);
            let text = executed.map(|executed| executed.output).unwrap_or_default();
            attempts.push(match text.contains(SECRET) || text.contains("unreachable") {
                true => Verdict::Succeeded(format!("{command} leads out: {text}")),
                false => Verdict::Blocked(format!("{command}: no way out")),
            });
        }
    }
    Ok(attempts)
}

fn judge_log(pod: &Pod<'_>, container: &str, what: &str) -> Result<Verdict> {
    // One that was never started has no log.
    let log = pod.log_text(container).unwrap_or_default();
    Ok(match log.contains(SECRET) || log.contains("unreachable") {
        true => Verdict::Succeeded(format!("{what} leads out: {log}")),
        false if log.is_empty() => Verdict::Blocked(format!("{what}: the container was not started")),
        false => Verdict::Blocked(format!("{what}: no way out")),
    })
}

fn left_open(world: &World) -> Result<Verdict> {
    let namespace = world.namespace(json!({}))?;
    let mut attempts = Vec::new();
    for options in [json!({}), json!({"tty": true, "stdin": true}), json!({"stdin": true})] {
        let mut main = container_of(ATTACKER, &["descriptors", "then", "wait"]);
        for (name, value) in options.as_object().into_iter().flatten() {
            main[name] = value.clone();
        }
        let pod = namespace.pod(pod_spec(vec![main], json!([])))?;
        pod.running()?;
        let first = crate::signals::wait_for("the list of descriptors", crate::world::PATIENCE, || {
            Ok(pod.log(MAIN)?.first().cloned())
        })?;
        attempts.push(judge_descriptors("the first process", &first.value)?);
        attempts.push(judge_descriptors("an executed command", &pod.must(&["descriptors"])?)?);
    }
    judge(&attempts)
}

/// Nothing but the three that every process has.
fn judge_descriptors(whose: &str, list: &Value) -> Result<Verdict> {
    let all = list.as_array().context("no descriptors")?;
    ensure!(all.len() >= 3, "{whose} has not even its three descriptors: {list}");
    let more: Vec<&Value> = all
        .iter()
        .filter(|pair| pair[0].as_u64().is_some_and(|number| number > 2))
        .collect();
    Ok(match more.is_empty() {
        true => Verdict::Blocked(format!("{whose} has 0, 1 and 2")),
        false => Verdict::Succeeded(format!("{whose} has {more:?}")),
    })
}
