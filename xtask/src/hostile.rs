//! Attacks on a cluster of the release binary, here and in a virtual machine. The `hostile` program carries them out.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;

use crate::tools::{is_on_path, is_root, skip};
use crate::vm::{self, MachineArgs};
use crate::{dist, process};

/// What CI attacks in the virtual machine: cases whose outcome is up to the kernel, cgroup v2 or AppArmor. All others end
/// the same way on every kernel, and the machine is emulated, which makes it some ten times slower.
const IN_MACHINE: &[&str] = &["containers"];

/// When attacks are given up that take some minutes on an idle machine.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(15 * 60);

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
        true => in_machine(&args.machine, karve, hostile, arguments),
        false => here(&karve, &hostile, &arguments),
    }
}

/// The step of CI: all attacks, on this machine's kernel. What this kernel lacks is attacked by the step in the virtual
/// machine, which leaves nothing out.
pub fn run_here() -> Result<()> {
    if !is_root() {
        return skip("attacks on a cluster: they need root");
    }
    let (karve, hostile) = dist::release_and("hostile")?;
    here(&karve, &hostile, &["run".to_owned()])
}

/// The step of CI in the virtual machine.
pub fn run_in_machine() -> Result<()> {
    for program in ["qemu-system-x86_64", "mkfs.ext4", "depmod"] {
        if !is_on_path(program) {
            return skip(&format!("attacks in a virtual machine: they need {program}"));
        }
    }
    let (karve, hostile) = dist::release_and("hostile")?;
    let mut arguments = vec!["run".to_owned()];
    arguments.extend(IN_MACHINE.iter().map(|name| (*name).to_owned()));
    in_machine(&MachineArgs::given_up_after(GIVEN_UP_AFTER), karve, hostile, arguments)
}

fn here(karve: &Path, hostile: &Path, arguments: &[String]) -> Result<()> {
    let dir = std::env::temp_dir().join(format!("hostile-{}", std::process::id()));
    let mut command = Command::new(hostile);
    command.args(arguments).arg("--karve").arg(karve).arg("--dir").arg(dir);
    process::stream(&mut command, GIVEN_UP_AFTER)
}

/// Everything that an attack may need is there, so that none may be left out.
fn in_machine(machine: &MachineArgs, karve: PathBuf, hostile: PathBuf, arguments: Vec<String>) -> Result<()> {
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
    let code = vm::execute(machine, &files, &command, |line| println!("{line}"))?;
    ensure!(
        code == 0,
        "attacks got through in the virtual machine, or could not be carried out"
    );
    Ok(())
}
