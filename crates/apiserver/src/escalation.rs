//! Nobody can give rights that they do not hold: roles and bindings are checked against those of whoever writes them.
//!
//! Not one of the plugins that can be switched off: without it, the right to write a role would be the right to
//! everything.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use admission::{Attributes, Lookup, Operation, Plugin};
use api::kinds::cluster_role::CLUSTER_ROLE;
use api::kinds::cluster_role_binding::CLUSTER_ROLE_BINDING;
use api::kinds::role::ROLE;
use api::kinds::role_binding::ROLE_BINDING;
use api::{Error, Fields, Value};
use async_trait::async_trait;
use auth::authorize::Rbac;
use auth::authorize::rbac::Rule;
use auth::{Authorizer, Decision};

const GROUP: &str = "rbac.authorization.k8s.io";
/// Who is in it may do everything, whatever the roles say.
const MASTERS: &str = "system:masters";

pub struct Escalation {
    pub rbac: Arc<Rbac>,
    /// Asked for the verbs `escalate` and `bind`, which stand for the rights themselves.
    pub authorizer: Arc<dyn Authorizer>,
}

#[async_trait]
impl Plugin for Escalation {
    fn name(&self) -> &'static str {
        "RBACEscalation"
    }

    fn handles(&self, attributes: &Attributes) -> bool {
        let kinds = [&ROLE, &CLUSTER_ROLE, &ROLE_BINDING, &CLUSTER_ROLE_BINDING];
        matches!(attributes.operation, Operation::Create | Operation::Update)
            && kinds.iter().any(|kind| attributes.is(kind, ""))
            && attributes.user.groups.iter().all(|group| group != MASTERS)
    }

    async fn validate(&self, attributes: &Attributes, lookup: &dyn Lookup) -> Result<(), Error> {
        if is_only_for_collection(attributes) {
            return Ok(());
        }
        if attributes.concerns(&ROLE) || attributes.concerns(&CLUSTER_ROLE) {
            self.check_role(attributes)
        } else {
            self.check_binding(attributes, lookup)
        }
    }
}

impl Escalation {
    fn check_role(&self, attributes: &Attributes) -> Result<(), Error> {
        let name = match attributes.name.as_str() {
            "" => attributes.object["metadata"].text("name"),
            name => name,
        };
        if self.may(attributes, "escalate", attributes.resource.plural, name) {
            return Ok(());
        }
        self.check_held(attributes, &Rule::parse_all(&attributes.object["rules"]))?;
        // What others may add to such a role cannot be known.
        if attributes.object.has("aggregationRule") && !self.missing(attributes, &everything()).is_empty() {
            return Err(attributes.forbidden("must have cluster-admin privileges to use the aggregationRule"));
        }
        Ok(())
    }

    fn check_binding(&self, attributes: &Attributes, lookup: &dyn Lookup) -> Result<(), Error> {
        let reference = &attributes.object["roleRef"];
        let name = reference.text("name");
        let (role, namespace) = match reference.text("kind") {
            "Role" => (&ROLE, attributes.namespace.as_str()),
            _ => (&CLUSTER_ROLE, ""),
        };
        if self.may(attributes, "bind", role.plural, name) {
            return Ok(());
        }
        // The role may have been written just now, and is not followed yet.
        let bound = lookup.get(role, namespace, name);
        let bound = bound.ok_or_else(|| Error::not_found(role, name))?;
        let mut rules = Rule::parse_all(&bound["rules"]);
        if bound.has("aggregationRule") {
            rules.extend(self.rbac.role(namespace, name).unwrap_or_default());
        }
        self.check_held(attributes, &rules)
    }

    fn may(&self, attributes: &Attributes, verb: &str, resource: &str, name: &str) -> bool {
        let wanted = auth::Attributes {
            user: &attributes.user,
            verb,
            is_resource: true,
            group: GROUP,
            version: "*",
            resource,
            subresource: "",
            namespace: &attributes.namespace,
            name,
            path: "",
            field_selector: None,
            label_selector: None,
        };
        matches!(self.authorizer.authorize(&wanted), Decision::Allow(_))
    }

