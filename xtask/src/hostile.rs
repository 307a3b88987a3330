//! Attacks on a cluster of the release binary, here and in a virtual machine. The `hostile` program carries them out.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};
use clap::Args;

use crate::vm::{self, MachineArgs};
use crate::{dist, process};

#[derive(Args)]
pub struct HostileArgs {
    /// Carry them out in a virtual machine with a kernel of Debian, cgroup v2 and AppArmor
    #[arg(long)]
    vm: bool,
    #[command(flatten)]
    machine: MachineArgs,
    /// Attack this binary instead of building one
    #[arg(long)]
    karve: Option<PathBuf>,
    /// `json` for machines: one object a line
    #[arg(long, short, value_parser = ["text", "json"], default_value = "text")]
    output: String,
    /// Names of attacks or of groups of them; all of them when none is given
    cases: Vec<String>,
}

pub fn run(args: &HostileArgs) -> Result<()> {
    let (karve, hostile) = match &args.karve {
        Some(karve) => (std::path::absolute(karve)?, dist::program("hostile")?),
        None => dist::release_and("hostile")?,
    };
    let mut arguments = vec!["run".to_owned(), "--output".to_owned(), args.output.clone()];
    arguments.extend(args.cases.iter().cloned());
    match args.vm {
        true => in_machine(args, karve, hostile, arguments),
        false => here(&karve, &hostile, &arguments),
    }
}

fn here(karve: &std::path::Path, hostile: &std::path::Path, arguments: &[String]) -> Result<()> {
    let dir = std::env::temp_dir().join(format!("hostile-{}", std::process::id()));
    let mut command = Command::new(hostile);
    command.args(arguments).arg("--karve").arg(karve).arg("--dir").arg(dir);
    process::stream(&mut command)
}

/// Everything that an attack may need is there, so that none may be left out.
fn in_machine(args: &HostileArgs, karve: PathBuf, hostile: PathBuf, arguments: Vec<String>) -> Result<()> {
    let files = [
        (karve, PathBuf::from("/usr/bin/karve")),
        (hostile, PathBuf::from("/usr/bin/hostile")),
    ];
    let mut command = vec!["/usr/bin/hostile".to_owned()];
    command.extend(arguments);
    for word in [
        "--require-all",
        "--karve",
        "/usr/bin/karve",
        "--dir",
        "/var/tmp/hostile",
    ] {
        command.push(word.to_owned());
    }
    let code = vm::execute(&args.machine, &files, &command, |line| println!("{line}"))?;
    ensure!(
        code == 0,
        "attacks got through in the virtual machine, or could not be carried out"
    );
    Ok(())
}
