//! Everything a change must pass.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Result, bail};
use clap::Args;

use crate::tools::{self, cargo, is_on_path, is_root};
use crate::{
    authorization, bench, chaos, conformance, dependencies, differential, dist, e2e, hostile, interchange, peers, vm,
};

#[derive(Args)]
pub struct TestArgs {
    /// Only these steps
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
}

/// Debian packages and a program or path of each, by which one sees whether it is there.
const PACKAGES: &[(&str, &str)] = &[
    ("bind9-dnsutils", "dig"),
    ("busybox-static", "busybox"),
    ("conntrack", "conntrack"),
    ("containerd", "containerd"),
    ("containernetworking-plugins", "/usr/lib/cni"),
    ("curl", "curl"),
    ("e2fsprogs", "mkfs.ext4"),
    ("etcd-server", "etcd"),
    ("iproute2", "ip"),
    ("iptables", "iptables"),
    ("kmod", "depmod"),
    ("netcat-openbsd", "nc.openbsd"),
    ("nftables", "nft"),
    ("openssl", "openssl"),
    ("python3-venv", "/usr/share/doc/python3-venv"),
    ("qemu-system-x86", "qemu-system-x86_64"),
    ("runc", "runc"),
];

type Step = (&'static str, fn() -> Result<()>);

/// The steps in their order.
const STEPS: &[Step] = &[
    ("install", install),
    ("format", format),
    ("lints", lints),
    ("dependencies", dependencies::check),
    ("peers", peers::build_needed),
    ("units", units),
    ("dist", release),
    ("e2e", e2e::run_all),
    ("differential", differential::run_all),
    ("authorization", authorization::run_quick),
    ("hostile", hostile::run_here),
    ("vm", hostile::run_in_machine),
    ("interchange", interchange::run_quick),
    ("chaos", chaos::run_quick),
    ("conformance", conformance::run_quick),
    ("bench", bench::run_quick),
];

/// What a full run of the steps leaves out, and the command for it.
const NOT_RUN: &[(&str, &str)] = &[
    (
        "conformance tests that are not in interop/quick.txt",
        "cargo xtask conformance",
    ),
    (
        "conformance on several nodes, containerd and etcd",
        "cargo xtask conformance --nodes 2",
    ),
    (
        "upstream's components in our clusters, and the loss of a node",
        "cargo xtask interchange",
    ),
    (
        "chaos for longer than a minute, and on etcd",
        "cargo xtask chaos --store etcd",
    ),
    (
        "more than a thousand random requests for rights",
        "cargo xtask authorization",
    ),
    (
        "attacks in a virtual machine that need no kernel of Debian, and the kernel of Debian 13",
        "cargo xtask hostile --vm --debian 13",
    ),
    (
        "readers of bytes from outside for longer than some thousand inputs each",
        "cargo xtask fuzz",
    ),
    (
        "benchmarks beside upstream, growth curves and the largest cluster; only smoke benchmarks of our side were run",
        "cargo xtask bench",
    ),
];

/// Packages outside of the workspace.
const APART: &[&str] = &["fuzz/Cargo.toml", "interop/kube-rs/Cargo.toml"];

fn run_steps(wanted: impl Fn(&str) -> bool) -> Result<()> {
    let mut failed = Vec::new();
    let mut passed = 0;
    for (name, step) in STEPS.iter().filter(|(name, _)| wanted(name)) {
        let begun = Instant::now();
        println!("== {name}");
        match step() {
            Ok(()) => {
                passed += 1;
                println!("== {name} passed in {:.0} s", begun.elapsed().as_secs_f64());
            }
            Err(error) => {
                println!(
                    "== {name} FAILED after {:.0} s: {error:#}",
                    begun.elapsed().as_secs_f64()
                );
                failed.push((*name, error));
            }
        }
    }
    for (what, command) in NOT_RUN {
        println!("not run: {what}; see `{command}`");
    }
    println!("{passed} passed, {} failed", failed.len());
    if failed.is_empty() {
        return Ok(());
    }
    // Once more at the end, where one looks first.
    for (name, error) in &failed {
        println!("{name} failed: {error:#}");
    }
    let names: Vec<&str> = failed.iter().map(|(name, _)| *name).collect();
    bail!("failed: {}", names.join(", "))
}

pub fn run(args: &TestArgs) -> Result<()> {
    for name in &args.only {
        if !STEPS.iter().any(|(step, _)| step == name) {
            let names: Vec<&str> = STEPS.iter().map(|(step, _)| *step).collect();
            bail!("there is no step {name:?}; there are {}", names.join(", "));
        }
    }
    run_steps(|name| args.only.is_empty() || args.only.iter().any(|wanted| wanted == name))
}

/// Installs missing Debian packages. On other systems it says what is missing; tests then skip loudly.
fn install() -> Result<()> {
    let missing: Vec<&str> = PACKAGES
        .iter()
        .filter(|(_, sign)| match sign.starts_with('/') {
            true => !Path::new(sign).exists(),
            false => !is_on_path(sign),
        })
        .map(|(package, _)| *package)
        .collect();
    if !is_on_path("apt-get") || !is_root() {
        if !missing.is_empty() {
            println!("MISSING, tests that need them are skipped: {}", missing.join(", "));
        }
        return Ok(());
    }
    if !missing.is_empty() {
        install_packages(&missing)?;
    }
    vm::prepare()
}

fn install_packages(names: &[&str]) -> Result<()> {
    tools::run(Command::new("apt-get").args(["update", "-q"]))?;
    tools::run(
        Command::new("apt-get")
            .args(["install", "-q", "-y", "--no-install-recommends"])
            .args(names)
            .env("DEBIAN_FRONTEND", "noninteractive"),
    )
}

fn format() -> Result<()> {
    tools::run(cargo().args(["fmt", "--all", "--check"]))?;
    for apart in APART {
        tools::run(cargo().args(["fmt", "--check", "--manifest-path", apart]))?;
    }
    Ok(())
}

fn lints() -> Result<()> {
    tools::run(cargo().args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
}

fn units() -> Result<()> {
    tools::run(cargo().args(["test", "--workspace"]))
}

fn release() -> Result<()> {
    let binary = dist::release()?;
    println!("{} is {:.1} MB", binary.display(), dist::megabytes(&binary)?);
    Ok(())
}
