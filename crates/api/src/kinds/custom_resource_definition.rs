//! CustomResourceDefinition: a kind that users bring along.

use std::collections::HashSet;

use crate::custom::{self, CLEANUP_FINALIZER, SimplePath, expensive_rules, naming, validate_definition_schema};
use crate::names::{dns1035_label, dns1123_subdomain};
use crate::print::{self, NAME};
use crate::webhook_client;
use crate::{
    Column, FieldError, Fields, Generation, MAX_WHOLE, Path, Problems, Resource, Rules, Subresource, Value, repeats,
};
use serde_json::json;

pub static CUSTOM_RESOURCE_DEFINITION: Resource = Resource::cluster(
    "apiextensions.k8s.io",
    "v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    "customresourcedefinition",
)
.short(&["crd", "crds"])
.in_categories(&["api-extensions"])
.stored_at("apiextensions.k8s.io/customresourcedefinitions")
.with_subresources(&[Subresource::STATUS])
.requiring_revision()
.with_unqualified_finalizers()
.without_grace_period()
.with_rules(&CustomResourceDefinitionRules);

struct CustomResourceDefinitionRules;

impl Rules for CustomResourceDefinitionRules {
    fn default(&self, definition: &mut Value) {
        let spec = definition.ensure("spec");
        let names = spec.ensure("names");
        let kind = names.text("kind").to_owned();
        names.fill("singular", kind.to_lowercase());
        if !kind.is_empty() {
            names.fill("listKind", format!("{kind}List"));
        }
        if !spec["conversion"].is_object() {
            spec.set("conversion", json!({"strategy": "None"}));
        }
        if let Some(service) = spec
            .child_mut("conversion")
            .and_then(|conversion| conversion.child_mut("webhook"))
            .and_then(|webhook| webhook.child_mut("clientConfig"))
            .and_then(|config| config.child_mut("service"))
        {
            service.fill_absent("port", 443);
        }
        let stored = spec.list("versions").iter().find(|version| version.flag("storage"));
        let stored = stored.map(|version| version["name"].clone());
        let status = definition.ensure("status");
        if let Some(stored) = stored
            && status.list("storedVersions").is_empty()
        {
            status.set("storedVersions", vec![stored]);
        }
    }

    fn prepare_create(&self, definition: &mut Value) {
        definition.remove("status");
        note_stored_version(definition);
    }

    fn prepare_update(&self, new: &mut Value, _old: &Value) {
        note_stored_version(new);
    }

    fn prepare_deletion(&self, definition: &mut Value, now: &str) {
        let metadata = definition.ensure("metadata");
        let mut finalizers = metadata.list("finalizers").to_vec();
        if !finalizers.iter().any(|finalizer| finalizer == CLEANUP_FINALIZER) {
            finalizers.push(CLEANUP_FINALIZER.into());
        }
        metadata.set("finalizers", finalizers);
        let status = naming::with_condition(
            definition,
            "Terminating",
            "True",
            "InstanceDeletionPending",
            "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
            now,
        );
        definition.set("status", status);
    }

    fn validate(&self, definition: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let (spec, path) = (&definition["spec"], Path::new("spec"));
        if problems.needs(spec, &path, "group") {
            let group = spec.text("group");
            let found = dns1123_subdomain(group, false);
            if found.is_empty() && !group.contains('.') {
                problems.invalid(&path, "group", group, "should be a domain with at least one dot");
            }
            problems.form(&path, "group", group, found);
        }
        problems.one_of(spec, &path, "scope", &["Cluster", "Namespaced"]);
        validate_versions(spec, &path, &mut problems);
        validate_names(&spec["names"], &path.child("names"), &mut problems);
        validate_conversion(&spec["conversion"], &path.child("conversion"), &mut problems);
        validate_stored_versions(definition, &mut problems);
        problems.into_vec()
    }

    fn validate_create(&self, definition: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let (spec, names) = (&definition["spec"], &definition["spec"]["names"]);
        let expected = format!("{}.{}", names.text("plural"), spec.text("group"));
        for field in ["generateName", "name"] {
            let name = definition["metadata"].text(field);
            if name != expected && !name.is_empty() {
                let detail = "must be spec.names.plural+\".\"+spec.group";
                problems.invalid(&Path::new("metadata"), field, name, detail);
            }
        }
        if let Some((reason, message)) = naming::unapproved(definition) {
            let path = Path::new("metadata").child("annotations").key(naming::APPROVAL);
            match reason {
                "MissingAnnotation" => problems.required(&path, "", &message),
                _ => {
                    let found = definition["metadata"]["annotations"].text(naming::APPROVAL);
                    problems.invalid(&path, "", found, message);
                }
            }
        }
        limit_costs(spec.list("versions"), &[], &Path::new("spec"), &mut problems);
        problems.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let established = naming::is_true(old, "Established");
        let (new, old, path) = (&new["spec"], &old["spec"], Path::new("spec"));
        let names = path.child("names");
        if established {
            problems.immutable(new, old, &path, "scope");
            problems.immutable(&new["names"], &old["names"], &names, "kind");
        }
        problems.immutable(new, old, &path, "group");
        problems.immutable(&new["names"], &old["names"], &names, "plural");
        limit_costs(new.list("versions"), old.list("versions"), &path, &mut problems);
        problems.into_vec()
    }

