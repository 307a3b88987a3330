//! Pods of attackers.

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::image::ATTACKER;
use crate::signals::wait_for;
use crate::wire::exec::Executed;
use crate::world::{Namespace, PATIENCE};

/// The name of a pod's only container.
pub const MAIN: &str = "main";

/// A container that does these things; see `inside`.
pub fn container(actions: &[&str]) -> Value {
    container_of(ATTACKER, actions)
}

pub fn container_of(image: &str, actions: &[&str]) -> Value {
    json!({"name": MAIN, "image": image, "imagePullPolicy": "IfNotPresent", "args": actions})
}

/// The specification of a pod that ends at once when it is told.
pub fn pod_spec(containers: Vec<Value>, volumes: Value) -> Value {
    json!({
        "containers": containers,
        "volumes": volumes,
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "restartPolicy": "Never",
    })
}

/// A pod that waits for what it is told by [`Pod::act`].
pub fn waiting_spec() -> Value {
    pod_spec(vec![container(&["wait"])], json!([]))
}

pub struct Pod<'a> {
    pub namespace: &'a Namespace<'a>,
    pub name: String,
}

/// What came of something that was tried inside of a container.
#[derive(Clone, Debug, Deserialize)]
pub struct Done {
    pub ok: bool,
    #[serde(default)]
    pub value: Value,
    #[serde(default)]
    pub error: String,
}

impl Done {
    /// The text that it gave, which is empty when it failed.
    pub fn text(&self) -> &str {
        self.value.as_str().unwrap_or_default()
    }
}

