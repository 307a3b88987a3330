//! What the audit log says of requests.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use audit::{Auditor, LogFile, LogOptions, Policy, TruncateOptions};
use auth::User;
use bytes::Bytes;
use http::{Request, StatusCode};
use serde_json::{Value, json};

use crate::cluster::Cluster;

const PATIENCE: Duration = Duration::from_secs(60);
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

struct Audited {
    cluster: Cluster,
    path: PathBuf,
    _directory: tempfile::TempDir,
}

impl Audited {
    async fn start(rules: &str) -> Audited {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("audit.log");
        let policy =
            format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n{rules}");
        let mut auditor = Auditor::new(Policy::parse(&policy).expect("a policy"));
        let log = LogFile::open(LogOptions {
            path: path.clone(),
            max_age_days: 0,
            max_backups: 0,
            max_bytes: 100 * 1024 * 1024,
            compress: false,
            buffer_size: 10_000,
            truncate: TruncateOptions::default(),
        });
        auditor.add_log(log.expect("a file")).expect("a thread");
        let auditor = Some(Arc::new(auditor));
        let cluster = Cluster::start_changed(store::memory::open(), &[], |options| options.auditor = auditor).await;
        Audited {
            cluster,
            path,
            _directory: directory,
        }
    }

    /// Waits for an event like this and returns it.
    async fn event(&self, is_wanted: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let text = std::fs::read_to_string(&self.path).unwrap_or_default();
            let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            if let Some(found) = events.into_iter().find(|event| is_wanted(event)) {
                return found;
            }
            assert!(begun.elapsed() < PATIENCE, "no such event in:\n{text}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}})
}

#[tokio::test]
async fn a_write_is_noted_with_what_was_sent_and_answered() {
    let audited = Audited::start("- {level: RequestResponse, omitManagedFields: true}").await;
    let created = audited.cluster.post(MAPS, &map("one")).await;
    assert_eq!(created.0, StatusCode::CREATED);
    let event = audited
        .event(|event| event["verb"] == "create" && event["objectRef"]["name"] == "one")
        .await;
    assert_eq!(event["stage"], "ResponseComplete");
    assert_eq!(event["requestURI"], MAPS);
    assert_eq!(event["user"]["username"], "admin");
    assert_eq!(event["objectRef"]["resource"], "configmaps");
    assert_eq!(event["objectRef"]["namespace"], "default");
    assert_eq!(event["requestObject"]["data"], json!({"a": "b"}));
    assert_eq!(event["responseObject"]["metadata"]["uid"], created.1["metadata"]["uid"]);
    assert!(event["responseObject"]["metadata"].get("managedFields").is_none());
    assert_eq!(event["responseStatus"]["code"], 201);
    assert_eq!(event["annotations"]["authorization.k8s.io/decision"], "allow");

    let patched = audited
        .cluster
        .patch(
            &format!("{MAPS}/one"),
            "application/merge-patch+json",
            &json!({"data": {"c": "d"}}),
        )
        .await;
    assert_eq!(patched.0, StatusCode::OK);
    let event = audited.event(|event| event["verb"] == "patch").await;
    assert_eq!(event["requestObject"], json!({"data": {"c": "d"}}));
}

#[tokio::test]
async fn a_refusal_is_noted_with_its_reason_and_secrets_only_by_name() {
    let rules = "- {level: Metadata, resources: [{group: '', resources: [secrets]}]}\n- {level: Request}";
    let audited = Audited::start(rules).await;
    let jane = audited.cluster.as_user("jane");
    assert_eq!(jane.get(&format!("{MAPS}/none")).await.0, StatusCode::FORBIDDEN);
    let event = audited.event(|event| event["user"]["username"] == "jane").await;
    assert_eq!(event["annotations"]["authorization.k8s.io/decision"], "forbid");
    assert_eq!(event["responseStatus"]["code"], 403);
    assert_eq!(event["responseStatus"]["reason"], "Forbidden");
    let message = event["responseStatus"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("cannot get resource"), "{message}");

    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"k": "hidden"}});
    audited
        .cluster
        .post("/api/v1/namespaces/default/secrets", &secret)
        .await;
    let event = audited
        .event(|event| event["objectRef"]["resource"] == "secrets" && event["verb"] == "create")
        .await;
    assert_eq!(event["objectRef"]["name"], "s");
    let text = std::fs::read_to_string(&audited.path).expect("a log");
    assert!(!text.contains("hidden"), "only the name of a secret is noted");
}

