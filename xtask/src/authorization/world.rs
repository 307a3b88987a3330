//! Who there is, what they may do, and what there is to be had.

use serde_json::{Value, json};

use crate::bench::http::Response;
use crate::differential::cases::Request;
use crate::random::Random;

const GROUP: &str = "rbac.authorization.k8s.io";
pub const NAMESPACES: [&str; 3] = ["a", "b", "kube-system"];
pub const NODE: &str = "n1";
const ROLES: usize = 40;
const BINDINGS: usize = 140;

/// A resource as requests and rules name it.
#[derive(Clone, Copy)]
pub struct Resource {
    pub group: &'static str,
    pub version: &'static str,
    pub plural: &'static str,
    pub kind: &'static str,
    pub namespaced: bool,
    pub subresources: &'static [&'static str],
}

const fn cluster(
    group: &'static str,
    plural: &'static str,
    kind: &'static str,
    subresources: &'static [&'static str],
) -> Resource {
    Resource {
        group,
        version: "v1",
        plural,
        kind,
        namespaced: false,
        subresources,
    }
}

const fn namespaced(
    group: &'static str,
    plural: &'static str,
    kind: &'static str,
    subresources: &'static [&'static str],
) -> Resource {
    Resource {
        namespaced: true,
        ..cluster(group, plural, kind, subresources)
    }
}

/// What is asked for and given rights to.
pub const RESOURCES: &[Resource] = &[
    namespaced(
        "",
        "pods",
        "Pod",
        &[
            "attach",
            "binding",
            "eviction",
            "exec",
            "log",
            "portforward",
            "proxy",
            "status",
            "resize",
            "ephemeralcontainers",
        ],
    ),
    namespaced("", "secrets", "Secret", &[]),
    namespaced("", "configmaps", "ConfigMap", &[]),
    namespaced("", "services", "Service", &["proxy", "status"]),
    namespaced("", "serviceaccounts", "ServiceAccount", &["token"]),
    namespaced("", "endpoints", "Endpoints", &[]),
    namespaced("", "limitranges", "LimitRange", &[]),
    namespaced("", "bindings", "Binding", &[]),
    namespaced("apps", "deployments", "Deployment", &["scale", "status"]),
    namespaced("coordination.k8s.io", "leases", "Lease", &[]),
    namespaced(GROUP, "roles", "Role", &[]),
    namespaced(GROUP, "rolebindings", "RoleBinding", &[]),
    namespaced(
        "authorization.k8s.io",
        "localsubjectaccessreviews",
        "LocalSubjectAccessReview",
        &[],
    ),
    namespaced("test.dev", "things", "Thing", &["status"]),
    cluster("", "namespaces", "Namespace", &["finalize", "status"]),
    cluster("", "nodes", "Node", &["proxy", "status"]),
    cluster("", "persistentvolumes", "PersistentVolume", &["status"]),
    cluster("", "componentstatuses", "ComponentStatus", &[]),
    cluster(GROUP, "clusterroles", "ClusterRole", &[]),
    cluster(GROUP, "clusterrolebindings", "ClusterRoleBinding", &[]),
    cluster("node.k8s.io", "runtimeclasses", "RuntimeClass", &[]),
    cluster(
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        &["status"],
    ),
    cluster(
        "certificates.k8s.io",
        "certificatesigningrequests",
        "CertificateSigningRequest",
        &["approval", "status"],
    ),
    cluster("authentication.k8s.io", "tokenreviews", "TokenReview", &[]),
    cluster("authentication.k8s.io", "selfsubjectreviews", "SelfSubjectReview", &[]),
    cluster(
        "authorization.k8s.io",
        "selfsubjectaccessreviews",
        "SelfSubjectAccessReview",
        &[],
    ),
    cluster("test.dev", "wides", "Wide", &["status"]),
];

const VERBS: &[&str] = &[
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
    "impersonate",
    "bind",
    "escalate",
    "proxy",
    "impersonate:user-info",
    "impersonate-on:user-info:get",
    "impersonate-on:user-info:list",
    "*",
];

const PATHS: &[&str] = &[
    "/healthz",
    "/healthz/*",
    "/livez/*",
    "/metrics",
    "/version",
    "/version/",
    "/api*",
    "/apis/*",
    "/openapi/*",
    "/logs/*",
    "/debug/*",
    "/.well-known/*",
    "/readyz",
    "/swagger*",
    "*",
];

/// Names of users with the groups that their tokens give them.
pub const USERS: &[(&str, &str)] = &[
    ("u0", ""),
    ("u1", ""),
    ("u2", "g0"),
    ("u3", "g0,g1"),
    ("u4", "g1"),
    ("u5", "g2"),
    ("system:node:n1", "system:nodes"),
    (
        "system:serviceaccount:a:s",
        "system:serviceaccounts,system:serviceaccounts:a",
    ),
];

pub struct World {
    /// Paths and objects, in the order in which they are made.
    objects: Vec<(String, Value)>,
}

