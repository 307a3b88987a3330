//! Pulling from a registry on the loopback that asks for a token and sends layers by way of another host.

mod hostile;

use super::*;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use ::http::{Request, Response};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

const TOKEN: &str = "Bearer let-me-in";
const CONFIG: &str = r#"{"config":{"Cmd":["run"]},"rootfs":{"diff_ids":["sha256:D1","sha256:D2"]}}"#;
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// A registry: what it has by path, and what it was asked.
struct Registry {
    address: String,
    content: Arc<BTreeMap<String, (String, Vec<u8>)>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Registry {
    async fn start(content: BTreeMap<String, (String, Vec<u8>)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let registry = Self {
            address: listener.local_addr().unwrap().to_string(),
            content: Arc::new(content),
            asked: Arc::default(),
        };
        let (content, asked, address) = (
            registry.content.clone(),
            registry.asked.clone(),
            registry.address.clone(),
        );
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (content, asked, address) = (content.clone(), asked.clone(), address.clone());
                let service = hyper::service::service_fn(move |request: Request<Incoming>| {
                    let answer = answer(&request, &content, &asked, &address);
                    async move { Ok::<_, std::convert::Infallible>(answer) }
                });
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service),
                );
            }
        });
        registry
    }

    fn reference(&self, name: &str) -> Reference {
        Reference::parse(&format!("{}/{name}", self.address)).unwrap()
    }

    fn asked_for(&self, what: &str) -> usize {
        self.asked
            .lock()
            .unwrap()
            .iter()
            .filter(|line| line.contains(what))
            .count()
    }
}

