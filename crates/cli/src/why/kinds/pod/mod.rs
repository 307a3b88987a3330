//! Pods.

mod config;
pub mod crash;
mod ending;
mod images;
mod policies;
mod probes;
mod resources;
mod scheduling;
mod volumes;

use api::Value;
use api::kinds::network_policy::NETWORK_POLICY;
use api::kinds::node::NODE;
use api::kinds::persistent_volume_claim::PERSISTENT_VOLUME_CLAIM;
use api::kinds::pod::POD;

use crate::why::facts::Facts;
use crate::why::look::Look;
use crate::why::table::Kind;
use crate::why::{State, look};

pub use scheduling::taint_text;

pub static ROW: Kind = Kind {
    resource: &POD,
    reads: &[&NODE, &PERSISTENT_VOLUME_CLAIM, &NETWORK_POLICY],
    state,
    checks: &[
        ending::node_is_gone,
        ending::node_is_not_ready,
        ending::does_not_end,
        ending::failed_as_a_whole,
        scheduling::no_node_fits,
        scheduling::is_gated,
        scheduling::no_scheduler,
        volumes::claim_is_not_usable,
        volumes::cannot_be_mounted,
        volumes::sandbox_fails,
        config::cannot_be_configured,
        images::cannot_be_pulled,
        crash::ends_again_and_again,
        crash::cannot_be_started,
        probes::init_container_runs,
        probes::probe_fails,
        probes::gate_is_closed,
        resources::resize_is_held_back,
        policies::is_isolated,
    ],
};

fn state(facts: &Facts, pod: &Value) -> State {
    let phase = pod.str("status.phase");
    if pod.is_deleting() {
        let overdue = facts.seconds_since(pod.moment("metadata.deletionTimestamp"));
        return match overdue {
            0..=10 => State::Healthy("it is being deleted.".to_owned()),
            _ => State::Unhealthy(format!("its deletion is {} overdue.", look::duration(overdue))),
        };
    }
    match phase {
        "Succeeded" => State::Healthy("all its containers succeeded.".to_owned()),
        "Running" if pod.condition_is("Ready", "True").is_some() => State::Healthy("it is Ready.".to_owned()),
        "Running" => State::Unhealthy("it is Running, but not Ready.".to_owned()),
        "Failed" => State::Unhealthy("it failed.".to_owned()),
        "" => State::Unhealthy("it has no status yet.".to_owned()),
        phase => State::Unhealthy(format!("it is {phase}.")),
    }
}

/// A container as its spec and its status tell it.
pub struct Container<'a> {
    pub spec: &'a Value,
    pub status: &'a Value,
    pub is_init: bool,
}

impl Container<'_> {
    pub fn name(&self) -> &str {
        self.spec.str("name")
    }

    /// `container "web"` or `init container "web"`.
    pub fn called(&self) -> String {
        let kind = if self.is_init { "init container" } else { "container" };
        format!("{kind} \"{}\"", self.name())
    }
}

/// The containers of a pod, those that run first come first.
pub fn containers(pod: &Value) -> Vec<Container<'_>> {
    static NONE: Value = Value::Null;
    let of = |specs: &str, statuses: &str, is_init: bool| {
        let statuses = pod.items(statuses);
        let specs = pod.items(specs).iter();
        specs
            .map(|spec| {
                let name = spec.str("name");
                let status = statuses.iter().find(|status| status.str("name") == name);
                Container {
                    spec,
                    status: status.unwrap_or(&NONE),
                    is_init,
                }
            })
            .collect::<Vec<_>>()
    };
    let mut all = of("spec.initContainers", "status.initContainerStatuses", true);
    all.extend(of("spec.containers", "status.containerStatuses", false));
    all
}

/// How a user changes what a pod was made of: at its owner, or by making it anew.
pub fn owner_hint(pod: &Value) -> String {
    let mut owners = pod.items("metadata.ownerReferences").iter();
    match owners.find(|owner| owner.yes("controller")) {
        Some(owner) => {
            let (kind, name) = (owner.str("kind"), owner.str("name"));
            let hash = pod
                .at("metadata.labels")
                .get("pod-template-hash")
                .and_then(Value::as_str);
            match hash.and_then(|hash| name.strip_suffix(hash)?.strip_suffix('-')) {
                Some(deployment) if kind == "ReplicaSet" => format!("deployment/{deployment}"),
                _ => format!("{}/{name}", kind.to_lowercase()),
            }
        }
        None => format!("pod/{}", pod.name()),
    }
}
