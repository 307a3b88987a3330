//! Type checking of ValidatingAdmissionPolicies: their expressions, compiled against the kinds that they match.
//!
//! A policy is compiled with objects of any type when it is used, and may be right for kinds that do not exist yet. What
//! would fail for kinds that do exist is only told, in the policy's status.

use std::collections::BTreeMap;

use cel::{Environment, Program, Type};
use schema::{Shape, ShapeRef, TypeRef, View};
use serde_json::json;

use crate::expressions::admission_environment;
use crate::{Fields, Value, kinds};

/// So many kinds of one rule are looked at.
const MAX_KINDS: usize = 10;

/// A kind as a policy's rules name it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MatchedResource {
    pub group: String,
    pub version: String,
    pub plural: String,
}

/// A kind whose fields are known.
#[derive(Debug, PartialEq)]
pub struct TypedKind {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub ty: Type,
}

/// What a policy's rules name without wildcards; subresources are left out.
pub fn matched_resources(policy: &Value) -> Vec<MatchedResource> {
    let mut found = Vec::new();
    for rule in policy["spec"]["matchConstraints"].list("resourceRules") {
        let texts = |field: &str| -> Vec<&str> { rule.list(field).iter().filter_map(Value::as_str).collect() };
        let (mut groups, mut versions, mut plurals) = (texts("apiGroups"), texts("apiVersions"), texts("resources"));
        if groups.iter().chain(&versions).any(|name| name.contains('*')) {
            continue;
        }
        plurals.retain(|plural| !plural.contains(['*', '/']));
        groups.sort_unstable();
        versions.sort_unstable();
        plurals.sort_unstable();
        let all = groups.iter().flat_map(|group| {
            let plurals = &plurals;
            versions
                .iter()
                .flat_map(move |version| plurals.iter().map(move |plural| (*group, *version, *plural)))
        });
        found.extend(all.take(MAX_KINDS).map(|(group, version, plural)| MatchedResource {
            group: group.to_owned(),
            version: version.to_owned(),
            plural: plural.to_owned(),
        }));
    }
    found.sort();
    found.dedup();
    found
}

impl TypedKind {
    /// A kind that is built in, by its resource.
    pub fn built_in(resource: &MatchedResource) -> Option<TypedKind> {
        let row = kinds::find(&resource.group, &resource.version, &resource.plural)?;
        TypedKind::of(row.group, row.version, row.kind)
    }

    /// A kind that is built in, by its name.
    pub fn of(group: &str, version: &str, kind: &str) -> Option<TypedKind> {
        let ty = schema::builtin().kind(group, version, kind)?;
        Some(TypedKind {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
            ty: object_type(ty, &mut Vec::new()),
        })
    }

    /// A kind that a CustomResourceDefinition defines.
    pub fn defined(definition: &Value, version: &str) -> Option<TypedKind> {
        let spec = &definition["spec"];
        let served = |candidate: &&Value| candidate.text("name") == version && candidate.flag("served");
        let found = spec.list("versions").iter().find(served)?;
        let metadata = schema::builtin().named("meta/v1.ObjectMeta")?;
        let ty = cel::rules::type_of_object(&found["schema"]["openAPIV3Schema"])?;
        Some(TypedKind {
            group: spec.text("group").to_owned(),
            version: version.to_owned(),
            kind: spec["names"].text("kind").to_owned(),
            ty: ty.with_field("metadata", object_type(metadata, &mut Vec::new())),
        })
    }

    /// As upstream writes it: `apps/v1, Kind=Deployment`.
    fn shown(&self) -> String {
        match self.group.as_str() {
            "" => format!("/{}, Kind={}", self.version, self.kind),
            group => format!("{group}/{}, Kind={}", self.version, self.kind),
        }
    }
}

