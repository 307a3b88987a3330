//! Registries that lie, lead astray or never come to an end.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

/// A server that answers every connection with the same bytes, then does `after` again and again.
async fn raw_server(answer: Vec<u8>, after: (&'static [u8], Duration)) -> (String, Arc<Mutex<usize>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let served = Arc::new(Mutex::new(0));
    let count = served.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            *count.lock().unwrap() += 1;
            let answer = answer.clone();
            tokio::spawn(async move {
                let _ = stream.read(&mut [0; 4096]).await;
                let mut open = stream.write_all(&answer).await.is_ok();
                while open {
                    tokio::time::sleep(after.1).await;
                    open = stream.write_all(after.0).await.is_ok();
                }
            });
        }
    });
    (address, served)
}

fn http() -> Http {
    Http::new(Patience {
        answer: Duration::from_secs(2),
        stall: Duration::from_secs(1),
        body: Duration::from_secs(2),
        slowest_bytes_per_second: 16 << 10,
    })
}

async fn get(http: &Http, registry: &str, url: &str) -> Result<Fetched, HttpError> {
    let registry = Origin::of_url(registry).unwrap();
    http.get(&registry, url, "*/*", Some("Basic secret")).await
}

async fn fetched(address: &str) -> Result<Fetched, HttpError> {
    let url = format!("http://{address}/");
    get(&http(), &url, &url).await
}

const OK: &[u8] = b"HTTP/1.1 200 OK\r\n\r\n";
const PIECE: &[u8] = &[b'x'; 1 << 16];
const NO_TIME: Duration = Duration::from_millis(0);

#[tokio::test]
async fn a_body_without_end_is_cut_off() {
    let (address, _) = raw_server(OK.to_vec(), (PIECE, NO_TIME)).await;
    let error = fetched(&address).await.unwrap().bytes(1 << 20).await.unwrap_err();
    assert!(matches!(error, HttpError::TooLarge { .. }), "{error}");
    let file = tempfile::tempfile().unwrap();
    let answer = fetched(&address).await.unwrap();
    let error = answer.save(file.try_clone().unwrap(), 1 << 20).await.unwrap_err();
    assert!(matches!(error, HttpError::TooLarge { .. }), "{error}");
    assert!(file.metadata().unwrap().len() <= 1 << 20);
}

#[tokio::test]
async fn a_body_that_announces_too_much_is_not_read_at_all() {
    let head = b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000000\r\n\r\n";
    let (address, _) = raw_server(head.to_vec(), (b"", NO_TIME)).await;
    let error = fetched(&address).await.unwrap().bytes(100).await.unwrap_err();
    assert!(matches!(error, HttpError::TooLarge { .. }), "{error}");
}

#[tokio::test]
async fn a_server_that_trickles_or_stops_is_given_up() {
    let (address, _) = raw_server(OK.to_vec(), (b"x", Duration::from_millis(100))).await;
    let error = fetched(&address).await.unwrap().bytes(1 << 20).await.unwrap_err();
    assert!(matches!(error, HttpError::Timeout { .. }), "{error}");
    let (address, _) = raw_server(OK.to_vec(), (b"", Duration::from_secs(3600))).await;
    let error = fetched(&address).await.unwrap().bytes(1 << 20).await.unwrap_err();
    assert!(matches!(error, HttpError::Timeout { .. }), "{error}");
    let (address, _) = raw_server(Vec::new(), (b"", Duration::from_secs(3600))).await;
    assert!(matches!(fetched(&address).await, Err(HttpError::Timeout { .. })));
}

#[tokio::test]
async fn headers_without_end_are_refused() {
    let many = b"HTTP/1.1 200 OK\r\n".to_vec();
    let (address, _) = raw_server([many.clone(), b"a: b\r\n".repeat(1000)].concat(), (b"", NO_TIME)).await;
    assert!(matches!(fetched(&address).await, Err(HttpError::Request { .. })));
    let long = [many, b"a: ".to_vec()].concat();
    let (address, _) = raw_server(long, (PIECE, NO_TIME)).await;
    assert!(matches!(fetched(&address).await, Err(HttpError::Request { .. })));
}

#[tokio::test]
async fn nothing_leads_to_this_machine_or_to_plain_text() {
    let (address, served) = raw_server(OK.to_vec(), (b"", Duration::from_secs(1))).await;
    let port = address.rsplit(':').next().unwrap();
    let http = http();
    // What a registry elsewhere names as its token server, or redirects to.
    for host in [
        &address,
        &format!("localhost:{port}"),
        &format!("[::ffff:127.0.0.1]:{port}"),
        &format!("0.0.0.0:{port}"),
    ] {
        let url = format!("http://{host}/latest/meta-data");
        let error = get(&http, "http://registry.example", &url).await.err().unwrap();
        assert!(matches!(error, HttpError::Local(_)), "{url}: {error}");
        let error = get(&http, "https://registry.example", &url).await.err().unwrap();
        assert!(matches!(error, HttpError::PlainText(_)), "{url}: {error}");
    }
    for url in [
        "file:///etc/passwd",
        "ftp://a/b",
        "gopher://a",
        "unix:///run/x",
        "//host/x",
    ] {
        let error = get(&http, "https://registry.example", url).await.err().unwrap();
        assert!(matches!(error, HttpError::Address(_)), "{url}: {error}");
    }
    assert_eq!(*served.lock().unwrap(), 0, "it was connected to");
}

