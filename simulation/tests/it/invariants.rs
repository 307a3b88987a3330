//! What must hold after every commit, whatever goes wrong between components.

use std::collections::BTreeMap;
use std::time::Duration;

use api::Value;

use crate::history::Objects;

/// How long a controller may act on a wish that has changed since: it can be cut off, but not for longer.
const MEMORY: Duration = Duration::from_secs(60);

#[derive(Default)]
pub struct Invariants {
    /// The first few of them.
    pub violations: Vec<String>,
    /// Per namespace, pods that exist although whoever created them was told otherwise.
    lost: BTreeMap<String, i64>,
    /// The most that the spec of an object by UID has asked for, and until when that counts.
    wishes: BTreeMap<String, Vec<(Duration, i64)>>,
}

impl Invariants {
    pub fn lost_creation(&mut self, namespace: &str) {
        *self.lost.entry(namespace.to_owned()).or_default() += 1;
    }

    /// Looks at a write of one object; `objects` is everything after it.
    pub fn check(&mut self, objects: &Objects, old: Option<&Value>, new: Option<&Value>, at: Duration) {
        let Some(new) = new else { return };
        let is_same = old.is_some_and(|old| old["metadata"]["uid"] == new["metadata"]["uid"]);
        let old = old.filter(|_| is_same);
        self.remember(new, at);
        let mut wrong = grows(old, new);
        match new["kind"].as_str() {
            Some("Pod") => {
                wrong.extend(old.and_then(|old| moved(old, new)));
                wrong.extend(overcommitted(objects, new));
                wrong.extend(old.and_then(|old| disrupted(objects, old, new)));
                if old.is_none() {
                    wrong.extend(self.too_many(objects, new, at));
                    wrong.extend(over_quota(objects, new));
                    wrong.extend(out_of_order(objects, new));
                }
            }
            Some("ReplicaSet") => wrong.extend(self.beyond_surge(objects, new, at)),
            Some("Job") => {
                wrong.extend(old.and_then(|old| unfinished(old, new)));
                wrong.extend(self.too_many_completions(new));
                wrong.extend(concurrent(objects, new));
            }
            _ => {}
        }
        for wrong in wrong {
            if self.violations.len() < 10 {
                let metadata = &new["metadata"];
                let (namespace, name) = (text(&metadata["namespace"]), text(&metadata["name"]));
                let (kind, at) = (text(&new["kind"]), at.as_secs_f64());
                self.violations
                    .push(format!("at {at:.3} s, {kind} {namespace}/{name}: {wrong}"));
            }
        }
    }

    fn lost_in(&self, object: &Value) -> i64 {
        self.lost
            .get(text(&object["metadata"]["namespace"]))
            .copied()
            .unwrap_or(0)
    }

    fn remember(&mut self, object: &Value, at: Duration) {
        let spec = &object["spec"];
        let Some(wish) = spec["replicas"].as_i64().or(spec["parallelism"].as_i64()) else {
            return;
        };
        let wishes = self
            .wishes
            .entry(text(&object["metadata"]["uid"]).to_owned())
            .or_default();
        match wishes.last_mut() {
            Some((until, last)) if *last == wish => *until = at,
            Some((until, _)) => {
                *until = at;
                wishes.push((at, wish));
            }
            None => wishes.push((at, wish)),
        }
    }

    /// The most that was wished for within living memory.
    fn most_wished(&self, uid: &str, at: Duration) -> Option<i64> {
        let wishes = self.wishes.get(uid)?;
        let last = wishes.last()?.1;
        let earlier = wishes
            .iter()
            .filter(|(until, _)| *until + MEMORY >= at)
            .map(|(_, wish)| *wish);
        Some(earlier.fold(last, i64::max))
    }

    /// A controller never makes more pods than its object asks for.
    fn too_many(&self, objects: &Objects, pod: &Value, at: Duration) -> Option<String> {
        let owner = controller(pod)?;
        let lost = self.lost_in(pod);
        let siblings = |uid: &str| {
            active_pods(objects, pod)
                .filter(|other| is_owned_by(other, uid))
                .count() as i64
        };
        let count = siblings(text(&owner["uid"]));
        let limit = match text(&owner["kind"]) {
            "DaemonSet" => {
                let on_node = active_pods(objects, pod).filter(|other| is_owned_by(other, text(&owner["uid"])));
                let on_node = on_node.filter(|other| wanted_node(other) == wanted_node(pod)).count() as i64;
                return (on_node > 1 + lost).then(|| format!("{on_node} pods of a DaemonSet on one node"));
            }
            _ => self.most_wished(text(&owner["uid"]), at)?,
        };
        (count > limit + lost).then(|| format!("{count} pods where {limit} are wanted ({lost} answers lost)"))
    }

