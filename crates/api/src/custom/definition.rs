//! A CustomResourceDefinition in the form the server works with.

use std::cmp::Reverse;

use cel::rules::Failure;

use super::structural::texts;
use super::{Printed, SchemaSource, SimplePath, defaults, metadata, prune, validate};
use crate::{Error, FieldError, FieldProblem, Fields, Generation, Rules, Value};

/// A definition, parsed once when it changes.
#[derive(Clone, Debug)]
pub struct Definition {
    pub name: String,
    pub uid: String,
    pub group: String,
    pub plural: String,
    pub singular: String,
    pub kind: String,
    pub list_kind: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub namespaced: bool,
    pub versions: Vec<Version>,
    /// The version in which objects are stored.
    pub storage: String,
    pub conversion: Conversion,
    pub established: bool,
    pub deleting: bool,
}

/// How objects of one version become objects of another.
#[derive(Clone, Debug, PartialEq)]
pub enum Conversion {
    /// Only `apiVersion` changes.
    Rename,
    /// `spec.conversion.webhook`, which is asked.
    Webhook(Value),
}

/// One version of a definition.
#[derive(Clone, Debug)]
pub struct Version {
    pub name: String,
    pub served: bool,
    /// The text of the `Warning` header on every answer, if the version is deprecated.
    pub warning: Option<String>,
    pub schema: SchemaSource,
    pub printed: Printed,
    pub status: bool,
    pub scale: Option<ScalePaths>,
    /// Selectable fields by the name that selectors give them.
    pub selectable: Vec<(String, SimplePath)>,
}

/// Where a version's objects keep what the `scale` subresource shows.
#[derive(Clone, Debug)]
pub struct ScalePaths {
    pub spec_replicas: SimplePath,
    pub status_replicas: SimplePath,
    pub selector: Option<SimplePath>,
}

/// The rules of every custom resource that do not depend on its schema.
struct Custom {
    generation: Generation,
}

/// The rules of a version whose status is a subresource.
pub static WITH_STATUS: &dyn Rules = &Custom {
    generation: Generation::Spec,
};
/// The rules of a version whose status is a field like any other.
pub static WITHOUT_STATUS: &dyn Rules = &Custom {
    generation: Generation::All,
};

impl Rules for Custom {
    fn generation(&self) -> Generation {
        self.generation
    }
}

impl Definition {
    pub fn parse(definition: &Value) -> Definition {
        let (spec, status) = (&definition["spec"], &definition["status"]);
        let names = &status["acceptedNames"];
        let version = |version: &Value| Version::parse(version, spec);
        let mut versions: Vec<Version> = spec.list("versions").iter().map(version).collect();
        versions.sort_by(|a, b| compare_versions(&a.name, &b.name));
        let stored = spec.list("versions").iter().find(|version| version.flag("storage"));
        Definition {
            name: definition["metadata"].text("name").to_owned(),
            uid: definition["metadata"].text("uid").to_owned(),
            group: spec.text("group").to_owned(),
            plural: spec["names"].text("plural").to_owned(),
            singular: names.text("singular").to_owned(),
            kind: spec["names"].text("kind").to_owned(),
            list_kind: names.text("listKind").to_owned(),
            short_names: texts(names, "shortNames"),
            categories: texts(names, "categories"),
            namespaced: spec.text("scope") == "Namespaced",
            versions,
            storage: stored
                .map(|version| version.text("name").to_owned())
                .unwrap_or_default(),
            conversion: match spec["conversion"].text("strategy") {
                "Webhook" => Conversion::Webhook(spec["conversion"]["webhook"].clone()),
                _ => Conversion::Rename,
            },
            established: super::naming::is_true(definition, "Established"),
            deleting: definition["metadata"].has("deletionTimestamp"),
        }
    }

    pub fn version(&self, name: &str) -> Option<&Version> {
        self.versions.iter().find(|version| version.name == name)
    }

    pub fn api_version(&self, version: &str) -> String {
        format!("{}/{version}", self.group)
    }
}

impl Version {
    fn parse(version: &Value, spec: &Value) -> Version {
        let subresources = &version["subresources"];
        let name = version.text("name").to_owned();
        let warning = version
            .flag("deprecated")
            .then(|| match version["deprecationWarning"].as_str() {
                Some(text) => text.to_owned(),
                None => default_warning(spec, &name),
            });
        let paths = version.list("selectableFields").iter();
        Version {
            served: version.flag("served"),
            warning,
            schema: SchemaSource::new(&version["schema"]["openAPIV3Schema"]),
            printed: Printed::parse(version.list("additionalPrinterColumns")),
            status: subresources["status"].is_object(),
            scale: ScalePaths::parse(&subresources["scale"]),
            selectable: paths
                .filter_map(|field| SimplePath::parse(field.text("jsonPath")))
                .map(|path| (path.label(), path))
                .collect(),
            name,
        }
    }

