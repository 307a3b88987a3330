//! Who of several replicas acts: the holder of a Lease.
//!
//! [`lead`] runs a component while this process holds the lease and drops it when the lease is lost; the process goes
//! on and competes again. The component writes with a client that refuses to write from the moment the lease can no
//! longer be relied upon, even before the component has noticed.
//!
//! Times and records are upstream's, so that upstream's candidates and ours compete for the same leases. A leader that is
//! stopped in order gives its lease up, and the next one leads after its retry period; the lease of one that was killed has to
//! expire, because nobody can tell a dead leader from one that is cut off.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use api::Value;
use api::kinds::lease::LEASE;
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

use crate::backoff::jitter;
use crate::when::Moment;
use crate::{Api, Client, Result};

/// Upstream's times: others may take the lease this long after its last renewal, …
const LEASE_DURATION: Duration = Duration::from_secs(15);
/// … the holder gives up when it could not renew for this long, …
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// … and everyone tries again after this long.
const RETRY_PERIOD: Duration = Duration::from_secs(2);

/// Which lease to compete for, and as whom.
#[derive(Clone)]
pub struct Election {
    pub client: Client,
    pub namespace: String,
    pub name: String,
    /// Must differ between all candidates: the host name and something random.
    pub identity: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct LeaseSpec {
    holder_identity: Option<String>,
    lease_duration_seconds: Option<u64>,
    renew_time: Option<String>,
    lease_transitions: Option<u64>,
}

/// A lease and when we saw it change: other machines' clocks are not compared with ours.
#[derive(Clone)]
struct Observed {
    /// As it was read.
    object: Value,
    spec: LeaseSpec,
    at: Instant,
}

#[derive(Debug, PartialEq)]
enum Step {
    Create,
    Take { transitions: u64 },
    Renew,
    Wait,
}

/// How long giving up the lease may hold up the end of a process.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// Runs `component` whenever this candidate leads, and drops it when it no longer does. Never returns.
pub async fn lead<F, C>(election: Election, component: F)
where
    F: Fn(Client) -> C,
    C: Future<Output = ()>,
{
    lead_until(election, std::future::pending(), component).await;
}

/// As [`lead`], but ends with `stop`: first the component, then the hold on the lease, so that the next candidate need not
/// wait until it expires.
pub async fn lead_until<F, C>(election: Election, stop: impl Future<Output = ()>, component: F)
where
    F: Fn(Client) -> C,
    C: Future<Output = ()>,
{
    let mut candidate = Candidate {
        leases: election
            .client
            .resource(&LEASE)
            .in_namespace(election.namespace.clone()),
        seen: None,
        election,
    };
    tokio::select! {
        () = candidate.compete(&component) => {}
        () = stop => {}
    }
    match tokio::time::timeout(RELEASE_TIMEOUT, candidate.release()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(lease = candidate.election.name, %error, "Failed to give up the lease"),
        Err(_) => tracing::warn!(lease = candidate.election.name, "Failed to give up the lease in time"),
    }
}

struct Candidate {
    election: Election,
    leases: Api,
    seen: Option<Observed>,
}

impl Candidate {
    /// Leads whenever it can.
    async fn compete<F, C>(&mut self, component: &F)
    where
        F: Fn(Client) -> C,
        C: Future<Output = ()>,
    {
        loop {
            self.acquire().await;
            tracing::info!(lease = self.election.name, "leading");
            let leading = Leading::default();
            let client = self.election.client.while_leading(leading.0.clone());
            tokio::select! {
                // Renewal is polled first, so that a busy component cannot delay it within this task.
                biased;
                () = self.hold() => {}
                () = component(client) => {}
            }
            drop(leading);
            tracing::warn!(lease = self.election.name, "no longer leading");
        }
    }

    /// Gives the lease up if it is ours. It is read again: a renewal may have been under way.
    async fn release(&self) -> Result<()> {
        let mut lease = match self.leases.get::<Value>(&self.election.name).await {
            Err(error) if error.is_not_found() => return Ok(()),
            found => found?,
        };
        if lease["spec"]["holderIdentity"] != self.election.identity.as_str() {
            return Ok(());
        }
        vacate(&mut lease, Moment::now());
        self.leases.update::<Value>(&self.election.name, &lease).await.map(drop)
    }

    async fn acquire(&mut self) {
        while !self.attempt_logged().await {
            tokio::time::sleep(jitter(RETRY_PERIOD)).await;
        }
    }

    /// Returns when the lease could not be renewed in time or belongs to someone else.
    async fn hold(&mut self) {
        let mut renewed = Instant::now();
        loop {
            tokio::time::sleep(RETRY_PERIOD).await;
            let left = RENEW_DEADLINE.saturating_sub(renewed.elapsed());
            if let Ok(true) = tokio::time::timeout(left, self.attempt_logged()).await {
                renewed = Instant::now();
            }
            if renewed.elapsed() >= RENEW_DEADLINE || self.is_held_by_another() {
                return;
            }
        }
    }

    async fn attempt_logged(&mut self) -> bool {
        match self.attempt().await {
            Ok(held) => held,
            Err(error) if error.is_conflict() || error.is_already_exists() => false,
            Err(error) => {
                tracing::warn!(lease = self.election.name, %error, "could not use the lease");
                false
            }
        }
    }

