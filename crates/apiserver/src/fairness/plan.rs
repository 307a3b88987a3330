//! FlowSchemas and PriorityLevelConfigurations as decisions: the first schema that matches a request says its level.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use auth::User;
use http::HeaderValue;
use serde::Deserialize;

use super::Class;
use super::seats::LevelSettings;
use crate::request::RequestInfo;

const ALL: &str = "*";

/// All schemas in the order in which they are tried, and all levels.
#[derive(Default)]
pub struct Plan {
    schemas: Vec<Schema>,
    levels: Vec<Level>,
}

struct Schema {
    spec: FlowSchemaSpec,
    name: String,
    level: Arc<str>,
    class: Class,
}

/// What a request was found to be.
pub struct Found<'a> {
    pub class: Class,
    pub level: &'a Arc<str>,
    /// Requests of one flow share their level's queues fairly with other flows.
    pub flow: u64,
}

#[derive(Clone, Debug, Deserialize)]
pub struct FlowSchema {
    pub metadata: Named,
    pub spec: FlowSchemaSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub struct Named {
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    uid: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FlowSchemaSpec {
    #[serde(default)]
    matching_precedence: i32,
    pub priority_level_configuration: Named,
    distinguisher_method: Option<Distinguisher>,
    #[serde(default)]
    rules: Vec<Rule>,
}

#[derive(Clone, Debug, Deserialize)]
struct Distinguisher {
    r#type: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Rule {
    subjects: Vec<Subject>,
    resource_rules: Vec<ResourceRule>,
    non_resource_rules: Vec<PathRule>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Subject {
    user: Option<Named>,
    group: Option<Named>,
    service_account: Option<Account>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Account {
    namespace: String,
    name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ResourceRule {
    verbs: Vec<String>,
    api_groups: Vec<String>,
    resources: Vec<String>,
    cluster_scope: bool,
    namespaces: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct PathRule {
    #[serde(default)]
    verbs: Vec<String>,
    #[serde(default, rename = "nonResourceURLs")]
    urls: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Level {
    pub metadata: Named,
    spec: LevelSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct LevelSpec {
    limited: Option<Limited>,
    exempt: Option<Shares>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Limited {
    #[serde(flatten)]
    shares: Shares,
    borrowing_limit_percent: Option<usize>,
    limit_response: LimitResponse,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Shares {
    nominal_concurrency_shares: usize,
    lendable_percent: usize,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct LimitResponse {
    queuing: Option<Queuing>,
}

/// How a level's waiting requests are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Queuing {
    pub queues: usize,
    pub hand_size: usize,
    pub queue_length_limit: usize,
}

impl Plan {
    /// Schemas that point to a level that does not exist are left out.
    pub fn new(schemas: Vec<FlowSchema>, levels: Vec<Level>) -> Plan {
        let uids: HashMap<&str, &str> = levels
            .iter()
            .map(|level| (level.metadata.name.as_str(), level.metadata.uid.as_str()))
            .collect();
        let mut ordered: Vec<Schema> = schemas
            .into_iter()
            .filter_map(|FlowSchema { metadata, spec }| {
                let level = spec.priority_level_configuration.name.as_str();
                let class = Class {
                    flow_schema_uid: header(&metadata.uid),
                    priority_level_uid: header(uids.get(level)?),
                };
                let (level, name) = (level.into(), metadata.name);
                Some(Schema {
                    spec,
                    name,
                    level,
                    class,
                })
            })
            .collect();
        ordered.sort_by(|one, other| {
            let precedence = |schema: &Schema| schema.spec.matching_precedence;
            let by_precedence = precedence(one).cmp(&precedence(other));
            by_precedence.then_with(|| one.name.cmp(&other.name))
        });
        Plan {
            schemas: ordered,
            levels,
        }
    }

    pub fn classify(&self, user: &User, info: &RequestInfo) -> Option<Found<'_>> {
        let schema = self.schemas.iter().find(|schema| schema.matches(user, info))?;
        let mut hasher = DefaultHasher::new();
        schema.name.hash(&mut hasher);
        let distinguisher = schema.spec.distinguisher_method.as_ref().map(|method| &*method.r#type);
        match distinguisher {
            Some("ByUser") => user.name.hash(&mut hasher),
            Some("ByNamespace") => info.namespace.hash(&mut hasher),
            _ => {}
        }
        Some(Found {
            class: schema.class.clone(),
            level: &schema.level,
            flow: hasher.finish(),
        })
    }

    pub fn levels(&self) -> impl Iterator<Item = (Arc<str>, LevelSettings)> {
        self.levels
            .iter()
            .map(|level| (level.metadata.name.as_str().into(), level.settings()))
    }
}

impl Level {
    fn settings(&self) -> LevelSettings {
        match (&self.spec.limited, &self.spec.exempt) {
            (Some(limited), _) => LevelSettings {
                exempt: false,
                shares: limited.shares.nominal_concurrency_shares,
                lendable_percent: limited.shares.lendable_percent,
                borrowing_limit_percent: limited.borrowing_limit_percent,
                queuing: limited.limit_response.queuing,
            },
            (None, exempt) => LevelSettings {
                exempt: true,
                shares: exempt.as_ref().map_or(0, |shares| shares.nominal_concurrency_shares),
                lendable_percent: exempt.as_ref().map_or(0, |shares| shares.lendable_percent),
                borrowing_limit_percent: None,
                queuing: None,
            },
        }
    }
}

impl Schema {
    fn matches(&self, user: &User, info: &RequestInfo) -> bool {
        self.spec.rules.iter().any(|rule| {
            let what = match info.is_resource {
                true => rule.resource_rules.iter().any(|rule| rule.matches(info)),
                false => rule.non_resource_rules.iter().any(|rule| rule.matches(info)),
            };
            what && rule.subjects.iter().any(|subject| subject.matches(user))
        })
    }
}

impl Subject {
    fn matches(&self, user: &User) -> bool {
        let named = |wanted: &str, found: &str| wanted == ALL || wanted == found;
        if let Some(wanted) = &self.user {
            return named(&wanted.name, &user.name);
        }
        if let Some(wanted) = &self.group {
            return user.groups.iter().any(|group| named(&wanted.name, group));
        }
        let Some(wanted) = &self.service_account else {
            return false;
        };
        let account = user.as_service_account();
        account.is_some_and(|(namespace, name)| wanted.namespace == namespace && named(&wanted.name, name))
    }
}

impl ResourceRule {
    fn matches(&self, info: &RequestInfo) -> bool {
        let in_scope = match info.namespace.as_str() {
            "" => self.cluster_scope,
            namespace => any(&self.namespaces, namespace),
        };
        in_scope && any(&self.verbs, info.verb) && any(&self.api_groups, &info.group) && self.names(info)
    }

    fn names(&self, info: &RequestInfo) -> bool {
        self.resources.iter().any(|wanted| match wanted.split_once('/') {
            None => wanted == ALL || (info.subresource.is_empty() && *wanted == info.resource),
            Some((resource, subresource)) => resource == info.resource && subresource == info.subresource,
        })
    }
}

impl PathRule {
    fn matches(&self, info: &RequestInfo) -> bool {
        let path = info.path.as_str();
        let fits = |wanted: &String| match wanted.strip_suffix("/*") {
            _ if wanted == ALL => true,
            Some(parent) => path.strip_prefix(parent).is_some_and(|rest| rest.starts_with('/')),
            None => wanted == path,
        };
        any(&self.verbs, info.verb) && self.urls.iter().any(fits)
    }
}

fn header(uid: &str) -> Option<HeaderValue> {
    HeaderValue::from_str(uid).ok().filter(|uid| !uid.is_empty())
}

fn any(wanted: &[String], found: &str) -> bool {
    wanted.iter().any(|wanted| wanted == ALL || wanted == found)
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::fairness::defaults;
    use crate::request::Query;

    fn plan() -> Plan {
        let (mut schemas, mut levels) = (Vec::new(), Vec::new());
        for seed in defaults::seeds() {
            match seed.resource.plural {
                "flowschemas" => schemas.push(serde_json::from_value(seed.value).unwrap()),
                _ => levels.push(serde_json::from_value(seed.value).unwrap()),
            }
        }
        Plan::new(schemas, levels)
    }

    fn check(user: User, method: Method, url: &str, expected: &str) {
        let (path, query) = url.split_once('?').unwrap_or((url, ""));
        let info = RequestInfo::parse(&method, path, &Query::parse(query)).expect("a path");
        let plan = plan();
        let schema = plan.schemas.iter().find(|schema| schema.matches(&user, &info)).unwrap();
        assert_eq!(
            format!("{} {}", schema.name, schema.level),
            expected,
            "{} {url}",
            user.name
        );
    }

    #[test]
    fn the_default_schemas_sort_requests_as_upstream_does() {
        let node = || User::system("system:node:a", &["system:nodes"]);
        let account = |namespace: &str| User::service_account(namespace, "x", "").authenticated();
        let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/a";
        check(
            User::system("admin", &["system:masters"]),
            Method::GET,
            "/api/v1/pods",
            "exempt exempt",
        );
        check(User::anonymous(), Method::GET, "/healthz", "probes exempt");
        check(
            User::anonymous(),
            Method::GET,
            "/healthz/ping",
            "global-default global-default",
        );
        check(node(), Method::PUT, lease, "system-node-high node-high");
        check(
            node(),
            Method::PATCH,
            "/api/v1/nodes/a/status",
            "system-node-high node-high",
        );
        check(node(), Method::GET, "/api/v1/pods", "system-nodes system");
        let scheduler = || User::system("system:kube-scheduler", &[]);
        check(
            scheduler(),
            Method::PUT,
            lease,
            "system-leader-election leader-election",
        );
        check(scheduler(), Method::GET, "/api/v1/pods", "kube-scheduler workload-high");
        check(
            account("kube-system"),
            Method::GET,
            "/api/v1/pods",
            "kube-system-service-accounts workload-high",
        );
        check(
            account("shop"),
            Method::GET,
            "/api/v1/pods",
            "service-accounts workload-low",
        );
        check(
            User::system("jane", &[]),
            Method::GET,
            "/api/v1/pods",
            "global-default global-default",
        );
    }

    #[test]
    fn a_flow_is_a_user_or_a_namespace_of_a_schema() {
        let plan = plan();
        let flow = |user: &str, path: &str| {
            let info = RequestInfo::parse(&Method::GET, path, &Query::default()).expect("a path");
            plan.classify(&User::system(user, &[]), &info).unwrap().flow
        };
        let (one, other) = ("/api/v1/namespaces/a/pods", "/api/v1/namespaces/b/pods");
        assert_eq!(flow("jane", one), flow("jane", other), "by user");
        assert_ne!(flow("jane", one), flow("john", one), "by user");
        assert_ne!(
            flow("system:kube-scheduler", one),
            flow("system:kube-scheduler", other),
            "by namespace"
        );
    }

    #[test]
    fn a_schema_without_its_level_is_not_used() {
        let schema = serde_json::json!({
            "metadata": { "name": "lost" },
            "spec": { "priorityLevelConfiguration": { "name": "nowhere" }, "rules": [{
                "subjects": [{ "kind": "User", "user": { "name": "*" } }],
                "nonResourceRules": [{ "verbs": ["*"], "nonResourceURLs": ["*"] }],
            }] },
        });
        let plan = Plan::new(vec![serde_json::from_value(schema).unwrap()], Vec::new());
        let info = RequestInfo::parse(&Method::GET, "/version", &Query::default()).expect("a path");
        assert!(plan.classify(&User::anonymous(), &info).is_none());
    }
}
