//! Probes: asking containers how they are.
//!
//! [`Tally`] is the pure part: from single results to a verdict by the probe's thresholds. [`watch`] is the loop
//! around it. A container that has not answered yet is asked again soon, with growing pauses, so that it counts as
//! ready when it is and not up to a period later; only failures at the probe's own period count and are reported.

pub mod grpc;
pub mod http;
pub mod tcp;

use std::sync::Arc;
use std::time::Duration;

use cri::{Runtime, v1};

use crate::limits;
use crate::pod::{Container, Handler, Probe};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProbeKind {
    Startup,
    Readiness,
    Liveness,
}

/// What one asking found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Success,
    /// As good as success, but somebody should know.
    Warning(String),
    /// The container answered that it is not well, or did not answer.
    Failure(String),
    /// The question could not be put, which counts as a failure.
    Error(String),
}

/// Whom to ask.
#[derive(Clone)]
pub struct Target {
    pub runtime: Arc<dyn Runtime>,
    pub container: Container,
    pub container_id: String,
    /// The address of the pod, or of the host for pods on its network.
    pub address: String,
}

/// What the loop reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// The verdict changed to this.
    Verdict(bool),
    /// A counted asking failed; the message is for an event.
    Unhealthy(String),
    /// An asking succeeded in a strange way; the message is for an event.
    Warned(String),
}

const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// A command in a container costs far more than a connection.
const FIRST_EXEC_PAUSE: Duration = Duration::from_millis(50);

impl ProbeKind {
    pub fn probe_of(self, container: &Container) -> Option<&Probe> {
        match self {
            ProbeKind::Startup => container.startup_probe.as_ref(),
            ProbeKind::Readiness => container.readiness_probe.as_ref(),
            ProbeKind::Liveness => container.liveness_probe.as_ref(),
        }
    }

    /// What holds before anything was found out: alive, but neither started nor ready.
    pub fn initial(self) -> bool {
        self == ProbeKind::Liveness
    }
}

impl Answer {
    pub fn is_success(&self) -> bool {
        matches!(self, Answer::Success | Answer::Warning(_))
    }
}

/// Successes and failures in a row.
#[derive(Clone, Copy, Debug)]
pub struct Tally {
    verdict: bool,
    successes: i32,
    failures: i32,
}

impl Tally {
    pub fn new(kind: ProbeKind) -> Tally {
        Tally {
            verdict: kind.initial(),
            successes: 0,
            failures: 0,
        }
    }

    /// Counts one result; the new verdict if it reached a threshold. A startup probe's failure is reported although
    /// nothing had succeeded before.
    pub fn record(&mut self, kind: ProbeKind, probe: &Probe, success: bool) -> Option<bool> {
        let (count, threshold) = match success {
            true => {
                self.failures = 0;
                self.successes = self.successes.saturating_add(1);
                (self.successes, probe.success_threshold)
            }
            false => {
                self.successes = 0;
                self.failures = self.failures.saturating_add(1);
                (self.failures, probe.failure_threshold.max(1))
            }
        };
        let changed = self.verdict != success || (kind == ProbeKind::Startup && !success);
        if count < threshold.max(1) || !changed {
            return None;
        }
        self.verdict = success;
        Some(success)
    }
}