    fn missing(&self, attributes: &Attributes, rules: &[Rule]) -> Vec<Rule> {
        self.rbac.uncovered(&attributes.user, &attributes.namespace, rules)
    }

    fn check_held(&self, attributes: &Attributes, rules: &[Rule]) -> Result<(), Error> {
        let missing = self.missing(attributes, rules);
        if missing.is_empty() {
            return Ok(());
        }
        let lines: BTreeSet<String> = compact(missing).iter().map(describe).collect();
        let lines: Vec<String> = lines.into_iter().collect();
        let (user, groups) = (&attributes.user.name, quoted(attributes.user.groups.iter()));
        Err(attributes.forbidden(format!(
            "user {user:?} (groups={groups}) is attempting to grant RBAC permissions not currently held:\n{}",
            lines.join("\n")
        )))
    }
}

/// The garbage collector changes owners and finalizers of what it may not grant.
fn is_only_for_collection(attributes: &Attributes) -> bool {
    if attributes.operation != Operation::Update {
        return false;
    }
    let bare = |object: &Value| {
        let mut object = object.clone();
        for field in ["ownerReferences", "finalizers", "resourceVersion", "managedFields"] {
            object.ensure("metadata").remove(field);
        }
        object
    };
    bare(&attributes.object) == bare(&attributes.old_object)
}

fn everything() -> Vec<Rule> {
    let all = || vec![Box::from("*")];
    let resources = Rule {
        verbs: all(),
        api_groups: all(),
        resources: all(),
        ..Rule::default()
    };
    let urls = Rule {
        verbs: all(),
        non_resource_urls: all(),
        ..Rule::default()
    };
    vec![resources, urls]
}

/// Rules that differ in their verb alone become one.
fn compact(rules: Vec<Rule>) -> Vec<Rule> {
    let mut compact: Vec<Rule> = Vec::new();
    let mut places = HashMap::new();
    for rule in rules {
        let what = (
            rule.api_groups.clone(),
            rule.resources.clone(),
            rule.resource_names.clone(),
        );
        let place = *places.entry(what).or_insert(compact.len());
        match compact.get_mut(place).filter(|_| rule.non_resource_urls.is_empty()) {
            Some(known) => known.verbs.extend(rule.verbs),
            None => compact.push(rule),
        }
    }
    compact
}

fn describe(rule: &Rule) -> String {
    let fields = [
        ("APIGroups", &rule.api_groups),
        ("Resources", &rule.resources),
        ("NonResourceURLs", &rule.non_resource_urls),
        ("ResourceNames", &rule.resource_names),
        ("Verbs", &rule.verbs),
    ];
    let shown = fields.iter().filter(|(_, values)| !values.is_empty());
    let parts: Vec<String> = shown
        .map(|(name, values)| format!("{name}:{}", quoted(values.iter())))
        .collect();
    format!("{{{}}}", parts.join(", "))
}

/// A list as Go quotes it: `["a" "b"]`.
fn quoted<T: AsRef<str>>(values: impl Iterator<Item = T>) -> String {
    let values: Vec<String> = values.map(|value| format!("{:?}", value.as_ref())).collect();
    format!("[{}]", values.join(" "))
}

#[cfg(test)]
mod tests {
    use auth::User;
    use expect_test::expect;
    use futures_util::FutureExt;
    use serde_json::json;

    use super::*;

    /// The roles of the cluster.
    struct Roles(Vec<Value>);

    impl Lookup for Roles {
        fn get(&self, _: &'static api::Resource, _: &str, name: &str) -> Option<Arc<Value>> {
            let found = self.0.iter().find(|role| role["metadata"]["name"] == name);
            found.cloned().map(Arc::new)
        }

        fn list(&self, _: &'static api::Resource, _: &str) -> Vec<Value> {
            Vec::new()
        }
    }

