//! The runtime's own program, seen from inside.

use std::fs;
use std::thread;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::cases::Case;
use crate::image::{Image, digest_of};
use crate::pods::{MAIN, Settled, container_of, pod_spec};
use crate::verdict::{Verdict, judge};
use crate::world::{Namespace, World};

pub const PROGRAM_OF_THE_HOST: Case = Case {
    name: "containers/program-of-the-host",
    class: "CVE-2019-5736",
    must_not: "A container gets hold of the program that made it, or of one that enters it, and can write over it.",
    needs: &[],
    run: program_of_the_host,
};

fn program_of_the_host(world: &World) -> Result<Verdict> {
    let before = digest_of(&fs::read(world.cluster.binary())?);
    let namespace = world.namespace(json!({}))?;
    let attempts = vec![
        while_others_enter(&namespace)?,
        as_the_first_process(world, &namespace)?,
    ];
    ensure!(
        digest_of(&fs::read(world.cluster.binary())?) == before,
        "the program of the host was changed"
    );
    judge(&attempts)
}

/// Looks for programs of the host while commands are executed, among them the program that executes them.
fn while_others_enter(namespace: &Namespace<'_>) -> Result<Verdict> {
    let pod = namespace.attacker()?;
    let looked = thread::scope(|scope| {
        let looking = scope.spawn(|| pod.act(&["overwrite-programs"]));
        let mut entered = 0;
        while !looking.is_finished() {
            for command in [&["/proc/self/exe", "--version"][..], &["/hostile", "inside", "where"]] {
                // The first one may well be refused.
                entered += usize::from(pod.execute(MAIN, command).is_ok());
            }
        }
        (looking.join(), entered)
    });
    let (Ok(found), entered) = looked else {
        anyhow::bail!("looking for programs panicked")
    };
    let found = found?;
    ensure!(
        found.ok && entered > 0,
        "nobody entered the container, or it could not look: {found:?}"
    );
    let seen = found.value["seen"].as_u64().context("no count")?;
    ensure!(seen > 0, "no other process was seen");
    let programs = found.value["programs"].as_object().context("no programs")?;
    // Text that is busy now is not protected: it would be written when nobody runs it.
    let open: Vec<String> = programs
        .iter()
        .filter(|(_, how)| matches!(how.as_str(), Some("opened" | "ETXTBSY")))
        .map(|(program, how)| format!("{program} ({how})"))
        .collect();
    Ok(match open.is_empty() {
        true => Verdict::Blocked(format!(
            "{seen} looks at others, of which {} were not allowed: {programs:?}",
            found.value["hidden"]
        )),
        false => Verdict::Succeeded(format!("programs of the host are held: {}", open.join(", "))),
    })
}

/// An image whose program is whatever runs at that moment.
fn as_the_first_process(world: &World, namespace: &Namespace<'_>) -> Result<Verdict> {
    let name = "hostile.test/self:1";
    world
        .import(&Image::honest(name, vec![world.base.clone()]).with_config("Entrypoint", json!(["/proc/self/exe"])))?;
    let pod = namespace.pod(pod_spec(vec![container_of(name, &["--version"])], json!([])))?;
    match pod.settled()? {
        Settled::Refused(why) => Ok(Verdict::Blocked(format!(
            "/proc/self/exe as a container's program: {why}"
        ))),
        Settled::Ran => {
            pod.ended()?;
            let said = pod.log_text(MAIN)?;
            Ok(match said.contains("karve") {
                // Running it is no harm by itself; that it can be opened for writing is what the other attempt shows.
                true => {
                    Verdict::Blocked("the runtime's program ran inside, as a copy that cannot be written".to_owned())
                }
                false => Verdict::Blocked(format!("another program ran: {said:?}")),
            })
        }
    }
}
