//! Holds namespaces to their quotas. What a request uses is charged in the same transaction that stores its object, on
//! condition that the quotas are as they were read: whoever is later, on whichever server, counts again.

use std::collections::BTreeMap;

use api::kinds::persistent_volume_claim::PERSISTENT_VOLUME_CLAIM;
use api::kinds::pod::POD;
use api::kinds::resource_quota::RESOURCE_QUOTA;
use api::kinds::service::SERVICE;
use api::pod_spec::resources::{Amounts, read};
use api::{Error, Fields, Value, quota};
use async_trait::async_trait;

use crate::{Attributes, Companion, Lookup, Operation, Plugin};

pub struct ResourceQuota;

#[async_trait]
impl Plugin for ResourceQuota {
    fn name(&self) -> &'static str {
        "ResourceQuota"
    }

    fn handles(&self, attributes: &Attributes) -> bool {
        !attributes.namespace.is_empty() && quota::is_measured(attributes.resource) && may_cost(attributes)
    }

    fn companions(&self, attributes: &Attributes, lookup: &dyn Lookup) -> Result<Vec<Companion>, Error> {
        let quotas = lookup.list(&RESOURCE_QUOTA, &attributes.namespace);
        let mut charged = Vec::new();
        for quota in quotas {
            if let Some(used) = charge(attributes, &quota)? {
                charged.push(companion(quota, &used));
            }
        }
        Ok(charged)
    }
}

/// Most objects are counted when they are created; only few can come to use more later.
fn may_cost(attributes: &Attributes) -> bool {
    let is_update = attributes.operation == Operation::Update;
    let has_deadline = |pod: &Value| {
        pod["spec"]["activeDeadlineSeconds"]
            .as_i64()
            .is_some_and(|seconds| seconds >= 0)
    };
    match (attributes.operation, attributes.subresource.as_str()) {
        (Operation::Create, "") => true,
        (Operation::Update, "") if attributes.concerns(&POD) => {
            has_deadline(&attributes.object) != has_deadline(&attributes.old_object)
        }
        (Operation::Update, "") => attributes.concerns(&SERVICE) || attributes.concerns(&PERSISTENT_VOLUME_CLAIM),
        (_, "resize") => is_update && attributes.concerns(&POD),
        (_, "status") => is_update && attributes.concerns(&PERSISTENT_VOLUME_CLAIM),
        _ => false,
    }
}

/// What the quota has used after the request; `None` when that stays the same.
fn charge(attributes: &Attributes, quota: &Value) -> Result<Option<Amounts>, Error> {
    let (resource, name) = (attributes.resource, quota["metadata"].text("name"));
    let (hard, used) = (read(&quota["status"], "hard"), read(&quota["status"], "used"));
    let tracked: Vec<&String> = hard.keys().filter(|limited| quota::tracks(resource, limited)).collect();
    if tracked.is_empty() || !quota::matches(quota, resource, &attributes.object) {
        return Ok(None);
    }
    if attributes.concerns(&POD)
        && let Some(missing) = quota::missing(&attributes.object, tracked.iter().map(|limited| limited.as_str()))
    {
        return Err(attributes.forbidden(format!("failed quota: {name}: {missing}")));
    }
    if tracked.iter().any(|limited| !used.contains_key(*limited)) {
        let names: Vec<&str> = tracked.iter().map(|limited| limited.as_str()).collect();
        return Err(attributes.forbidden(format!(
            "status unknown for quota: {name}, resources: {}",
            names.join(",")
        )));
    }
    let requested = requested(attributes, quota, &hard)?;
    if requested.is_empty() {
        return Ok(None);
    }
    let mut after = used.clone();
    for (resource, amount) in &requested {
        if let Some(held) = after.get_mut(resource) {
            held.add(amount);
        }
    }
    let is_over = |resource: &&String| after.get(*resource) > hard.get(*resource);
    let exceeded: Vec<&String> = requested.keys().filter(is_over).collect();
    // What is written to a status has happened already.
    if !exceeded.is_empty() && attributes.subresource != "status" {
        let [requested, used, limited] = [&requested, &used, &hard].map(|amounts| text(amounts, &exceeded));
        let why = format!("exceeded quota: {name}, requested: {requested}, used: {used}, limited: {limited}");
        return Err(attributes.forbidden(why));
    }
    Ok(Some(after))
}

