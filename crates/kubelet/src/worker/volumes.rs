//! Setting up a pod's volumes: what they are made from is gathered first, then the file system is changed at once.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use client::Client;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::json;

use super::image::{self, NoImage};
use crate::moment::Moment;
use crate::objects;
use crate::pod::{Container, Pod, TokenProjection};
use crate::shared::Shared;
use crate::volumes::{self, payload::Sources};

/// The lifetime of a token whose projection names none.
const DEFAULT_TOKEN_SECONDS: i64 = 3600;
/// A token is replaced when this part of its life is over, or when it is this old.
const REFRESH_AFTER: f64 = 0.8;
const MAX_TOKEN_AGE: Duration = Duration::from_secs(24 * 3600);

/// The service account tokens of one pod, kept so that they are renewed in time and not on every look.
#[derive(Default)]
pub struct Tokens(Mutex<BTreeMap<(String, String), Token>>);

#[derive(Clone)]
struct Token {
    text: String,
    refresh_at: Moment,
}

/// The volumes of a pod, by name.
#[derive(Clone, Debug, Default)]
pub struct Mounted {
    /// Where each is on the host.
    pub places: BTreeMap<String, PathBuf>,
    /// Those that are images, which the runtime mounts.
    pub images: BTreeMap<String, String>,
}

impl Tokens {
    /// When the next token has to be renewed.
    pub fn refresh_at(&self) -> Option<Moment> {
        self.0.lock().values().map(|token| token.refresh_at).min()
    }
}

/// Sets up all volumes, or brings them up to date.
pub async fn set_up(
    shared: &Arc<Shared>,
    pod: &Arc<Pod>,
    tokens: &Tokens,
    pod_ips: Vec<String>,
    known_images: BTreeMap<String, String>,
) -> Result<Mounted, String> {
    if pod.spec.volumes.is_empty() {
        return Ok(Mounted::default());
    }
    let images = images(shared, pod, known_images).await?;
    let names = pod.spec.volumes.iter().flat_map(objects::of_volume).collect();
    let found = shared.objects.find(&pod.metadata.namespace, names).await?;
    let issued = issue(shared, pod, tokens).await?;
    let facts = shared.facts(pod_ips);
    let (shared, pod) = (shared.clone(), pod.clone());
    let done = tokio::task::spawn_blocking(move || {
        let mut places = BTreeMap::new();
        for volume in pod.spec.volumes.iter().filter(|volume| volume.image.is_none()) {
            let empty = BTreeMap::new();
            let sources = Sources {
                pod: &pod,
                found: &found,
                facts: &facts,
                tokens: issued.get(&volume.name).unwrap_or(&empty),
            };
            let (name, path) = volumes::set_up(&shared.paths, volume, &sources, Moment::now())?;
            places.insert(name, path);
        }
        Ok(Mounted { places, images })
    });
    done.await.unwrap_or_else(|error| Err(error.to_string()))
}

/// The images that are volumes: each is looked for, or pulled, once in the life of its pod.
async fn images(
    shared: &Shared,
    pod: &Pod,
    mut known: BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, String> {
    for volume in &pod.spec.volumes {
        let Some(source) = volume.image.as_ref().filter(|_| !known.contains_key(&volume.name)) else {
            continue;
        };
        let wanted = Container {
            image: source.reference.clone(),
            image_pull_policy: source.pull_policy,
            ..Container::default()
        };
        let found = image::ensure(shared, pod, &wanted).await;
        let found = found.map_err(|error| {
            let NoImage { reason, message } = error;
            format!(
                "MountVolume.SetUp failed for volume {:?} : {reason}: {message}",
                volume.name
            )
        })?;
        known.insert(volume.name.clone(), found.reference);
    }
    Ok(known)
}

/// The tokens of every volume, by path.
async fn issue(
    shared: &Shared,
    pod: &Pod,
    tokens: &Tokens,
) -> Result<BTreeMap<String, BTreeMap<String, String>>, String> {
    let mut issued: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for volume in &pod.spec.volumes {
        let sources = volume.projected.iter().flat_map(|projected| &projected.sources);
        for source in sources.filter_map(|source| source.service_account_token.as_ref()) {
            let key = (volume.name.clone(), source.path.clone());
            let kept = tokens.0.lock().get(&key).cloned();
            let token = match kept.filter(|token| Moment::now() < token.refresh_at) {
                Some(token) => token,
                None => {
                    let fresh = request(&shared.client, pod, source)
                        .await
                        .map_err(|error| format!("MountVolume.SetUp failed for volume {:?} : {error}", volume.name))?;
                    tokens.0.lock().insert(key, fresh.clone());
                    fresh
                }
            };
            issued
                .entry(volume.name.clone())
                .or_default()
                .insert(source.path.clone(), token.text);
        }
    }
    Ok(issued)
}

async fn request(client: &Client, pod: &Pod, source: &TokenProjection) -> Result<Token, String> {
    #[derive(Deserialize)]
    struct Answer {
        status: Issued,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Issued {
        token: String,
        expiration_timestamp: Moment,
    }
    let account = match pod.spec.service_account_name.as_str() {
        "" => "default",
        account => account,
    };
    let metadata = &pod.metadata;
    let audiences: Vec<&str> = Some(source.audience.as_str())
        .filter(|audience| !audience.is_empty())
        .into_iter()
        .collect();
    let seconds = source.expiration_seconds.unwrap_or(DEFAULT_TOKEN_SECONDS);
    let body = json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {
            "audiences": audiences,
            "expirationSeconds": seconds,
            "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": metadata.name, "uid": metadata.uid},
        },
    });
    let accounts = client.resource(&api::kinds::service_account::SERVICE_ACCOUNT);
    let api = accounts.in_namespace(metadata.namespace.clone()).subresource("token");
    let now = Moment::now();
    let answer = api.create_for::<Answer>(account, &body).await;
    let issued = answer
        .map_err(|error| format!("failed to fetch token: {error}"))?
        .status;
    let lifetime = issued.expiration_timestamp.since(now);
    Ok(Token {
        text: issued.token,
        refresh_at: now.plus(lifetime.mul_f64(REFRESH_AFTER).min(MAX_TOKEN_AGE)),
    })
}