impl World {
    pub fn new(random: &mut Random) -> World {
        let mut world = World { objects: Vec::new() };
        world.add_things();
        world.add_rights(random);
        world
    }

    /// Lines of a token file. Everybody's token is their name.
    pub fn tokens(&self) -> String {
        let line = |(name, groups): &(&str, &str)| match *groups {
            "" => format!("{name},{name},{name}\n"),
            groups => format!("{name},{name},{name},\"{groups}\"\n"),
        };
        USERS.iter().map(line).collect()
    }

    fn add(&mut self, path: &str, object: Value) {
        self.objects.push((path.to_owned(), object));
    }

    /// Objects named `x` of every kind that can simply be made.
    fn add_things(&mut self) {
        for (plural, kind, scope) in [("things", "Thing", "Namespaced"), ("wides", "Wide", "Cluster")] {
            self.add(
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
                definition(plural, kind, scope),
            );
        }
        let named = || json!({"metadata": {"name": "x"}});
        for namespace in ["a", "b"] {
            self.add("/api/v1/namespaces", json!({"metadata": {"name": namespace}}));
        }
        self.add("/api/v1/nodes", json!({"metadata": {"name": NODE}}));
        self.add("/api/v1/nodes", named());
        let node = json!({"handler": "x", "metadata": {"name": "x"}});
        self.add("/apis/node.k8s.io/v1/runtimeclasses", node);
        for namespace in NAMESPACES {
            let core = format!("/api/v1/namespaces/{namespace}");
            for account in ["default", "s"] {
                self.add(
                    &format!("{core}/serviceaccounts"),
                    json!({"metadata": {"name": account}}),
                );
            }
            for plural in ["configmaps", "secrets", "endpoints", "limitranges"] {
                self.add(&format!("{core}/{plural}"), named());
            }
            let service = json!({"metadata": {"name": "x"}, "spec": {"ports": [{"port": 80}]}});
            self.add(&format!("{core}/services"), service);
            self.add(
                &format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"),
                named(),
            );
            self.add(&format!("{core}/pods"), pod("x", ""));
            self.add(&format!("{core}/pods"), pod("y", NODE));
        }
    }

    fn add_rights(&mut self, random: &mut Random) {
        for number in 0..ROLES {
            let rules: Vec<Value> = (0..=random.below(3)).map(|_| rule(random, number)).collect();
            let role = json!({"metadata": {"name": format!("r{number}")}, "rules": rules});
            self.add(&format!("/apis/{GROUP}/v1/clusterroles"), role);
            let rules: Vec<Value> = (0..=random.below(2)).map(|_| resource_rule(random)).collect();
            let role = json!({"metadata": {"name": format!("r{number}")}, "rules": rules});
            let namespace = pick(random, &NAMESPACES);
            self.add(&format!("/apis/{GROUP}/v1/namespaces/{namespace}/roles"), role);
        }
        for number in 0..BINDINGS {
            let name = format!("b{number}");
            let namespace = pick(random, &NAMESPACES);
            let role = format!("r{}", random.below(ROLES as u64));
            let (path, kind) = match random.below(5) {
                0 => (format!("/apis/{GROUP}/v1/clusterrolebindings"), "ClusterRole"),
                1 => (format!("/apis/{GROUP}/v1/namespaces/{namespace}/rolebindings"), "Role"),
                _ => (
                    format!("/apis/{GROUP}/v1/namespaces/{namespace}/rolebindings"),
                    "ClusterRole",
                ),
            };
            self.add(&path, binding(&name, kind, &role, subject(random)));
        }
        self.add_signs();
    }

    /// The last of everything: when these count, all that came before does.
    fn add_signs(&mut self) {
        let rules = json!([{"apiGroups": ["sign"], "resources": ["signs"], "verbs": ["see"]}]);
        let role = json!({"metadata": {"name": "sign"}, "rules": rules});
        let user = json!({"apiGroup": GROUP, "kind": "User", "name": "sign"});
        let cluster = format!("/apis/{GROUP}/v1");
        let below = format!("{cluster}/namespaces/a");
        self.add(&format!("{cluster}/clusterroles"), role.clone());
        self.add(&format!("{below}/roles"), role);
        self.add(
            &format!("{cluster}/clusterrolebindings"),
            binding("sign", "ClusterRole", "sign", user.clone()),
        );
        let user = json!({"apiGroup": GROUP, "kind": "User", "name": "sign-a"});
        self.add(&format!("{below}/rolebindings"), binding("sign", "Role", "sign", user));
    }

    pub fn setup(&self) -> Vec<Request> {
        let post = |(path, object): &(String, Value)| Request {
            method: "POST".to_owned(),
            path: path.clone(),
            content_type: "application/json".to_owned(),
            body: object.to_string(),
            ..Request::default()
        };
        self.objects.iter().map(post).collect()
    }

