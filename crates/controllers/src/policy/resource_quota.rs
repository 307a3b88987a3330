//! Counts what namespaces use of their quotas. Admission charges what comes; this controller notices what goes, and
//! counts anew what is limited for the first time.
//!
//! A count reads the quota first and the objects after it, all live, and is written on condition that the quota is still
//! the same: a request that is charged meanwhile changes the quota, and the count is made again.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use api::kinds::persistent_volume_claim::PERSISTENT_VOLUME_CLAIM;
use api::kinds::pod::POD;
use api::kinds::resource_claim::RESOURCE_CLAIM;
use api::kinds::resource_quota::RESOURCE_QUOTA;
use api::kinds::service::SERVICE;
use api::pod_spec::resources::{Amounts, read};
use api::{Fields, ObjectMeta, Resource, Value, quota};
use async_trait::async_trait;
use client::when::Moment;
use client::{Cache, Client, Key, ListOptions, Selection, WithMetadata, WorkQueue};
use parking_lot::Mutex;
use schema::quantity::{Format, Quantity};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;

use crate::driver::{Attempt, Reconcile, Row, Setup, Shared};
use crate::model::{Metadata, Pod, with_metadata};
use crate::plan::{Patch, Plan};
use crate::resources::Resources;

pub const ROW: Row = Row {
    name: "resourcequota",
    account: "resourcequota-controller",
    queue: "resourcequota_primary",
    workers: 5,
    start,
};

/// How often everything is counted anew, whatever happened.
const RESYNC: Duration = Duration::from_secs(300);
/// How soon a custom resource is looked for again that nobody serves.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

struct Controller {
    client: Client,
    quotas: Arc<Cache<Quota>>,
    shared: Arc<Shared>,
    queue: Arc<WorkQueue<Key>>,
    resources: Resources,
    /// What is watched because some quota limits it, by qualified name.
    watched: Mutex<HashMap<String, Watched>>,
}

/// Keeps a cache alive whose changes are followed.
#[expect(dead_code, reason = "held for as long as the changes are of interest")]
enum Watched {
    Pods(Arc<Cache<Pod>>),
    Others(Arc<Cache<Metadata>>),
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Quota {
    metadata: ObjectMeta,
    spec: Value,
    status: Value,
}

with_metadata!(Quota);

fn start(setup: &mut Setup<'_>) -> Box<dyn Reconcile> {
    let quotas = setup.cache::<Quota>(&RESOURCE_QUOTA);
    let queue = setup.queue();
    // Charges change the status all the time; they are right already.
    quotas.on_change(move |old, new| {
        let limits = |quota: Option<&Arc<Quota>>| quota.map(|quota| quota.spec["hard"].clone());
        if let Some(quota) = new
            && limits(old) != limits(new)
        {
            queue.add(client::Object::key(&**quota));
        }
    });
    Box::new(Controller {
        client: setup.client(),
        quotas,
        shared: setup.shared(),
        queue: setup.queue(),
        resources: Resources::default(),
        watched: Mutex::default(),
    })
}

#[async_trait]
impl Reconcile for Controller {
    async fn plan(&self, key: &Key, attempt: &Attempt) -> client::Result<Plan> {
        let Some(quota) = self.read(key).await? else {
            return Ok(Plan::nothing());
        };
        let mut used = Amounts::new();
        for resource in limited(&quota) {
            self.watch(resource);
            let sum = self.sum(&quota, resource, attempt.now).await?;
            let names = names_of(&quota, resource);
            used.extend(names.map(|name| (name.clone(), sum.get(name).cloned().unwrap_or(Quantity::ZERO))));
        }
        let mut is_complete = true;
        for name in custom_counts(&quota) {
            match self.custom_count(&quota, name).await? {
                Some(count) => drop(used.insert(name.clone(), count)),
                None => is_complete = false,
            }
        }
        let mut plan = plan(&quota, &used);
        if !is_complete {
            plan.again_after(LOOK_AGAIN);
        }
        Ok(plan)
    }
}

impl Controller {
    async fn read(&self, key: &Key) -> client::Result<Option<Quota>> {
        let by_name = ListOptions {
            field_selector: format!("metadata.name={}", key.name()),
            ..ListOptions::default()
        };
        let api = self
            .client
            .resource(&RESOURCE_QUOTA)
            .in_namespace(key.namespace().to_owned());
        Ok(api.list::<Quota>(&by_name).await?.items.pop())
    }