/// What `status.typeChecking.expressionWarnings` of a policy should say. `params` is the kind of its parameters where
/// its fields are known.
pub fn expression_warnings(policy: &Value, kinds: &[TypedKind], params: Option<&TypedKind>) -> Vec<Value> {
    let spec = &policy["spec"];
    let environments: Vec<(String, Environment)> = kinds
        .iter()
        .map(|kind| (kind.shown(), environment(spec, kind, params)))
        .collect();
    let mut warnings = Vec::new();
    for (index, validation) in spec.list("validations").iter().enumerate() {
        for field in ["expression", "messageExpression"] {
            let source = validation.text(field);
            if source.is_empty() {
                continue;
            }
            let problems = environments.iter().filter_map(|(kind, environment)| {
                let error = Program::compile(source, environment).err()?;
                Some(format!("{kind}: {error}\n"))
            });
            let problems: Vec<String> = problems.collect();
            if !problems.is_empty() {
                let place = format!("spec.validations[{index}].{field}");
                warnings.push(json!({"fieldRef": place, "warning": problems.join("\n")}));
            }
        }
    }
    warnings
}

/// The variables of a policy's expressions, with the types that they have for one kind.
fn environment(spec: &Value, kind: &TypedKind, params: Option<&TypedKind>) -> Environment {
    let mut environment = admission_environment(spec.has("paramKind"))
        .with("object", kind.ty.clone())
        .with("oldObject", kind.ty.clone());
    if let Some(params) = params {
        environment = environment.with("params", params.ty.clone());
    }
    let mut variables = Type::object("kubernetes.variables", []);
    environment = environment.with("variables", variables.clone());
    for variable in spec.list("variables") {
        let compiled = Program::compile(variable.text("expression"), &environment);
        // One that cannot be compiled is told of when the policy is used.
        let ty = compiled.map_or(Type::Dyn, |program| program.result_type().clone());
        variables = variables.with_field(variable.text("name"), ty);
        environment = environment.with("variables", variables.clone());
    }
    environment
}

/// The type of a struct of the API. What contains itself is not followed further.
fn object_type<'s>(ty: TypeRef<'s>, outer: &mut Vec<TypeRef<'s>>) -> Type {
    if outer.contains(&ty) {
        return Type::Dyn;
    }
    outer.push(ty);
    let mut fields: BTreeMap<String, Type> = ty
        .fields()
        .filter_map(|field| {
            let name = cel::rules::escape(&field.name)?;
            Some((name, field_type(field.view(), outer)))
        })
        .collect();
    outer.pop();
    if ty.is_kind {
        for name in ["apiVersion", "kind"] {
            fields.insert(name.to_owned(), Type::String);
        }
    }
    Type::object_of("object", fields)
}

