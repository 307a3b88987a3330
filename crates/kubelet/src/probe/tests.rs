use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

struct NoRuntime;
impl Runtime for NoRuntime {}

fn target(port: u16) -> Target {
    let container = format!("{{name: web, ports: [{{name: http, containerPort: {port}}}]}}");
    Target {
        runtime: Arc::new(NoRuntime),
        container: serde_saphyr::from_str(&container).unwrap(),
        container_id: "c1".to_owned(),
        address: "127.0.0.1".to_owned(),
    }
}

async fn ask_for(handler: &str, port: u16) -> Answer {
    let handler: Handler = serde_saphyr::from_str(handler).unwrap();
    ask(&handler, &target(port), Duration::from_secs(2)).await
}

/// A server that answers every request with what `answer` makes of its head, after `refusals` closed connections.
async fn server(answer: fn(&str) -> String) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = vec![0; 4096];
            let read = stream.read(&mut head).await.unwrap_or(0);
            let head = String::from_utf8_lossy(&head[..read]).into_owned();
            let _ = stream.write_all(answer(&head).as_bytes()).await;
        }
    });
    port
}

fn redirect(to: &str) -> String {
    format!("HTTP/1.1 302 Found\r\nlocation: {to}\r\ncontent-length: 9\r\n\r\nelsewhere")
}

#[tokio::test]
async fn http_is_judged_by_its_status() {
    let port = server(|head| {
        let line = match head.split(' ').nth(1) {
            Some("/ok") => "HTTP/1.1 204 Fine",
            Some("/agent") if head.contains("kube-probe/1.36") => "HTTP/1.1 200 OK",
            Some("/custom") if head.contains("x-own: 1") && head.contains("host: example") => "HTTP/1.1 200 OK",
            Some("/moved") => "HTTP/1.1 302 Found\r\nlocation: /ok",
            Some("/away") => return redirect("http://example.com/"),
            Some("/metadata") => return redirect("http://169.254.169.254/latest/"),
            Some("/no-scheme") => return redirect("//169.254.169.254/latest/"),
            Some("/round") => return redirect("/round"),
            Some("/flood") => {
                return format!(
                    "HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\n{}",
                    "x".repeat(1 << 20)
                );
            }
            _ => "HTTP/1.1 503 No",
        };
        format!("{line}\r\ncontent-length: 0\r\n\r\n")
    })
    .await;
    let get = async |path: &str| ask_for(&format!("{{httpGet: {{path: {path}, port: http}}}}"), port).await;
    assert_eq!(get("/ok").await, Answer::Success);
    assert_eq!(get("/agent").await, Answer::Success);
    assert_eq!(get("/moved").await, Answer::Success);
    for path in ["/away", "/metadata", "/no-scheme"] {
        let warned = Answer::Warning("Probe terminated redirects, Response body: elsewhere".to_owned());
        assert_eq!(get(path).await, warned, "{path}");
    }
    assert!(matches!(get("/round").await, Answer::Failure(why) if why.contains("stopped after 10 redirects")));
    assert_eq!(get("/flood").await, Answer::Success, "no more is read than is shown");
    assert_eq!(
        get("/bad").await,
        Answer::Failure("HTTP probe failed with statuscode: 503".to_owned())
    );
    let custom = "{httpGet: {path: /custom, port: http, httpHeaders: [{name: X-Own, value: '1'}, {name: Host, value: example}]}}";
    assert_eq!(ask_for(custom, port).await, Answer::Success);
}

#[tokio::test]
async fn a_closed_port_is_a_failure_in_gos_words() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    assert_eq!(ask_for("{tcpSocket: {port: http}}", port).await, Answer::Success);
    drop(listener);
    assert_eq!(
        ask_for("{tcpSocket: {port: http}}", port).await,
        Answer::Failure(format!("dial tcp 127.0.0.1:{port}: connect: connection refused"))
    );
    assert_eq!(
        ask_for("{httpGet: {path: /, port: http}}", port).await,
        Answer::Failure(format!(
            "Get \"http://127.0.0.1:{port}/\": dial tcp 127.0.0.1:{port}: connect: connection refused"
        ))
    );
    assert!(matches!(
        ask_for("{tcpSocket: {port: nope}}", port).await,
        Answer::Error(_)
    ));
}

#[test]
fn thresholds_decide_when_a_verdict_changes() {
    let probe = Probe {
        success_threshold: 2,
        failure_threshold: 3,
        ..Probe::default()
    };
    let run = |kind: ProbeKind, results: &[bool]| {
        let mut tally = Tally::new(kind);
        let verdicts: Vec<_> = results
            .iter()
            .map(|result| tally.record(kind, &probe, *result))
            .collect();
        verdicts
    };
    assert_eq!(
        run(ProbeKind::Readiness, &[true, true, false, true, false, false, false]),
        [None, Some(true), None, None, None, None, Some(false)]
    );
    assert_eq!(
        run(ProbeKind::Liveness, &[false, false, false]),
        [None, None, Some(false)]
    );
    assert_eq!(
        run(ProbeKind::Startup, &[false, false, false]),
        [None, None, Some(false)]
    );
}

/// Listens only after `delay`; how long until the container counts as ready, and how many events that caused.
async fn ready_after(delay: Duration) -> (Duration, usize) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    tokio::spawn(async move {
        tokio::time::sleep(delay).await;
        let listener = TcpListener::bind(address).await.unwrap();
        while listener.accept().await.is_ok() {}
    });
    let probe: Probe =
        serde_saphyr::from_str("{tcpSocket: {port: http}, periodSeconds: 1, failureThreshold: 3, successThreshold: 1}")
            .unwrap();
    let started = tokio::time::Instant::now();
    let (sender, mut receiver) = tokio::sync::mpsc::channel(16);
    let watching = tokio::spawn(watch(
        ProbeKind::Readiness,
        probe,
        target(address.port()),
        |_| {},
        async move |report| {
            let _ = sender.send(report).await;
        },
    ));
    let mut events = 0;
    loop {
        match receiver.recv().await.unwrap() {
            Report::Unhealthy(_) | Report::Warned(_) => events += 1,
            Report::Verdict(true) => break,
            Report::Verdict(false) => panic!("it was never ready"),
        }
    }
    watching.abort();
    (started.elapsed(), events)
}

#[tokio::test]
async fn a_container_counts_as_ready_soon_after_it_is() {
    let (took, events) = ready_after(Duration::from_millis(30)).await;
    assert!(took < Duration::from_millis(300), "{took:?}");
    assert_eq!(events, 1, "only the first asking counted");
}