    /// Reads the lease and takes or renews it if that is ours to do. True when we hold it afterwards.
    async fn attempt(&mut self) -> Result<bool> {
        let found = match self.leases.get::<Value>(&self.election.name).await {
            Ok(lease) => Some(lease),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error),
        };
        let step = step(
            observe(&mut self.seen, found, Instant::now()),
            &self.election.identity,
            Instant::now(),
        );
        let lease = match step {
            Step::Wait => return Ok(false),
            Step::Create => self.leases.create::<Value>(&self.new_lease()).await?,
            Step::Take { transitions } => self.update(Some(transitions)).await?,
            Step::Renew => self.update(None).await?,
        };
        observe(&mut self.seen, Some(lease), Instant::now());
        Ok(true)
    }

    fn is_held_by_another(&self) -> bool {
        let holder = self.seen.as_ref().and_then(|seen| seen.spec.holder_identity.as_deref());
        holder.is_some_and(|holder| !holder.is_empty() && holder != self.election.identity)
    }

    /// Writes the lease back as it was read but for our claim, if nobody has changed it since. Upstream's roles allow an
    /// update here, but no patch.
    async fn update(&self, transitions: Option<u64>) -> Result<Value> {
        let seen = self.seen.as_ref().map(|seen| seen.object.clone());
        let mut object = seen.unwrap_or_else(|| self.new_lease());
        self.claim(&mut object, transitions);
        self.leases.update(&self.election.name, &object).await
    }

    fn new_lease(&self) -> Value {
        let mut object = json!({
            "apiVersion": LEASE.api_version(),
            "kind": LEASE.kind,
            "metadata": {"name": self.election.name, "namespace": self.election.namespace},
        });
        self.claim(&mut object, Some(0));
        object
    }

    fn claim(&self, object: &mut Value, transitions: Option<u64>) {
        let now = Moment::now().to_micro_time();
        let spec = &mut object["spec"];
        spec["holderIdentity"] = self.election.identity.as_str().into();
        spec["leaseDurationSeconds"] = LEASE_DURATION.as_secs().into();
        spec["renewTime"] = now.as_str().into();
        if let Some(transitions) = transitions {
            spec["acquireTime"] = now.into();
            spec["leaseTransitions"] = transitions.into();
        }
    }
}

/// Says to the clients of a component whether it leads; no longer once this is dropped.
struct Leading(Arc<AtomicBool>);

impl Default for Leading {
    fn default() -> Leading {
        Leading(Arc::new(AtomicBool::new(true)))
    }
}

impl Drop for Leading {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Makes a lease one that nobody holds, as upstream's leaders leave it.
fn vacate(lease: &mut Value, now: Moment) {
    let now = now.to_micro_time();
    let spec = &mut lease["spec"];
    if let Some(spec) = spec.as_object_mut() {
        spec.remove("holderIdentity");
    }
    spec["leaseDurationSeconds"] = 1.into();
    spec["renewTime"] = now.as_str().into();
    spec["acquireTime"] = now.into();
}

/// Remembers a lease; the time only moves when the holder or its renewal does.
fn observe(seen: &mut Option<Observed>, object: Option<Value>, now: Instant) -> Option<&Observed> {
    let before = seen.take();
    *seen = object.map(|object| {
        let spec = LeaseSpec::deserialize(&object["spec"]).unwrap_or_default();
        let at = match before {
            Some(before) if before.spec == spec => before.at,
            _ => now,
        };
        Observed { object, spec, at }
    });
    seen.as_ref()
}

/// What a candidate does about the lease as it is.
fn step(seen: Option<&Observed>, identity: &str, now: Instant) -> Step {
    let Some(seen) = seen else { return Step::Create };
    let spec = &seen.spec;
    let holder = spec.holder_identity.as_deref().unwrap_or_default();
    if holder == identity {
        return Step::Renew;
    }
    let duration = spec.lease_duration_seconds.map_or(LEASE_DURATION, Duration::from_secs);
    if !holder.is_empty() && seen.at + duration > now {
        return Step::Wait;
    }
    Step::Take {
        transitions: spec.lease_transitions.unwrap_or(0) + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(holder: &str, at: Instant) -> Observed {
        let object = json!({"spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "leaseTransitions": 4}});
        let mut seen = None;
        observe(&mut seen, Some(object), at).cloned().unwrap()
    }

    #[test]
    fn a_lease_is_taken_only_when_nobody_renews_it() {
        let start = Instant::now();
        let other = seen("other", start);
        let seconds = Duration::from_secs;
        assert_eq!(step(None, "me", start), Step::Create);
        assert_eq!(step(Some(&other), "me", start + seconds(14)), Step::Wait);
        assert_eq!(
            step(Some(&other), "me", start + seconds(15)),
            Step::Take { transitions: 5 }
        );
        assert_eq!(step(Some(&seen("", start)), "me", start), Step::Take { transitions: 5 });
        assert_eq!(step(Some(&seen("me", start)), "me", start), Step::Renew);
    }

    #[test]
    fn a_lease_that_was_given_up_is_free_at_once() {
        let start = Instant::now();
        let mut object = seen("other", start).object;
        vacate(&mut object, Moment::now());
        let mut remembered = None;
        let found = observe(&mut remembered, Some(object), start);
        assert_eq!(step(found, "me", start), Step::Take { transitions: 5 });
    }

    #[test]
    fn only_a_change_of_the_lease_counts_as_a_renewal() {
        let start = Instant::now();
        let mut remembered = Some(seen("other", start));
        let later = start + Duration::from_secs(9);
        let same = remembered.clone().map(|seen| seen.object);
        assert_eq!(observe(&mut remembered, same, later).unwrap().at, start);
        let renewed = seen("third", later).object;
        assert_eq!(observe(&mut remembered, Some(renewed), later).unwrap().at, later);
    }
}
