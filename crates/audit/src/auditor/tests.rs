use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use expect_test::expect;
use serde_json::{Value, json};

use super::*;
use crate::{LogOptions, ObjectReference, ResponseStatus, Stage, UserInfo};

const PATIENCE: Duration = Duration::from_secs(60);

fn auditor() -> Auditor {
    let policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n";
    Auditor::new(Policy::parse(policy).expect("a policy"))
}

fn event(name: &str) -> Event {
    Event {
        kind: (),
        api_version: (),
        level: Level::RequestResponse,
        audit_id: "id".to_owned(),
        stage: Stage::ResponseComplete,
        request_uri: "/api/v1/namespaces/team/secrets".to_owned(),
        verb: "create".to_owned(),
        user: UserInfo {
            username: "jane".to_owned(),
            ..UserInfo::default()
        },
        impersonated_user: None,
        source_ips: vec!["192.0.2.1".to_owned()],
        user_agent: String::new(),
        object_ref: Some(ObjectReference {
            resource: "secrets".to_owned(),
            namespace: "team".to_owned(),
            name: name.to_owned(),
            api_version: "v1".to_owned(),
            ..ObjectReference::default()
        }),
        response_status: Some(ResponseStatus {
            code: 201,
            ..ResponseStatus::default()
        }),
        request_object: Some(json!({"metadata": {"name": name, "managedFields": []}})),
        response_object: None,
        request_received_timestamp: "2026-01-01T00:00:00.000000Z".to_owned(),
        stage_timestamp: "2026-01-01T00:00:00.000001Z".to_owned(),
        annotations: BTreeMap::from([("authorization.k8s.io/decision".to_owned(), "allow".to_owned())]),
    }
}

fn log_options(path: &Path) -> LogOptions {
    LogOptions {
        path: path.to_owned(),
        max_age_days: 0,
        max_backups: 0,
        max_bytes: 1024 * 1024,
        compress: false,
        buffer_size: 10_000,
        truncate: TruncateOptions::default(),
    }
}

fn treatment() -> Treatment {
    Treatment {
        level: Level::RequestResponse,
        omit_managed_fields: true,
        ..Treatment::default()
    }
}

fn lost(auditor: &Auditor, plugin: &str) -> u64 {
    let backends = auditor.figures.backends.lock();
    backends
        .iter()
        .filter(|backend| backend.name == plugin)
        .map(|backend| backend.lost.get())
        .sum()
}

