//! What a node may do to objects that are not its own.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::EvilNode;
use crate::cases::Case;
use crate::client::Client;
use crate::cluster::NODE_NAME;
use crate::pods::{container, pod_spec};
use crate::signals::{self, wait_for};
use crate::verdict::{Verdict, judge};
use crate::world::{Namespace, PATIENCE, World};

pub const OBJECTS_OF_OTHERS: Case = Case {
    name: "nodes/objects-of-others",
    class: "",
    must_not: "A node reads Secrets, changes nodes, leases or pods, or takes labels that are not its own.",
    needs: &[],
    run: objects_of_others,
};

pub const TOKENS_FOR_OTHERS: Case = Case {
    name: "nodes/tokens-for-others",
    class: "",
    must_not: "A node gets tokens of service accounts for audiences that its pods do not have, or of pods that are not its own.",
    needs: &[],
    run: tokens_for_others,
};

pub const MIRROR_PODS: Case = Case {
    name: "nodes/mirror-pods",
    class: "",
    must_not: "A node makes a mirror pod that refers to Secrets or service accounts, or makes its pods mirror pods later.",
    needs: &[],
    run: mirror_pods,
};

pub const ROUTES_OF_A_VICTIM: Case = Case {
    name: "nodes/routes-of-a-victim",
    class: "",
    must_not: "A node chooses its podCIDR so that others send the traffic of a victim, or all of it, to that node.",
    needs: &[],
    run: routes_of_a_victim,
};

const MIRROR: &str = "kubernetes.io/config.mirror";

/// A pod that the scheduler has given to the node; nobody runs it.
fn bound_pod(namespace: &Namespace<'_>, node: &str, volumes: Value) -> Result<String> {
    let name = format!("pod-{}", namespace.world.number());
    let mut spec = pod_spec(vec![container(&["wait"])], volumes);
    spec["nodeName"] = json!(node);
    namespace.world.admin.must_post(
        &namespace.path("pods"),
        &json!({"metadata": {"name": name}, "spec": spec}),
    )?;
    Ok(name)
}

fn attempt(client: &Client, what: &str, method: &str, path: &str, body: Value) -> Result<Verdict> {
    let content_type = if method == "PATCH" {
        crate::client::MERGE_PATCH
    } else {
        crate::client::JSON
    };
    let answer = match method {
        "GET" => client.get(path)?,
        _ => client.body(method, path, content_type, &body)?,
    };
    Ok(match answer.is_success() {
        true => Verdict::Succeeded(format!("{what}: {method} {path} was answered {}", answer.status)),
        false => Verdict::Blocked(format!("{what}: {}", answer.summary())),
    })
}

fn objects_of_others(world: &World) -> Result<Verdict> {
    let namespace = world.namespace(json!({}))?;
    let node = EvilNode::register(world)?;
    let secret = |name: &str| {
        world.admin.must_post(
            &namespace.path("secrets"),
            &json!({"metadata": {"name": name}, "stringData": {"k": "v"}}),
        )
    };
    secret("own")?;
    secret("foreign")?;
    bound_pod(
        &namespace,
        &node.name,
        json!([{"name": "s", "secret": {"secretName": "own"}}]),
    )?;
    let victim = namespace.attacker()?;
    wait_for("the node to see its pod's secret", PATIENCE, || {
        Ok(node
            .client
            .get(&namespace.path("secrets/own"))?
            .is_success()
            .then_some(()))
    })?;

    let other = format!("/api/v1/nodes/{NODE_NAME}");
    let lease = format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{NODE_NAME}");
    let label = |key: &str| json!({"metadata": {"labels": {key: "x"}}});
    let c = &node.client;
    let attempts = vec![
        attempt(
            c,
            "another secret",
            "GET",
            &namespace.path("secrets/foreign"),
            json!({}),
        )?,
        attempt(c, "all secrets", "GET", "/api/v1/secrets", json!({}))?,
        attempt(
            c,
            "secrets of a namespace",
            "GET",
            &namespace.path("secrets"),
            json!({}),
        )?,
        attempt(c, "another node", "PATCH", &other, label("x"))?,
        attempt(
            c,
            "another node's status",
            "PATCH",
            &format!("{other}/status"),
            json!({"status": {"addresses": []}}),
        )?,
        attempt(c, "another node's end", "DELETE", &other, json!({}))?,
        attempt(
            c,
            "another node's lease",
            "PATCH",
            &lease,
            json!({"spec": {"holderIdentity": "evil"}}),
        )?,
        attempt(
            c,
            "another node's pod",
            "PATCH",
            &format!("{}/status", victim.path()),
            json!({"status": {"podIP": "203.0.113.1"}}),
        )?,
        attempt(c, "another node's pod's end", "DELETE", &victim.path(), json!({}))?,
        attempt(
            c,
            "an ordinary pod",
            "POST",
            &namespace.path("pods"),
            json!({"metadata": {"name": "made"}, "spec": pod_spec(vec![container(&["wait"])], json!([]))}),
        )?,
        attempt(
            c,
            "a guarded label",
            "PATCH",
            &node.path(),
            label("node-restriction.kubernetes.io/x"),
        )?,
        attempt(
            c,
            "a role label",
            "PATCH",
            &node.path(),
            label("node-role.kubernetes.io/control-plane"),
        )?,
        attempt(
            c,
            "its own taints",
            "PATCH",
            &node.path(),
            json!({"spec": {"taints": []}}),
        )?,
        attempt(
            c,
            "exec",
            "POST",
            &format!("{}/exec?command=id&stdout=true", victim.path()),
            json!({}),
        )?,
        attempt(
            c,
            "a role",
            "POST",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            json!({"metadata": {"name": "evil"}, "rules": []}),
        )?,
    ];
    node.remove(world)?;
    judge(&attempts)
}