/// Asks until a startup probe has decided, or else for as long as it is not dropped.
///
/// Every answer is `seen`; what follows from them is reported.
pub async fn watch(
    kind: ProbeKind,
    probe: Probe,
    target: Target,
    seen: impl Fn(&Answer),
    mut report: impl AsyncFnMut(Report),
) {
    let period = Duration::from_secs(probe.period_seconds.max(1) as u64);
    tokio::time::sleep(Duration::from_secs(probe.initial_delay_seconds.max(0) as u64)).await;
    let mut tally = Tally::new(kind);
    let mut pause = first_pause(kind, &probe, period);
    let mut counted = tokio::time::Instant::now();
    loop {
        let answer = ask(&probe.handler, &target, timeout(&probe)).await;
        seen(&answer);
        let counts = tokio::time::Instant::now() >= counted;
        if counts || answer.is_success() {
            if let Answer::Failure(why) | Answer::Error(why) = &answer {
                report(Report::Unhealthy(message(kind, &answer, why))).await;
            }
            if let Answer::Warning(why) = &answer {
                report(Report::Warned(format!("{kind:?} probe warning: {why}"))).await;
            }
            if let Some(verdict) = tally.record(kind, &probe, answer.is_success()) {
                report(Report::Verdict(verdict)).await;
                if kind == ProbeKind::Startup {
                    return;
                }
            }
        }
        if answer.is_success() || pause >= period {
            pause = period;
            counted = tokio::time::Instant::now() + period;
            tokio::time::sleep(period).await;
            continue;
        }
        if counts {
            counted += period;
        }
        tokio::time::sleep_until((tokio::time::Instant::now() + pause).min(counted.max(tokio::time::Instant::now())))
            .await;
        pause *= 2;
    }
}

/// How soon to ask again while nothing has answered yet.
fn first_pause(kind: ProbeKind, probe: &Probe, period: Duration) -> Duration {
    match (kind, &probe.handler.exec) {
        // Several successes in a row, and the health of what once worked, are asked for at the probe's own pace.
        (ProbeKind::Liveness, _) => period,
        _ if probe.success_threshold > 1 => period,
        (_, Some(_)) => FIRST_EXEC_PAUSE,
        (_, None) => FIRST_PAUSE,
    }
}

fn timeout(probe: &Probe) -> Duration {
    Duration::from_secs(probe.timeout_seconds.max(1) as u64)
}

fn message(kind: ProbeKind, answer: &Answer, why: &str) -> String {
    match answer {
        Answer::Error(_) => format!("{kind:?} probe errored and resulted in unknown state: {why}"),
        _ => format!("{kind:?} probe failed: {why}"),
    }
}

/// Puts the question once.
pub async fn ask(handler: &Handler, target: &Target, timeout: Duration) -> Answer {
    if let Some(action) = &handler.exec {
        return exec(&action.command, target, timeout).await;
    }
    let port = |port| target.container.port(port);
    if let Some(action) = &handler.http_get {
        return match port(&action.port) {
            Ok(port) => http::ask(action, &target.address, port, timeout).await,
            Err(error) => Answer::Error(error.to_string()),
        };
    }
    if let Some(action) = &handler.tcp_socket {
        let host = Some(&action.host)
            .filter(|host| !host.is_empty())
            .unwrap_or(&target.address);
        return match port(&action.port) {
            Ok(port) => tcp::ask(host, port, timeout).await,
            Err(error) => Answer::Error(error.to_string()),
        };
    }
    if let Some(action) = &handler.grpc {
        return grpc::ask(&target.address, action.port, &action.service, timeout).await;
    }
    Answer::Error("the probe has no handler".to_owned())
}

async fn exec(command: &[String], target: &Target, timeout: Duration) -> Answer {
    let request = v1::ExecSyncRequest {
        container_id: target.container_id.clone(),
        cmd: command.to_vec(),
        timeout: timeout.as_secs() as i64,
    };
    match target.runtime.exec_sync(request).await {
        Ok(answer) if answer.exit_code == 0 => Answer::Success,
        Ok(answer) => {
            let output = [answer.stdout, answer.stderr].concat();
            let output = String::from_utf8_lossy(&output).into_owned();
            Answer::Failure(crate::text::truncate(&output, limits::PROBE_OUTPUT_BYTES).to_owned())
        }
        Err(error) if error.code == cri::Code::DeadlineExceeded => {
            let timeout = crate::text::go_duration(timeout);
            Answer::Failure(format!(
                "command timed out: {:?} timed out after {timeout}",
                command.join(" ")
            ))
        }
        Err(error) => Answer::Error(error.to_string()),
    }
}

#[cfg(test)]
mod tests;
