//! Carrying out cases one after the other.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use serde_json::json;

use crate::cases::{self, Case};
use crate::cluster::Cluster;
use crate::verdict::{Ended, How, Verdict};
use crate::world::World;
use crate::{network, signals};

#[derive(Args)]
pub struct RunArgs {
    /// The binary to attack
    #[arg(long)]
    karve: PathBuf,
    /// A directory for the cluster, which is made and removed again
    #[arg(long)]
    dir: PathBuf,
    /// Fail when this machine lacks what an attack needs
    #[arg(long)]
    require_all: bool,
    /// Leave the cluster's directory there
    #[arg(long)]
    keep: bool,
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,
    /// Names of attacks or of groups of them that are left out
    #[arg(long)]
    except: Vec<String>,
    /// Names of attacks or of groups of them
    cases: Vec<String>,
}

#[derive(Args)]
pub struct ListArgs {
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, ValueEnum)]
enum Format {
    #[default]
    Text,
    Json,
}

pub fn list(args: &ListArgs) -> Result<bool> {
    for case in cases::all() {
        match args.output {
            Format::Text => println!("{:<44} {:<18} {}", case.name, case.class, case.must_not),
            Format::Json => println!(
                "{}",
                json!({"case": case.name, "class": case.class, "must_not": case.must_not})
            ),
        }
    }
    Ok(true)
}

/// True when every attack was blocked.
pub fn run(args: &RunArgs) -> Result<bool> {
    let chosen = choose(&args.cases, &args.except)?;
    signals::install()?;
    network::enter_own()?;
    ensure!(!args.dir.exists(), "{} exists already", args.dir.display());
    let mut ended = Vec::new();
    let result = attack(args, &chosen, &mut ended);
    if !args.keep {
        std::fs::remove_dir_all(&args.dir).with_context(|| format!("cannot remove {}", args.dir.display()))?;
    }
    result?;
    conclude(args, &ended)
}

fn choose(names: &[String], except: &[String]) -> Result<Vec<&'static Case>> {
    for name in names.iter().chain(except) {
        if !cases::all().any(|case| is_named(case, name)) {
            bail!("there is no attack {name:?}; see `hostile list`");
        }
    }
    let is_any_of = |case: &Case, names: &[String]| names.iter().any(|name| is_named(case, name));
    let wanted = |case: &&Case| (names.is_empty() || is_any_of(case, names)) && !is_any_of(case, except);
    Ok(cases::all().filter(wanted).collect())
}

fn is_named(case: &Case, name: &str) -> bool {
    case.name == name || case.name.split('/').any(|part| part == name)
}

fn attack(args: &RunArgs, chosen: &[&'static Case], ended: &mut Vec<Ended>) -> Result<()> {
    let begun = Instant::now();
    let start = |number: usize| World::new(Cluster::start(&args.karve, &args.dir.join(number.to_string()))?);
    let mut world = start(0)?;
    if args.output == Format::Text {
        println!("the cluster is ready after {:.1} s", begun.elapsed().as_secs_f64());
    }
    for (number, case) in chosen.iter().enumerate() {
        signals::check()?;
        let (end, harmed) = attempt(&mut world, case);
        match args.output {
            Format::Text => println!("{end}"),
            Format::Json => println!("{}", end.json()),
        }
        ended.push(end);
        if harmed {
            // The cases that follow have a right to a cluster that is well.
            drop(world);
            world = start(number + 1)?;
        }
    }
    Ok(())
}

/// Carries out one case. That the cluster lived through it is part of every verdict; whether it was harmed comes second.
fn attempt(world: &mut World, case: &'static Case) -> (Ended, bool) {
    let begun = Instant::now();
    let missing: Vec<String> = case
        .needs
        .iter()
        .filter(|need| !need.is_met())
        .map(|need| format!("{need:?}"))
        .collect();
    let mut how = match missing.is_empty() {
        false => How::Skipped(format!("this machine lacks {}", missing.join(", "))),
        true => match (case.run)(world) {
            Ok(verdict) => How::Tried(verdict),
            Err(error) => How::Error(format!("{error:#}")),
        },
    };
    let harm = world.is_well().err();
    if let Some(harm) = &harm {
        how = How::Tried(Verdict::Succeeded(format!("{harm:#} (the case itself: {how:?})")));
    }
    let end = Ended {
        name: case.name,
        seconds: begun.elapsed().as_secs_f64(),
        how,
    };
    (end, harm.is_some())
}

fn conclude(args: &RunArgs, ended: &[Ended]) -> Result<bool> {
    let skipped = ended.iter().filter(|end| end.was_skipped()).count();
    let bad: Vec<&str> = ended.iter().filter(|end| !end.is_good()).map(|end| end.name).collect();
    if args.output == Format::Text {
        println!(
            "{} blocked, {} not, {skipped} skipped",
            ended.len() - bad.len() - skipped,
            bad.len()
        );
        bad.iter().for_each(|name| println!("not blocked: {name}"));
    }
    Ok(bad.is_empty() && (skipped == 0 || !args.require_all))
}
