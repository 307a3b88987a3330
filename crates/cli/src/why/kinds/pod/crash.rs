//! Containers that end, or do not start at all.

use api::Value;
use api::kinds::pod::POD;

use super::{Container, containers, owner_hint};
use crate::why::facts::Facts;
use crate::why::finding::Finding;
use crate::why::look::Look;

/// Signals by which containers commonly end.
const SIGNALS: &[(i64, &str)] = &[
    (1, "SIGHUP"),
    (2, "SIGINT"),
    (3, "SIGQUIT"),
    (4, "SIGILL"),
    (6, "SIGABRT"),
    (7, "SIGBUS"),
    (8, "SIGFPE"),
    (9, "SIGKILL"),
    (11, "SIGSEGV"),
    (13, "SIGPIPE"),
    (15, "SIGTERM"),
];

/// How a container last ended, if that is why it does not run now.
fn bad_end<'a>(pod: &Value, container: &Container<'a>) -> Option<&'a Value> {
    let status = container.status;
    let waits = status.str("state.waiting.reason") == "CrashLoopBackOff";
    let now = status.at("state.terminated");
    let before = status.at("lastState.terminated");
    let failed = |end: &&Value| !end.is_null() && end.int("exitCode") != 0;
    // One that ended well and is started again all the same is a mistake, too.
    if waits {
        return Some(if before.is_null() { now } else { before });
    }
    if failed(&now) {
        return Some(now);
    }
    let is_back = status.yes("ready");
    (!is_back && failed(&before) && pod.str("status.phase") != "Succeeded").then_some(before)
}

/// The containers whose last lines are worth reading, and whether those are of the run before.
pub fn wanted_logs(pod: &Value) -> Vec<(String, bool)> {
    let containers = containers(pod).into_iter();
    let ended = containers.filter(|container| bad_end(pod, container).is_some());
    ended
        .map(|container| {
            let has_now = !container.status.at("state.terminated").is_null();
            (container.name().to_owned(), !has_now)
        })
        .collect()
}

pub fn ends_again_and_again(facts: &Facts, pod: &Value) -> Vec<Finding> {
    let containers = containers(pod).into_iter();
    let explained = containers.filter_map(|container| {
        let end = bad_end(pod, &container)?;
        // A start that failed is told by its own check.
        if matches!(end.str("reason"), "StartError" | "ContainerCannotRun") {
            return Some(start_error(&container, end.str("message")));
        }
        Some(ended(facts, pod, &container, end))
    });
    explained.collect()
}

fn ended(facts: &Facts, pod: &Value, container: &Container<'_>, end: &Value) -> Finding {
    let code = end.int("exitCode");
    let called = container.called();
    let killed = liveness_kill(facts, pod, container);
    let mut finding = match (end.str("reason"), code) {
        ("OOMKilled", _) => out_of_memory(container),
        _ if killed.is_some() => Finding::broken(
            "liveness-kill",
            format!("The {called} is restarted repeatedly because its liveness probe fails."),
        )
        .details(killed.map(str::to_owned))
        .next("Correct the probe's port, path or timing (initialDelaySeconds, timeoutSeconds, startupProbe), or fix the program."),
        (_, 0) => Finding::broken(
            "exits-with-0",
            format!("The {called} exits with code 0, and restartPolicy {} restarts it.", pod.str("spec.restartPolicy")),
        )
        .next("Run a program that stays in the foreground, or use a Job for work that completes."),
        _ => Finding::broken("crash", format!("The {called} exits with {}.", exit_text(end)))
            .details(meaning(code).map(str::to_owned))
            .next(format!("Fix the error in its log, or correct its command: kubectl -n {} edit {}", pod.namespace(), owner_hint(pod))),
    };
    let restarts = container.status.int("restartCount");
    if restarts > 0 {
        let ended = end.str("finishedAt");
        finding = finding.detail(format!("Restarts: {restarts}; last terminated at {ended}."));
    }
    let message = end.str("message");
    if !message.is_empty() {
        finding = finding.detail(format!("Termination message: {message}"));
    }
    with_log(facts, pod, container, finding)
}

fn with_log(facts: &Facts, pod: &Value, container: &Container<'_>, finding: Finding) -> Finding {
    let lines = facts.log(pod, container.name());
    if lines.is_empty() {
        let flag = if container.status.at("state.terminated").is_null() {
            " -p"
        } else {
            ""
        };
        return finding.next(format!(
            "Read its log: kubectl -n {} logs {} -c {}{flag}",
            pod.namespace(),
            pod.name(),
            container.name()
        ));
    }
    finding
        .detail("Last lines of its log:")
        .details(lines.iter().map(|line| format!("  | {line}")))
}

