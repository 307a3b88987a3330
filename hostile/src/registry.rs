//! A registry that serves whatever it was given, true or not.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result};

use crate::cluster::REGISTRY;
use crate::image::{Image, MANIFEST_TYPE, digest_of};
use crate::wire::serve::{Answer, Asked, Server};

/// What is served under a path.
pub type Serve = Arc<dyn Fn(&Asked) -> Answer + Send + Sync>;

pub struct Registry {
    paths: Arc<Mutex<HashMap<String, Serve>>>,
    server: Server,
}

impl Registry {
    pub fn start() -> Result<Self> {
        let paths: Arc<Mutex<HashMap<String, Serve>>> = Arc::default();
        let known = paths.clone();
        let server = Server::start(REGISTRY, None, move |asked| {
            let path = asked.path.split('?').next().unwrap_or_default();
            if path == "/v2/" {
                return Answer::text(200, "{}");
            }
            let serve = known.lock().ok().and_then(|known| known.get(path).cloned());
            serve.map_or_else(|| Answer::text(404, "{\"errors\":[]}"), |serve| serve(asked))
        })?;
        Ok(Self { paths, server })
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.server.asked()
    }

    pub fn serve(&self, path: &str, serve: impl Fn(&Asked) -> Answer + Send + Sync + 'static) {
        if let Ok(mut paths) = self.paths.lock() {
            paths.insert(path.to_owned(), Arc::new(serve));
        }
    }

    /// Serves an image under its name; with credentials, only to those who have them.
    pub fn publish(&self, image: &Image, credentials: Option<&'static str>) -> Result<()> {
        let (repository, tag) = split(&image.name).context("the image has no tag")?;
        let manifest = image.manifest();
        let guarded = |kind: &'static str, body: Vec<u8>| {
            move |asked: &Asked| match credentials {
                Some(wanted) if asked.header("authorization") != Some(wanted) => {
                    let challenge = vec![("WWW-Authenticate", "Basic realm=\"hostile\"".to_owned())];
                    Answer::Whole(401, challenge, b"{\"errors\":[]}".to_vec())
                }
                _ => Answer::Whole(200, vec![("Content-Type", kind.to_owned())], body.clone()),
            }
        };
        for reference in [tag.to_owned(), digest_of(&manifest)] {
            self.serve(
                &format!("/v2/{repository}/manifests/{reference}"),
                guarded(MANIFEST_TYPE, manifest.clone()),
            );
        }
        for blob in image.layers.iter().cloned().chain([image.configuration()]) {
            let path = format!("/v2/{repository}/blobs/{}", digest_of(&blob));
            self.serve(&path, guarded("application/octet-stream", blob));
        }
        Ok(())
    }
}

/// The repository within its registry, and the tag.
pub fn split(name: &str) -> Option<(&str, &str)> {
    let (_, path) = name.split_once('/')?;
    path.rsplit_once(':')
}
