//! API servers behind this one.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::cases::Case;
use crate::pods::{Done, MAIN, Pod, container, pod_spec};
use crate::signals::wait_for;
use crate::verdict::{Verdict, blocked, judge, succeeded};
use crate::world::{Namespace, PATIENCE, World};

pub const ENCODED_SLASHES: Case = Case {
    name: "requests/encoded-slashes",
    class: "",
    must_not: "An aggregated API server is handed a path that means something else than what was allowed.",
    needs: &[],
    run: encoded_slashes,
};

pub const DOCUMENTS_AS_MASTERS: Case = Case {
    name: "requests/documents-as-masters",
    class: "",
    must_not: "An aggregated API server is asked for its documents as system:masters, or as whoever a client says to be.",
    needs: &[],
    run: documents_as_masters,
};

/// An API server of an attacker or of anybody else, and its group.
struct Aggregated<'a> {
    pod: Pod<'a>,
    group: String,
}

impl<'a> Aggregated<'a> {
    fn start(namespace: &'a Namespace<'a>) -> Result<Self> {
        let world = namespace.world;
        let group = format!("case{}.hostile.test", world.number());
        let pod = namespace.pod_with(
            json!({"labels": {"app": "aggregated"}}),
            pod_spec(vec![container(&["serve-tls", "8443"])], json!([])),
        )?;
        pod.running()?;
        let service = json!({"metadata": {"name": "aggregated"}, "spec": {"selector": {"app": "aggregated"}, "ports": [{"port": 443, "targetPort": 8443}]}});
        world.admin.must_post(&namespace.path("services"), &service)?;
        world.admin.must_post(
            "/apis/apiregistration.k8s.io/v1/apiservices",
            &json!({
                "metadata": {"name": format!("v1.{group}")},
                "spec": {
                    "group": group, "version": "v1", "groupPriorityMinimum": 10, "versionPriority": 10,
                    "insecureSkipTLSVerify": true, "service": {"namespace": namespace.name, "name": "aggregated"},
                },
            }),
        )?;
        let aggregated = Self { pod, group };
        let path = format!("/apis/{}/v1/anything", aggregated.group);
        wait_for("the aggregated API server", PATIENCE, || {
            Ok(world.admin.get(&path)?.is_success().then_some(()))
        })?;
        Ok(aggregated)
    }

    /// What it was asked by a path with this in it.
    fn asked(&self, part: &str) -> Result<Vec<Value>> {
        let asked = self.pod.log(MAIN)?.into_iter().map(|done: Done| done.value);
        Ok(asked
            .filter(|asked| asked["path"].as_str().is_some_and(|path| path.contains(part)))
            .collect())
    }

    fn remove(&self, world: &World) -> Result<()> {
        world
            .admin
            .must_delete(&format!(
                "/apis/apiregistration.k8s.io/v1/apiservices/v1.{}",
                self.group
            ))
            .map(drop)
    }
}

fn header<'a>(asked: &'a Value, name: &str) -> Vec<&'a str> {
    let headers = asked["headers"].as_array().into_iter().flatten();
    headers
        .filter(|pair| pair[0].as_str().is_some_and(|known| known.eq_ignore_ascii_case(name)))
        .filter_map(|pair| pair[1].as_str())
        .collect()
}

fn encoded_slashes(world: &World) -> Result<Verdict> {
    let namespace = world.namespace(json!({}))?;
    let aggregated = Aggregated::start(&namespace)?;
    let group = aggregated.group.clone();
    let user = world.user_of(
        &namespace,
        json!([{"apiGroups": [group], "resources": ["things"], "verbs": ["get", "list"]}]),
    )?;
    let base = format!("/apis/{group}/v1/namespaces/{}", namespace.name);
    let honest = format!("{base}/things/honest");
    wait_for("an honest request", PATIENCE, || {
        Ok(user.get(&honest)?.is_success().then_some(()))
    })?;
    let seen = aggregated.asked("/things/honest")?;
    let seen = seen.first().context("the honest request did not arrive")?;
    ensure!(
        header(seen, "X-Remote-User")
            .iter()
            .all(|name| name.starts_with("mallory")),
        "it came as somebody else: {seen}"
    );

    let mut attempts = Vec::new();
    for (number, path) in [
        format!("{base}/things/x%2F..%2F..%2F..%2Fvictim%2Fthings%2Fmark0"),
        format!("{base}/things/..%2f..%2f..%2fnamespaces%2fvictim%2fthings%2fmark1"),
        format!("{base}%2F..%2Fvictim/things/mark2"),
        format!("{base}/things/x/../../../victim/things/mark3"),
        format!("{base}/things/%2e%2e/%2e%2e/victim/things/mark4"),
        format!("{base}/things%2Fmark5%2Fstatus"),
        format!("{base}/things/x%2Fstatus%2Fmark6"),
        format!("{base}//things/mark7/..//../../victim/things/y"),
    ]
    .into_iter()
    .enumerate()
    {
        let answer = user.get(&path)?;
        let arrived = aggregated.asked(&format!("mark{number}"))?;
        attempts.push(match arrived.first() {
            Some(arrived) => Verdict::Succeeded(format!("{path} was handed on as {}", arrived["path"])),
            None => Verdict::Blocked(format!("{path}: {}", answer.summary())),
        });
    }
    aggregated.remove(world)?;
    judge(&attempts)
}

fn documents_as_masters(world: &World) -> Result<Verdict> {
    let namespace = world.namespace(json!({}))?;
    let aggregated = Aggregated::start(&namespace)?;
    let (stranger, _) = world.stranger()?;
    let headers = [
        ("X-Remote-User", "administrator"),
        ("X-Remote-Group", "system:masters"),
        ("Impersonate-Group", "system:masters"),
    ];
    for path in [
        format!("/openapi/v3/apis/{}/v1", aggregated.group),
        "/openapi/v2".to_owned(),
        "/openapi/v3".to_owned(),
    ] {
        // Without the header that a stranger may not use, lest it is refused for that.
        for headers in [&headers[..2], &headers[..]] {
            stranger.send("GET", &path, headers, &[])?;
        }
    }
    // Each of them may also be fetched on the server's own account.
    let asked = aggregated.asked("openapi")?;
    aggregated.remove(world)?;
    let bad = asked.iter().find(|asked| {
        let groups = header(asked, "X-Remote-Group");
        let users = header(asked, "X-Remote-User");
        groups.contains(&"system:masters")
            || users.contains(&"administrator")
            || !header(asked, "Authorization").is_empty()
    });
    ensure!(
        !asked.is_empty() || !aggregated.asked("/v1")?.is_empty(),
        "the aggregated API server was never asked for anything"
    );
    match bad {
        Some(asked) => succeeded(format!("it was asked for {} with {}", asked["path"], asked["headers"])),
        None => blocked(format!(
            "it was asked {} times for documents, never as system:masters",
            asked.len()
        )),
    }
}