    fn warnings(&self, definition: &Value) -> Vec<String> {
        let mut formats = Vec::new();
        for version in definition["spec"].list("versions") {
            unknown_formats(&version["schema"]["openAPIV3Schema"], &mut formats);
        }
        let mut seen = HashSet::new();
        formats
            .into_iter()
            .filter(|format| seen.insert(*format))
            .map(|format| format!("unrecognized format {format:?}"))
            .collect()
    }

    fn generation(&self) -> Generation {
        Generation::Spec
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, definition: &Value, _now: i64) -> Vec<Value> {
        vec![
            print::name(definition),
            definition["metadata"]["creationTimestamp"].clone(),
        ]
    }
}

/// Remembers every version in which objects may be stored.
fn note_stored_version(definition: &mut Value) {
    let versions = definition["spec"].list("versions").iter();
    let Some(stored) = versions
        .filter(|version| version.flag("storage"))
        .map(|version| version["name"].clone())
        .next()
    else {
        return;
    };
    let status = definition.ensure("status");
    let mut known = status.list("storedVersions").to_vec();
    if !known.contains(&stored) {
        known.push(stored);
        status.set("storedVersions", known);
    }
}

/// One version is stored, and each has a schema.
fn validate_versions(spec: &Value, path: &Path, problems: &mut Problems) {
    let versions = spec.list("versions");
    let mut names = Vec::new();
    for (index, version) in versions.iter().enumerate() {
        let path = path.child("versions").index(index);
        let name = version.text("name");
        problems.form(&path, "name", name, dns1035_label(name, false));
        names.push(name);
        if !version["schema"].has("openAPIV3Schema") {
            problems.required(&path.child("schema"), "openAPIV3Schema", "");
        }
        if version.has("deprecationWarning") && !version.flag("deprecated") {
            let detail = "can only be set for deprecated versions";
            let text = version.text("deprecationWarning");
            problems.invalid(&path, "deprecationWarning", text, detail);
        }
    }
    validate_parts(versions, path, problems);
    if let Some(first) = names.first().filter(|name| !name.is_empty()) {
        problems.form(path, "version", *first, dns1035_label(first, false));
    }
    names.sort_unstable();
    if names.windows(2).any(|pair| pair[0] == pair[1]) {
        let detail = "must contain unique version names";
        problems.invalid(path, "versions", spec["versions"].clone(), detail);
    }
    if versions.iter().filter(|version| version.flag("storage")).count() != 1 {
        let detail = "must have exactly one version marked as storage version";
        problems.invalid(path, "versions", spec["versions"].clone(), detail);
    }
    if spec.flag("preserveUnknownFields") {
        let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in \
                      spec.versions[*].schema instead";
        problems.invalid(path, "preserveUnknownFields", true, detail);
        if versions
            .iter()
            .any(|version| has_default(&version["schema"]["openAPIV3Schema"]))
        {
            let detail = "must be false in order to use defaults in the schema";
            problems.invalid(path, "preserveUnknownFields", true, detail);
        }
    }
}

/// Formats that no value is checked by.
fn unknown_formats<'a>(schema: &'a Value, found: &mut Vec<&'a str>) {
    let format = schema.text("format");
    let of_numbers = ["int32", "int64", "float", "double"];
    let known = format.is_empty() || of_numbers.contains(&format) || custom::is_known_format(format);
    if !known {
        found.push(format);
    }
    custom::below(schema).for_each(|schema| unknown_formats(schema, found));
}

fn has_default(schema: &Value) -> bool {
    schema.has("default") || custom::below(schema).any(has_default)
}

/// The versions whose part of a definition is looked at, and where problems of it are shown: what all versions say alike
/// is reported once, as if it stood beside them.
fn places(versions: &[Value], path: &Path, field: &str, together: &str) -> Vec<(usize, Path)> {
    let alike = versions.iter().all(|version| version[field] == versions[0][field]);
    match (versions.is_empty(), alike) {
        (true, _) => Vec::new(),
        (false, true) => vec![(0, path.child(together))],
        (false, false) => (0..versions.len())
            .map(|index| (index, path.child("versions").index(index).child(field)))
            .collect(),
    }
}

