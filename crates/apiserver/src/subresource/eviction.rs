//! Eviction: a deletion that asks the pod's disruption budgets first.

use admission::{Lookup, Operation};
use api::selector::Selector;
use api::{Error, LabelSelector, Reason, Value, conditions, kinds};
use http::{Response, StatusCode};
use registry::{DeleteOptions, Part, Scope, Stored, WriteOptions, check_namespace, check_preconditions};
use serde::Deserialize;

use crate::body::Body;
use crate::call::{Call, success};
use crate::decode::{self, Expected};
use crate::options;

pub async fn run(call: &Call<'_>) -> Result<Response<Body>, Error> {
    let mut options = options::write_options(call.user.clone(), &call.query)?;
    let expected = Expected::named(version_of(&call.body), "Eviction", "policy/v1.Eviction")?;
    let (mut eviction, _) = decode::object(expected, call.headers, &call.body, options.validation)?;
    check_namespace(&mut eviction, call.served.resource, call.namespace)?;
    if eviction["metadata"]["name"].as_str().unwrap_or_default() != call.info.name {
        return Err(Error::bad_request("name in URL does not match name in Eviction object"));
    }
    let (registry, name) = (&call.server.registry, &call.info.name);
    let part = Part {
        operation: Operation::Create,
        name,
        subresource: &call.info.subresource,
        object: eviction,
        old_object: Value::Null,
    };
    let eviction = registry
        .admit_part(&call.served, call.namespace, part, &options)
        .await?;
    let mut delete = match eviction.get("deleteOptions").filter(|options| options.is_object()) {
        Some(given) => DeleteOptions::deserialize(given).map_err(|error| Error::bad_request(error.to_string()))?,
        None => DeleteOptions::default(),
    };
    options::check_delete_options(&delete)?;
    options.dry_run |= delete.is_dry_run();
    if options.dry_run {
        delete.dry_run = vec!["All".to_owned()];
    }
    let namespace = call.namespace;
    let pod = registry.get(&call.served, namespace, name).await?.value(&call.served)?;
    // A pod that is not the one that was meant costs its budget nothing.
    check_preconditions(&call.served, name, &pod, &delete)?;
    if needs_budget(&pod) {
        spend_budget(call, &pod, &options).await?;
    }
    let options = options.after_admission();
    let marked = mark_target(call, &pod, &options).await?;
    // The mark is our own doing: what was asked of the pod's revision is asked of the one with the mark.
    if let Some(revision) = delete
        .preconditions
        .as_mut()
        .and_then(|wanted| wanted.resource_version.as_mut())
        && !options.dry_run
    {
        *revision = marked.revision.to_string();
    }
    registry
        .delete(&call.served, namespace, name, &delete, &options)
        .await?;
    Ok(success(StatusCode::CREATED))
}

/// Evictions are older than the version of their group, and still understood in the one before.
fn version_of(body: &[u8]) -> &'static str {
    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    struct Version {
        api_version: String,
    }
    let json = || serde_json::from_slice::<Version>(body).unwrap_or_default().api_version;
    let found = match schema::envelope::decode(body) {
        Ok(envelope) => envelope.api_version.to_owned(),
        Err(_) => json(),
    };
    match found.as_str() {
        "policy/v1beta1" => "policy/v1beta1",
        _ => "policy/v1",
    }
}

/// Pods that do not run, or are on their way out, cost nobody anything.
fn needs_budget(pod: &Value) -> bool {
    !pod["metadata"]["deletionTimestamp"].is_string()
        && !matches!(
            pod["status"]["phase"].as_str(),
            Some("Succeeded" | "Failed" | "Pending")
        )
}

/// Tells on the pod why it goes: whoever counts failures need not count this one.
async fn mark_target(call: &Call<'_>, pod: &Value, options: &WriteOptions) -> Result<Stored, Error> {
    let mut change = |current: &Value| {
        if current["metadata"]["uid"] != pod["metadata"]["uid"] {
            let name = call.info.name.as_str();
            return Err(Error::conflict(call.served.resource, name, "the pod was replaced"));
        }
        let mut marked = current.clone();
        let condition = serde_json::json!({
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
        });
        let now = schema::time::format(schema::time::now());
        conditions::set_condition(&mut marked, condition, &now);
        Ok(marked)
    };
    let (namespace, name) = (call.namespace, &call.info.name);
    let registry = &call.server.registry;
    registry
        .update(&call.served, namespace, name, Scope::Status, options, &mut change)
        .await
}

/// Whether a pod that is not ready may go without spending anything: nobody loses by it.
fn is_free(budget: &Value, pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    let is_ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
    if conditions.is_some_and(|conditions| conditions.iter().any(is_ready)) {
        return false;
    }
    let count = |field: &str| budget["status"][field].as_i64().unwrap_or(0);
    budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
        || (count("desiredHealthy") > 0 && count("currentHealthy") >= count("desiredHealthy"))
}

async fn spend_budget(call: &Call<'_>, pod: &Value, options: &WriteOptions) -> Result<(), Error> {
    let registry = &call.server.registry;
    let namespace = call.namespace;
    let budgets = registry
        .lookup()
        .list(&kinds::pod_disruption_budget::POD_DISRUPTION_BUDGET, namespace);
    let covering: Vec<&Value> = budgets.iter().filter(|budget| covers(budget, pod)).collect();
    let budget = match covering.as_slice() {
        [] => return Ok(()),
        [budget] => *budget,
        _ => {
            return Err(Error::internal(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            ));
        }
    };
    if is_free(budget, pod) {
        return Ok(());
    }
    let budget_name = budget["metadata"]["name"].as_str().unwrap_or_default();
    let served = registry.served(&kinds::pod_disruption_budget::POD_DISRUPTION_BUDGET)?;
    let pod_name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let mut change = |budget: &Value| {
        let count = |field: &str| budget["status"][field].as_i64().unwrap_or(0);
        if count("observedGeneration") < budget["metadata"]["generation"].as_i64().unwrap_or(0) {
            return Err(refused(format!(
                "The disruption budget {budget_name} is still being processed by the server."
            )));
        }
        let allowed = count("disruptionsAllowed");
        if allowed <= 0 {
            let (needed, healthy) = (count("desiredHealthy"), count("currentHealthy"));
            return Err(refused(format!(
                "The disruption budget {budget_name} needs {needed} healthy pods and has {healthy} currently"
            )));
        }
        let mut spent = budget.clone();
        spent["status"]["disruptionsAllowed"] = (allowed - 1).into();
        spent["status"]["disruptedPods"][pod_name] = schema::time::format(schema::time::now()).into();
        Ok(spent)
    };
    registry
        .update(served, namespace, budget_name, Scope::Status, options, &mut change)
        .await?;
    Ok(())
}

fn covers(budget: &Value, pod: &Value) -> bool {
    let Ok(selector) = LabelSelector::deserialize(&budget["spec"]["selector"]) else {
        return false;
    };
    let labels = &pod["metadata"]["labels"];
    Selector::from(&selector).matches_with(|key| labels[key].as_str())
}

fn refused(why: String) -> Error {
    let mut error = Error::new(
        Reason::TooManyRequests,
        "Cannot evict pod as it would violate the pod's disruption budget.",
    );
    error.details().causes.push(api::Cause {
        reason: "DisruptionBudget".to_owned(),
        message: why,
        field: String::new(),
    });
    error
}
