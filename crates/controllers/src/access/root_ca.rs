//! Every namespace has a ConfigMap `kube-root-ca.crt`, with which pods verify the API server.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::ObjectMeta;
use api::kinds::config_map::CONFIG_MAP;
use api::kinds::namespace::NAMESPACE;
use async_trait::async_trait;
use client::{Cache, Key, Selection};
use serde::Deserialize;
use serde_json::json;

use crate::driver::{Attempt, Reconcile, Row, Setup};
use crate::model::{Namespace, with_metadata};
use crate::plan::{Action, Create, Patch, Plan};

pub const ROW: Row = Row {
    name: "root-ca-certificate-publisher",
    account: "root-ca-cert-publisher",
    queue: "root_ca_cert_publisher",
    workers: 1,
    start,
};

const NAME: &str = "kube-root-ca.crt";
const FIELD: &str = "ca.crt";
const DESCRIPTION: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal \
    endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across \
    distributions of Kubernetes clusters.";

/// Keys are namespaces.
struct Controller {
    root_ca: Option<String>,
    namespaces: Arc<Cache<Namespace>>,
    maps: Arc<Cache<ConfigMap>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ConfigMap {
    metadata: ObjectMeta,
    data: BTreeMap<String, String>,
}

with_metadata!(ConfigMap);

fn start(setup: &mut Setup<'_>) -> Box<dyn Reconcile> {
    let only = Selection {
        field_selector: format!("metadata.name={NAME}"),
        ..Selection::default()
    };
    let namespaces = setup.cache::<Namespace>(&NAMESPACE);
    let maps = setup.selected::<ConfigMap>(&CONFIG_MAP, only);
    setup.watch_own(&namespaces);
    setup.watch(&maps, |map| vec![Key::new("", &map.metadata.namespace)]);
    Box::new(Controller {
        root_ca: setup.settings().root_ca.clone(),
        namespaces,
        maps,
    })
}

#[async_trait]
impl Reconcile for Controller {
    async fn plan(&self, key: &Key, _attempt: &Attempt) -> client::Result<Plan> {
        let namespace = self.namespaces.get_key(key.as_str());
        let (Some(namespace), Some(root_ca)) = (namespace, &self.root_ca) else {
            return Ok(Plan::nothing());
        };
        let map = self.maps.get(key.name(), NAME);
        Ok(plan(&namespace, map.as_deref(), root_ca))
    }
}

fn plan(namespace: &Namespace, map: Option<&ConfigMap>, root_ca: &str) -> Plan {
    let mut plan = Plan::default();
    if namespace.metadata.is_deleting() {
        return plan;
    }
    let data = json!({FIELD: root_ca});
    match map {
        None => {
            let metadata = json!({"name": NAME, "annotations": {"kubernetes.io/description": DESCRIPTION}});
            let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
            let create = Create::new(&CONFIG_MAP, &namespace.metadata.name, map);
            plan.actions.push(Action::Create(create));
        }
        Some(map) if map.data.len() != 1 || map.data.get(FIELD).map(String::as_str) != Some(root_ca) => {
            let mut data = data;
            for other in map.data.keys().filter(|key| *key != FIELD) {
                data[other] = api::Value::Null;
            }
            let patch = Patch::new(&CONFIG_MAP, &map.metadata, json!({"data": data}));
            plan.actions
                .push(Action::Patch(patch.at_revision(&map.metadata).by_update()));
        }
        Some(_) => {}
    }
    plan
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::testing::object;

    fn check(map: Option<&str>, expected: Expect) {
        let namespace = object("metadata: {name: team}");
        let map = map.map(object);
        let text = plan(&namespace, map.as_deref(), "PEM").to_string();
        expected.assert_eq(&text.replace(DESCRIPTION, "…"));
    }

    #[test]
    fn the_map_is_made_and_restored() {
        check(
            None,
            expect![[r#"
                create configmaps in team: {"apiVersion":"v1","data":{"ca.crt":"PEM"},"kind":"ConfigMap","metadata":{"annotations":{"kubernetes.io/description":"…"},"name":"kube-root-ca.crt"}}
            "#]],
        );
        let map = "metadata: {name: kube-root-ca.crt, namespace: team, resourceVersion: '3'}\n";
        check(
            Some(&format!("{map}data: {{ca.crt: OLD, extra: x}}")),
            expect![[r#"
                patch configmaps team/kube-root-ca.crt: {"data":{"ca.crt":"PEM","extra":null},"metadata":{"resourceVersion":"3"}}
            "#]],
        );
        check(Some(&format!("{map}data: {{ca.crt: PEM}}")), expect![""]);
    }
}