impl<'a> Namespace<'a> {
    pub fn pod(&'a self, spec: Value) -> Result<Pod<'a>> {
        self.pod_with(json!({}), spec)
    }

    /// The same with labels, annotations and so on.
    pub fn pod_with(&'a self, mut metadata: Value, spec: Value) -> Result<Pod<'a>> {
        let name = format!("pod-{}", self.world.number());
        metadata["name"] = json!(name);
        self.world
            .admin
            .must_post(&self.path("pods"), &json!({"metadata": metadata, "spec": spec}))?;
        Ok(Pod { namespace: self, name })
    }

    /// A pod that runs and waits.
    pub fn attacker(&'a self) -> Result<Pod<'a>> {
        let pod = self.pod(waiting_spec())?;
        pod.running()?;
        Ok(pod)
    }
}

impl Pod<'_> {
    pub fn path(&self) -> String {
        self.namespace.path(&format!("pods/{}", self.name))
    }

    pub fn read(&self) -> Result<Value> {
        self.namespace.world.admin.must_get(&self.path())
    }

    /// Waits until `accept` says something of the pod.
    pub fn wait<T>(&self, what: &str, accept: impl Fn(&Value) -> Option<T>) -> Result<T> {
        let mut last = Value::Null;
        let result = wait_for(&format!("pod {} to {what}", self.name), PATIENCE, || {
            last = self.read()?;
            Ok(accept(&last))
        });
        result.with_context(|| self.story(&last))
    }

    /// Waits until all containers run.
    pub fn running(&self) -> Result<Value> {
        self.wait("run", |pod| {
            let statuses = pod["status"]["containerStatuses"].as_array()?;
            let running = statuses.iter().all(|status| status["state"]["running"].is_object());
            (pod["status"]["phase"] == "Running" && running).then(|| pod.clone())
        })
    }

    /// Waits until it runs, or has run, or cannot: what it came to.
    pub fn settled(&self) -> Result<Settled> {
        self.wait("come to something", |pod| {
            let status = &pod["status"];
            match status["phase"].as_str()? {
                "Running" => {
                    let running = |status: &Value| status["state"]["running"].is_object();
                    status["containerStatuses"]
                        .as_array()?
                        .iter()
                        .all(running)
                        .then_some(Settled::Ran)
                }
                "Succeeded" => Some(Settled::Ran),
                "Failed" if started(status) => Some(Settled::Ran),
                "Failed" => Some(Settled::Refused(reason(status))),
                _ => stuck(status).or_else(|| self.complaint()).map(Settled::Refused),
            }
        })
    }

    /// Why the node could not make the pod, as its events tell.
    fn complaint(&self) -> Option<String> {
        let path = self
            .namespace
            .path(&format!("events?fieldSelector=involvedObject.name%3D{}", self.name));
        let events = self.namespace.world.admin.get(&path).ok()?.json();
        let events = events["items"].as_array()?.iter();
        let mut told = events.filter_map(|event| Some((event["reason"].as_str()?, event["message"].as_str()?)));
        let (reason, message) = told.find(|(reason, _)| COMPLAINTS.contains(reason))?;
        Some(format!("{reason}: {message}"))
    }

    /// Waits for the end of its containers.
    pub fn ended(&self) -> Result<Value> {
        self.wait("end", |pod| {
            matches!(pod["status"]["phase"].as_str()?, "Succeeded" | "Failed").then(|| pod.clone())
        })
    }

    pub fn address(&self) -> Result<String> {
        let pod = self.wait("get an address", |pod| {
            pod["status"]["podIP"].as_str().map(str::to_owned)
        })?;
        Ok(pod)
    }

    /// Does something in the container.
    pub fn act(&self, action: &[&str]) -> Result<Done> {
        self.act_in(MAIN, action)
    }

    pub fn act_in(&self, container: &str, action: &[&str]) -> Result<Done> {
        let command: Vec<&str> = ["/hostile", "inside"].iter().chain(action).copied().collect();
        let executed = self.execute(container, &command)?;
        let line = executed
            .output
            .lines()
            .last()
            .with_context(|| format!("{action:?} said nothing but {:?}: {}", executed.errors, executed.status))?;
        serde_json::from_str(line).with_context(|| format!("{action:?} said {line:?}"))
    }

    /// The same for what must succeed before the attack begins.
    pub fn must(&self, action: &[&str]) -> Result<Value> {
        let done = self.act(action)?;
        ensure!(done.ok, "{action:?}: {}", done.error);
        Ok(done.value)
    }

    pub fn execute(&self, container: &str, command: &[&str]) -> Result<Executed> {
        self.namespace
            .world
            .admin
            .execute(&self.namespace.name, &self.name, container, command)
    }

    /// What its containers' actions came to so far, one a line.
    pub fn log(&self, container: &str) -> Result<Vec<Done>> {
        let text = self.log_text(container)?;
        let lines = text.lines().filter(|line| line.starts_with('{'));
        lines
            .map(|line| serde_json::from_str(line).with_context(|| format!("the log has {line:?}")))
            .collect()
    }

    pub fn log_text(&self, container: &str) -> Result<String> {
        let response = self
            .namespace
            .world
            .admin
            .get(&format!("{}/log?container={container}", self.path()))?;
        ensure!(
            response.is_success(),
            "the log of {}: {}",
            self.name,
            response.summary()
        );
        Ok(response.text())
    }

    pub fn delete(&self) -> Result<()> {
        let options = json!({"gracePeriodSeconds": 0});
        let admin = &self.namespace.world.admin;
        let response = admin.body("DELETE", &self.path(), crate::client::JSON, &options)?;
        if !response.is_success() && response.status != 404 {
            bail!("deleting {}: {}", self.name, response.summary());
        }
        wait_for("the pod to be gone", PATIENCE, || {
            Ok((admin.get(&self.path())?.status == 404).then_some(()))
        })
    }

    /// What is known about a pod that did not do what was expected.
    fn story(&self, pod: &Value) -> String {
        let status = &pod["status"];
        let states: Vec<String> = status["containerStatuses"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|status| format!("{} {}", status["name"], status["state"]))
            .collect();
        format!(
            "phase {}, reason {}, {}",
            status["phase"],
            reason(status),
            states.join(", ")
        )
    }
}

/// What became of a pod.
#[derive(Clone, Debug, PartialEq)]
pub enum Settled {
    /// At least its first container was started.
    Ran,
    /// None was, for this reason.
    Refused(String),
}

fn statuses(status: &Value) -> impl Iterator<Item = &Value> {
    ["initContainerStatuses", "containerStatuses"]
        .into_iter()
        .filter_map(|list| status[list].as_array())
        .flatten()
}

/// Whether any container's process was ever there.
fn started(status: &Value) -> bool {
    statuses(status).any(|status| {
        let ended = [&status["state"]["terminated"], &status["lastState"]["terminated"]];
        status["state"]["running"].is_object()
            || ended
                .iter()
                .any(|ended| ended["startedAt"].is_string() && !could_not_start(ended))
    })
}

fn could_not_start(ended: &Value) -> bool {
    let reason = ended["reason"].as_str().unwrap_or_default();
    matches!(reason, "StartError" | "ContainerCannotRun" | "ContainerStatusUnknown")
}

/// Reasons for which a container waits that will not go away.
const STUCK: &[&str] = &[
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "ErrImagePull",
    "ImagePullBackOff",
    "ErrImageNeverPull",
    "InvalidImageName",
    "CrashLoopBackOff",
    "ImageInspectError",
    "StartError",
];

/// Events about pods that will not get containers.
const COMPLAINTS: &[&str] = &[
    "FailedCreatePodSandBox",
    "FailedMount",
    "FailedScheduling",
    "FailedValidation",
];

fn stuck(status: &Value) -> Option<String> {
    statuses(status).find_map(|status| {
        let waiting = &status["state"]["waiting"];
        let reason = waiting["reason"].as_str()?;
        STUCK
            .contains(&reason)
            .then(|| format!("{reason}: {}", waiting["message"].as_str().unwrap_or_default()))
    })
}

fn reason(status: &Value) -> String {
    let own = [&status["reason"], &status["message"]].map(|text| text.as_str().unwrap_or_default());
    let containers = statuses(status).filter_map(|status| {
        let ended = &status["state"]["terminated"];
        Some(format!(
            "{}: {}",
            ended["reason"].as_str()?,
            ended["message"].as_str().unwrap_or_default()
        ))
    });
    let words: Vec<String> = own
        .map(str::to_owned)
        .into_iter()
        .chain(containers)
        .filter(|text| !text.is_empty())
        .collect();
    words.join(": ")
}