#[tokio::test]
async fn no_client_writes_lines_of_its_own_into_the_log() {
    let audited = Audited::start("- {level: Metadata}").await;
    let forged = r#"{"kind":"Event","auditID":"forged"}"#;
    let eve = audited.cluster.as_user(&format!("eve\n{forged}\n"));
    let encoded = "x%0A%7B%22kind%22%3A%22Event%22%2C%22auditID%22%3A%22forged%22%7D%0A";
    eve.get(&format!("{MAPS}/{encoded}")).await;
    audited.cluster.get(&format!("{MAPS}?labelSelector={encoded}")).await;
    let has = |event: &Value, field: &str, part: &str| event[field].as_str().is_some_and(|text| text.contains(part));
    audited.event(|event| has(&event["user"], "username", "eve\n")).await;
    audited.event(|event| has(event, "requestURI", "labelSelector")).await;
    let text = std::fs::read_to_string(&audited.path).expect("a log");
    // The last line may be half written.
    let whole = &text[..text.rfind('\n').expect("a line")];
    for line in whole.lines() {
        let event: Value = serde_json::from_str(line).expect("one event in each line");
        assert_ne!(event["auditID"], "forged", "{line}");
    }
}

#[tokio::test]
async fn watches_are_noted_when_they_begin_and_when_they_end() {
    let audited = Audited::start("- {level: Metadata}").await;
    let watch = audited.cluster.send("GET", &format!("{MAPS}?watch=true"), None).await;
    let is_watch = |stage: &'static str| move |event: &Value| event["verb"] == "watch" && event["stage"] == stage;
    audited.event(is_watch("ResponseStarted")).await;
    drop(watch);
    audited.event(is_watch("ResponseComplete")).await;
}

#[tokio::test]
async fn the_client_learns_the_id_and_may_choose_it() {
    let audited = Audited::start("- {level: Metadata, users: [jane]}").await;
    let jane = audited.cluster.asked_by(User::system("jane", &["system:masters"]));
    let request = Request::get("/version")
        .header("audit-id", "chosen")
        .body(Bytes::new())
        .expect("a request");
    let response = jane.send_whole(request).await;
    assert_eq!(
        response.headers().get("audit-id").and_then(|id| id.to_str().ok()),
        Some("chosen")
    );
    let event = audited.event(|event| event["auditID"] == "chosen").await;
    assert_eq!(event["requestURI"], "/version");
    let long = Request::get("/version")
        .header("audit-id", "x".repeat(500))
        .body(Bytes::new())
        .expect("a request");
    let response = jane.send_whole(long).await;
    assert_eq!(response.headers().get("audit-id").map(|id| id.len()), Some(64));
    audited.cluster.get("/version").await;
    let text = std::fs::read_to_string(&audited.path).expect("a log");
    assert!(!text.contains("\"admin\""), "what no rule is about is not noted");
}

#[tokio::test]
async fn somebody_who_acts_as_another_is_noted_with_both_names() {
    let audited = Audited::start("- {level: Metadata}").await;
    let request = Request::get("/version")
        .header("impersonate-user", "joe")
        .body(Bytes::new())
        .expect("a request");
    audited.cluster.send_whole(request).await;
    let event = audited
        .event(|event| event["impersonatedUser"]["username"] == "joe")
        .await;
    assert_eq!(event["user"]["username"], "admin");
}
