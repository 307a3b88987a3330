//! `karve trace`: the stages of a workload from `apply` to Ready, with their times.
//!
//! All components report their marks to the API server. Where the API server is not Karve's, the kubelets are read
//! instead. Stages that must have happened but left no mark are listed as unknown.

mod family;

use std::fmt::Write;

use ::trace::Mark;
use anyhow::{Context, Result, bail};
use client::Client;
use family::Family;
use http::Request;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::why::plain;

/// The recorded stages of one workload.
#[derive(Debug, Default)]
pub struct Trace {
    /// Oldest first.
    pub marks: Vec<Mark>,
    /// Stages that the status of the objects proves, but that have no mark.
    pub unknown: Vec<&'static str>,
}

/// A component, its stages, and whether the objects of a workload prove that it has passed them.
struct Expected {
    component: &'static str,
    stages: &'static [&'static str],
    passed: fn(&Family) -> bool,
}

const EXPECTED: &[Expected] = &[
    Expected {
        component: "apiserver/",
        stages: &["apiserver/received", "apiserver/stored"],
        passed: |_| true,
    },
    Expected {
        component: "deployment-controller/",
        stages: &["deployment-controller/replicaset-created"],
        passed: |family| family.sets > 0,
    },
    Expected {
        component: "replicaset-controller/",
        stages: &["replicaset-controller/pod-created"],
        passed: |family| family.sets > 0 && !family.pods.is_empty(),
    },
    Expected {
        component: "scheduler/",
        stages: &["scheduler/decided", "scheduler/bound"],
        passed: |family| family.pods.iter().any(|pod| !pod.node.is_empty()),
    },
    Expected {
        component: "kubelet/",
        stages: &[
            "kubelet/observed",
            "kubelet/sandbox-ready",
            "kubelet/container-started",
            "kubelet/ready",
        ],
        passed: |family| family.pods.iter().any(|pod| pod.is_ready),
    },
];

/// Reads the marks of a deployment or pod and of the objects it owns.
pub async fn collect(client: &Client, namespace: &str, target: &str) -> Result<Trace> {
    let (kind, name) = target
        .split_once('/')
        .context("the target must be deployment/NAME or pod/NAME")?;
    let family = match kind {
        "deployment" | "deployments" | "deploy" => Family::of_deployment(client, namespace, name).await?,
        "pod" | "pods" | "po" => Family::of_pod(client, namespace, name).await?,
        other => bail!("cannot trace kind {other:?}; the target must be deployment/NAME or pod/NAME"),
    };
    // An API server that is not Karve's has no marks; its stages are listed as unknown.
    let mut marks = fetch(client, "/debug/karve/marks").await.unwrap_or_default();
    family.keep_own(&mut marks);
    if !marks.iter().any(|mark| mark.stage.starts_with("kubelet/")) {
        for node in family.nodes() {
            let path = format!("/api/v1/nodes/{node}/proxy/debug/marks");
            marks.extend(fetch(client, &path).await.unwrap_or_default());
        }
        family.keep_own(&mut marks);
    }
    marks.sort_by(|a, b| (a.at_us, &a.stage, &a.object).cmp(&(b.at_us, &b.stage, &b.object)));
    marks.dedup();
    let unknown = unknown(&family, &marks);
    Ok(Trace { marks, unknown })
}

/// The marks of one process.
async fn fetch(client: &Client, path: &str) -> Result<Vec<Mark>> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Answer {
        Object { marks: Vec<Mark> },
        List(Vec<Mark>),
    }
    let answer = client.fetch(Request::get(path).body(bytes::Bytes::new())?).await?;
    Ok(match serde_json::from_slice(&answer)? {
        Answer::Object { marks } | Answer::List(marks) => marks,
    })
}

fn unknown(family: &Family, marks: &[Mark]) -> Vec<&'static str> {
    let has_marks = |component: &str| marks.iter().any(|mark| mark.stage.starts_with(component));
    let silent = EXPECTED
        .iter()
        .filter(|expected| (expected.passed)(family) && !has_marks(expected.component));
    silent.flat_map(|expected| expected.stages).copied().collect()
}

/// Of a mark's texts so much is shown; nodes write them.
const MARK_CHARACTERS: usize = 200;

