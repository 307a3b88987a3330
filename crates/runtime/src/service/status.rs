//! Sandboxes and containers as the CRI shows them.

use std::collections::BTreeMap;

use cri::v1::{self, ContainerState, PodSandboxState};

use super::Embedded;
use super::container::{Container, Phase};
use super::sandbox::Sandbox;
use crate::spec::Exit;

/// Why a container ended, in the words that Kubernetes shows.
fn reason(exit: &Exit) -> &'static str {
    match exit {
        Exit { failure, .. } if !failure.is_empty() => "StartError",
        Exit { oom_killed: true, .. } => "OOMKilled",
        Exit { code: 0, .. } => "Completed",
        Exit { .. } => "Error",
    }
}

impl Sandbox {
    fn cri_state(&self) -> PodSandboxState {
        match self.running() {
            Some(_) => PodSandboxState::SandboxReady,
            None => PodSandboxState::SandboxNotready,
        }
    }

    pub fn listed(&self) -> v1::PodSandbox {
        v1::PodSandbox {
            id: self.record.id.clone(),
            metadata: self.config.metadata.clone(),
            state: self.cri_state().into(),
            created_at: self.record.created_at_ns,
            labels: self.config.labels.clone(),
            annotations: self.config.annotations.clone(),
            runtime_handler: self.record.runtime_handler.clone(),
        }
    }

    pub fn matches(&self, filter: &v1::PodSandboxFilter) -> bool {
        self.record.id.starts_with(&filter.id)
            && filter
                .state
                .as_ref()
                .is_none_or(|state| state.state() == self.cri_state())
            && has_labels(&self.config.labels, &filter.label_selector)
    }
}

impl Container {
    fn cri_state(&self) -> ContainerState {
        match *self.phase.borrow() {
            Phase::Created => ContainerState::ContainerCreated,
            Phase::Running { .. } => ContainerState::ContainerRunning,
            Phase::Exited(_) => ContainerState::ContainerExited,
        }
    }

    pub fn listed(&self) -> v1::Container {
        v1::Container {
            id: self.record.id.clone(),
            pod_sandbox_id: self.record.sandbox_id.clone(),
            metadata: self.config.metadata.clone(),
            image: self.config.image.clone(),
            image_ref: self.record.image_ref.clone(),
            image_id: self.record.image_id.clone(),
            state: self.cri_state().into(),
            created_at: self.record.created_at_ns,
            labels: self.config.labels.clone(),
            annotations: self.config.annotations.clone(),
        }
    }

    pub fn matches(&self, filter: &v1::ContainerFilter) -> bool {
        self.record.id.starts_with(&filter.id)
            && self.record.sandbox_id.starts_with(&filter.pod_sandbox_id)
            && filter
                .state
                .as_ref()
                .is_none_or(|state| state.state() == self.cri_state())
            && has_labels(&self.config.labels, &filter.label_selector)
    }

    pub fn status(&self) -> v1::ContainerStatus {
        let user = &self.record.spec.process.user;
        let mut status = v1::ContainerStatus {
            id: self.record.id.clone(),
            metadata: self.config.metadata.clone(),
            state: self.cri_state().into(),
            created_at: self.record.created_at_ns,
            image: self.config.image.clone(),
            image_ref: self.record.image_ref.clone(),
            image_id: self.record.image_id.clone(),
            labels: self.config.labels.clone(),
            annotations: self.config.annotations.clone(),
            mounts: self.config.mounts.clone(),
            log_path: self
                .record
                .spec
                .log_path
                .as_ref()
                .map(|path| path.display().to_string())
                .unwrap_or_default(),
            resources: Some(v1::ContainerResources {
                linux: self.resources.lock().clone(),
            }),
            user: Some(v1::ContainerUser {
                linux: Some(v1::LinuxContainerUser {
                    uid: user.uid.into(),
                    gid: user.gid.into(),
                    supplemental_groups: user.groups.iter().map(|group| i64::from(*group)).collect(),
                }),
            }),
            stop_signal: self.config.stop_signal,
            ..Default::default()
        };
        match self.phase() {
            Phase::Created => {}
            Phase::Running { started_at_ns } => status.started_at = started_at_ns,
            Phase::Exited(exit) => {
                status.started_at = exit.started_at_ns;
                status.finished_at = exit.finished_at_ns;
                status.exit_code = exit.code;
                reason(&exit).clone_into(&mut status.reason);
                status.message = exit.failure;
            }
        }
        status
    }
}

impl Embedded {
    pub(super) fn sandbox_status(&self, sandbox: &Sandbox) -> v1::PodSandboxStatus {
        let security = sandbox
            .config
            .linux
            .as_ref()
            .and_then(|linux| linux.security_context.as_ref());
        let mut ips = sandbox.record.ips.iter().map(ToString::to_string);
        v1::PodSandboxStatus {
            id: sandbox.record.id.clone(),
            metadata: sandbox.config.metadata.clone(),
            state: sandbox.cri_state().into(),
            created_at: sandbox.record.created_at_ns,
            network: Some(v1::PodSandboxNetworkStatus {
                ip: ips.next().unwrap_or_default(),
                additional_ips: ips.map(|ip| v1::PodIp { ip }).collect(),
            }),
            linux: Some(v1::LinuxPodSandboxStatus {
                namespaces: Some(v1::Namespace {
                    options: security.and_then(|security| security.namespace_options.clone()),
                }),
            }),
            labels: sandbox.config.labels.clone(),
            annotations: sandbox.config.annotations.clone(),
            runtime_handler: sandbox.record.runtime_handler.clone(),
        }
    }
}

pub fn has_labels(labels: &BTreeMap<String, String>, selector: &BTreeMap<String, String>) -> bool {
    selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_that_never_ran_has_a_start_error() {
        let check = |exit: Exit, expected: &str| assert_eq!(reason(&exit), expected);
        check(Exit::default(), "Completed");
        check(
            Exit {
                code: 1,
                ..Default::default()
            },
            "Error",
        );
        check(
            Exit {
                code: 137,
                oom_killed: true,
                ..Default::default()
            },
            "OOMKilled",
        );
        check(
            Exit {
                code: 128,
                failure: "no such file".into(),
                ..Default::default()
            },
            "StartError",
        );
    }

    #[test]
    fn a_selector_needs_every_label() {
        let labels = BTreeMap::from([("a".to_owned(), "1".to_owned()), ("b".to_owned(), "2".to_owned())]);
        let one = BTreeMap::from([("a".to_owned(), "1".to_owned())]);
        assert!(has_labels(&labels, &one) && has_labels(&labels, &BTreeMap::new()));
        assert!(!has_labels(&one, &labels));
    }
}