    /// A Deployment never asks its ReplicaSets for more pods in all than its own replicas and its surge.
    fn beyond_surge(&self, objects: &Objects, set: &Value, at: Duration) -> Option<String> {
        let uid = text(&controller(set)?["uid"]);
        let deployment = by_uid(objects, uid)?;
        let sets = objects
            .values()
            .filter(|other| other["kind"] == "ReplicaSet" && is_owned_by(other, uid));
        let count: i64 = sets.filter_map(|set| set["spec"]["replicas"].as_i64()).sum();
        let wished = self.most_wished(uid, at)?;
        let surge = match &deployment["spec"]["strategy"]["rollingUpdate"]["maxSurge"] {
            Value::Number(number) => number.as_i64()?,
            share => {
                let percent: i64 = text(share).strip_suffix('%')?.parse().ok()?;
                (wished * percent + 99) / 100
            }
        };
        (count > wished + surge).then(|| format!("{count} pods are asked for by a Deployment of {wished} and {surge}"))
    }

    fn too_many_completions(&self, job: &Value) -> Option<String> {
        let (succeeded, wanted) = (
            job["status"]["succeeded"].as_i64()?,
            job["spec"]["completions"].as_i64()?,
        );
        (succeeded > wanted + self.lost_in(job)).then(|| format!("{succeeded} of {wanted} completions"))
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn controller(object: &Value) -> Option<&Value> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    owners.iter().find(|owner| owner["controller"] == true)
}

fn is_owned_by(object: &Value, uid: &str) -> bool {
    controller(object).is_some_and(|owner| owner["uid"] == uid)
}

fn by_uid<'a>(objects: &'a Objects, uid: &str) -> Option<&'a Value> {
    objects.values().find(|object| object["metadata"]["uid"] == uid)
}

fn is_over(pod: &Value) -> bool {
    matches!(text(&pod["status"]["phase"]), "Succeeded" | "Failed")
}

fn pods_in<'a>(objects: &'a Objects, namespace: &str) -> impl Iterator<Item = &'a Value> {
    let prefix = format!("/registry/pods/{namespace}/");
    let from = objects.range::<str, _>((std::ops::Bound::Included(prefix.as_str()), std::ops::Bound::Unbounded));
    let pods: Vec<&Value> = from
        .take_while(|(key, _)| key.starts_with(&prefix))
        .map(|(_, pod)| pod)
        .collect();
    pods.into_iter()
}

/// The pods of the namespace of `pod` that run or will, itself included.
fn active_pods<'a>(objects: &'a Objects, pod: &Value) -> impl Iterator<Item = &'a Value> {
    let pods = pods_in(objects, text(&pod["metadata"]["namespace"]));
    pods.filter(|pod| !is_over(pod) && pod["metadata"]["deletionTimestamp"].is_null())
}

/// The node that a DaemonSet has made a pod for.
fn wanted_node(pod: &Value) -> String {
    pod["spec"]["affinity"]["nodeAffinity"].to_string()
}

/// Observed generations only grow, and are never ahead of the object.
fn grows(old: Option<&Value>, new: &Value) -> Vec<String> {
    let observed = |object: &Value| object["status"]["observedGeneration"].as_i64();
    let mut wrong = Vec::new();
    if let (Some(before), Some(after)) = (old.and_then(observed), observed(new))
        && after < before
    {
        wrong.push(format!("observedGeneration goes from {before} back to {after}"));
    }
    if let (Some(observed), Some(generation)) = (observed(new), new["metadata"]["generation"].as_i64())
        && observed > generation
    {
        wrong.push(format!("generation {observed} is observed before it is {generation}"));
    }
    wrong
}

/// A pod that has a node never gets another, and one that is over never runs again.
fn moved(old: &Value, new: &Value) -> Option<String> {
    let node = |pod: &Value| text(&pod["spec"]["nodeName"]).to_owned();
    if !node(old).is_empty() && node(old) != node(new) {
        return Some(format!("moves from {} to {}", node(old), node(new)));
    }
    (is_over(old) && !is_over(new)).then(|| "runs again after it was over".to_owned())
}

/// No node has more requests than it has room for.
fn overcommitted(objects: &Objects, pod: &Value) -> Option<String> {
    let node = text(&pod["spec"]["nodeName"]);
    let prefix = "/registry/pods/";
    let pods = objects.range::<str, _>((std::ops::Bound::Included(prefix), std::ops::Bound::Unbounded));
    let pods = pods.take_while(|(key, _)| key.starts_with(prefix)).map(|(_, pod)| pod);
    let here = pods
        .filter(|other| other["spec"]["nodeName"] == node && !is_over(other))
        .count();
    // Each asks for 100m of the 8 cores.
    (!node.is_empty() && here > 80).then(|| format!("{here} pods on {node}"))
}