    /// What all objects of a resource use together.
    async fn sum(&self, quota: &Quota, resource: &'static Resource, now: Moment) -> client::Result<Amounts> {
        let api = self
            .client
            .resource(resource)
            .in_namespace(quota.metadata.namespace.clone());
        if !is_weighed(resource) {
            // Of most kinds only the number counts, and no scope has any of them.
            let has_scopes = !is_in_scope(quota, resource, &Value::Null);
            let count = if has_scopes {
                0
            } else {
                api.list::<IgnoredAny>(&ListOptions::default()).await?.items.len()
            };
            let mut usage = quota::usage(resource, &Value::Null, now.seconds());
            usage.values_mut().for_each(|one| *one = number(count));
            return Ok(usage);
        }
        let mut sum = Amounts::new();
        for object in api.list::<Value>(&ListOptions::default()).await?.items {
            if !is_in_scope(quota, resource, &object) {
                continue;
            }
            for (name, amount) in quota::usage(resource, &object, now.seconds()) {
                sum.entry(name).or_insert(Quantity::ZERO).add(&amount);
            }
        }
        Ok(sum)
    }

    /// How many objects there are of a custom resource; none is said of one that nobody serves.
    async fn custom_count(&self, quota: &Quota, name: &str) -> client::Result<Option<Quantity>> {
        let is_counted = |resource: &Resource| quota::count_name(resource) == name && quota::is_measured(resource);
        let Some(resource) = self.resources.find_where(&self.client, is_counted).await? else {
            return Ok(None);
        };
        self.watch(resource);
        if !is_in_scope(quota, resource, &Value::Null) {
            return Ok(Some(number(0)));
        }
        let api = self.client.resource(resource);
        let api = api.in_namespace(quota.metadata.namespace.clone());
        match api.list::<IgnoredAny>(&ListOptions::default()).await {
            Ok(list) => Ok(Some(number(list.items.len()))),
            Err(error) if error.is_not_found() => {
                // Its definition is gone.
                self.resources.forget();
                self.watched.lock().remove(&resource.qualified());
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Follows a resource from the first quota on that limits it.
    fn watch(&self, resource: &'static Resource) {
        let mut watched = self.watched.lock();
        if watched.contains_key(&resource.qualified()) {
            return;
        }
        let cache = if std::ptr::eq(resource, &POD) {
            let pods = self.shared.informers.selected::<Pod>(resource, Selection::default());
            self.follow(&pods, |old, new| {
                old.is_finished() != new.is_finished() || old.metadata.is_deleting() != new.metadata.is_deleting()
            });
            Watched::Pods(pods)
        } else {
            let others = self
                .shared
                .informers
                .selected::<Metadata>(resource, Selection::default());
            let is_weighed = is_weighed(resource);
            self.follow(&others, move |_, _| is_weighed);
            Watched::Others(others)
        };
        watched.insert(resource.qualified(), cache);
    }

    /// Counts again when an object goes, or changes in a way that `matters`.
    fn follow<T: WithMetadata>(&self, cache: &Cache<T>, matters: impl Fn(&T, &T) -> bool + Send + Sync + 'static) {
        let (queue, quotas) = (self.queue.clone(), Arc::downgrade(&self.quotas));
        cache.on_change(move |old, new| {
            let (Some(old), Some(quotas)) = (old, quotas.upgrade()) else {
                return;
            };
            if new.is_none_or(|new| matters(old, new)) {
                for quota in quotas.list(&old.metadata().namespace) {
                    queue.add(client::Object::key(&*quota));
                }
            }
        });
    }
}

/// The resources that the quota limits something of.
fn limited(quota: &Quota) -> impl Iterator<Item = &'static Resource> + '_ {
    let all = api::kinds::all()
        .iter()
        .copied()
        .filter(|resource| quota::is_measured(resource));
    let mut seen: Vec<(&str, &str)> = Vec::new();
    all.filter(move |resource| {
        // A kind that is served in several versions is counted once.
        let name = (resource.group, resource.plural);
        let is_new = !seen.contains(&name);
        seen.push(name);
        is_new && names_of(quota, resource).next().is_some()
    })
}

/// The counts that are of no built-in resource.
fn custom_counts(quota: &Quota) -> Vec<&String> {
    let names = quota.spec.entries("hard").map(|(name, _)| name);
    let is_custom = |name: &&String| {
        let is_built_in = |resource: &&'static Resource| quota::tracks(resource, name);
        name.starts_with("count/") && !api::kinds::all().iter().any(is_built_in)
    };
    names.filter(is_custom).collect()
}

fn names_of<'a>(quota: &'a Quota, resource: &'a Resource) -> impl Iterator<Item = &'a String> + 'a {
    let names = quota.spec.entries("hard").map(|(name, _)| name);
    names.filter(|name| quota::tracks(resource, name))
}

fn is_in_scope(quota: &Quota, resource: &Resource, object: &Value) -> bool {
    quota::matches(&json!({"spec": quota.spec}), resource, object)
}

/// Whether objects of this resource use different amounts.
fn is_weighed(resource: &Resource) -> bool {
    [&POD, &SERVICE, &PERSISTENT_VOLUME_CLAIM, &RESOURCE_CLAIM]
        .iter()
        .any(|weighed| std::ptr::eq(*weighed, resource))
}

fn number(count: usize) -> Quantity {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    Quantity::new(count, Format::DecimalSi)
}

fn plan(quota: &Quota, used: &Amounts) -> Plan {
    let mut plan = Plan::default();
    plan.again_after(RESYNC);
    let hard = read(&quota.spec, "hard");
    let (is_hard, is_used) = (
        read(&quota.status, "hard") == hard,
        read(&quota.status, "used") == *used,
    );
    if is_hard && is_used && quota.status.has("hard") {
        return plan;
    }
    let status = json!({"hard": replaced(&quota.status["hard"], &hard), "used": replaced(&quota.status["used"], used)});
    let mut patch = Patch::new(&RESOURCE_QUOTA, &quota.metadata, json!({"status": status}))
        .at_revision(&quota.metadata)
        .by_update();
    patch.subresource = "status";
    plan.status = Some(patch);
    plan
}

/// The amounts as a patch: what is no longer among them is removed.
fn replaced(known: &Value, amounts: &Amounts) -> Value {
    let gone = known
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, _)| (name.clone(), Value::Null));
    let mut patch: BTreeMap<String, Value> = gone.collect();
    patch.extend(
        amounts
            .iter()
            .map(|(name, amount)| (name.clone(), amount.to_string().into())),
    );
    json!(patch)
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::testing::object;