    /// Brings a decoded object into form: metadata, then what the schema does not know. Returns upstream's text for
    /// each unknown field.
    pub fn normalize(&self, object: &mut Value) -> Result<Vec<String>, Error> {
        let schema = &self.schema.compiled().schema;
        let mut unknown =
            metadata::coerce(schema, object).map_err(|problem| Error::bad_request(problem.to_string()))?;
        unknown.extend(prune::prune(schema, object));
        Ok(unknown
            .into_iter()
            .map(|path| format!("unknown field {path:?}"))
            .collect())
    }

    /// Fills in defaults.
    pub fn complete(&self, object: &mut Value) {
        defaults::apply(&self.schema.compiled().schema, object);
    }

    /// What is wrong with an object, or with a change of it.
    pub fn validate(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let compiled = self.schema.compiled();
        let mut problems = validate::validate(&compiled.schema, object, old);
        if let Some(scale) = &self.scale {
            problems.extend(scale.validate(object));
        }
        // Rules may rely on the types of what they look at.
        if let Some(expressions) = compiled.expressions.as_ref().filter(|_| problems.is_empty()) {
            problems.extend(expressions.validate(object, old).into_iter().map(broken_rule));
        }
        problems
    }

    /// The value of a selectable field; `None` when the version does not have it.
    pub fn field(&self, object: &Value, path: &str) -> Option<String> {
        let (_, place) = self.selectable.iter().find(|(label, _)| label == path)?;
        Some(match place.get(object) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        })
    }
}

/// A rule that does not hold, as a problem of the field it names.
fn broken_rule(failure: Failure) -> FieldError {
    let problem = match failure.reason.as_str() {
        "FieldValueRequired" => FieldProblem::Required,
        "FieldValueForbidden" => FieldProblem::Forbidden,
        "FieldValueDuplicate" => FieldProblem::Duplicate,
        _ => FieldProblem::Invalid,
    };
    FieldError {
        problem,
        field: failure.path,
        value: failure.shown.into(),
        detail: failure.detail,
    }
}

fn default_warning(spec: &Value, name: &str) -> String {
    let (group, kind) = (spec.text("group"), spec["names"].text("kind"));
    let mut text = format!("{group}/{name} {kind} is deprecated");
    let newer = |version: &&Value| version.flag("served") && !version.flag("deprecated");
    let best = spec
        .list("versions")
        .iter()
        .filter(newer)
        .map(|version| version.text("name"))
        .min_by(|a, b| compare_versions(a, b));
    if let Some(best) = best.filter(|best| compare_versions(best, name).is_lt()) {
        text.push_str(&format!("; use {group}/{best} {kind}"));
    }
    text
}

impl ScalePaths {
    fn parse(scale: &Value) -> Option<ScalePaths> {
        Some(ScalePaths {
            spec_replicas: SimplePath::parse(scale.text("specReplicasPath"))?,
            status_replicas: SimplePath::parse(scale.text("statusReplicasPath"))?,
            selector: SimplePath::parse(scale.text("labelSelectorPath")),
        })
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut problems = Vec::new();
        for path in [&self.spec_replicas, &self.status_replicas] {
            let place = crate::Path::new(&path.label());
            match path.get(object) {
                Some(Value::Number(number)) if number.as_i64().is_some_and(|number| number < 0) => {
                    let detail = "should be a non-negative integer";
                    problems.push(FieldError::invalid(&place, Value::Number(number.clone()), detail));
                }
                Some(Value::Number(number)) if number.as_i64().is_some_and(|number| number > i64::from(i32::MAX)) => {
                    let detail = format!("should be less than or equal to {}", i32::MAX);
                    problems.push(FieldError::invalid(&place, Value::Number(number.clone()), detail));
                }
                _ => {}
            }
        }
        problems
    }
}

/// Orders versions by preference: `v2` before `v1`, before `v2beta1`, before `v1alpha1`, before any other text.
pub fn compare_versions(one: &str, other: &str) -> std::cmp::Ordering {
    match (rank(one), rank(other)) {
        (Some(one), Some(other)) => Reverse(one).cmp(&Reverse(other)),
        (Some(_), None) => std::cmp::Ordering::Less,
        (None, Some(_)) => std::cmp::Ordering::Greater,
        (None, None) => one.cmp(other),
    }
}

/// How stable a version is, then its numbers.
fn rank(version: &str) -> Option<(u8, u64, u64)> {
    let rest = version.strip_prefix('v')?;
    let digits = rest
        .find(|character: char| !character.is_ascii_digit())
        .unwrap_or(rest.len());
    let major = rest[..digits].parse().ok()?;
    match &rest[digits..] {
        "" => Some((2, major, 0)),
        rest => {
            let (stability, minor) = match (rest.strip_prefix("beta"), rest.strip_prefix("alpha")) {
                (Some(minor), _) => (1, minor),
                (None, Some(minor)) => (0, minor),
                (None, None) => return None,
            };
            Some((stability, major, minor.parse().ok()?))
        }
    }
}