fn over_quota(objects: &Objects, pod: &Value) -> Option<String> {
    let namespace = text(&pod["metadata"]["namespace"]);
    let quota = objects.get(format!("/registry/resourcequotas/{namespace}/few").as_str())?;
    let hard: usize = text(&quota["spec"]["hard"]["pods"]).parse().ok()?;
    let count = pods_in(objects, namespace).filter(|pod| !is_over(pod)).count();
    (count > hard).then(|| format!("{count} pods where the quota allows {hard}"))
}

/// A StatefulSet makes its pods one after the other.
fn out_of_order(objects: &Objects, pod: &Value) -> Option<String> {
    let owner = controller(pod).filter(|owner| owner["kind"] == "StatefulSet")?;
    let (namespace, set) = (text(&pod["metadata"]["namespace"]), text(&owner["name"]));
    let ordinal: u32 = text(&pod["metadata"]["name"]).rsplit('-').next()?.parse().ok()?;
    let is_missing = |ordinal: &u32| {
        let key = format!("/registry/pods/{namespace}/{set}-{ordinal}");
        !objects.contains_key(key.as_str())
    };
    let missing = (0..ordinal).find(is_missing)?;
    Some(format!("is made before {set}-{missing}"))
}

/// Evictions leave as many healthy pods as the budget asks for. In the scenario that has one nothing else ends pods.
///
/// Pods that do not run yet may always be evicted.
fn disrupted(objects: &Objects, old: &Value, pod: &Value) -> Option<String> {
    let budget = objects.get(
        format!(
            "/registry/poddisruptionbudgets/{}/guard",
            text(&pod["metadata"]["namespace"])
        )
        .as_str(),
    )?;
    let is_healthy = |pod: &&Value| {
        let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        conditions
            .filter(|one| one["type"] == "Ready")
            .any(|one| one["status"] == "True")
    };
    let wanted = budget["spec"]["minAvailable"].as_u64()? as usize;
    let healthy = active_pods(objects, pod).filter(is_healthy).count();
    let is_deleting = |pod: &Value| !pod["metadata"]["deletionTimestamp"].is_null();
    let is_eviction = !is_deleting(old) && is_deleting(pod) && old["status"]["phase"] == "Running";
    (is_eviction && healthy < wanted).then(|| format!("{healthy} healthy pods where the budget asks for {wanted}"))
}

/// What a Job has counted it does not take back, nor that it is over.
fn unfinished(old: &Value, new: &Value) -> Option<String> {
    let succeeded = |job: &Value| job["status"]["succeeded"].as_i64().unwrap_or(0);
    if succeeded(new) < succeeded(old) {
        return Some(format!("{} completions instead of {}", succeeded(new), succeeded(old)));
    }
    let is_complete = |job: &Value| {
        let conditions = job["status"]["conditions"].as_array().into_iter().flatten();
        conditions
            .filter(|one| one["type"] == "Complete")
            .any(|one| one["status"] == "True")
    };
    (is_complete(old) && !is_complete(new)).then(|| "is no longer complete".to_owned())
}

