//! Which requests a webhook or a policy is for: rules, selectors and equivalent versions.

use api::kinds::namespace::NAMESPACE;
use api::selector::Selector;
use api::{Error, Fields, LabelSelector, Resource, Value};

use crate::{Attributes, Lookup, Operation};

/// The `matchConstraints` of a policy, the `matchResources` of a binding, or the same fields of a webhook.
#[derive(Clone, Debug, Default)]
pub struct Criteria {
    rules: Vec<Rule>,
    excluded: Vec<Rule>,
    namespaces: Selector,
    objects: Selector,
    /// Whether other versions of the named resources are meant too.
    equivalent: bool,
}

#[derive(Clone, Debug)]
struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    names: Vec<String>,
    scope: String,
}

impl Criteria {
    /// `rules` is the name of the field with the rules: `rules` in webhooks, `resourceRules` in policies.
    pub fn parse(value: &Value, rules: &str) -> Criteria {
        Criteria {
            rules: value.list(rules).iter().map(Rule::parse).collect(),
            excluded: value.list("excludeResourceRules").iter().map(Rule::parse).collect(),
            namespaces: selector(&value["namespaceSelector"]),
            objects: selector(&value["objectSelector"]),
            equivalent: value.text("matchPolicy") != "Exact",
        }
    }

    /// As which resource the request is meant, if it is: in its own version, or in another one of the same objects.
    pub fn matches(&self, attributes: &Attributes, lookup: &dyn Lookup) -> Result<Option<&'static Resource>, Error> {
        let Some(resource) = self.matching_resource(attributes, lookup) else {
            return Ok(None);
        };
        let meant = self.objects_match(attributes) && self.namespace_matches(attributes, lookup)?;
        Ok(meant.then_some(resource))
    }

    /// Whether a request that a policy matched is also meant by a binding, whose rules may be absent.
    pub fn matches_binding(&self, attributes: &Attributes, lookup: &dyn Lookup) -> Result<bool, Error> {
        if !self.rules.is_empty() || !self.excluded.is_empty() {
            return Ok(self.matches(attributes, lookup)?.is_some());
        }
        Ok(self.objects_match(attributes) && self.namespace_matches(attributes, lookup)?)
    }

    fn matching_resource(&self, attributes: &Attributes, lookup: &dyn Lookup) -> Option<&'static Resource> {
        let own = attributes.resource;
        let any = |rules: &[Rule], resource| rules.iter().any(|rule| rule.matches(attributes, resource));
        let equivalents = || match self.equivalent {
            true => lookup.equivalents(own),
            false => Vec::new(),
        };
        if any(&self.excluded, own) || equivalents().into_iter().any(|other| any(&self.excluded, other)) {
            return None;
        }
        if self.rules.is_empty() && !self.excluded.is_empty() || any(&self.rules, own) {
            return Some(own);
        }
        equivalents().into_iter().find(|other| any(&self.rules, other))
    }

    fn objects_match(&self, attributes: &Attributes) -> bool {
        if self.objects.is_empty() {
            return true;
        }
        let matches = |object: &Value| object.has("metadata") && self.objects.matches_with(label_of(object));
        matches(&attributes.object) || matches(&attributes.old_object)
    }

    fn namespace_matches(&self, attributes: &Attributes, lookup: &dyn Lookup) -> Result<bool, Error> {
        if self.namespaces.is_empty() {
            return Ok(true);
        }
        let is_namespace = attributes.concerns(&NAMESPACE);
        if !attributes.resource.namespaced && !is_namespace {
            return Ok(true);
        }
        let writes = matches!(attributes.operation, Operation::Create | Operation::Update);
        if is_namespace && attributes.subresource.is_empty() && writes {
            return Ok(self.namespaces.matches_with(label_of(&attributes.object)));
        }
        let name = match is_namespace {
            true => &attributes.name,
            false => &attributes.namespace,
        };
        let namespace = lookup.get(&NAMESPACE, "", name);
        let namespace = namespace.ok_or_else(|| Error::not_found(&NAMESPACE, name))?;
        Ok(self.namespaces.matches_with(label_of(&namespace)))
    }
}

impl Rule {
    fn parse(rule: &Value) -> Rule {
        let texts = |field: &str| -> Vec<String> {
            let items = rule.list(field).iter().filter_map(Value::as_str);
            items.map(str::to_owned).collect()
        };
        Rule {
            operations: texts("operations"),
            groups: texts("apiGroups"),
            versions: texts("apiVersions"),
            resources: texts("resources"),
            names: texts("resourceNames"),
            scope: rule.text("scope").to_owned(),
        }
    }

    fn matches(&self, attributes: &Attributes, resource: &Resource) -> bool {
        let one_of = |list: &[String], wanted: &str| list.iter().any(|item| item == "*" || item == wanted);
        let name = attributes.object_name();
        self.scope_matches(attributes)
            && one_of(&self.operations, attributes.operation.as_str())
            && one_of(&self.groups, resource.group)
            && one_of(&self.versions, resource.version)
            && self
                .resources
                .iter()
                .any(|pattern| names_resource(pattern, resource.plural, &attributes.subresource))
            && (self.names.is_empty() || self.names.iter().any(|wanted| wanted == name))
    }

