//! ValidatingAdmissionPolicies are told in their status which of their expressions do not fit the kinds they match.

use std::sync::Arc;

use api::ObjectMeta;
use api::kinds::custom_resource_definition::CUSTOM_RESOURCE_DEFINITION;
use api::kinds::validating_admission_policy::VALIDATING_ADMISSION_POLICY;
use api::policy_types::{MatchedResource, TypedKind, expression_warnings, matched_resources};
use api::{Fields, Value};
use async_trait::async_trait;
use client::{Cache, Client, Key, List, ListOptions};
use serde::Deserialize;
use serde_json::json;

use crate::driver::{Attempt, Reconcile, Row, Setup};
use crate::model::with_metadata;
use crate::plan::{Patch, Plan};

pub const ROW: Row = Row {
    name: "validatingadmissionpolicy-status",
    account: "validatingadmissionpolicy-status-controller",
    queue: "validatingadmissionpolicy-status",
    workers: 1,
    start,
};

struct Controller {
    policies: Arc<Cache<Policy>>,
    /// Reads as the controller manager, which may list everything.
    reader: Client,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Policy {
    metadata: ObjectMeta,
    spec: Value,
    status: Value,
}

with_metadata!(Policy);

fn start(setup: &mut Setup<'_>) -> Box<dyn Reconcile> {
    let policies = setup.cache::<Policy>(&VALIDATING_ADMISSION_POLICY);
    setup.watch_own(&policies);
    let reader = setup.shared().informers.client().clone();
    Box::new(Controller { policies, reader })
}

#[async_trait]
impl Reconcile for Controller {
    async fn plan(&self, key: &Key, _attempt: &Attempt) -> client::Result<Plan> {
        let Some(policy) = self.policies.get_key(key.as_str()) else {
            return Ok(Plan::nothing());
        };
        if is_checked(&policy) {
            return Ok(Plan::nothing());
        }
        let object = json!({"spec": policy.spec});
        let mut kinds = Vec::new();
        for resource in matched_resources(&object) {
            kinds.extend(self.kind_of(&resource).await?);
        }
        kinds.sort_by(|one, other| {
            (&one.group, &one.version, &one.kind).cmp(&(&other.group, &other.version, &other.kind))
        });
        let params = self.params_of(&policy.spec["paramKind"]).await?;
        let warnings = expression_warnings(&object, &kinds, params.as_ref());
        Ok(plan(&policy.metadata, warnings))
    }
}

impl Controller {
    async fn kind_of(&self, resource: &MatchedResource) -> client::Result<Option<TypedKind>> {
        if let Some(kind) = TypedKind::built_in(resource) {
            return Ok(Some(kind));
        }
        let name = format!("{}.{}", resource.plural, resource.group);
        let definitions = self.definitions(&format!("metadata.name={name}")).await?;
        let found = definitions.first();
        Ok(found.and_then(|definition| TypedKind::defined(definition, &resource.version)))
    }

    /// The kind of a policy's parameters.
    async fn params_of(&self, kind: &Value) -> client::Result<Option<TypedKind>> {
        let text = kind.text("apiVersion");
        let (group, version) = text.split_once('/').unwrap_or(("", text));
        let name = kind.text("kind");
        if name.is_empty() {
            return Ok(None);
        }
        if let Some(kind) = TypedKind::of(group, version, name) {
            return Ok(Some(kind));
        }
        let is_wanted = |found: &&Value| found["spec"]["group"] == group && found["spec"]["names"]["kind"] == name;
        let definitions = self.definitions("").await?;
        let found = definitions.iter().find(is_wanted);
        Ok(found.and_then(|definition| TypedKind::defined(definition, version)))
    }

    async fn definitions(&self, field_selector: &str) -> client::Result<Vec<Value>> {
        let options = ListOptions {
            field_selector: field_selector.to_owned(),
            ..ListOptions::default()
        };
        let list: List<Value> = self.reader.resource(&CUSTOM_RESOURCE_DEFINITION).list(&options).await?;
        Ok(list.items)
    }
}

/// Whether the status is about the policy as it is.
fn is_checked(policy: &Policy) -> bool {
    policy.status["observedGeneration"].as_i64().unwrap_or(0) >= policy.metadata.generation
}

fn plan(metadata: &ObjectMeta, warnings: Vec<Value>) -> Plan {
    // A check without warnings is written too: it says that there was one.
    let warnings = if warnings.is_empty() {
        Value::Null
    } else {
        warnings.into()
    };
    let status = json!({"observedGeneration": metadata.generation, "typeChecking": {"expressionWarnings": warnings}});
    let mut patch = Patch::new(&VALIDATING_ADMISSION_POLICY, metadata, json!({"status": status})).at_revision(metadata);
    patch.subresource = "status";
    Plan {
        status: Some(patch),
        ..Plan::default()
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::testing::object;

    #[test]
    fn a_check_is_written_once_for_each_generation() {
        let policy: Arc<Policy> =
            object("metadata: {name: p, resourceVersion: '3', generation: 2}\nstatus: {observedGeneration: 1}");
        assert!(!is_checked(&policy));
        expect![[r#"
            patch validatingadmissionpolicies p/status: {"metadata":{"resourceVersion":"3"},"status":{"observedGeneration":2,"typeChecking":{"expressionWarnings":null}}}
        "#]]
        .assert_eq(&plan(&policy.metadata, Vec::new()).to_string());
        let checked: Arc<Policy> = object("metadata: {name: p, generation: 2}\nstatus: {observedGeneration: 2}");
        assert!(is_checked(&checked));
    }
}