    fn check(spec: &str, status: &str, used: &str, expected: Expect) {
        let quota = object::<Quota>(&format!(
            "metadata: {{name: quota, namespace: default, resourceVersion: '7'}}\nspec: {spec}\nstatus: {status}"
        ));
        let used = read(&json!({"used": serde_json::from_str::<Value>(used).unwrap()}), "used");
        expected.assert_eq(&plan(&quota, &used).to_string());
    }

    #[test]
    fn the_status_says_what_is_limited_and_used() {
        let spec = "{hard: {pods: '5', cpu: '1'}}";
        check(
            spec,
            "{hard: {pods: '4', secrets: '1'}, used: {pods: '1', secrets: '1'}}",
            r#"{"pods": "2", "cpu": "500m"}"#,
            expect![[r#"
                patch resourcequotas default/quota/status: {"metadata":{"resourceVersion":"7"},"status":{"hard":{"cpu":"1","pods":"5","secrets":null},"used":{"cpu":"500m","pods":"2","secrets":null}}}
                again after 300s
            "#]],
        );
        let right = "{hard: {pods: '5', cpu: 1000m}, used: {pods: '2', cpu: 500m}}";
        check(
            spec,
            right,
            r#"{"pods": "2", "cpu": "500m"}"#,
            expect![[r#"
            again after 300s
        "#]],
        );
    }

    #[test]
    fn a_quota_names_the_resources_to_count() {
        let quota = object::<Quota>("spec: {hard: {count/deployments.apps: '1', requests.cpu: '1', secrets: '3'}}");
        let names: Vec<String> = limited(&quota).map(Resource::qualified).collect();
        expect!["pods secrets deployments.apps"].assert_eq(&names.join(" "));
        let quota = object::<Quota>("spec: {hard: {count/pods: '1', count/foos.example.com: '1', secrets: '3'}}");
        assert_eq!(custom_counts(&quota), ["count/foos.example.com"]);
    }
}
