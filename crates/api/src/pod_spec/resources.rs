//! What a pod needs as a whole, from what its containers say.

use std::collections::BTreeMap;

use schema::quantity::Quantity;

use crate::{Fields, Value};

/// Amounts by resource name.
pub type Amounts = BTreeMap<String, Quantity>;

/// The sum over the containers that run together, or what an init container needs while it runs, whichever is more.
/// `list` is `requests` or `limits`. What the pod says for itself as a whole wins.
pub fn of_pod(spec: &Value, list: &str) -> Amounts {
    let mut amounts = of_containers(spec, list);
    for (resource, quantity) in read(&spec["resources"], list) {
        if is_pod_level(&resource) {
            amounts.insert(resource, quantity);
        }
    }
    amounts
}

/// Like [`of_pod`], without what the pod says for itself.
pub fn of_containers(spec: &Value, list: &str) -> Amounts {
    let mut running = Amounts::new();
    for container in spec.list("containers") {
        add(&mut running, &read(&container["resources"], list));
    }
    let mut sidecars = Amounts::new();
    let mut starting = Amounts::new();
    for container in spec.list("initContainers") {
        let mut needed = read(&container["resources"], list);
        let is_sidecar = container.text("restartPolicy") == "Always";
        if is_sidecar {
            add(&mut running, &needed);
            add(&mut sidecars, &needed);
        }
        // Of what it does not ask for itself, no more is needed than before.
        for (resource, quantity) in &mut needed {
            match sidecars.get(resource) {
                Some(sum) if is_sidecar => quantity.clone_from(sum),
                Some(sum) => quantity.add(sum),
                None => {}
            }
        }
        raise(&mut starting, &needed);
    }
    raise(&mut running, &starting);
    running
}

/// The amounts of one `resources`; what cannot be read as an amount is left out.
pub fn read(resources: &Value, list: &str) -> Amounts {
    let entries = resources.entries(list);
    entries
        .filter_map(|(name, text)| Some((name.clone(), text.as_str()?.parse().ok()?)))
        .collect()
}

/// The resources that a pod can ask for as a whole.
pub fn is_pod_level(resource: &str) -> bool {
    matches!(resource, "cpu" | "memory") || resource.starts_with("hugepages-")
}

fn add(to: &mut Amounts, more: &Amounts) {
    for (resource, quantity) in more {
        to.entry(resource.clone()).or_insert(Quantity::ZERO).add(quantity);
    }
}

fn raise(to: &mut Amounts, at_least: &Amounts) {
    for (resource, quantity) in at_least {
        let held = to.entry(resource.clone()).or_insert_with(|| quantity.clone());
        if *held < *quantity {
            held.clone_from(quantity);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn containers_add_up_and_init_containers_take_turns() {
        let container = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu}}});
        let mut sidecar = container("100m");
        sidecar["restartPolicy"] = "Always".into();
        let spec = json!({
            "containers": [container("200m"), container("300m")],
            "initContainers": [container("400m"), sidecar, container("450m")],
        });
        let cpu = |spec: &Value| of_pod(spec, "requests")["cpu"].to_string();
        assert_eq!(cpu(&spec), "600m");
        let mut heavy = spec.clone();
        heavy["initContainers"][2] = container("2");
        assert_eq!(cpu(&heavy), "2100m");
        heavy["resources"] = json!({"requests": {"cpu": "5"}});
        assert_eq!(cpu(&heavy), "5");
    }
}