    fn scope_matches(&self, attributes: &Attributes) -> bool {
        match self.scope.as_str() {
            "Namespaced" => attributes.resource.namespaced,
            "Cluster" => !attributes.resource.namespaced,
            _ => true,
        }
    }
}

/// `pods`, `pods/*`, `*/scale`, `*` (no subresources) or `*/*`.
fn names_resource(pattern: &str, plural: &str, subresource: &str) -> bool {
    let (wanted, wanted_subresource) = pattern.split_once('/').unwrap_or((pattern, ""));
    (wanted == "*" || wanted == plural) && (wanted_subresource == "*" || wanted_subresource == subresource)
}

fn selector(value: &Value) -> Selector {
    let parsed: Option<LabelSelector> = serde_json::from_value(value.clone()).ok();
    parsed.map(|selector| Selector::from(&selector)).unwrap_or_default()
}

pub fn label_of<'a>(object: &'a Value) -> impl Fn(&str) -> Option<&'a str> {
    move |key| object["metadata"]["labels"][key].as_str()
}

/// Objects that decide about admission are never subject to it, so that a broken rule can always be taken away.
pub fn is_exempt(attributes: &Attributes) -> bool {
    attributes.resource.group == "admissionregistration.k8s.io"
}

#[cfg(test)]
mod tests {
    use api::kinds::config_map::CONFIG_MAP;
    use api::kinds::node::NODE;
    use api::kinds::pod::POD;
    use serde_json::json;

    use super::*;
    use crate::testing::{Cluster, create};

    fn matches(criteria: Value, attributes: &Attributes) -> bool {
        let team = json!({"metadata": {"name": "team", "labels": {"env": "prod"}}});
        let cluster = Cluster(vec![(&NAMESPACE, team)]);
        let criteria = Criteria::parse(&criteria, "rules");
        criteria.matches(attributes, &cluster).unwrap().is_some()
    }

    fn rule(group: &str, version: &str, resource: &str, scope: &str) -> Value {
        json!({
            "operations": ["CREATE"], "apiGroups": [group], "apiVersions": [version], "resources": [resource],
            "scope": scope,
        })
    }

    fn map() -> Attributes {
        create(
            &CONFIG_MAP,
            json!({"metadata": {"name": "m", "namespace": "team", "labels": {"app": "web"}}}),
        )
    }

    #[test]
    fn rules_name_groups_versions_resources_and_scopes() {
        let yes = |rule: Value| assert!(matches(json!({ "rules": [rule.clone()] }), &map()), "{rule}");
        let no = |rule: Value| assert!(!matches(json!({ "rules": [rule.clone()] }), &map()), "{rule}");
        yes(rule("", "v1", "configmaps", "*"));
        yes(rule("*", "*", "*/*", "Namespaced"));
        yes(rule("", "v1", "*", ""));
        no(rule("apps", "v1", "configmaps", "*"));
        no(rule("", "v1", "configmaps/status", "*"));
        no(rule("", "v1", "configmaps", "Cluster"));
        no(json!({"operations": ["DELETE"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}));
    }

    #[test]
    fn subresources_are_named() {
        let status = Attributes {
            subresource: "status".to_owned(),
            ..create(&POD, json!({"metadata": {"name": "p", "namespace": "team"}}))
        };
        for (pattern, expected) in [
            ("pods", false),
            ("pods/*", true),
            ("*/status", true),
            ("*", false),
            ("*/*", true),
        ] {
            let criteria = json!({ "rules": [rule("", "v1", pattern, "*")] });
            assert_eq!(matches(criteria, &status), expected, "{pattern}");
        }
    }

    #[test]
    fn selectors_look_at_labels_of_the_object_and_of_its_namespace() {
        let with = |namespaces: Value, objects: Value| {
            json!({
                "rules": [rule("*", "*", "*", "*")], "namespaceSelector": namespaces, "objectSelector": objects,
            })
        };
        let prod = json!({"matchLabels": {"env": "prod"}});
        let test = json!({"matchLabels": {"env": "test"}});
        assert!(matches(with(prod.clone(), json!({})), &map()));
        assert!(!matches(with(test.clone(), json!({})), &map()));
        assert!(matches(with(json!({}), json!({"matchLabels": {"app": "web"}})), &map()));
        assert!(!matches(with(json!({}), json!({"matchLabels": {"app": "db"}})), &map()));
        // Objects without a namespace are never left out by a namespace selector, but namespaces can be.
        assert!(matches(
            with(test.clone(), json!({})),
            &create(&NODE, json!({"metadata": {"name": "n"}}))
        ));
        let namespace = json!({"metadata": {"name": "new", "labels": {"env": "prod"}}});
        assert!(!matches(with(test, json!({})), &create(&NAMESPACE, namespace.clone())));
        assert!(matches(with(prod, json!({})), &create(&NAMESPACE, namespace)));
    }
}