    /// Requests that are answered with yes when a server knows all of this.
    pub fn signs(&self) -> Vec<Request> {
        let review = |user: &str, namespace: &str| {
            let attributes = json!({"verb": "see", "group": "sign", "resource": "signs", "namespace": namespace});
            Request {
                method: "POST".to_owned(),
                path: "/apis/authorization.k8s.io/v1/subjectaccessreviews".to_owned(),
                content_type: "application/json".to_owned(),
                body: json!({"spec": {"user": user, "resourceAttributes": attributes}}).to_string(),
                ..Request::default()
            }
        };
        let list = |plural: &str| Request {
            method: "GET".to_owned(),
            path: format!("/apis/test.dev/v1/{plural}"),
            ..Request::default()
        };
        vec![review("sign", ""), review("sign-a", "a"), list("things"), list("wides")]
    }
}

/// Whether a review said yes, or a list was there.
pub fn is_sign(answer: &Response) -> bool {
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    body["status"]["allowed"] == true || body["items"].is_array()
}

pub fn pick<T: Copy>(random: &mut Random, values: &[T]) -> T {
    values[random.below(values.len() as u64) as usize]
}

/// A resource or one of its subresources, as a rule names it.
fn resource_name(random: &mut Random, resource: Resource) -> String {
    match (random.below(4), resource.subresources) {
        (0, [_, ..]) => format!("{}/{}", resource.plural, pick(random, resource.subresources)),
        (1, [_, ..]) if random.below(3) == 0 => format!("*/{}", pick(random, resource.subresources)),
        _ => resource.plural.to_owned(),
    }
}

fn some<T: Clone>(random: &mut Random, most: u64, mut one: impl FnMut(&mut Random) -> T) -> Vec<T> {
    (0..=random.below(most)).map(|_| one(random)).collect()
}

fn verbs(random: &mut Random) -> Vec<&'static str> {
    some(random, 6, |random| pick(random, VERBS))
}

fn resource_rule(random: &mut Random) -> Value {
    let resource = pick(random, RESOURCES);
    let groups = match random.below(8) {
        0 => vec!["*"],
        1 => vec![resource.group, "test.dev"],
        _ => vec![resource.group],
    };
    let resources = match random.below(10) {
        0 => vec!["*".to_owned()],
        _ => some(random, 3, |random| {
            let other = pick(random, RESOURCES);
            let resource = if random.below(2) == 0 { resource } else { other };
            resource_name(random, resource)
        }),
    };
    let mut rule = json!({"apiGroups": groups, "resources": resources, "verbs": verbs(random)});
    if random.below(4) == 0 {
        rule["resourceNames"] = json!(some(random, 2, |random| pick(random, &["x", "a", "n1", "u0", "none"])));
    }
    rule
}

/// Rules for paths, and for users that may be impersonated, are rarer.
fn rule(random: &mut Random, number: usize) -> Value {
    match random.below(6) {
        0 => json!({"nonResourceURLs": some(random, 2, |random| pick(random, PATHS)), "verbs": verbs(random)}),
        1 => {
            let group = pick(random, &["", "authentication.k8s.io"]);
            let resources = some(random, 3, |random| {
                pick(
                    random,
                    &[
                        "users",
                        "groups",
                        "uids",
                        "userextras/k",
                        "userextras/*",
                        "serviceaccounts",
                        "nodes",
                    ],
                )
            });
            let verbs = some(random, 2, |random| {
                pick(
                    random,
                    &[
                        "impersonate",
                        "impersonate:user-info",
                        "impersonate:serviceaccount",
                        "*",
                    ],
                )
            });
            json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
        }
        _ if number.is_multiple_of(12) => json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}),
        _ => resource_rule(random),
    }
}

fn subject(random: &mut Random) -> Value {
    match random.below(8) {
        0 => json!({"kind": "ServiceAccount", "name": "s", "namespace": "a"}),
        1 | 2 => json!({"apiGroup": GROUP, "kind": "Group", "name": pick(random, &["g0", "g1", "g2"])}),
        _ => json!({"apiGroup": GROUP, "kind": "User", "name": pick(random, USERS).0}),
    }
}

fn binding(name: &str, kind: &str, role: &str, subject: Value) -> Value {
    json!({
        "metadata": {"name": name}, "subjects": [subject],
        "roleRef": {"apiGroup": GROUP, "kind": kind, "name": role},
    })
}

fn pod(name: &str, node: &str) -> Value {
    let container = json!({
        "name": "c", "image": "i", "envFrom": [{"secretRef": {"name": "x"}}, {"configMapRef": {"name": "x"}}],
    });
    let mut pod = json!({"metadata": {"name": name}, "spec": {"containers": [container]}});
    if !node.is_empty() {
        pod["spec"]["nodeName"] = node.into();
        // Only secrets.
        pod["spec"]["containers"][0]["envFrom"] = json!([{"secretRef": {"name": "x"}}]);
    }
    pod
}

fn definition(plural: &str, kind: &str, scope: &str) -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "metadata": {"name": format!("{plural}.test.dev")},
        "spec": {
            "group": "test.dev", "scope": scope,
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                "subresources": {"status": {}},
            }],
        },
    })
}