/// How much more the object uses than before, of what the quota limits.
fn requested(attributes: &Attributes, quota: &Value, hard: &Amounts) -> Result<Amounts, Error> {
    let now = clock::unix_seconds();
    let mut usage = quota::usage(attributes.resource, &attributes.object, now);
    let negative: Vec<&str> = usage
        .iter()
        .filter(|(_, amount)| amount.is_negative())
        .map(|(name, _)| name.as_str())
        .collect();
    if !negative.is_empty() {
        let why = format!("quota usage is negative for resource(s): {}", negative.join(","));
        return Err(attributes.forbidden(why));
    }
    let old = &attributes.old_object;
    if attributes.operation == Operation::Update && quota::matches(quota, attributes.resource, old) {
        for (resource, before) in quota::usage(attributes.resource, old, now) {
            if let Some(amount) = usage.get_mut(&resource) {
                amount.sub(&before);
            }
        }
    }
    usage.retain(|resource, amount| hard.contains_key(resource) && !amount.is_zero() && !amount.is_negative());
    Ok(usage)
}

fn text(amounts: &Amounts, names: &[&String]) -> String {
    let held = names.iter().filter_map(|name| Some((name, amounts.get(*name)?)));
    let parts: Vec<String> = held.map(|(name, amount)| format!("{name}={amount}")).collect();
    parts.join(",")
}

fn companion(mut quota: Value, used: &Amounts) -> Companion {
    let used: BTreeMap<&String, String> = used.iter().map(|(name, amount)| (name, amount.to_string())).collect();
    quota.ensure("status").set("used", serde_json::json!(used));
    Companion {
        resource: &RESOURCE_QUOTA,
        object: quota,
    }
}

#[cfg(test)]
mod tests {
    use api::kinds::config_map::CONFIG_MAP;
    use expect_test::{Expect, expect};
    use serde_json::json;

    use super::*;
    use crate::testing::{Cluster, create, pod, update};

    fn cluster(hard: Value, used: Value) -> Cluster {
        let quota =
            json!({"metadata": {"name": "quota", "namespace": "default"}, "status": {"hard": hard, "used": used}});
        Cluster(vec![(&RESOURCE_QUOTA, quota)])
    }

    fn check(attributes: &Attributes, cluster: &Cluster, expected: Expect) {
        let charged = match ResourceQuota.handles(attributes) {
            true => ResourceQuota.companions(attributes, cluster),
            false => Ok(Vec::new()),
        };
        let text = match charged {
            Ok(companions) => {
                let used = companions.iter().map(|one| one.object["status"]["used"].to_string());
                used.collect::<Vec<_>>().join(" ")
            }
            Err(error) => error.message,
        };
        expected.assert_eq(&text);
    }

    fn asking(cpu: &str) -> Value {
        pod(json!({"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]}))
    }

    #[test]
    fn what_is_left_can_be_used_and_no_more() {
        let cluster = cluster(json!({"cpu": "1", "pods": "5"}), json!({"cpu": "500m", "pods": "1"}));
        check(
            &create(&POD, asking("500m")),
            &cluster,
            expect![[r#"{"cpu":"1","pods":"2"}"#]],
        );
        check(
            &create(&POD, asking("600m")),
            &cluster,
            expect![[
                r#"pods "web" is forbidden: exceeded quota: quota, requested: cpu=600m, used: cpu=500m, limited: cpu=1"#
            ]],
        );
        check(
            &create(&POD, pod(json!({"containers": [{"name": "main"}]}))),
            &cluster,
            expect![[r#"pods "web" is forbidden: failed quota: quota: must specify cpu for: main"#]],
        );
    }

    #[test]
    fn a_quota_that_is_not_counted_yet_lets_nothing_pass() {
        let object = json!({"metadata": {"name": "map", "namespace": "default"}});
        let uncounted = cluster(json!({"count/configmaps": "1"}), json!({}));
        check(
            &create(&CONFIG_MAP, object.clone()),
            &uncounted,
            expect![[r#"configmaps "map" is forbidden: status unknown for quota: quota, resources: count/configmaps"#]],
        );
        check(&create(&SERVICE, object), &uncounted, expect![""]);
    }

    #[test]
    fn a_change_is_charged_for_the_difference() {
        let service = |kind: &str| json!({"metadata": {"name": "web", "namespace": "default"}, "spec": {"type": kind, "ports": [{}]}});
        let cluster = cluster(
            json!({"services": "1", "services.nodeports": "1"}),
            json!({"services": "1", "services.nodeports": "0"}),
        );
        check(
            &update(&SERVICE, service("ClusterIP"), service("NodePort")),
            &cluster,
            expect![[r#"{"services":"1","services.nodeports":"1"}"#]],
        );
        check(&update(&POD, asking("1"), asking("1")), &cluster, expect![""]);
    }
}
