//! Expressions in objects that decide about requests: which variables they may use, and whether they can work.

use cel::{Environment, Program, Type};

use crate::{Fields, Path, Problems, Value, names, repeats};

/// The variables of expressions about a request; `params` only where there are any.
pub fn admission_environment(has_params: bool) -> Environment {
    let texts = |names: &[&'static str]| names.iter().map(|name| (*name, Type::String)).collect::<Vec<_>>();
    let kind = Type::object("kubernetes.GroupVersionKind", texts(&["group", "version", "kind"]));
    let resource = Type::object(
        "kubernetes.GroupVersionResource",
        texts(&["group", "version", "resource"]),
    );
    let user = Type::object(
        "kubernetes.UserInfo",
        [
            ("username", Type::String),
            ("uid", Type::String),
            ("groups", Type::list(Type::String)),
            ("extra", Type::map(Type::String, Type::list(Type::String))),
        ],
    );
    let request = Type::object(
        "kubernetes.AdmissionRequest",
        [
            ("kind", kind.clone()),
            ("resource", resource.clone()),
            ("subResource", Type::String),
            ("requestKind", kind),
            ("requestResource", resource),
            ("requestSubResource", Type::String),
            ("name", Type::String),
            ("namespace", Type::String),
            ("operation", Type::String),
            ("userInfo", user),
            ("dryRun", Type::Bool),
            ("options", Type::Dyn),
        ],
    );
    let environment = Environment::default()
        .with("object", Type::Dyn)
        .with("oldObject", Type::Dyn)
        .with("request", request)
        .with("namespaceObject", namespace_type())
        .with("authorizer", Type::parse("authorizer"))
        .with("authorizer.requestResource", Type::parse("resource_check"));
    match has_params {
        true => environment.with("params", Type::Dyn),
        false => environment,
    }
}

/// The Namespace that a request is about, as far as expressions may look at it.
fn namespace_type() -> Type {
    let texts = || Type::map(Type::String, Type::String);
    let metadata = Type::object(
        "kubernetes.NamespaceMetadata",
        [
            ("name", Type::String),
            ("generateName", Type::String),
            ("namespace", Type::String),
            ("labels", texts()),
            ("annotations", texts()),
            ("UID", Type::String),
            ("creationTimestamp", Type::Timestamp),
            ("deletionGracePeriodSeconds", Type::Int),
            ("deletionTimestamp", Type::Timestamp),
            ("generation", Type::Int),
            ("resourceVersion", Type::String),
            ("finalizers", Type::list(Type::String)),
        ],
    );
    let condition = Type::object(
        "kubernetes.NamespaceCondition",
        [
            ("status", Type::String),
            ("type", Type::String),
            ("lastTransitionTime", Type::Timestamp),
            ("message", Type::String),
            ("reason", Type::String),
        ],
    );
    let status = [("conditions", Type::list(condition)), ("phase", Type::String)];
    let spec = [("finalizers", Type::list(Type::String))];
    Type::object(
        "kubernetes.Namespace",
        [
            ("metadata", metadata),
            ("spec", Type::object("kubernetes.NamespaceSpec", spec)),
            ("status", Type::object("kubernetes.NamespaceStatus", status)),
        ],
    )
}

/// The variables of a policy's expressions beside its conditions: the same, and those that it computes itself. Their
/// types are known only when they run.
pub fn policy_environment(has_params: bool) -> Environment {
    admission_environment(has_params).with("variables", Type::map(Type::String, Type::Dyn))
}

/// The most match conditions that a webhook or policy may have.
const MAX_CONDITIONS: usize = 64;

pub(crate) fn validate_conditions(
    conditions: &[Value],
    path: &Path,
    environment: &Environment,
    problems: &mut Problems,
) {
    if conditions.len() > MAX_CONDITIONS {
        let detail = format!("must have at most {MAX_CONDITIONS} items");
        problems.invalid(path, "", conditions.len(), detail);
    }
    let repeated = repeats(conditions.iter().map(|condition| condition.text("name")));
    for (index, condition) in conditions.iter().enumerate() {
        let path = path.index(index);
        let name = condition.text("name");
        if problems.needs(condition, &path, "name") {
            problems.form(&path, "name", name, names::label_key(name));
        }
        if repeated[index] {
            problems.duplicate(&path, "name", name);
        }
        if expression_is_there(condition, &path, "expression", "", problems) {
            validate_expression(condition, &path, "expression", environment, &[Type::Bool], problems);
        }
    }
}

/// Whether there is an expression at all; upstream has its own words for one that is missing in each place.
pub(crate) fn expression_is_there(
    object: &Value,
    path: &Path,
    field: &str,
    missing: &str,
    problems: &mut Problems,
) -> bool {
    let found = !object.text(field).trim().is_empty();
    if !found {
        problems.required(path, field, missing);
    }
    found
}

/// The type of an expression, if it is one.
pub(crate) fn type_of(
    object: &Value,
    path: &Path,
    field: &str,
    environment: &Environment,
    problems: &mut Problems,
) -> Option<Type> {
    let source = object.text(field);
    match Program::compile(source, environment) {
        Ok(program) => Some(program.result_type().clone()),
        Err(error) => {
            problems.invalid(path, field, source, format!("compilation failed: {error}"));
            None
        }
    }
}

/// An expression that must compile and have one of some types; without any, its type does not matter.
pub(crate) fn validate_expression(
    object: &Value,
    path: &Path,
    field: &str,
    environment: &Environment,
    wanted: &[Type],
    problems: &mut Problems,
) {
    let Some(found) = type_of(object, path, field, environment, problems) else {
        return;
    };
    if wanted.is_empty() || matches!(found, Type::Dyn) || wanted.contains(&found) {
        return;
    }
    let name = |ty: &Type| match ty {
        Type::Null => "null_type".to_owned(),
        ty => ty.to_string(),
    };
    let detail = match wanted {
        [one] => format!("must evaluate to {} but got {}", name(one), name(&found)),
        several => {
            let several: Vec<String> = several.iter().map(name).collect();
            format!(
                "must evaluate to one of [{}] but got {}",
                several.join(" "),
                name(&found)
            )
        }
    };
    problems.invalid(path, field, object.text(field), detail);
}