#[tokio::test]
async fn credentials_stay_with_the_origin_they_are_for() {
    let elsewhere = Registry::start(repository("app")).await;
    let redirect = format!(
        "HTTP/1.1 307 Moved\r\nlocation: http://{}/elsewhere/x\r\n\r\n",
        elsewhere.address
    );
    let (address, _) = raw_server(redirect.into_bytes(), (b"", Duration::from_secs(1))).await;
    // Another port is another origin, even of the same host.
    let _ = fetched(&address).await.unwrap();
    assert_eq!(elsewhere.asked.lock().unwrap().as_slice(), ["/elsewhere/x -"]);
    let circle = "HTTP/1.1 302 Moved\r\nlocation: /again\r\ncontent-length: 0\r\n\r\n";
    let (address, served) = raw_server(circle.into(), (b"", Duration::from_secs(1))).await;
    assert!(matches!(fetched(&address).await, Err(HttpError::Redirects(_))));
    assert_eq!(*served.lock().unwrap(), 6);
}

/// Pulls from a registry whose documents were changed after their digests were taken back into account.
async fn refused(change: impl Fn(&str) -> String, why: &str) {
    let layer = |text: &str| {
        format!(
            r#"{{"digest":"{}","size":{}}}"#,
            Digest::sha256(text.as_bytes()),
            text.len()
        )
    };
    let config = CONFIG.replace("D1", &"1".repeat(64)).replace("D2", &"2".repeat(64));
    let config = change(&config);
    let manifest = format!(
        r#"{{"config":{},"layers":[{},{}]}}"#,
        layer(&config),
        layer("layer one"),
        layer("layer two")
    );
    let manifest = change(&manifest);
    let mut content = BTreeMap::new();
    for text in [config.as_str(), "layer one", "layer two"] {
        let path = format!("/v2/app/blobs/{}", Digest::sha256(text.as_bytes()));
        content.insert(path, (String::new(), text.as_bytes().to_vec()));
    }
    let media_type = "application/vnd.oci.image.manifest.v1+json".to_owned();
    content.insert("/v2/app/manifests/1".to_owned(), (media_type, manifest.into_bytes()));
    let registry = Registry::start(content).await;
    let (dir, pulled) = pull(&registry, "app:1", &[]).await;
    let error = pulled.map(drop).unwrap_err().to_string();
    assert!(error.contains(why), "{error}");
    let left = walk(dir.path());
    assert!(left.is_empty(), "{left:?}");
}

/// The files below a directory.
fn walk(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().flatten().map(|entry| entry.path());
    entries
        .flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] })
        .collect()
}

#[tokio::test]
async fn documents_that_lie_are_refused_and_leave_nothing() {
    let ones = "1".repeat(64);
    refused(
        |text| text.replace(&format!("sha256:{ones}"), "/tmp/x"),
        "invalid digest",
    )
    .await;
    refused(|text| text.replace(&ones, "../../../../etc/passwd"), "invalid digest").await;
    refused(
        |text| text.replace(r#"["sha256:1"#, &format!(r#"["sha256:{ones}","sha256:1"#)),
        "lists 2 layers but 3",
    )
    .await;
    refused(
        |text| text.replace(r#""size":9"#, r#""size":8"#),
        "is larger than 8 bytes",
    )
    .await;
    refused(
        |text| text.replace(r#""size":9"#, r#""size":10"#),
        "has 9 bytes, not 10",
    )
    .await;
    refused(|text| text.replace(r#","size":9"#, ""), "missing field `size`").await;
    refused(
        |text| text.replace(r#""layers""#, r#""manifests":[],"layers""#),
        "both manifests and layers",
    )
    .await;
    let index = format!(r#"{{"mediaType":"{INDEX}","#);
    refused(
        |text| text.replace(r#"{"config":{"digest"#, &format!(r#"{index}"config":{{"digest"#)),
        "announced as",
    )
    .await;
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    refused(|text| text.replace(r#"["run"]"#, &deep), "configuration").await;
}

#[tokio::test]
async fn a_token_may_not_be_endless_either() {
    let token = format!(r#"{{"token":"{}"}}"#, "x".repeat(100_000));
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{token}", token.len());
    let (address, _) = raw_server(answer.into_bytes(), (b"", Duration::from_secs(1))).await;
    let challenge = format!(r#"Bearer realm="http://{address}/token""#);
    let registry = Origin::of_url(&format!("http://{address}")).unwrap();
    let answered = auth::answer(&http(), &registry, &challenge, &Credentials::default()).await;
    assert_eq!(answered.unwrap(), None);
}