    /// Jane may read pods, and bind the role `viewer`.
    fn check(resource: &'static api::Resource, object: Value) -> String {
        let rbac = Arc::new(Rbac::default());
        let rules = json!([
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
            {"apiGroups": [GROUP], "resources": ["clusterroles"], "resourceNames": ["viewer"], "verbs": ["bind"]},
        ]);
        let secrets = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"]}]);
        let roles = [("jane", rules), ("viewer", secrets.clone()), ("secrets", secrets)];
        let roles = roles.map(|(name, rules)| json!({"metadata": {"name": name}, "rules": rules}));
        roles.iter().for_each(|role| rbac.set("clusterroles", role));
        let subjects = json!([{"kind": "User", "name": "jane", "apiGroup": GROUP}]);
        let role = json!({"kind": "ClusterRole", "name": "jane", "apiGroup": GROUP});
        let binding = json!({"metadata": {"name": "jane"}, "roleRef": role, "subjects": subjects});
        rbac.set("clusterrolebindings", &binding);
        let attributes = Attributes {
            user: User::system("jane", &["staff"]),
            operation: Operation::Create,
            resource,
            subresource: String::new(),
            namespace: String::new(),
            name: "new".to_owned(),
            object,
            old_object: Value::Null,
            dry_run: false,
            options: Value::Null,
            remarks: Arc::default(),
            reinvocation: admission::Reinvocation::default(),
        };
        let escalation = Escalation {
            authorizer: rbac.clone(),
            rbac,
        };
        let checked = escalation.validate(&attributes, &Roles(roles.to_vec())).now_or_never();
        checked
            .expect("it does not wait")
            .err()
            .map(|error| error.message)
            .unwrap_or_default()
    }

    #[test]
    fn roles_hold_only_what_their_writer_holds() {
        let rules =
            |resource: &str| json!({"rules": [{"apiGroups": [""], "resources": [resource], "verbs": ["get", "list"]}]});
        assert_eq!(check(&CLUSTER_ROLE, rules("pods")), "");
        expect![[r#"
            clusterroles.rbac.authorization.k8s.io "new" is forbidden: user "jane" (groups=["staff" "system:authenticated"]) is attempting to grant RBAC permissions not currently held:
            {APIGroups:[""], Resources:["secrets"], Verbs:["get" "list"]}"#]]
        .assert_eq(&check(&CLUSTER_ROLE, rules("secrets")));
        let sum = json!({"aggregationRule": {"clusterRoleSelectors": []}});
        expect![[r#"clusterroles.rbac.authorization.k8s.io "new" is forbidden: must have cluster-admin privileges to use the aggregationRule"#]]
            .assert_eq(&check(&CLUSTER_ROLE, sum));
    }

    #[test]
    fn bindings_give_only_what_their_writer_holds_or_may_bind() {
        let binding = |role: &str| json!({"roleRef": {"kind": "ClusterRole", "name": role}});
        assert_eq!(check(&CLUSTER_ROLE_BINDING, binding("jane")), "");
        assert_eq!(check(&CLUSTER_ROLE_BINDING, binding("viewer")), "");
        assert!(check(&CLUSTER_ROLE_BINDING, binding("secrets")).contains("not currently held"));
    }

    /// As many as a body of 3 MiB can have.
    #[test]
    fn very_many_rules_are_compared_once() {
        let rule = |at: usize, verb: &str| Rule {
            verbs: vec![Box::from(verb)],
            api_groups: vec![Box::from("")],
            resources: vec![Box::from(format!("r{at}"))],
            ..Rule::default()
        };
        let rules = (0..60_000).flat_map(|at| ["get", "list"].map(|verb| rule(at, verb)));
        let begun = tokio::time::Instant::now();
        let found = compact(rules.collect());
        assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
        assert_eq!(found.len(), 60_000);
        assert_eq!(found[0].verbs.len(), 2);
    }
}
