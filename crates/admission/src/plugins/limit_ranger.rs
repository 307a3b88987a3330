//! Holds pods and claims to the limits of their namespace, and fills in its defaults.

use api::kinds::limit_range::LIMIT_RANGE;
use api::kinds::persistent_volume_claim::PERSISTENT_VOLUME_CLAIM;
use api::kinds::pod::POD;
use api::pod_spec::resources::{Amounts, of_pod, read};
use api::{Error, Fields, Value};
use async_trait::async_trait;
use schema::quantity::Quantity;

use crate::{Attributes, Lookup, Operation, Plugin};

pub struct LimitRanger;

const ANNOTATION: &str = "kubernetes.io/limit-ranger";

#[async_trait]
impl Plugin for LimitRanger {
    fn name(&self) -> &'static str {
        "LimitRanger"
    }

    fn handles(&self, attributes: &Attributes) -> bool {
        match attributes.operation {
            Operation::Create => attributes.is(&POD, "") || attributes.is(&PERSISTENT_VOLUME_CLAIM, ""),
            Operation::Update => attributes.is(&POD, "resize") || attributes.is(&PERSISTENT_VOLUME_CLAIM, ""),
            Operation::Delete | Operation::Connect => false,
        }
    }

    async fn mutate(&self, attributes: &mut Attributes, lookup: &dyn Lookup) -> Result<(), Error> {
        // A resize says what it wants; a claim has no defaults.
        if attributes.operation == Operation::Create && attributes.concerns(&POD) {
            for range in lookup.list(&LIMIT_RANGE, &attributes.namespace) {
                fill(&mut attributes.object, &range);
            }
        }
        Ok(())
    }

    async fn validate(&self, attributes: &Attributes, lookup: &dyn Lookup) -> Result<(), Error> {
        for range in lookup.list(&LIMIT_RANGE, &attributes.namespace) {
            let mut problems = Vec::new();
            for limit in range["spec"].list("limits") {
                if attributes.concerns(&POD) {
                    check_pod(limit, &attributes.object["spec"], &mut problems);
                } else {
                    check_claim(limit, &attributes.object["spec"], &mut problems);
                }
            }
            match problems.as_slice() {
                [] => {}
                [one] => return Err(attributes.forbidden(one)),
                many => return Err(attributes.forbidden(format!("[{}]", many.join(", ")))),
            }
        }
        Ok(())
    }
}

/// Gives containers the range's default requests and limits, and notes it in an annotation.
fn fill(pod: &mut Value, range: &Value) {
    let mut notes = Vec::new();
    let limits = || {
        range["spec"]
            .list("limits")
            .iter()
            .filter(|limit| limit.text("type") == "Container")
    };
    for (list, title) in [("containers", "container"), ("initContainers", "init container")] {
        for container in pod.ensure("spec").list_mut(list) {
            let name = container.text("name").to_owned();
            let mut set = |field: &str, defaults: &str| -> Vec<String> {
                let mut names = Vec::new();
                for (resource, quantity) in limits().flat_map(|limit| limit.entries(defaults)) {
                    let amounts = container.ensure("resources").ensure(field);
                    if !amounts.has(resource) {
                        amounts.set(resource, quantity.clone());
                        names.push(resource.clone());
                    }
                }
                names.sort_unstable();
                names
            };
            let limited = set("limits", "default");
            let requested = set("requests", "defaultRequest");
            for (names, what) in [(requested, "request"), (limited, "limit")] {
                if !names.is_empty() {
                    notes.push(format!("{} {what} for {title} {name}", names.join(", ")));
                }
            }
        }
    }
    if !notes.is_empty() {
        let note = format!("LimitRanger plugin set: {}", notes.join("; "));
        pod.ensure("metadata").ensure("annotations").set(ANNOTATION, note);
    }
}

fn check_pod(limit: &Value, spec: &Value, problems: &mut Vec<String>) {
    let kind = limit.text("type");
    let subjects: Vec<(Amounts, Amounts)> = match kind {
        "Container" => spec
            .list("containers")
            .iter()
            .chain(spec.list("initContainers"))
            .map(|container| {
                (
                    read(&container["resources"], "requests"),
                    read(&container["resources"], "limits"),
                )
            })
            .collect(),
        "Pod" => vec![(of_pod(spec, "requests"), of_pod(spec, "limits"))],
        _ => Vec::new(),
    };
    for (requests, limits) in subjects {
        for (resource, least) in &read(limit, "min") {
            problems.extend(check_least(
                kind,
                resource,
                least,
                requests.get(resource),
                limits.get(resource),
            ));
        }
        for (resource, most) in &read(limit, "max") {
            problems.extend(check_most(
                kind,
                resource,
                most,
                requests.get(resource),
                limits.get(resource),
            ));
        }
        for (resource, ratio) in &read(limit, "maxLimitRequestRatio") {
            problems.extend(check_ratio(
                kind,
                resource,
                ratio,
                requests.get(resource),
                limits.get(resource),
            ));
        }
    }
}

