//! Every namespace has a service account named `default`.

use std::sync::Arc;

use api::kinds::namespace::NAMESPACE;
use api::kinds::service_account::SERVICE_ACCOUNT;
use async_trait::async_trait;
use client::{Cache, Key, Selection};
use serde_json::json;

use crate::driver::{Attempt, Reconcile, Row, Setup};
use crate::model::{Metadata, Namespace};
use crate::plan::{Action, Create, Plan};

pub const ROW: Row = Row {
    name: "serviceaccount",
    account: "service-account-controller",
    queue: "serviceaccount",
    workers: 1,
    start,
};

const NAME: &str = "default";

/// Keys are namespaces.
struct Controller {
    namespaces: Arc<Cache<Namespace>>,
    accounts: Arc<Cache<Metadata>>,
}

fn start(setup: &mut Setup<'_>) -> Box<dyn Reconcile> {
    let only = Selection {
        field_selector: format!("metadata.name={NAME}"),
        ..Selection::default()
    };
    let namespaces = setup.cache::<Namespace>(&NAMESPACE);
    let accounts = setup.selected::<Metadata>(&SERVICE_ACCOUNT, only);
    setup.watch_own(&namespaces);
    setup.watch(&accounts, |account| vec![Key::new("", &account.metadata.namespace)]);
    Box::new(Controller { namespaces, accounts })
}

#[async_trait]
impl Reconcile for Controller {
    async fn plan(&self, key: &Key, _attempt: &Attempt) -> client::Result<Plan> {
        let Some(namespace) = self.namespaces.get_key(key.as_str()) else {
            return Ok(Plan::nothing());
        };
        let exists = self.accounts.get(key.name(), NAME).is_some();
        Ok(plan(&namespace, exists))
    }
}

fn plan(namespace: &Namespace, exists: bool) -> Plan {
    let mut plan = Plan::default();
    if !exists && !namespace.metadata.is_deleting() {
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAME}});
        let mut create = Create::new(&SERVICE_ACCOUNT, &namespace.metadata.name, account);
        create.exists_is_fine = true;
        plan.actions.push(Action::Create(create));
    }
    plan
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::testing::object;

    #[test]
    fn a_namespace_gets_its_account_unless_it_is_going_away() {
        let namespace = object("metadata: {name: team}");
        expect![[r#"
            create serviceaccounts in team: {"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default"}}
        "#]]
        .assert_eq(&plan(&namespace, false).to_string());
        assert_eq!(plan(&namespace, true).to_string(), "");
        let going = object("metadata: {name: team, deletionTimestamp: '2026-01-01T12:00:00Z'}");
        assert_eq!(plan(&going, false).to_string(), "");
    }
}
