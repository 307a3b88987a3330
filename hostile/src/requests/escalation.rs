//! Rights that somebody gives to himself.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::refused;
use crate::cases::Case;
use crate::cluster;
use crate::pods::{MAIN, container, pod_spec};
use crate::verdict::{Verdict, blocked, judge, succeeded};
use crate::world::World;

pub const RIGHTS_FOR_ONESELF: Case = Case {
    name: "requests/rights-for-oneself",
    class: "",
    must_not: "Who may write roles and bindings gives himself rights that he does not have.",
    needs: &[],
    run: rights_for_oneself,
};

pub const QUOTA_RACE: Case = Case {
    name: "requests/quota-race",
    class: "",
    must_not: "Creations at the same moment get past a ResourceQuota.",
    needs: &[],
    run: quota_race,
};

pub const EPHEMERAL_CONTAINERS: Case = Case {
    name: "requests/ephemeral-containers",
    class: "CVE-2023-2727, CVE-2023-2728",
    must_not: "An ephemeral container gets around PodSecurity, the secrets that a service account may mount, or a policy for images.",
    needs: &[],
    run: ephemeral_containers,
};

const RBAC: &str = "rbac.authorization.k8s.io/v1";

fn rights_for_oneself(world: &World) -> Result<Verdict> {
    let namespace = world.namespace(json!({}))?;
    let (user, name) = world.stranger()?;
    namespace.grant(&name, json!([
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"], "verbs": ["get", "list", "create", "update", "patch", "delete"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]},
    ]))?;
    let (roles, bindings) = (
        namespace.path_in(RBAC, "roles"),
        namespace.path_in(RBAC, "rolebindings"),
    );
    let rules = |resource: &str| json!([{"apiGroups": [""], "resources": [resource], "verbs": ["get"]}]);
    user.must_post(
        &roles,
        &json!({"metadata": {"name": "honest"}, "rules": rules("configmaps")}),
    )?;
    let subject = json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}]);
    let reference =
        |kind: &str, name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name});
    let binding = |kind: &str, role: &str| json!({"metadata": {"name": format!("to-{role}")}, "roleRef": reference(kind, role), "subjects": subject});
    let mut applied =
        json!({"apiVersion": RBAC, "kind": "Role", "metadata": {"name": "applied"}, "rules": rules("secrets")});

    let mut attempts = vec![
        refused(
            &user,
            "POST",
            &roles,
            Some(&json!({"metadata": {"name": "more"}, "rules": rules("secrets")})),
        )?,
        refused(
            &user,
            "POST",
            &roles,
            Some(
                &json!({"metadata": {"name": "star"}, "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]}),
            ),
        )?,
        refused(
            &user,
            "PATCH",
            &format!("{roles}/honest"),
            Some(&json!({"rules": rules("secrets")})),
        )?,
        refused(
            &user,
            "PATCH",
            &format!("{roles}/{name}"),
            Some(&json!({"rules": rules("secrets")})),
        )?,
        refused(&user, "POST", &bindings, Some(&binding("ClusterRole", "cluster-admin")))?,
        refused(&user, "POST", &bindings, Some(&binding("ClusterRole", "view")))?,
        refused(
            &user,
            "PUT",
            &format!("{bindings}/to-admin"),
            Some(&binding("ClusterRole", "admin")),
        )?,
    ];
    for path in [format!("{roles}/applied"), format!("{roles}/honest")] {
        applied["metadata"]["name"] = json!(path.rsplit('/').next());
        let answer = user.apply(&path, &applied)?;
        attempts.push(match answer.is_success() {
            true => Verdict::Succeeded(format!("applying {path} was answered {}", answer.status)),
            false => Verdict::Blocked(answer.summary()),
        });
    }
    if user.get(&namespace.path("secrets/x"))?.status != 403 {
        attempts.push(Verdict::Succeeded("the user may read secrets".to_owned()));
    }
    judge(&attempts)
}

fn quota_race(world: &World) -> Result<Verdict> {
    const ALLOWED: usize = 4;
    let namespace = world.namespace(json!({}))?;
    let quota = json!({"metadata": {"name": "few"}, "spec": {"hard": {"count/secrets": ALLOWED.to_string()}}});
    world.admin.must_post(&namespace.path("resourcequotas"), &quota)?;
    crate::signals::wait_for("the quota to count", crate::world::PATIENCE, || {
        let quota = world.admin.must_get(&namespace.path("resourcequotas/few"))?;
        Ok(quota["status"]["used"]["count/secrets"].is_string().then_some(()))
    })?;
    let made = AtomicUsize::new(0);
    thread::scope(|scope| {
        for thread in 0..12 {
            let (made, path) = (&made, namespace.path("secrets"));
            let name = format!("racer-{thread}");
            scope.spawn(move || {
                let Ok(client) = world.user("administrator", &["system:masters"]) else {
                    return;
                };
                for number in 0..4 {
                    let object = json!({"metadata": {"name": format!("{name}-{number}")}});
                    if client.post(&path, &object).is_ok_and(|answer| answer.is_success()) {
                        made.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let list = world.admin.must_get(&namespace.path("secrets"))?;
    let there = list["items"].as_array().map_or(0, Vec::len);
    ensure!(there > 0, "nothing could be created at all");
    match there > ALLOWED {
        true => succeeded(format!("{there} objects where {ALLOWED} are allowed")),
        false => blocked(format!("{there} of 48 creations at once went through, as allowed")),
    }
}

fn ephemeral_containers(world: &World) -> Result<Verdict> {
    judge(&[
        past_pod_security(world)?,
        past_mountable_secrets(world)?,
        past_image_policy(world)?,
    ])
}

/// A pod that keeps all restrictions, and the path to its ephemeral containers.
fn past_pod_security(world: &World) -> Result<Verdict> {
    let namespace = world.namespace(json!({"pod-security.kubernetes.io/enforce": "restricted"}))?;
    let mut main = container(&["wait"]);
    let restricted = json!({
        "allowPrivilegeEscalation": false, "runAsNonRoot": true, "runAsUser": 1000,
        "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"},
    });
    main["securityContext"] = restricted.clone();
    let pod = namespace.pod(pod_spec(vec![main], json!([])))?;
    pod.running()?;
    let mut honest = container(&["wait"]);
    honest["name"] = json!("honest");
    honest["securityContext"] = restricted;
    let path = format!("{}/ephemeralcontainers", pod.path());
    let patch = |container: &Value| json!({"spec": {"ephemeralContainers": [container]}});
    let strategic = "application/strategic-merge-patch+json";
    let allowed = world.admin.body("PATCH", &path, strategic, &patch(&honest))?;
    ensure!(
        allowed.is_success(),
        "an honest ephemeral container: {}",
        allowed.summary()
    );
    let mut privileged = container(&["wait"]);
    privileged["name"] = json!("privileged");
    privileged["securityContext"] = json!({"privileged": true});
    let answer = world.admin.body("PATCH", &path, strategic, &patch(&privileged))?;
    Ok(match answer.is_success() {
        true => Verdict::Succeeded("a privileged ephemeral container in a restricted namespace".to_owned()),
        false => Verdict::Blocked(answer.summary()),
    })
}

/// A pod of an account that may mount one Secret, and every way to another one.
fn past_mountable_secrets(world: &World) -> Result<Verdict> {
    let namespace = world.namespace(json!({}))?;
    for name in ["open", "hidden"] {
        let secret = json!({"metadata": {"name": name}, "stringData": {"k": "v"}});
        world.admin.must_post(&namespace.path("secrets"), &secret)?;
    }
    let enforced = json!({"name": "limited", "annotations": {"kubernetes.io/enforce-mountable-secrets": "true"}});
    world.admin.must_post(
        &namespace.path("serviceaccounts"),
        &json!({"metadata": enforced, "secrets": [{"name": "open"}]}),
    )?;
    let mut spec = pod_spec(vec![container(&["wait"])], json!([]));
    spec["serviceAccountName"] = json!("limited");
    let pod = namespace.pod(spec.clone())?;
    pod.running()?;
    let path = format!("{}/ephemeralcontainers", pod.path());
    let add = |name: &str, secret: &str, by: fn(&str) -> (&'static str, Value)| {
        let mut added = container(&["wait"]);
        let (field, references) = by(secret);
        added["name"] = json!(name);
        added[field] = references;
        let change = json!({"spec": {"ephemeralContainers": [added]}});
        let strategic = "application/strategic-merge-patch+json";
        world.admin.body("PATCH", &path, strategic, &change)
    };
    let honest = add("honest", "open", all_of_it)?;
    ensure!(honest.is_success(), "a secret of the account: {}", honest.summary());
    let mut answers = vec![add("all", "hidden", all_of_it)?, add("one", "hidden", one_key)?];
    for volume in [
        json!({"name": "v", "secret": {"secretName": "hidden"}}),
        json!({"name": "v", "projected": {"sources": [{"secret": {"name": "hidden"}}]}}),
    ] {
        let mut spec = spec.clone();
        spec["volumes"] = json!([volume]);
        let pod = json!({"metadata": {"name": "curious"}, "spec": spec});
        answers.push(world.admin.post(&namespace.path("pods"), &pod)?);
    }
    ensure!(pod.act_in(MAIN, &["where"])?.ok, "the pod is not there any more");
    let attempts: Vec<Verdict> = answers
        .iter()
        .map(|answer| match answer.is_success() {
            true => Verdict::Succeeded("a pod has a secret that its service account may not mount".to_owned()),
            false => Verdict::Blocked(answer.summary()),
        })
        .collect();
    judge(&attempts)
}

fn all_of_it(secret: &str) -> (&'static str, Value) {
    ("envFrom", json!([{"secretRef": {"name": secret}}]))
}

fn one_key(secret: &str) -> (&'static str, Value) {
    let key = json!({"secretKeyRef": {"name": secret, "key": "k"}});
    ("env", json!([{"name": "STOLEN", "valueFrom": key}]))
}

/// A server that cannot ask about images must not start as if it could.
fn past_image_policy(world: &World) -> Result<Verdict> {
    let dir = world.cluster.dir().join(format!("server-{}", world.number()));
    let mut command = world.cluster.command_at(
        &dir,
        &["kube-apiserver", "--enable-admission-plugins", "ImagePolicyWebhook"],
    );
    command.args(["--secure-port", "7444"]);
    let log = dir.with_extension("log");
    let mut process = cluster::spawn(&mut command, &log)?;
    let patience = std::time::Duration::from_secs(15);
    let ended = crate::signals::wait_for("the server to refuse", patience, || Ok(process.try_wait()?));
    match ended {
        Ok(_) => {
            let said = std::fs::read_to_string(&log)?;
            Ok(Verdict::Blocked(format!(
                "the server does not start: {}",
                said.lines().last().unwrap_or_default()
            )))
        }
        Err(_) => {
            cluster::stop(process);
            Ok(Verdict::Succeeded(
                "a server starts with a policy for images that it does not have".to_owned(),
            ))
        }
    }
}