fn check_claim(limit: &Value, spec: &Value, problems: &mut Vec<String>) {
    let kind = limit.text("type");
    if kind != "PersistentVolumeClaim" {
        return;
    }
    let requests = read(&spec["resources"], "requests");
    for (resource, least) in &read(limit, "min") {
        problems.extend(check_least(kind, resource, least, requests.get(resource), None));
    }
    for (resource, most) in &read(limit, "max") {
        let usage = format!("maximum {resource} usage per {kind} is {most}");
        problems.extend(match requests.get(resource) {
            None => Some(format!("{usage}.  No request is specified")),
            Some(request) if request > most => Some(format!("{usage}, but request is {request}")),
            Some(_) => None,
        });
    }
}

type DefinedAmount<'a> = Option<&'a Quantity>;

fn check_least(
    kind: &str,
    resource: &str,
    least: &Quantity,
    request: DefinedAmount,
    limit: DefinedAmount,
) -> Option<String> {
    let usage = format!("minimum {resource} usage per {kind} is {least}");
    match (request, limit) {
        (None, _) => Some(format!("{usage}.  No request is specified")),
        (Some(request), _) if request < least => Some(format!("{usage}, but request is {request}")),
        (_, Some(limit)) if limit < least => Some(format!("{usage}, but limit is {limit}")),
        _ => None,
    }
}

fn check_most(
    kind: &str,
    resource: &str,
    most: &Quantity,
    request: DefinedAmount,
    limit: DefinedAmount,
) -> Option<String> {
    let usage = format!("maximum {resource} usage per {kind} is {most}");
    match (request, limit) {
        (_, None) => Some(format!("{usage}.  No limit is specified")),
        (_, Some(limit)) if limit > most => Some(format!("{usage}, but limit is {limit}")),
        (Some(request), _) if request > most => Some(format!("{usage}, but request is {request}")),
        _ => None,
    }
}

fn check_ratio(
    kind: &str,
    resource: &str,
    most: &Quantity,
    request: DefinedAmount,
    limit: DefinedAmount,
) -> Option<String> {
    let usage = format!("{resource} max limit to request ratio per {kind} is {most}");
    let some = |held: DefinedAmount| held.map(Quantity::to_f64).filter(|amount| *amount != 0.0);
    let Some(request) = some(request) else {
        return Some(format!("{usage}, but no request is specified or request is 0"));
    };
    let Some(limit) = some(limit) else {
        return Some(format!("{usage}, but no limit is specified or limit is 0"));
    };
    let ratio = limit / request;
    (ratio > most.to_f64()).then(|| format!("{usage}, but provided ratio is {ratio:.6}"))
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;
    use crate::testing::{Cluster, create, pod, run};

    fn cluster(limit: Value) -> Cluster {
        let range = json!({"metadata": {"name": "range", "namespace": "default"}, "spec": {"limits": [limit]}});
        Cluster(vec![(&LIMIT_RANGE, range)])
    }

    #[test]
    fn containers_get_the_defaults_of_their_namespace() {
        let limit =
            json!({"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "500m", "memory": "1Gi"}});
        let spec = json!({"containers": [{"name": "main", "resources": {"requests": {"memory": "2Gi"}}}]});
        let admitted = run(&LimitRanger, create(&POD, pod(spec)), &cluster(limit)).unwrap();
        expect![[r#"{"limits":{"cpu":"1"},"requests":{"cpu":"500m","memory":"2Gi"}}"#]]
            .assert_eq(&admitted["spec"]["containers"][0]["resources"].to_string());
        expect!["LimitRanger plugin set: cpu request for container main; cpu limit for container main"]
            .assert_eq(admitted["metadata"]["annotations"].text(ANNOTATION));
    }

    #[test]
    fn what_is_too_much_or_too_little_is_told() {
        let limit = json!({"type": "Container", "min": {"cpu": "100m"}, "max": {"memory": "1Gi"}});
        let admit = |resources: Value| {
            let spec = json!({"containers": [{"name": "main", "resources": resources}]});
            run(&LimitRanger, create(&POD, pod(spec)), &cluster(limit.clone()))
        };
        let fine = json!({"requests": {"cpu": "100m"}, "limits": {"memory": "1Gi"}});
        assert!(admit(fine).is_ok());
        expect![[r#"pods "web" is forbidden: [minimum cpu usage per Container is 100m, but request is 50m, maximum memory usage per Container is 1Gi.  No limit is specified]"#]]
            .assert_eq(&admit(json!({"requests": {"cpu": "50m"}})).unwrap_err());
    }

    #[test]
    fn claims_and_ratios_are_bounded() {
        let limit = json!({"type": "PersistentVolumeClaim", "max": {"storage": "10Gi"}});
        let claim = json!({"metadata": {"name": "data", "namespace": "default"},
                           "spec": {"resources": {"requests": {"storage": "20Gi"}}}});
        expect![[r#"persistentvolumeclaims "data" is forbidden: maximum storage usage per PersistentVolumeClaim is 10Gi, but request is 20Gi"#]]
            .assert_eq(&run(&LimitRanger, create(&PERSISTENT_VOLUME_CLAIM, claim), &cluster(limit)).unwrap_err());
        let limit = json!({"type": "Pod", "maxLimitRequestRatio": {"cpu": "2"}});
        let resources = json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "500m"}});
        let greedy = create(
            &POD,
            pod(json!({"containers": [{"name": "main", "resources": resources}]})),
        );
        expect![[
            r#"pods "web" is forbidden: cpu max limit to request ratio per Pod is 2, but provided ratio is 5.000000"#
        ]]
        .assert_eq(&run(&LimitRanger, greedy, &cluster(limit)).unwrap_err());
    }
}