fn tokens_for_others(world: &World) -> Result<Verdict> {
    let namespace = world.namespace(json!({}))?;
    let node = EvilNode::register(world)?;
    let projected = json!([{"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "token", "audience": "vault"}}]}}]);
    let own = bound_pod(&namespace, &node.name, projected)?;
    let foreign = namespace.attacker()?;
    let uid = |name: &str| {
        anyhow::Ok(world.admin.must_get(&namespace.path(&format!("pods/{name}")))?["metadata"]["uid"].clone())
    };
    let (own_uid, foreign_uid) = (uid(&own)?, uid(&foreign.name)?);
    let request = |audience: &str, pod: &str, uid: &Value| json!({"spec": {"audiences": [audience], "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid}}});
    let path = namespace.path("serviceaccounts/default/token");
    wait_for("an honest token", PATIENCE, || {
        Ok(node
            .client
            .post(&path, &request("vault", &own, &own_uid))?
            .is_success()
            .then_some(()))
    })?;
    world.admin.must_post(
        &namespace.path("serviceaccounts"),
        &json!({"metadata": {"name": "other"}}),
    )?;
    let c = &node.client;
    let attempts = vec![
        attempt(
            c,
            "another audience",
            "POST",
            &path,
            request("payments", &own, &own_uid),
        )?,
        attempt(
            c,
            "another node's pod",
            "POST",
            &path,
            request("vault", &foreign.name, &foreign_uid),
        )?,
        attempt(
            c,
            "another account",
            "POST",
            &namespace.path("serviceaccounts/other/token"),
            request("vault", &own, &own_uid),
        )?,
        attempt(
            c,
            "a token of no pod",
            "POST",
            &path,
            json!({"spec": {"audiences": ["vault"]}}),
        )?,
        attempt(
            c,
            "another pod's uid",
            "POST",
            &path,
            request("vault", &own, &foreign_uid),
        )?,
    ];
    node.remove(world)?;
    judge(&attempts)
}

fn mirror_pods(world: &World) -> Result<Verdict> {
    let namespace = world.namespace(json!({}))?;
    let node = EvilNode::register(world)?;
    world.admin.must_post(
        &namespace.path("secrets"),
        &json!({"metadata": {"name": "s"}, "stringData": {"k": "v"}}),
    )?;
    let node_uid = world.admin.must_get(&node.path())?["metadata"]["uid"].clone();
    let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node_uid, "controller": true}]);
    let mirror = |change: &dyn Fn(&mut Value)| {
        let mut spec = pod_spec(vec![container(&["wait"])], json!([]));
        spec["nodeName"] = json!(node.name);
        change(&mut spec);
        json!({"metadata": {"name": format!("mirror-{}", world.number()), "annotations": {MIRROR: "x"}, "ownerReferences": owner}, "spec": spec})
    };
    let path = namespace.path("pods");
    let honest = node
        .client
        .must_post(&path, &mirror(&|_| {}))
        .context("an honest mirror pod")?;
    ensure!(
        honest["metadata"]["annotations"][MIRROR].is_string(),
        "the mirror pod is none"
    );
    let own = bound_pod(&namespace, &node.name, json!([]))?;
    let c = &node.client;
    let reference = json!([{"name": "v", "projected": {"sources": [{"secret": {"name": "s"}}]}}]);
    let attempts = vec![
        attempt(
            c,
            "a mirror pod with a secret",
            "POST",
            &path,
            mirror(&|spec| spec["volumes"] = json!([{"name": "v", "secret": {"secretName": "s"}}])),
        )?,
        attempt(
            c,
            "one with a projected secret",
            "POST",
            &path,
            mirror(&|spec| spec["volumes"] = reference.clone()),
        )?,
        attempt(
            c,
            "one with a pull secret",
            "POST",
            &path,
            mirror(&|spec| spec["imagePullSecrets"] = json!([{"name": "s"}])),
        )?,
        attempt(
            c,
            "one with a variable from a secret",
            "POST",
            &path,
            mirror(&|spec| spec["containers"][0]["envFrom"] = json!([{"secretRef": {"name": "s"}}])),
        )?,
        attempt(
            c,
            "one with an account",
            "POST",
            &path,
            mirror(&|spec| spec["serviceAccountName"] = json!("default")),
        )?,
        attempt(
            c,
            "one with a claim",
            "POST",
            &path,
            mirror(&|spec| spec["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}])),
        )?,
        attempt(
            c,
            "one on another node",
            "POST",
            &path,
            mirror(&|spec| spec["nodeName"] = json!(NODE_NAME)),
        )?,
        by_status(world, &namespace, c, &own)?,
    ];
    node.remove(world)?;
    judge(&attempts)
}

/// The annotation by which the kubelet knows its own, put on later.
fn by_status(world: &World, namespace: &Namespace<'_>, client: &Client, pod: &str) -> Result<Verdict> {
    let path = namespace.path(&format!("pods/{pod}"));
    let answer = client.merge(
        &format!("{path}/status"),
        &json!({"metadata": {"annotations": {MIRROR: "x"}}}),
    )?;
    let after = world.admin.must_get(&path)?;
    Ok(match after["metadata"]["annotations"][MIRROR].is_string() {
        true => Verdict::Succeeded("a pod became a mirror pod through its status".to_owned()),
        false => Verdict::Blocked(format!("the annotation through the status: {}", answer.summary())),
    })
}

/// Routes by their destinations, as the kernel lists them.
fn routes() -> Result<Vec<String>> {
    let table = fs::read_to_string("/proc/self/net/route")?;
    let address =
        |hex: &str| u32::from_str_radix(hex, 16).map(|bits| std::net::Ipv4Addr::from(bits.to_le_bytes()).to_string());
    table
        .lines()
        .skip(1)
        .map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let (to, via, mask) = (fields.get(1), fields.get(2), fields.get(7));
            let part = |field: Option<&&str>| anyhow::Ok(address(field.context("a short line")?)?);
            Ok(format!("{}/{} via {}", part(to)?, part(mask)?, part(via)?))
        })
        .collect()
}

fn routes_of_a_victim(world: &World) -> Result<Verdict> {
    let namespace = world.namespace(json!({}))?;
    let victim = namespace.attacker()?.address()?;
    // An honest node, whose block the cluster has chosen.
    let honest = EvilNode::register(world)?;
    honest.say_it_is_at("10.99.0.78", 10250)?;
    wait_for("the route to an honest node", PATIENCE, || {
        Ok(routes()?
            .iter()
            .any(|route| route.ends_with("via 10.99.0.78"))
            .then_some(()))
    })?;

    let mut attempts = Vec::new();
    for block in [
        format!("{victim}/32"),
        "0.0.0.0/1".to_owned(),
        "10.96.0.0/16".to_owned(),
        "10.99.0.0/24".to_owned(),
        "10.244.0.0/16".to_owned(),
    ] {
        let name = format!("evil-{}", world.number());
        let client = world.user(&format!("system:node:{name}"), &["system:nodes"])?;
        let spec =
            json!({"podCIDR": block, "podCIDRs": [block], "taints": [{"key": "hostile", "effect": "NoSchedule"}]});
        let made = client.post("/api/v1/nodes", &json!({"metadata": {"name": name}, "spec": spec}))?;
        if !made.is_success() {
            attempts.push(Verdict::Blocked(format!("podCIDR {block}: {}", made.summary())));
            continue;
        }
        let node = EvilNode { name, client };
        node.say_it_is_at("10.99.0.79", 10250)?;
        signals::sleep(Duration::from_millis(700))?;
        let taken: Vec<String> = routes()?
            .into_iter()
            .filter(|route| route.ends_with("via 10.99.0.79"))
            .collect();
        let destination = block.split('/').next().unwrap_or_default();
        let harmful = taken.iter().any(|route| route.starts_with(&format!("{destination}/")));
        attempts.push(match harmful {
            true => Verdict::Succeeded(format!("podCIDR {block} became the route {taken:?}")),
            false => Verdict::Blocked(format!("podCIDR {block}: no such route")),
        });
        node.remove(world)?;
    }
    honest.remove(world)?;
    judge(&attempts)
}
