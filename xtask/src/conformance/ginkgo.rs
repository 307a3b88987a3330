//! One run of upstream's suite through Ginkgo.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::ChildStdout;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::outcome::{self, Outcome};
use super::progress::Progress;
use super::select::focus;
use crate::cluster::Kubectl;
use crate::process::Process;
use crate::signals;

/// How long Ginkgo may take, after its time is up, to write its report.
const GRACE: Duration = Duration::from_secs(90);

pub struct Suite {
    pub ginkgo: PathBuf,
    pub e2e: PathBuf,
    pub cluster: Kubectl,
    /// Whether there are nodes to wait for.
    pub nodes: bool,
    pub procs: usize,
    /// Where reports and logs go.
    pub out: PathBuf,
}

impl Suite {
    /// Runs the tests of these names and tells what became of each, by its place among them.
    pub fn run(&self, label: &str, names: &[String], timeout: Duration) -> Result<Vec<Outcome>> {
        let report = self.out.join(format!("{label}.json"));
        // What an earlier run left must not be taken for this one's.
        let _ = std::fs::remove_file(&report);
        let log = self.out.join(format!("{label}.log"));
        let (mut process, output) = Process::start_piped(
            &mut self.command(label, names, timeout),
            &self.out.join("ginkgo-errors.log"),
        )?;
        let lines = tee(output, &log)?;
        let ended = follow(&mut process, &lines, Progress::new(label, names), timeout + GRACE);
        process.stop_group();
        ended?;
        match report.exists() {
            true => outcome::from_report(&report, names),
            false => {
                println!("  {label} left no report; see {}", log.display());
                Ok((0..names.len()).map(outcome::not_reached).collect())
            }
        }
    }

    fn command(&self, label: &str, names: &[String], timeout: Duration) -> std::process::Command {
        let mut command = self.cluster.inside(&self.ginkgo);
        command
            .args(["run", "-v", "--no-color", "--silence-skips"])
            .arg(format!("--procs={}", self.procs))
            .arg(format!("--timeout={}s", timeout.as_secs()))
            .arg(format!("--focus={}", focus(names)))
            .arg(format!("--json-report={label}.json"))
            .arg(format!("--output-dir={}", self.out.display()))
            .arg(&self.e2e)
            .arg("--")
            .arg(format!("--kubeconfig={}", self.cluster.kubeconfig.display()))
            .arg(format!("--kubectl-path={}", self.cluster.program.display()))
            .arg("--provider=skeleton");
        if !self.nodes {
            command.args(["--allowed-not-ready-nodes=-1", "--minStartupPods=-1", "--num-nodes=0"]);
        }
        command
    }
}

/// Copies the output to a file and hands on its lines.
fn tee(output: ChildStdout, log: &Path) -> Result<mpsc::Receiver<String>> {
    let mut file = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        // Tests print whatever they were sent, protobuf included: what is not text is shown as well as it can be.
        for line in BufReader::new(output).split(b'\n').map_while(|line| line.ok()) {
            let line = String::from_utf8_lossy(&line).into_owned();
            let _ = writeln!(file, "{line}");
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    Ok(receiver)
}

fn follow(
    process: &mut Process,
    lines: &mpsc::Receiver<String>,
    mut progress: Progress,
    patience: Duration,
) -> Result<()> {
    let deadline = Instant::now() + patience;
    loop {
        signals::check()?;
        match lines.recv_timeout(Duration::from_millis(200)) {
            Ok(line) => progress.line(&line),
            Err(mpsc::RecvTimeoutError::Disconnected) => return process.wait_until(deadline).map(drop),
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
        if Instant::now() >= deadline {
            println!("  ginkgo does not end and is stopped");
            return Ok(());
        }
    }
}
