//! Rows of the resource table for custom resources.
//!
//! The whole server passes rows around as statics. A row of a custom resource is made once for everything it says, and
//! lives as long as the process: there are as many as different definitions were ever seen. What is large about a
//! definition, its schemas, is not in the row.

use std::collections::HashMap;
use std::sync::LazyLock;

use api::custom::{Definition, Version};
use api::{Resource, Subresource, Verb};
use parking_lot::Mutex;

static ROWS: LazyLock<Mutex<HashMap<String, &'static Resource>>> = LazyLock::new(Mutex::default);

/// The verbs of every custom resource, in the order in which discovery shows them.
const VERBS: &[Verb] = &[
    Verb::Delete,
    Verb::DeleteCollection,
    Verb::Get,
    Verb::List,
    Verb::Patch,
    Verb::Create,
    Verb::Update,
    Verb::Watch,
];

static STATUS: [Subresource; 1] = [Subresource::STATUS];
static SCALE: [Subresource; 1] = [Subresource::SCALE];
static STATUS_AND_SCALE: [Subresource; 2] = [Subresource::STATUS, Subresource::SCALE];

/// The row of one version of a definition.
pub fn row(definition: &Definition, version: &Version) -> &'static Resource {
    let subresources: &'static [Subresource] = match (version.status, version.scale.is_some()) {
        (true, true) => &STATUS_AND_SCALE,
        (true, false) => &STATUS,
        (false, true) => &SCALE,
        (false, false) => &[],
    };
    let identity = format!(
        "{}/{}/{} {} {} {:?} {:?} {} {}",
        definition.group,
        version.name,
        definition.plural,
        definition.kind,
        definition.singular,
        definition.short_names,
        definition.categories,
        definition.namespaced,
        subresources
            .iter()
            .map(|subresource| subresource.name)
            .collect::<String>(),
    );
    ROWS.lock()
        .entry(identity)
        .or_insert_with(|| Box::leak(Box::new(make(definition, version, subresources))))
}

fn make(definition: &Definition, version: &Version, subresources: &'static [Subresource]) -> Resource {
    let mut row = Resource::namespaced(
        text(&definition.group),
        text(&version.name),
        text(&definition.kind),
        text(&definition.plural),
        text(&definition.singular),
    )
    .short(texts(&definition.short_names))
    .in_categories(texts(&definition.categories))
    .with_verbs(VERBS)
    .with_subresources(subresources)
    .stored_at(text(&format!("{}/{}", definition.group, definition.plural)))
    .made_by_definition()
    .requiring_revision()
    .converting_field_labels()
    // The status of a custom resource leaves its metadata alone too.
    .resetting_on_status_update(&[&["spec"], &["metadata"]])
    .with_rules(match version.status {
        true => api::custom::WITH_STATUS,
        false => api::custom::WITHOUT_STATUS,
    });
    row.namespaced = definition.namespaced;
    row
}

fn text(text: &str) -> &'static str {
    text.to_owned().leak()
}

fn texts(list: &[String]) -> &'static [&'static str] {
    list.iter().map(|item| text(item)).collect::<Vec<_>>().leak()
}