/// The trace for reading at a terminal.
pub fn render(target: &str, trace: &Trace) -> String {
    let Some(first) = trace.marks.first() else {
        return format!(
            "no trace data for {target}: it was created before the API server started, its trace data has been \
             evicted from memory, or other components than Karve's processed it\n"
        );
    };
    let milliseconds = |mark: &Mark| mark.at_us.saturating_sub(first.at_us) as f64 / 1000.0;
    let mut text = String::new();
    let ready = trace.marks.iter().rfind(|mark| mark.stage == "kubelet/ready");
    if let Some(ready) = ready {
        let start = match first.stage == "apiserver/received" {
            true => "the request",
            false => "the first recorded stage",
        };
        let _ = writeln!(
            text,
            "{target}: {:.1} ms from {start} to the last container ready",
            milliseconds(ready)
        );
    }
    let mut before = 0.0;
    for mark in &trace.marks {
        let at = milliseconds(mark);
        let _ = writeln!(
            text,
            "{at:>10.1} ms  {:>+9.1}  {:<38} {}",
            at - before,
            plain::line(&mark.stage, MARK_CHARACTERS),
            plain::line(&mark.object, MARK_CHARACTERS)
        );
        before = at;
    }
    for stage in &trace.unknown {
        let _ = writeln!(text, "     unknown                {stage}");
    }
    if !trace.unknown.is_empty() {
        let _ = writeln!(
            text,
            "A stage is unknown if its component is not Karve's, is not allowed to report to the API server, or no longer \
             has the data in memory."
        );
    }
    text
}

pub fn render_json(target: &str, trace: &Trace) -> Value {
    json!({ "target": target, "marks": trace.marks, "unknown": trace.unknown })
}

#[cfg(test)]
mod tests {
    use super::*;
    use family::TracedPod;

    fn mark(at_us: u64, stage: &'static str, object: &str) -> Mark {
        Mark {
            at_us,
            stage: stage.into(),
            object: object.to_owned(),
            uid: "u".to_owned(),
        }
    }

    #[test]
    fn stages_are_shown_with_the_time_since_the_request_and_since_the_one_before() {
        let marks = vec![
            mark(1_000, "apiserver/received", "deployments/default/web"),
            mark(1_500, "apiserver/stored", "deployments/default/web"),
            mark(21_500, "kubelet/ready", "pods/default/web-1"),
        ];
        let unknown = Vec::new();
        expect_test::expect![[r#"
            deployment/web: 20.5 ms from the request to the last container ready
                   0.0 ms       +0.0  apiserver/received                     deployments/default/web
                   0.5 ms       +0.5  apiserver/stored                       deployments/default/web
                  20.5 ms      +20.0  kubelet/ready                          pods/default/web-1
        "#]]
        .assert_eq(&render("deployment/web", &Trace { marks, unknown }));
    }

    /// Marks come from nodes, which must not write to an administrator's terminal.
    #[test]
    fn marks_move_no_cursor() {
        let marks = vec![mark(
            1,
            "apiserver/received\u{1b}]0;PWNED\u{7}\u{1b}[2J",
            "pods/b/v\u{9b}31m\nforged",
        )];
        let unknown = Vec::new();
        let shown = render("pod/v", &Trace { marks, unknown });
        assert!(
            shown.chars().all(|char| char == '\n' || !char.is_control()),
            "{shown:?}"
        );
        assert_eq!(shown.lines().count(), 1, "{shown:?}");
    }

    /// A pod runs on a node, so somebody has scheduled it, whether we know when or not.
    #[test]
    fn what_must_have_happened_without_a_mark_is_not_known() {
        let mut family = Family::default();
        family.pods.push(TracedPod {
            node: "n1".to_owned(),
            is_ready: false,
        });
        let marks = vec![mark(1_000, "kubelet/observed", "pods/default/web-1")];
        let unknown = unknown(&family, &marks);
        expect_test::expect![[r#"
                   0.0 ms       +0.0  kubelet/observed                       pods/default/web-1
                 unknown                apiserver/received
                 unknown                apiserver/stored
                 unknown                scheduler/decided
                 unknown                scheduler/bound
            A stage is unknown if its component is not Karve's, is not allowed to report to the API server, or no longer has the data in memory.
        "#]]
        .assert_eq(&render("pod/web-1", &Trace { marks, unknown }));
    }
}