fn validate_parts(versions: &[Value], path: &Path, problems: &mut Problems) {
    for (index, path) in places(versions, path, "schema", "validation") {
        let schema = &versions[index]["schema"]["openAPIV3Schema"];
        if schema.is_object() {
            problems.extend(validate_definition_schema(schema, &path.child("openAPIV3Schema")));
        }
    }
    for (index, path) in places(versions, path, "subresources", "subresources") {
        validate_subresources(&versions[index]["subresources"], &path, problems);
    }
    for (index, path) in places(versions, path, "additionalPrinterColumns", "additionalPrinterColumns") {
        validate_columns(&versions[index], &path, problems);
    }
    for (index, path) in places(versions, path, "selectableFields", "selectableFields") {
        validate_selectable(&versions[index], &path, problems);
    }
}

/// Refuses rules that may cost too much, in schemas that are new: those that were let in before stay.
fn limit_costs(versions: &[Value], old: &[Value], path: &Path, problems: &mut Problems) {
    for (index, path) in places(versions, path, "schema", "validation") {
        let version = &versions[index];
        let is_old = |old: &Value| old["name"] == version["name"] && old["schema"] == version["schema"];
        if !old.iter().any(is_old) {
            let schema = &version["schema"]["openAPIV3Schema"];
            problems.extend(expensive_rules(schema, &path.child("openAPIV3Schema")));
        }
    }
}

fn validate_names(names: &Value, path: &Path, problems: &mut Problems) {
    for field in ["plural", "singular", "kind", "listKind"] {
        if !problems.needs(names, path, field) {
            continue;
        }
        let name = names.text(field);
        match field {
            "plural" | "singular" => problems.form(path, field, name, dns1035_label(name, false)),
            _ => {
                let found = dns1035_label(&name.to_lowercase(), false);
                if let Some(first) = found.first() {
                    let detail = format!("may have mixed case, but should otherwise match: {first}");
                    problems.invalid(path, field, name, detail);
                }
            }
        }
    }
    for field in ["shortNames", "categories"] {
        for (index, name) in names.list(field).iter().enumerate() {
            let name = name.as_str().unwrap_or_default();
            let path = path.child(field).index(index);
            problems.form(&path, "", name, dns1035_label(name, false));
        }
    }
    if !names.text("kind").is_empty() && names["kind"] == names["listKind"] {
        let detail = "kind and listKind may not be the same";
        problems.invalid(path, "listKind", names.text("listKind"), detail);
    }
}

fn validate_conversion(conversion: &Value, path: &Path, problems: &mut Problems) {
    problems.one_of(conversion, path, "strategy", &["None", "Webhook"]);
    let webhook = &conversion["webhook"];
    if conversion.text("strategy") != "Webhook" {
        let detail = "should not be set when strategy is not set to Webhook";
        if webhook["clientConfig"].is_object() {
            problems.forbidden(path, "webhookClientConfig", detail);
        }
        if !webhook.list("conversionReviewVersions").is_empty() {
            problems.forbidden(path, "conversionReviewVersions", detail);
        }
        return;
    }
    let config = &webhook["clientConfig"];
    if !config.is_object() {
        let detail = "required when strategy is set to Webhook";
        problems.required(path, "webhookClientConfig", detail);
    } else if config.has("url") == config.has("service") {
        let detail = "exactly one of url or service is required";
        problems.required(path, "webhookClientConfig", detail);
    }
    let place = path.child("webhookClientConfig");
    match (config["url"].as_str(), config.has("service")) {
        (Some(url), false) => webhook_client::validate_url(url, &place.child("url"), problems),
        (None, true) => webhook_client::validate_service(&config["service"], &place.child("service"), problems),
        _ => {}
    }
    webhook_client::validate_review_versions(webhook, path, "conversionReviewVersions", "", problems);
}

fn validate_subresources(subresources: &Value, path: &Path, problems: &mut Problems) {
    let scale = &subresources["scale"];
    if !scale.is_object() {
        return;
    }
    let path = path.child("scale");
    for (field, roots) in [
        ("specReplicasPath", &[".spec."][..]),
        ("statusReplicasPath", &[".status."]),
        ("labelSelectorPath", &[".spec.", ".status."]),
    ] {
        let text = scale.text(field);
        if text.is_empty() {
            if field != "labelSelectorPath" {
                problems.required(&path, field, "");
            }
            continue;
        }
        if !roots.iter().any(|root| text.starts_with(root)) {
            let roots: Vec<&str> = roots.iter().map(|root| root.trim_end_matches('.')).collect();
            let either = if roots.len() > 1 { "either " } else { "" };
            let detail = format!("should be a json path under {either}{}", roots.join(" or "));
            problems.invalid(&path, field, text, detail);
        }
    }
}

