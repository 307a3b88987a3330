//! One hollow node.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::http2::{JSON, Pool, STRATEGIC_PATCH};
use crate::objects::{LEASES, NODES, PODS, Pod, PodEvent, node, now, now_in_seconds, revision};
use crate::pod_watch::PodWatch;
use crate::target::Target;
use crate::times::Times;

/// How long renewals took, of all nodes together.
#[derive(Default)]
pub struct Heartbeats {
    times: Mutex<Times>,
    failures: AtomicUsize,
}

impl Heartbeats {
    fn note(&self, took: Duration) {
        self.times.lock().unwrap_or_else(PoisonError::into_inner).add(took);
    }

    /// A kubelet would try again; here it is counted.
    fn fail(&self, error: &anyhow::Error) {
        if self.failures.fetch_add(1, Ordering::Relaxed) == 0 {
            eprintln!("a hollow node: {error:#}");
        }
    }

    pub fn take(&self) -> Times {
        std::mem::take(&mut *self.times.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn forget(&self) {
        self.take();
        self.failures.store(0, Ordering::Relaxed);
    }

    pub fn failures(&self) -> usize {
        self.failures.load(Ordering::Relaxed)
    }
}

#[derive(Clone)]
pub struct Node {
    number: usize,
    name: String,
    requests: Pool,
    heartbeats: Arc<Heartbeats>,
}

/// What is said of a pod that went in the meantime.
const GONE: &[StatusCode] = &[StatusCode::NOT_FOUND];
/// After so many renewals a node writes its status, as kubelets do every five minutes.
const RENEWALS_PER_STATUS: usize = 30;

impl Node {
    pub async fn connect(target: &Target, number: usize, heartbeats: Arc<Heartbeats>) -> Result<Self> {
        let name = format!("hollow-{number}");
        Ok(Self {
            number,
            requests: Pool::connect_as_node(target, &name).await?,
            name,
            heartbeats,
        })
    }

    /// Makes the node and its lease, and watches its pods.
    pub async fn register(&self) -> Result<PodWatch> {
        let body = node(&self.name, &now_in_seconds());
        self.requests.ask(Method::POST, NODES, JSON, body).await?;
        self.requests.ask(Method::POST, LEASES, JSON, self.lease(None)).await?;
        let selector = format!("fieldSelector=spec.nodeName%3D{}", self.name);
        PodWatch::open(
            self.requests.clone(),
            &format!("/api/v1/pods?{selector}"),
            "0".to_owned(),
        )
        .await
    }

    /// Renews the lease for ever. Nodes are spread over the period by their numbers.
    pub async fn renew(self, period: Duration) {
        let share = (self.number * 618 % 1000) as u32;
        tokio::time::sleep(period * share / 1000).await;
        let mut ticks = tokio::time::interval(period);
        let mut known = None;
        for beat in 1.. {
            ticks.tick().await;
            let begun = Instant::now();
            match self.renew_once(known.take()).await {
                Ok(revision) => known = Some(revision),
                Err(error) => self.heartbeats.fail(&error),
            }
            self.heartbeats.note(begun.elapsed());
            if beat % RENEWALS_PER_STATUS == 0
                && let Err(error) = self.write_status().await
            {
                self.heartbeats.fail(&error);
            }
        }
    }

    async fn renew_once(&self, known: Option<String>) -> Result<String> {
        let path = format!("{LEASES}/{}", self.name);
        let known = match known {
            Some(known) => known,
            None => revision(&self.requests.ask(Method::GET, &path, JSON, Vec::new()).await?)?,
        };
        let body = self.lease(Some(&known));
        revision(&self.requests.ask(Method::PUT, &path, JSON, body).await?)
    }

    fn lease(&self, revision: Option<&str>) -> Vec<u8> {
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": self.name, "resourceVersion": revision },
            "spec": { "holderIdentity": self.name, "leaseDurationSeconds": 40, "renewTime": now() },
        })
        .to_string()
        .into_bytes()
    }

