//! Where manifests are read from: a directory or file that is watched, and a URL that is asked now and then.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use client::{Client, Config};
use http::{Request, Uri};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::net::unix::pipe::Receiver;

use super::StaticPods;
use super::manifest::{self, Manifest, Origin};
use crate::options::{KubeletOptions, ManifestUrl};

pub const FILE: &str = "file";
pub const HTTP: &str = "http";

/// Larger manifests are not read.
const MAX_BYTES: u64 = 10 << 20;
/// Files of a directory that are read.
const MAX_FILES: usize = 1000;
/// How long a URL may take to answer.
const URL_TIMEOUT: Duration = Duration::from_secs(10);
/// Changes that come together are read together.
const SETTLE: Duration = Duration::from_millis(20);

#[derive(Debug, thiserror::Error)]
enum SourceError {
    #[error("failed to read it: {0}")]
    Read(#[from] std::io::Error),
    #[error("it is larger than {MAX_BYTES} bytes")]
    Size,
    #[error("it is not a regular file")]
    Type,
    #[error(transparent)]
    Manifest(#[from] manifest::ManifestError),
    #[error("it is not an http or https URL: {0}")]
    Config(#[from] client::ConfigError),
    #[error("{0}")]
    Request(#[from] http::Error),
    #[error("{0}")]
    Fetch(#[from] client::Error),
    #[error("it did not answer within {} s", URL_TIMEOUT.as_secs())]
    Timeout,
}

/// Reads all sources for as long as it is not dropped.
pub async fn follow(pods: &StaticPods, options: &KubeletOptions) {
    let files = async {
        if let Some(path) = &options.static_pod_path {
            follow_path(pods, path, options.file_check).await;
        }
    };
    let url = async {
        if let Some(url) = &options.manifest_url {
            follow_url(pods, url).await;
        }
    };
    tokio::join!(files, url);
}

async fn follow_path(pods: &StaticPods, path: &Path, check: Duration) {
    loop {
        let watch = watch(path).inspect_err(|error| {
            tracing::warn!(%error, path = %path.display(), "static pods are not watched, only read now and then");
        });
        let (read, node_name) = (path.to_owned(), pods.node_name.clone());
        let manifests = tokio::task::spawn_blocking(move || read_path(&read, &node_name)).await;
        if let Ok(manifests) = manifests {
            pods.replace(FILE, manifests);
        }
        let changed = async {
            match &watch {
                Ok(watch) => drop(watch.readable().await),
                Err(_) => std::future::pending().await,
            }
        };
        if tokio::time::timeout(check, changed).await.is_ok() {
            tokio::time::sleep(SETTLE).await;
        }
    }
}

/// Becomes readable when something changes at the path.
fn watch(path: &Path) -> std::io::Result<Receiver> {
    let descriptor = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    let flags = WatchFlags::CLOSE_WRITE
        | WatchFlags::CREATE
        | WatchFlags::DELETE
        | WatchFlags::MOVED_FROM
        | WatchFlags::MOVED_TO
        | WatchFlags::DELETE_SELF
        | WatchFlags::MOVE_SELF;
    inotify::add_watch(&descriptor, path, flags)?;
    // It is no pipe, but is waited for like one.
    Receiver::from_owned_fd_unchecked(descriptor)
}

/// The pods of a directory, or of a single file. What is no good manifest is reported and left out.
pub fn read_path(path: &Path, node_name: &str) -> Vec<Manifest> {
    let files = match files_of(path) {
        Ok(files) => files,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Vec::new(),
        Err(error) => {
            tracing::error!(%error, path = %path.display(), "Failed to read the directory of static pods");
            return Vec::new();
        }
    };
    let mut manifests = Vec::new();
    for file in files.into_iter().take(MAX_FILES) {
        match read_file(&file, node_name) {
            Ok(manifest) => manifests.push(manifest),
            Err(error) => {
                tracing::error!(%error, path = %file.display(), "Failed to read a static pod; leaving it out")
            }
        }
    }
    manifests
}

/// Files whose names do not begin with a dot, in the order of their names.
fn files_of(path: &Path) -> std::io::Result<Vec<PathBuf>> {
    if !path.metadata()?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in path.read_dir()? {
        let entry = entry?;
        let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        // A link leads to a file or to nothing; a directory in the directory is no manifest.
        let directory = entry.path().metadata().is_ok_and(|metadata| metadata.is_dir());
        if !hidden && !directory {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

fn read_file(path: &Path, node_name: &str) -> Result<Manifest, SourceError> {
    // A FIFO would keep us waiting.
    let mut options = File::options();
    let flags = rustix::fs::OFlags::NONBLOCK.bits();
    let file = options.read(true).custom_flags(flags.cast_signed()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(SourceError::Type);
    }
    let mut data = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut data)?;
    if data.len() as u64 > MAX_BYTES {
        return Err(SourceError::Size);
    }
    let location = path.to_string_lossy();
    let origin = Origin {
        source: FILE,
        location: &location,
        node_name,
    };
    Ok(manifest::decode(&data, origin)?)
}

async fn follow_url(pods: &StaticPods, url: &ManifestUrl) {
    loop {
        // A URL that does not answer, or not with pods, leaves what runs as it is.
        match ask(url, &pods.node_name).await {
            Ok(manifests) => pods.replace(HTTP, manifests),
            Err(error) => tracing::error!(%error, url = url.url, "Failed to read static pods"),
        }
        tokio::time::sleep(url.check).await;
    }
}

async fn ask(url: &ManifestUrl, node_name: &str) -> Result<Vec<Manifest>, SourceError> {
    let uri: Uri = url.url.parse().map_err(http::Error::from)?;
    let config = Config {
        server: format!(
            "{}://{}",
            uri.scheme_str().unwrap_or("http"),
            uri.authority().map_or("", http::uri::Authority::as_str)
        ),
        ..Config::default()
    };
    let client = Client::connect(config)?;
    let mut request = Request::get(uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str));
    for (name, value) in &url.headers {
        request = request.header(name, value);
    }
    let fetched = tokio::time::timeout(URL_TIMEOUT, client.fetch(request.body(Bytes::new())?)).await;
    let data = fetched.map_err(|_| SourceError::Timeout)??;
    if data.len() as u64 > MAX_BYTES {
        return Err(SourceError::Size);
    }
    let origin = Origin {
        source: HTTP,
        location: &url.url,
        node_name,
    };
    Ok(manifest::decode_all(&data, origin)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEB: &str = "{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: a, image: b}]}}";

    #[test]
    fn only_good_manifests_of_a_directory_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        std::fs::write(path.join("b.yaml"), WEB).unwrap();
        std::fs::write(path.join("a.json"), WEB.replace("web", "db")).unwrap();
        std::fs::write(path.join(".hidden.yaml"), WEB.replace("web", "hidden")).unwrap();
        std::fs::write(path.join("broken.yaml"), "{").unwrap();
        std::fs::create_dir(path.join("directory")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            path.join("fifo"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        std::os::unix::fs::symlink("/dev/zero", path.join("zero")).unwrap();
        let keys = |path: &Path| -> Vec<String> { read_path(path, "n1").iter().map(Manifest::key).collect() };
        assert_eq!(keys(path), ["default/db-n1", "default/web-n1"]);
        assert_eq!(keys(&path.join("b.yaml")), ["default/web-n1"]);
        assert!(keys(&path.join("missing")).is_empty());
    }
}