fn validate_columns(version: &Value, path: &Path, problems: &mut Problems) {
    for (index, column) in version.list("additionalPrinterColumns").iter().enumerate() {
        let path = path.index(index);
        problems.needs(column, &path, "name");
        let kinds = ["boolean", "date", "integer", "number", "string"];
        if problems.needs(column, &path, "type") && !kinds.contains(&column.text("type")) {
            let detail = format!("must be one of {}", kinds.join(","));
            problems.invalid(&path, "type", column.text("type"), detail);
        }
        let format = column.text("format");
        if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
            let detail = format!("must be one of {}", COLUMN_FORMATS.join(","));
            problems.invalid(&path, "format", format, detail);
        }
        match column.text("jsonPath") {
            "" => problems.required(&path, "JSONPath", ""),
            text if !text.starts_with('.') => {
                let detail = "must be a simple json path starting with .";
                problems.invalid(&path, "JSONPath", text, detail);
            }
            _ => {}
        }
    }
}

const COLUMN_FORMATS: [&str; 8] = [
    "byte",
    "date",
    "date-time",
    "double",
    "float",
    "int32",
    "int64",
    "password",
];

fn validate_selectable(version: &Value, path: &Path, problems: &mut Problems) {
    let schema = &version["schema"]["openAPIV3Schema"];
    let fields = version.list("selectableFields");
    if fields.len() > MAX_SELECTABLE {
        problems.extend([FieldError::too_many(path, fields.len(), MAX_SELECTABLE)]);
    }
    let repeated = repeats(fields.iter().map(|field| field.text("jsonPath")));
    for (index, field) in fields.iter().enumerate() {
        let path = path.index(index);
        if !problems.needs(field, &path, "jsonPath") {
            continue;
        }
        let text = field.text("jsonPath");
        let Some(place) = SimplePath::parse(text) else {
            let detail = format!("is an invalid path: expected [ or . but got: {text}");
            problems.invalid(&path, "jsonPath", text, detail);
            continue;
        };
        let found = place
            .names()
            .iter()
            .fold(schema, |schema, name| &schema["properties"][name]);
        match found.text("type") {
            "string" | "boolean" | "integer" => {}
            "" => {
                let detail = "is an invalid path: does not refer to a valid field";
                problems.invalid(&path, "jsonPath", text, detail);
            }
            _ => {
                let detail = "must point to a field of type string, boolean or integer. Enum string fields and \
                              strings with formats are allowed.";
                problems.invalid(&path, "jsonPath", text, detail);
            }
        }
        if repeated[index] {
            problems.duplicate(&path, "jsonPath", text);
        }
    }
}

/// Objects may be stored in all these versions, so none of them can go.
fn validate_stored_versions(definition: &Value, problems: &mut Problems) {
    let (stored, path) = (definition["status"].list("storedVersions"), Path::new("status"));
    let versions = definition["spec"].list("versions");
    if stored.is_empty() {
        let detail = "must have at least one stored version";
        problems.invalid(&path, "storedVersions", Value::Null, detail);
    }
    let mut left: HashSet<&Value> = stored.iter().collect();
    let mut told = 0;
    for version in versions {
        // The second version of one name finds that it is gone.
        let is_stored = left.remove(&version["name"]);
        if version.flag("storage") && !is_stored && told < MAX_WHOLE {
            told += 1;
            let detail = format!("must have the storage version {}", version.text("name"));
            problems.invalid(&path, "storedVersions", stored.to_vec(), detail);
        }
    }
    let named: HashSet<&Value> = versions.iter().map(|version| &version["name"]).collect();
    for (index, name) in stored.iter().enumerate() {
        if named.contains(name) {
            continue;
        }
        let text = name.as_str().unwrap_or_default();
        let detail = format!(
            "missing from spec.versions; {text} was previously a storage version, and must remain in spec.versions \
             until a storage migration ensures no data remains persisted in {text} and removes {text} from \
             status.storedVersions"
        );
        problems.invalid(&path.child("storedVersions").index(index), "", text, detail);
    }
}

/// The most fields of a version that objects can be selected by.
const MAX_SELECTABLE: usize = 8;

const COLUMNS: &[Column] = &[
    NAME,
    Column {
        kind: "date",
        ..print::text("Created At", "When the server stored the definition.")
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_that_nothing_is_checked_by_are_warned_about_once() {
        let of = |format: &str| json!({"type": "string", "format": format});
        let schema = json!({"properties": {"a": of("odd"), "b": of("odd"), "c": of("date-time"), "d": of("int32")}});
        let definition = json!({"spec": {"versions": [{"schema": {"openAPIV3Schema": schema}}]}});
        assert_eq!(
            CustomResourceDefinitionRules.warnings(&definition),
            ["unrecognized format \"odd\""]
        );
    }
}
