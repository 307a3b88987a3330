//! Spreading endpoints over slices so that few of them change: kept endpoints stay where they are, new ones fill slices
//! that change anyway, and only then new slices are made.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::Value;
use api::kinds::endpoint_slice::ENDPOINT_SLICE;
use api::kinds::service::SERVICE;
use serde_json::{Map, json};

use super::desired::{self, Group, identity};
use super::{MANAGED_BY, MANAGER, SERVICE_NAME, Slice, View};
use crate::owner::controller_reference;
use crate::plan::{Action, Create, Delete, Patch, Plan};
use crate::services::service::{HEADLESS, Service};

const MAX_ENDPOINTS: usize = 100;
const PUBLISHED: &str = "endpointslice-controller/published";

/// The content of a slice as it should be.
struct Content {
    ports: Vec<Value>,
    endpoints: Vec<Value>,
}

/// Slices that exist, and what becomes of each.
#[derive(Default)]
struct Layout {
    kept: Vec<(Arc<Slice>, Content)>,
    new: Vec<Content>,
    spare: Vec<Arc<Slice>>,
}

pub fn plan(view: &View) -> Plan {
    let mut plan = Plan::default();
    let service = &view.service;
    if service.spec.selector.is_empty() || service.spec.kind == "ExternalName" || service.metadata.is_deleting() {
        return plan;
    }
    let types = desired::address_types(service);
    for slice in view.slices.iter().filter(|slice| !slice.metadata.is_deleting()) {
        if !types.contains(&slice.address_type.as_str()) {
            plan.actions.push(delete(slice));
        }
    }
    for address_type in types {
        let layout = layout(view, address_type);
        plan.actions.extend(actions(service, address_type, layout));
    }
    plan
}

fn layout(view: &View, address_type: &str) -> Layout {
    let slices = view.slices.iter().filter(|slice| !slice.metadata.is_deleting());
    let mut existing: Vec<Arc<Slice>> = slices
        .filter(|slice| slice.address_type == address_type)
        .cloned()
        .collect();
    let mut groups = desired::groups(view, address_type);
    if groups.is_empty() {
        // An empty slice says that the service is known and has no endpoints.
        groups.push(Group {
            ports: Vec::new(),
            endpoints: BTreeMap::new(),
        });
    }
    let mut layout = Layout::default();
    for group in groups {
        let has_ports = |slice: &mut Arc<Slice>| slice.ports.as_deref().unwrap_or_default() == group.ports;
        let same = existing.extract_if(.., has_ports).collect();
        fill(&mut layout, group, same);
    }
    layout.spare.append(&mut existing);
    layout
}

/// Lays one group out over the slices that have its ports.
fn fill(layout: &mut Layout, mut group: Group, existing: Vec<Arc<Slice>>) {
    let is_empty_group = group.endpoints.is_empty();
    let mut kept: Vec<(Arc<Slice>, Content, bool)> = Vec::new();
    for slice in existing {
        let before = slice.endpoints.as_deref().unwrap_or_default();
        let still = before
            .iter()
            .filter_map(|endpoint| group.endpoints.remove(&identity(endpoint)));
        let endpoints: Vec<Value> = still.collect();
        let changed = endpoints != before;
        let ports = group.ports.clone();
        kept.push((slice, Content { ports, endpoints }, changed));
    }
    // Slices that change anyway take new endpoints first, then the fullest of the others.
    kept.sort_by_key(|(_, content, changed)| (!changed, usize::MAX - content.endpoints.len()));
    let mut left = std::mem::take(&mut group.endpoints).into_values();
    for (_, content, _) in &mut kept {
        let room = MAX_ENDPOINTS.saturating_sub(content.endpoints.len());
        content.endpoints.extend(left.by_ref().take(room));
    }
    let mut keeps_one = is_empty_group;
    for (slice, content, _) in kept {
        if !content.endpoints.is_empty() || std::mem::take(&mut keeps_one) {
            layout.kept.push((slice, content));
        } else {
            layout.spare.push(slice);
        }
    }
    loop {
        let endpoints: Vec<Value> = left.by_ref().take(MAX_ENDPOINTS).collect();
        if endpoints.is_empty() && !std::mem::take(&mut keeps_one) {
            break;
        }
        let ports = group.ports.clone();
        layout.new.push(Content { ports, endpoints });
    }
}

fn actions(service: &Service, address_type: &str, layout: Layout) -> Vec<Action> {
    let mut actions = Vec::new();
    let mut spare = layout.spare.into_iter();
    let mut kept = layout.kept;
    for content in layout.new {
        // A slice that would be deleted is better used again.
        match spare.next() {
            Some(slice) => kept.push((slice, content)),
            None => actions.push(create(service, address_type, content)),
        }
    }
    actions.extend(
        kept.iter()
            .filter_map(|(slice, content)| update(service, slice, content)),
    );
    actions.extend(spare.map(|slice| delete(&slice)));
    actions
}

fn create(service: &Service, address_type: &str, content: Content) -> Action {
    let object = json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "generateName": format!("{}-", service.metadata.name),
            "labels": labels(service),
            "ownerReferences": [controller_reference(&SERVICE, &service.metadata)],
        },
        "addressType": address_type,
        "endpoints": content.endpoints,
        "ports": content.ports,
    });
    let mut create = Create::new(&ENDPOINT_SLICE, &service.metadata.namespace, object);
    create.mark = Some(PUBLISHED);
    Action::Create(create)
}

fn update(service: &Service, slice: &Slice, content: &Content) -> Option<Action> {
    let mut body = Map::new();
    if slice.endpoints.as_deref().unwrap_or_default() != content.endpoints {
        body.insert("endpoints".to_owned(), content.endpoints.clone().into());
    }
    if slice.ports.as_deref().unwrap_or_default() != content.ports {
        body.insert("ports".to_owned(), content.ports.clone().into());
    }
    let (wanted, known) = (labels(service), &slice.metadata.labels);
    if wanted != *known {
        let mut changes = json!(wanted);
        for label in known.keys().filter(|label| !wanted.contains_key(*label)) {
            changes[label] = Value::Null;
        }
        body.insert("metadata".to_owned(), json!({"labels": changes}));
    }
    if body.is_empty() {
        return None;
    }
    let mut patch = Patch::new(&ENDPOINT_SLICE, &slice.metadata, body.into())
        .at_revision(&slice.metadata)
        .by_update();
    patch.mark = Some(PUBLISHED);
    Some(Action::Patch(patch))
}

fn delete(slice: &Slice) -> Action {
    Action::Delete(Delete::new(&ENDPOINT_SLICE, &slice.metadata))
}

/// The service's labels, and those by which the slice is found.
fn labels(service: &Service) -> BTreeMap<String, String> {
    let mut labels = service.metadata.labels.clone();
    labels.remove(HEADLESS);
    labels.insert(SERVICE_NAME.to_owned(), service.metadata.name.clone());
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    if service.is_headless() {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    labels
}