    async fn write_status(&self) -> Result<()> {
        let patch = json!({ "status": { "conditions": [{ "type": "Ready", "lastHeartbeatTime": now_in_seconds() }] } });
        let path = format!("{NODES}/{}/status", self.name);
        let body = patch.to_string().into_bytes();
        self.requests
            .ask(Method::PATCH, &path, STRATEGIC_PATCH, body)
            .await
            .map(drop)
    }

    /// Takes each pod to Running, and away when it is deleted.
    pub async fn run(self, mut watch: PodWatch) {
        loop {
            let event = match watch.next().await {
                Ok(event) => event,
                Err(error) => return self.heartbeats.fail(&error),
            };
            if let Err(error) = self.follow(&event).await {
                self.heartbeats.fail(&error);
            }
        }
    }

    async fn follow(&self, event: &PodEvent) -> Result<()> {
        match decide(event) {
            Some(Deed::Start) => {
                let path = format!("{PODS}/{}/status", event.object.metadata.name);
                let body = self.running(&event.object).to_string().into_bytes();
                self.requests
                    .ask_but(GONE, Method::PATCH, &path, STRATEGIC_PATCH, body)
                    .await?;
            }
            Some(Deed::Remove) => {
                let path = format!("{PODS}/{}", event.object.metadata.name);
                let body = br#"{"gracePeriodSeconds":0}"#.to_vec();
                self.requests.ask_but(GONE, Method::DELETE, &path, JSON, body).await?;
            }
            None => {}
        }
        Ok(())
    }

    fn running(&self, pod: &Pod) -> Value {
        let now = now_in_seconds();
        let address = format!(
            "10.{}.{}.{}",
            128 + self.number / 65_536,
            self.number / 256 % 256,
            self.number % 256
        );
        let condition = |kind: &str| json!({ "type": kind, "status": "True", "lastTransitionTime": now });
        json!({ "metadata": { "name": pod.metadata.name }, "status": {
            "phase": "Running", "startTime": now, "podIP": address, "podIPs": [{ "ip": address }],
            "hostIP": address, "hostIPs": [{ "ip": address }],
            "conditions": [
                condition("PodReadyToStartContainers"), condition("Initialized"),
                condition("ContainersReady"), condition("Ready"),
            ],
            "containerStatuses": [{
                "name": "main", "image": "registry.k8s.io/pause:3.10.2", "imageID": "hollow",
                "containerID": "hollow://1", "ready": true, "started": true, "restartCount": 0,
                "state": { "running": { "startedAt": now } },
            }],
        } })
    }
}

#[derive(Debug, PartialEq)]
enum Deed {
    Start,
    Remove,
}

fn decide(event: &PodEvent) -> Option<Deed> {
    let pod = &event.object;
    match event.kind.as_str() {
        "ADDED" | "MODIFIED" if pod.metadata.deletion_timestamp.is_some() => Some(Deed::Remove),
        "ADDED" | "MODIFIED" if pod.status.phase == "Pending" => Some(Deed::Start),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deed(event: Value) -> Option<Deed> {
        decide(&serde_json::from_value(event).unwrap())
    }

    #[test]
    fn pending_pods_start_and_deleted_ones_go() {
        let pod = |phase: &str, deleted: Option<&str>| json!({ "metadata": { "name": "a", "deletionTimestamp": deleted }, "status": { "phase": phase } });
        let event = |kind: &str, object: Value| json!({ "type": kind, "object": object });
        assert_eq!(deed(event("ADDED", pod("Pending", None))), Some(Deed::Start));
        assert_eq!(deed(event("MODIFIED", pod("Running", None))), None);
        assert_eq!(deed(event("MODIFIED", pod("Running", Some("now")))), Some(Deed::Remove));
        assert_eq!(deed(event("DELETED", pod("Running", Some("now")))), None);
    }
}