/// A CronJob that forbids it has never two Jobs at once.
fn concurrent(objects: &Objects, job: &Value) -> Option<String> {
    let owner = controller(job).filter(|owner| owner["kind"] == "CronJob")?;
    let is_active = |job: &&Value| job["status"]["completionTime"].is_null();
    let jobs = objects
        .values()
        .filter(|other| other["kind"] == "Job" && is_owned_by(other, text(&owner["uid"])));
    let active = jobs.filter(is_active).count();
    (active > 1).then(|| format!("{active} Jobs of {} are active", text(&owner["name"])))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Writes objects one after the other, a second apart, and returns what is wrong.
    fn violations(lost: i64, writes: &[(&str, Value)]) -> Vec<String> {
        let (mut objects, mut invariants) = (Objects::new(), Invariants::default());
        (0..lost).for_each(|_| invariants.lost_creation("a"));
        for (second, (key, object)) in (0..).zip(writes) {
            let old = objects.insert((*key).into(), object.clone());
            invariants.check(&objects, old.as_ref(), Some(object), Duration::from_secs(second));
        }
        let reasons = invariants.violations.iter();
        reasons
            .map(|one| one.rsplit(": ").next().unwrap_or_default().to_owned())
            .collect()
    }

    fn owned(kind: &str, name: &str, owner: Value) -> Value {
        json!({
            "kind": kind,
            "metadata": {"name": name, "namespace": "a", "uid": name, "ownerReferences": [owner]},
        })
    }

    fn pod(name: &str, owner: &str, owner_uid: &str) -> Value {
        owned(
            "Pod",
            name,
            json!({"kind": owner, "name": owner_uid, "uid": owner_uid, "controller": true}),
        )
    }

    fn replica_set(replicas: u32) -> Value {
        let mut set = owned(
            "ReplicaSet",
            "set",
            json!({"kind": "Deployment", "uid": "web", "controller": true}),
        );
        set["spec"] = json!({"replicas": replicas});
        set
    }

    #[test]
    fn a_pod_too_many_is_found_but_for_lost_answers() {
        let writes = [
            ("/registry/replicasets/a/set", replica_set(1)),
            ("/registry/pods/a/one", pod("one", "ReplicaSet", "set")),
            ("/registry/pods/a/two", pod("two", "ReplicaSet", "set")),
        ];
        assert_eq!(violations(0, &writes), ["2 pods where 1 are wanted (0 answers lost)"]);
        assert!(violations(1, &writes).is_empty());
    }

    #[test]
    fn a_deployment_beyond_its_surge_is_found() {
        let deployment = json!({
            "kind": "Deployment", "metadata": {"name": "web", "namespace": "a", "uid": "web"},
            "spec": {"replicas": 3, "strategy": {"rollingUpdate": {"maxSurge": "25%"}}},
        });
        let writes = |replicas| {
            [
                ("/registry/deployments/a/web", deployment.clone()),
                ("/registry/replicasets/a/set", replica_set(replicas)),
            ]
        };
        assert!(violations(0, &writes(4)).is_empty());
        assert_eq!(
            violations(0, &writes(5)),
            ["5 pods are asked for by a Deployment of 3 and 1"]
        );
    }

    #[test]
    fn pods_of_a_stateful_set_come_in_order() {
        let pods = ["db-0", "db-1", "db-2"].map(|name| pod(name, "StatefulSet", "db"));
        let [first, second, third] = pods;
        let set = json!({"kind": "StatefulSet", "metadata": {"uid": "db"}, "spec": {"replicas": 3}});
        let writes = [
            ("/registry/statefulsets/a/db", set),
            ("/registry/pods/a/db-0", first),
            ("/registry/pods/a/db-2", third),
            ("/registry/pods/a/db-1", second),
        ];
        assert_eq!(violations(0, &writes), ["is made before db-1"]);
    }

    #[test]
    fn what_goes_back_is_found() {
        let observed = |generation: u32| json!({"metadata": {"uid": "x", "generation": 2}, "status": {"observedGeneration": generation}});
        let writes = [("x", observed(2)), ("x", observed(1)), ("x", observed(3))];
        let expected = [
            "observedGeneration goes from 2 back to 1",
            "generation 3 is observed before it is 2",
        ];
        assert_eq!(violations(0, &writes), expected);
        let bound = |node: &str, phase: &str| json!({"kind": "Pod", "metadata": {"uid": "p"}, "spec": {"nodeName": node}, "status": {"phase": phase}});
        let writes = [
            ("/registry/pods/a/p", bound("one", "Running")),
            ("/registry/pods/a/p", bound("two", "Failed")),
            ("/registry/pods/a/p", bound("two", "Running")),
        ];
        assert_eq!(
            violations(0, &writes),
            ["moves from one to two", "runs again after it was over"]
        );
    }

    #[test]
    fn quotas_budgets_and_completions_are_held() {
        let quota = json!({"kind": "ResourceQuota", "metadata": {"uid": "q"}, "spec": {"hard": {"pods": "1"}}});
        let alone = |name: &str| json!({"kind": "Pod", "metadata": {"name": name, "namespace": "a", "uid": name}});
        let writes = [
            ("/registry/resourcequotas/a/few", quota),
            ("/registry/pods/a/one", alone("one")),
            ("/registry/pods/a/two", alone("two")),
        ];
        assert_eq!(violations(0, &writes), ["2 pods where the quota allows 1"]);
        let budget = json!({"kind": "PodDisruptionBudget", "metadata": {"uid": "b"}, "spec": {"minAvailable": 1}});
        let mut running = alone("one");
        running["status"] = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
        let mut evicted = running.clone();
        evicted["metadata"]["deletionTimestamp"] = "now".into();
        let writes = [
            ("/registry/poddisruptionbudgets/a/guard", budget),
            ("/registry/pods/a/one", running),
            ("/registry/pods/a/one", evicted),
        ];
        assert_eq!(violations(0, &writes), ["0 healthy pods where the budget asks for 1"]);
        let job = |succeeded: u32| json!({"kind": "Job", "metadata": {"uid": "j"}, "spec": {"completions": 2}, "status": {"succeeded": succeeded}});
        let writes = [("j", job(2)), ("j", job(3)), ("j", job(1))];
        assert_eq!(
            violations(0, &writes),
            ["3 of 2 completions", "1 completions instead of 3"]
        );
    }
}