fn answer(
    request: &Request<Incoming>,
    content: &BTreeMap<String, (String, Vec<u8>)>,
    asked: &Mutex<Vec<String>>,
    address: &str,
) -> Response<Full<Bytes>> {
    let path = request.uri().path_and_query().unwrap().as_str().to_owned();
    let authorization = request
        .headers()
        .get("authorization")
        .map(|value| value.to_str().unwrap().to_owned());
    asked
        .lock()
        .unwrap()
        .push(format!("{path} {}", authorization.as_deref().unwrap_or("-")));
    let empty = |status: u16| Response::builder().status(status);
    if path.starts_with("/token?") {
        let token = r#"{"token":"let-me-in"}"#;
        return empty(200).body(Full::from(token)).unwrap();
    }
    if let Some(path) = path.strip_prefix("/elsewhere") {
        return match content.get(path) {
            Some((_, bytes)) => empty(200).body(Full::from(bytes.clone())).unwrap(),
            None => empty(404).body(Full::default()).unwrap(),
        };
    }
    if authorization.as_deref() != Some(TOKEN) {
        let challenge = format!(r#"Bearer realm="http://{address}/token",service="test",scope="repository:app:pull""#);
        return empty(401)
            .header("www-authenticate", challenge)
            .body(Full::default())
            .unwrap();
    }
    match content.get(&path) {
        None => empty(404).body(Full::default()).unwrap(),
        Some(_) if path.contains("/blobs/") => {
            // As registries do that keep blobs in another's storage: here the same machine by another name.
            let port = address.rsplit(':').next().unwrap();
            let location = format!("http://localhost:{port}/elsewhere{path}");
            empty(307).header("location", location).body(Full::default()).unwrap()
        }
        Some((media_type, bytes)) => empty(200)
            .header("content-type", media_type)
            .body(Full::from(bytes.clone()))
            .unwrap(),
    }
}

/// A repository with one image of two layers, behind an index, as `name:1`.
fn repository(name: &str) -> BTreeMap<String, (String, Vec<u8>)> {
    let mut content = BTreeMap::new();
    let mut add = |kind: &str, media_type: &str, bytes: Vec<u8>| {
        let digest = Digest::sha256(&bytes);
        let descriptor = format!(r#"{{"digest":"{digest}","size":{}}}"#, bytes.len());
        content.insert(format!("/v2/{name}/{kind}/{digest}"), (media_type.to_owned(), bytes));
        descriptor
    };
    let layers = [
        add("blobs", "", b"layer one".to_vec()),
        add("blobs", "", b"layer two".to_vec()),
    ];
    let config = add(
        "blobs",
        "",
        CONFIG
            .replace("D1", &"1".repeat(64))
            .replace("D2", &"2".repeat(64))
            .into_bytes(),
    );
    let manifest = format!(r#"{{"config":{config},"layers":[{},{}]}}"#, layers[0], layers[1]);
    let manifest = add(
        "manifests",
        "application/vnd.oci.image.manifest.v1+json",
        manifest.into_bytes(),
    );
    let (os, architecture) = platform()
        .split_once('/')
        .map(|(os, arch)| (os.to_owned(), arch.to_owned()))
        .unwrap();
    let platform = format!(r#","platform":{{"os":"{os}","architecture":"{architecture}"}}}}"#);
    let index = format!(
        r#"{{"manifests":[
            {{"digest":"sha256:{}","size":1,"platform":{{"os":"linux","architecture":"pdp11"}}}},
            {}]}}"#,
        "0".repeat(64),
        manifest.replace('}', &platform),
    );
    add("manifests", INDEX, index.clone().into_bytes());
    let tagged = (INDEX.to_owned(), index.into_bytes());
    content.insert(format!("/v2/{name}/manifests/1"), tagged);
    content
}

async fn pull(
    registry: &Registry,
    name: &str,
    present: &[usize],
) -> (tempfile::TempDir, Result<PackedImage, PullError>) {
    let dir = tempfile::tempdir().unwrap();
    let pulled = pull_reference(&registry.reference(name), present, dir.path()).await;
    (dir, pulled)
}

async fn pull_reference(
    reference: &Reference,
    present: &[usize],
    dir: &std::path::Path,
) -> Result<PackedImage, PullError> {
    let (registries, credentials) = (Registries::new(Vec::new()), Credentials::default());
    let found = registries.find(reference, &credentials).await?;
    let work = WorkDir::new(dir).unwrap();
    found.fetch(&work, &present.iter().copied().collect()).await
}

#[tokio::test]
async fn an_image_is_found_behind_token_index_and_redirect() {
    let registry = Registry::start(repository("app")).await;
    let (_dir, pulled) = pull(&registry, "app:1", &[]).await;
    let image = pulled.unwrap();
    assert_eq!(image.names, [format!("{}/app:1", registry.address)]);
    assert_eq!(image.config.config.cmd, ["run"]);
    let layers: Vec<_> = image
        .layers
        .iter()
        .map(|layer| std::io::read_to_string(&layer.as_ref().unwrap().file).unwrap())
        .collect();
    assert_eq!(layers, ["layer one", "layer two"]);
    // The digest is that of what the tag names, so that every machine tells the same.
    assert_eq!(
        image.manifest_digest.unwrap(),
        Digest::sha256(&registry.content["/v2/app/manifests/1"].1)
    );
    assert_eq!(registry.asked_for("/token?"), 1);
    let leaked = registry
        .asked
        .lock()
        .unwrap()
        .iter()
        .any(|line| line.contains("elsewhere") && line.contains("let-me-in"));
    assert!(!leaked, "the token went to another host");
}

#[tokio::test]
async fn layers_that_are_here_are_not_fetched() {
    let registry = Registry::start(repository("app")).await;
    let (_dir, pulled) = pull(&registry, "app:1", &[0]).await;
    let layers = pulled.unwrap().layers;
    assert_eq!(layers.iter().map(Option::is_some).collect::<Vec<_>>(), [false, true]);
}

#[tokio::test]
async fn a_digest_is_held_to() {
    let registry = Registry::start(repository("app")).await;
    let digest = Digest::sha256(&registry.content["/v2/app/manifests/1"].1);
    pull(&registry, &format!("app@{digest}"), &[]).await.1.unwrap();

    let mut lying = repository("app");
    let wrong = format!("/v2/app/manifests/sha256:{}", "1".repeat(64));
    lying.insert(wrong, lying["/v2/app/manifests/1"].clone());
    let registry = Registry::start(lying).await;
    let error = pull(&registry, &format!("app@sha256:{}", "1".repeat(64)), &[])
        .await
        .1
        .unwrap_err();
    assert!(matches!(error, PullError::Corrupt { .. }), "{error}");
}

#[tokio::test]
async fn a_blob_that_was_changed_is_refused() {
    let mut content = repository("app");
    for (path, (_, bytes)) in &mut content {
        if path.contains("/blobs/") && bytes.starts_with(b"layer two") {
            bytes[0] = b'L';
        }
    }
    let registry = Registry::start(content).await;
    let error = pull(&registry, "app:1", &[]).await.1.unwrap_err();
    assert!(matches!(error, PullError::Corrupt { .. }), "{error}");
}

#[tokio::test]
async fn what_is_not_there_is_not_found() {
    let registry = Registry::start(repository("app")).await;
    let error = pull(&registry, "app:2", &[]).await.1.unwrap_err();
    let name = format!("{}/app:2", registry.address);
    assert_eq!(
        error.to_string(),
        format!("failed to resolve reference \"{name}\": {name}: not found")
    );
    let dead = Reference::parse("127.0.0.1:1/app").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let pulled = pull_reference(&dead, &[], dir.path()).await;
    assert!(matches!(
        pulled.unwrap_err(),
        PullError::Http(HttpError::Connect { .. })
    ));
}

#[test]
fn addresses_follow_from_names() {
    let check = |name: &str, expected: &str| assert_eq!(base_url(&Reference::parse(name).unwrap()), expected);
    check("busybox", "https://registry-1.docker.io/v2/library/busybox");
    check("registry.k8s.io/pause:3.10", "https://registry.k8s.io/v2/pause");
    check("localhost:5000/app", "http://localhost:5000/v2/app");
    check("127.0.0.1:5000/app", "http://127.0.0.1:5000/v2/app");
    check("10.0.0.1:5000/app", "https://10.0.0.1:5000/v2/app");
}