fn out_of_memory(container: &Container<'_>) -> Finding {
    let called = container.called();
    let limit = container.spec.str("resources.limits.memory");
    let finding = match limit {
        "" => Finding::broken(
            "out-of-memory",
            format!("The {called} was OOM killed because the node ran out of memory; it has no memory limit."),
        ),
        limit => Finding::broken(
            "out-of-memory",
            format!("The {called} was OOM killed: it exceeded its memory limit of {limit}."),
        ),
    };
    finding.next("Raise resources.limits.memory, or reduce the memory use of the program.")
}

/// The answer of a liveness or startup probe that the container was killed for.
fn liveness_kill<'a>(facts: &'a Facts, pod: &'a Value, container: &Container<'_>) -> Option<&'a str> {
    let killed = format!("Container {} failed", container.name());
    let is_kill = |event: &&Value| event.str("reason") == "Killing" && event.str("message").starts_with(&killed);
    facts.events(&POD, pod).find(is_kill)?;
    let field = format!("{{{}}}", container.name());
    let mut events = facts.events(&POD, pod);
    let answer = events.find(|event| {
        let is_own = event.str("involvedObject.fieldPath").ends_with(&field);
        let message = event.str("message");
        event.str("reason") == "Unhealthy"
            && is_own
            && (message.starts_with("Liveness") || message.starts_with("Startup"))
    });
    answer.map(|event| event.str("message"))
}

fn exit_text(end: &Value) -> String {
    let code = end.int("exitCode");
    let signal = match end.int("signal") {
        0 if code > 128 => code - 128,
        signal => signal,
    };
    match SIGNALS.iter().find(|(number, _)| *number == signal) {
        Some((number, name)) => format!("code {code} (signal {number}, {name})"),
        None => format!("code {code}"),
    }
}

/// What exit codes mean where that is the same for all programs.
fn meaning(code: i64) -> Option<&'static str> {
    Some(match code {
        126 => "Exit code 126: the command was found, but is not executable.",
        127 => "Exit code 127: the command was not found in the image.",
        134 => "It aborted, usually because of a failed assertion.",
        137 => "It received SIGKILL from outside; neither a probe nor a memory limit is involved.",
        139 => "Segmentation fault: a bug in the program, or an image for another architecture.",
        143 => "It received SIGTERM.",
        _ => return None,
    })
}

pub fn cannot_be_started(_: &Facts, pod: &Value) -> Vec<Finding> {
    let reasons = ["RunContainerError", "CreateContainerError", "PostStartHookError"];
    let containers = containers(pod).into_iter();
    let failing = containers.filter(|container| reasons.contains(&container.status.str("state.waiting.reason")));
    failing
        .map(|container| match container.status.str("state.waiting.reason") {
            "PostStartHookError" => Finding::broken(
                "post-start-hook",
                format!(
                    "The postStart hook of {} fails, so the container is killed.",
                    container.called()
                ),
            )
            .detail(container.status.str("state.waiting.message"))
            .next("Correct lifecycle.postStart."),
            _ => start_error(&container, container.status.str("state.waiting.message")),
        })
        .collect()
}

fn start_error(container: &Container<'_>, message: &str) -> Finding {
    let command = container.spec.texts("command").join(" ");
    let is_missing = ["no such file", "not found", "No such file"]
        .iter()
        .any(|word| message.contains(word));
    let is_refused = ["permission denied", "Permission denied"]
        .iter()
        .any(|word| message.contains(word));
    let finding = match (is_missing, is_refused) {
        (true, _) => Finding::broken(
            "command-not-found",
            format!(
                "The {} failed to start: its command does not exist in the image.",
                container.called()
            ),
        )
        .next("Correct command and args, or use an image that contains the program."),
        (_, true) => Finding::broken(
            "command-not-executable",
            format!(
                "The {} failed to start: its command is not executable.",
                container.called()
            ),
        )
        .next("Make the file executable in the image, or run it as another user."),
        _ => Finding::broken("start-error", format!("The {} failed to start.", container.called())),
    };
    let finding = finding.detail(format!("Container runtime: {message}"));
    match command.as_str() {
        "" => finding,
        command => finding.detail(format!("Command: {command}")),
    }
}