fn field_type<'s>(view: View<'s>, outer: &mut Vec<TypeRef<'s>>) -> Type {
    let mut below = |element: ShapeRef<'s>| field_type(element.view(), outer);
    match view {
        View::Leaf(shape) => match shape {
            Shape::String | Shape::Duration => Type::String,
            Shape::Bool => Type::Bool,
            Shape::Int32 | Shape::Int64 => Type::Int,
            Shape::Float64 => Type::Double,
            Shape::Bytes => Type::Bytes,
            Shape::Time | Shape::MicroTime => Type::Timestamp,
            // Quantities are texts or numbers.
            _ => Type::Dyn,
        },
        View::Struct(ty) => object_type(ty, outer),
        View::List(element) => Type::list(below(element)),
        View::Map(element) => Type::map(Type::String, below(element)),
        View::Raw(_) | View::SchemaOr(..) => Type::Dyn,
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn policy(plural: &str, group: &str, validations: Value) -> Value {
        json!({"spec": {
            "matchConstraints": {"resourceRules": [
                {"apiGroups": [group], "apiVersions": ["v1"], "resources": [plural, "*", "pods/exec"]},
            ]},
            "variables": [{"name": "replicas", "expression": "object.spec.replicas"}],
            "validations": validations,
        }})
    }

    fn warnings(policy: &Value, definition: Option<&Value>) -> String {
        let kinds: Vec<TypedKind> = matched_resources(policy)
            .iter()
            .filter_map(|resource| match definition {
                Some(definition) => TypedKind::defined(definition, &resource.version),
                None => TypedKind::built_in(resource),
            })
            .collect();
        assert_eq!(kinds.len(), 1);
        let found = expression_warnings(policy, &kinds, None);
        let lines = found
            .iter()
            .map(|warning| format!("{}: {}", warning.text("fieldRef"), warning.text("warning")));
        lines.collect::<Vec<_>>().join("")
    }

    #[test]
    fn expressions_are_held_to_the_fields_of_built_in_kinds() {
        let right = json!([
            {"expression": "object.spec.replicas > 1 && variables.replicas < 5"},
            {"expression": "object.spec.template.spec.containers.all(c, c.resources.limits['cpu'] != '1')"},
            {"expression": "object.metadata.creationTimestamp < timestamp('2030-01-01T00:00:00Z')"},
            {"expression": "has(object.metadata.labels) && object.kind == 'Deployment'"},
        ]);
        assert_eq!(warnings(&policy("deployments", "apps", right), None), "");
        let wrong = json!([
            {"expression": "object.spec.replicas > '1'", "messageExpression": "'got ' + object.spec.replicas"},
            {"expression": "variables.replicas == 'x'"},
            {"expression": "object.spec.maxRetries < 10"},
        ]);
        expect![[r#"
            spec.validations[0].expression: apps/v1, Kind=Deployment: ERROR: <input>:1:22: found no matching overload for '_>_' applied to '(int, string)'
             | object.spec.replicas > '1'
             | .....................^
            spec.validations[0].messageExpression: apps/v1, Kind=Deployment: ERROR: <input>:1:8: found no matching overload for '_+_' applied to '(string, int)'
             | 'got ' + object.spec.replicas
             | .......^
            spec.validations[1].expression: apps/v1, Kind=Deployment: ERROR: <input>:1:20: found no matching overload for '_==_' applied to '(int, string)'
             | variables.replicas == 'x'
             | ...................^
            spec.validations[2].expression: apps/v1, Kind=Deployment: ERROR: <input>:1:12: undefined field 'maxRetries'
             | object.spec.maxRetries < 10
             | ...........^
        "#]]
        .assert_eq(&warnings(&policy("deployments", "apps", wrong), None));
    }

    #[test]
    fn expressions_are_held_to_the_schema_of_a_definition() {
        let definition = json!({"spec": {
            "group": "example.com", "names": {"kind": "CronTab"},
            "versions": [{"name": "v1", "served": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": {"type": "object", "properties": {
                    "replicas": {"type": "integer"},
                }}},
            }}}],
        }});
        let rules = json!([
            {"expression": "object.spec.replicas > 1 && object.metadata.labels.size() > 0"},
            {"expression": "object.spec.maxRetries < 10"},
        ]);
        expect![[r#"
            spec.validations[1].expression: example.com/v1, Kind=CronTab: ERROR: <input>:1:12: undefined field 'maxRetries'
             | object.spec.maxRetries < 10
             | ...........^
        "#]]
        .assert_eq(&warnings(&policy("crontabs", "example.com", rules), Some(&definition)));
    }

    #[test]
    fn wildcards_say_nothing_about_kinds() {
        let any = json!({"spec": {"matchConstraints": {"resourceRules": [
            {"apiGroups": ["*"], "apiVersions": ["v1"], "resources": ["pods"]},
            {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["*", "pods/status"]},
        ]}}});
        assert!(matched_resources(&any).is_empty());
    }

    #[test]
    fn types_that_contain_themselves_end() {
        assert!(TypedKind::of("apiextensions.k8s.io", "v1", "CustomResourceDefinition").is_some());
    }
}