/// The same for tests whose backends run beside them.
async fn until_soon(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Options by which no test waits long.
fn quick() -> BatchOptions {
    BatchOptions {
        max_wait: Duration::from_millis(50),
        initial_backoff: Duration::from_millis(1),
        ..BatchOptions::default()
    }
}

/// Waits until something is so.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn an_event_is_a_line_as_upstream_writes_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("audit.log");
    let mut auditor = auditor();
    auditor
        .add_log(LogFile::open(log_options(&path)).expect("a file"))
        .expect("a thread");
    auditor.record(&treatment(), event("s"));
    let read = || std::fs::read_to_string(&path).unwrap_or_default();
    until("the event is written", || read().ends_with('\n'));
    expect![[r#"
        {"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"RequestResponse","auditID":"id","stage":"ResponseComplete","requestURI":"/api/v1/namespaces/team/secrets","verb":"create","user":{"username":"jane"},"sourceIPs":["192.0.2.1"],"objectRef":{"resource":"secrets","namespace":"team","name":"s","apiVersion":"v1"},"responseStatus":{"metadata":{},"code":201},"requestObject":{"metadata":{"name":"s"}},"requestReceivedTimestamp":"2026-01-01T00:00:00.000000Z","stageTimestamp":"2026-01-01T00:00:00.000001Z","annotations":{"authorization.k8s.io/decision":"allow"}}
    "#]]
    .assert_eq(&read());
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(&path).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "requests hold secrets");
}

#[test]
fn a_long_file_is_put_aside_and_old_ones_are_removed() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("audit.log");
    std::fs::write(directory.path().join("audit-notes.log"), "mine").expect("a file");
    let mut options = log_options(&path);
    (options.max_bytes, options.max_backups, options.compress) = (1000, 2, true);
    let mut auditor = auditor();
    auditor
        .add_log(LogFile::open(options).expect("a file"))
        .expect("a thread");
    let names = || {
        let entries = std::fs::read_dir(directory.path()).expect("a directory").flatten();
        entries
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect::<Vec<_>>()
    };
    for index in 0..8 {
        let name = format!("s{index}");
        auditor.record(&treatment(), event(&name));
        until("the event is written", || {
            std::fs::read_to_string(&path).is_ok_and(|text| text.contains(&name))
        });
    }
    until("two are kept", || {
        names().iter().filter(|name| name.ends_with("Z.log.gz")).count() == 2
    });
    assert!(
        names().contains(&"audit-notes.log".to_owned()),
        "what somebody else put there stays"
    );
    assert_eq!(lost(&auditor, "log"), 0);
}

/// A disk that fails is counted, and nobody waits for it.
#[test]
fn a_file_that_cannot_be_written_loses_events_and_says_so() {
    let mut auditor = auditor();
    let full = LogFile::open(log_options(Path::new("/dev/full"))).expect("a device that is always full");
    auditor.add_log(full).expect("a thread");
    for _ in 0..10 {
        auditor.record(&treatment(), event("s"));
    }
    until("all are counted", || lost(&auditor, "log") == 10);
    let mut text = String::new();
    auditor.figures().write(&mut text);
    assert!(
        text.contains("apiserver_audit_error_total{plugin=\"log\"} 10"),
        "{text}"
    );
    assert!(text.contains("apiserver_audit_event_total 10"), "{text}");
}

/// Keeps what it is sent, or never answers, or fails.
struct Listener {
    got: parking_lot::Mutex<Vec<Value>>,
    answers: fn() -> Option<Result<(), String>>,
}

#[async_trait]
impl Sink for Listener {
    async fn send(&self, list: Bytes) -> Result<(), String> {
        match (self.answers)() {
            None => std::future::pending().await,
            Some(Ok(())) => {
                self.got
                    .lock()
                    .push(serde_json::from_slice(&list).map_err(|error| error.to_string())?);
                Ok(())
            }
            Some(failed) => failed,
        }
    }
}

fn listener(answers: fn() -> Option<Result<(), String>>) -> Arc<Listener> {
    let got = parking_lot::Mutex::default();
    Arc::new(Listener { got, answers })
}

#[tokio::test]
async fn events_come_in_batches() {
    let mut auditor = auditor();
    let sink = listener(|| Some(Ok(())));
    let options = BatchOptions { max_size: 3, ..quick() };
    auditor.add_sink(sink.clone(), options, TruncateOptions::default());
    for index in 0..7 {
        auditor.record(&treatment(), event(&format!("s{index}")));
    }
    until_soon("three batches come", || sink.got.lock().len() == 3).await;
    let sizes: Vec<usize> = sink
        .got
        .lock()
        .iter()
        .map(|list| list["items"].as_array().map_or(0, Vec::len))
        .collect();
    assert_eq!(sizes, [3, 3, 1]);
    assert_eq!(sink.got.lock()[0]["kind"], "EventList");
}

#[tokio::test]
async fn a_sink_that_hangs_or_fails_loses_events_and_says_so() {
    let mut auditor = auditor();
    let options = BatchOptions {
        buffer_size: 5,
        max_size: 1,
        ..quick()
    };
    auditor.add_sink(listener(|| None), options, TruncateOptions::default());
    tokio::task::yield_now().await;
    for _ in 0..20 {
        auditor.record(&treatment(), event("s"));
    }
    // One is on its way, five wait, and nobody waited for either.
    assert!(
        (14..=15).contains(&lost(&auditor, "webhook")),
        "{}",
        lost(&auditor, "webhook")
    );

    let mut auditor = self::auditor();
    auditor.add_sink(
        listener(|| Some(Err("no".to_owned()))),
        options,
        TruncateOptions::default(),
    );
    auditor.record(&treatment(), event("s"));
    until_soon("it is given up after some attempts", || lost(&auditor, "webhook") == 1).await;
}

#[tokio::test]
async fn long_events_lose_their_objects() {
    let mut auditor = auditor();
    let sink = listener(|| Some(Ok(())));
    let truncate = TruncateOptions {
        enabled: true,
        max_event_bytes: 2000,
        max_batch_bytes: 4000,
    };
    auditor.add_sink(sink.clone(), quick(), truncate);
    let mut long = event("long");
    long.request_object = Some(json!("x".repeat(5000)));
    auditor.record(&Treatment::default(), long);
    let mut hopeless = event("hopeless");
    hopeless.user_agent = "x".repeat(5000);
    auditor.record(&Treatment::default(), hopeless);
    for index in 0..8 {
        auditor.record(&Treatment::default(), event(&format!("s{index}")));
    }
    let count = |list: &Value| list["items"].as_array().map_or(0, Vec::len);
    until_soon("all come", || sink.got.lock().iter().map(count).sum::<usize>() == 9).await;
    let got = sink.got.lock();
    let items: Vec<&Value> = got
        .iter()
        .flat_map(|list| list["items"].as_array().into_iter().flatten())
        .collect();
    assert_eq!(items.len(), 9);
    assert_eq!(items[0]["annotations"]["audit.k8s.io/truncated"], "true");
    assert!(items[0].get("requestObject").is_none());
    assert!(items[1].get("requestObject").is_some());
    assert!(got.len() > 1, "no batch is too long either");
    assert_eq!(lost(&auditor, "webhook"), 1);
}
