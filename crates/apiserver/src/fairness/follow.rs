//! Keeps the plan in step with its objects, and the objects in the state the server needs.

use std::collections::HashSet;
use std::sync::Arc;

use api::{Error, Resource, Value, conditions, kinds};
use registry::Seed;
use registry::{Registry, Scope, Served, Tracking, WriteOptions};
use serde::de::DeserializeOwned;
use serde_json::json;
use tracing::warn;

use super::plan::{FlowSchema, Level};
use super::{Fairness, Plan, defaults};

static SCHEMAS: &Resource = &kinds::flow_schema::FLOW_SCHEMA;
static LEVELS: &Resource = &kinds::priority_level_configuration::PRIORITY_LEVEL_CONFIGURATION;

impl Fairness {
    /// Puts what is stored now in force.
    pub fn load(&self, registry: &Registry) -> Result<(), Error> {
        let schemas: Vec<FlowSchema> = stored(registry, SCHEMAS)?;
        let levels: Vec<Level> = stored(registry, LEVELS)?;
        self.put_in_force(Plan::new(schemas, levels));
        Ok(())
    }
}

/// Brings default objects that nobody took over to the spec of this version, and mandatory ones back.
async fn keep_defaults(registry: &Registry) -> Result<(), Error> {
    let mandatory =
        |seed: &Seed| defaults::MANDATORY.contains(&seed.value["metadata"]["name"].as_str().unwrap_or_default());
    let (mandatory, suggested): (Vec<Seed>, Vec<Seed>) = defaults::seeds().into_iter().partition(mandatory);
    registry.seed(mandatory).await?;
    for seed in suggested {
        refresh(registry, &seed).await?;
    }
    Ok(())
}

async fn refresh(registry: &Registry, seed: &Seed) -> Result<(), Error> {
    let served = registry.served(seed.resource)?.clone();
    let name = seed.value["metadata"]["name"].as_str().unwrap_or_default();
    let Ok(current) = registry.get(&served, "", name).await else {
        return Ok(());
    };
    let current = current.value(&served)?;
    let ours = current["metadata"]["annotations"][defaults::AUTO_UPDATE] == "true";
    if !ours || covers(&current["spec"], &seed.value["spec"]) {
        return Ok(());
    }
    let mut change = |current: &Value| {
        let mut changed = current.clone();
        changed["spec"] = seed.value["spec"].clone();
        Ok(changed)
    };
    let written = registry
        .update(&served, "", name, Scope::Main, &WriteOptions::own(), &mut change)
        .await;
    written.map(drop)
}

/// Tells of each schema whether its level exists.
async fn tell_dangling(registry: &Registry) -> Result<(), Error> {
    let served = registry.served(SCHEMAS)?.clone();
    let levels: Vec<Level> = stored(registry, LEVELS)?;
    let levels: HashSet<&str> = levels.iter().map(|level| level.metadata.name.as_str()).collect();
    let schemas: Vec<FlowSchema> = stored(registry, SCHEMAS)?;
    for FlowSchema { metadata, spec } in &schemas {
        let level = spec.priority_level_configuration.name.as_str();
        let condition = dangling(level, levels.contains(level));
        let current = registry.get(&served, "", &metadata.name).await?.value(&served)?;
        if conditions::has_condition(&current, &condition) {
            continue;
        }
        let mut change = |current: &Value| tell(&served, current, &condition);
        let options = WriteOptions {
            tracking: Tracking::Done,
            ..WriteOptions::own()
        };
        registry
            .update(&served, "", &metadata.name, Scope::Status, &options, &mut change)
            .await?;
    }
    Ok(())
}

/// Takes in changes for ever.
pub async fn follow(registry: Arc<Registry>, fairness: Arc<Fairness>) {
    let (Ok(schemas), Ok(levels)) = (registry.served(SCHEMAS), registry.served(LEVELS)) else {
        return;
    };
    let from = registry.snapshot().revision();
    let (mut schemas, mut levels) = (schemas.follow(from), levels.follow(from));
    loop {
        if let Err(error) = catch_up(&registry, &fairness).await {
            warn!(%error, "Failed to load FlowSchemas and PriorityLevelConfigurations; retrying with the next change");
        }
        tokio::select! {
            () = schemas.changed() => {}
            () = levels.changed() => {}
        }
    }
}

async fn catch_up(registry: &Registry, fairness: &Fairness) -> Result<(), Error> {
    fairness.load(registry)?;
    keep_defaults(registry).await?;
    tell_dangling(registry).await
}

/// All objects of a resource; one that cannot be decoded is logged and left out.
fn stored<T: DeserializeOwned>(registry: &Registry, resource: &'static Resource) -> Result<Vec<T>, Error> {
    let served = registry.served(resource)?;
    let snapshot = registry.snapshot();
    let read = |bytes: &[u8]| match serde_json::from_slice(bytes) {
        Ok(object) => Some(object),
        Err(error) => {
            warn!(%error, resource = resource.plural, "Failed to decode a stored object; flow control ignores it");
            None
        }
    };
    Ok(snapshot
        .range(&served.prefix, &served.prefix)
        .filter_map(|entry| read(&entry.value))
        .collect())
}

/// Whether `found` has everything that `wanted` asks for.
fn covers(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => wanted
            .iter()
            .all(|(key, wanted)| found.get(key).is_some_and(|found| covers(found, wanted))),
        (Value::Array(found), Value::Array(wanted)) => {
            found.len() == wanted.len() && found.iter().zip(wanted).all(|(found, wanted)| covers(found, wanted))
        }
        _ => found == wanted,
    }
}

fn dangling(level: &str, exists: bool) -> Value {
    let (status, reason, outcome) = match exists {
        true => ("False", "Found", "and it exists"),
        false => ("True", "NotFound", "but there is no such object"),
    };
    let message = format!("This FlowSchema references the PriorityLevelConfiguration object named {level:?} {outcome}");
    json!({ "type": "Dangling", "status": status, "reason": reason, "message": message })
}

/// The schema with the condition applied, as upstream's own controller does it.
fn tell(served: &Served, schema: &Value, condition: &Value) -> Result<Value, Error> {
    let mut told = json!({
        "apiVersion": schema["apiVersion"], "kind": schema["kind"],
        "metadata": { "name": schema["metadata"]["name"] }, "status": schema["status"],
    });
    let now = schema::time::format(schema::time::now());
    conditions::set_condition(&mut told, condition.clone(), &now);
    registry::apply(served, Some(schema), &told, Scope::Status, CONSUMER, true)
}

/// The name by which this server owns what it says of schemas.
const CONSUMER: &str = "api-priority-and-fairness-config-consumer-v1";
