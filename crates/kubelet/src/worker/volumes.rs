//! Setting up a pod's volumes: what they are made from is gathered first, then the file system is changed at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use client::Client;
use parking_lot::Mutex;

use super::image::{self, NoImage};
use crate::claims::{self, BoundVolume, ClaimError, PersistentVolume};
use crate::csi;
use crate::moment::Moment;
use crate::objects::{self, Kind};
use crate::pod::{Container, ImageSource, Pod, TokenProjection, Volume};
use crate::service_account_tokens;
use crate::shared::Shared;
use crate::volumes::{self, MountSource, MountedVolume, SetUp, VolumeError};

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

/// The volumes of a pod that are set up, by name.
pub type Mounted = BTreeMap<String, MountedVolume>;

/// What a worker knows of its pod's volumes.
#[derive(Default)]
pub struct PodVolumes {
    pub mounted: Mounted,
    pub tokens: Arc<Tokens>,
    /// When those that follow objects are brought up to date; none until they are mounted.
    pub refresh_at: Option<Moment>,
}

impl Tokens {
    /// When the next token has to be renewed.
    pub fn refresh_at(&self) -> Option<Moment> {
        self.0.lock().values().map(|token| token.refresh_at).min()
    }
}

/// Everything that a pod refers to and that changes are followed of.
pub fn referenced_objects(pod: &Pod) -> BTreeSet<(Kind, String)> {
    let environments = pod
        .all_containers()
        .flat_map(|(_, container)| objects::environment_objects(container));
    let volumes = pod
        .spec
        .volumes
        .iter()
        .flat_map(|volume| volumes::needs(volume).objects);
    let pulls = pod.spec.image_pull_secrets.iter();
    let pulls = pulls.map(|secret| (Kind::Secret, secret.name.clone()));
    environments.chain(volumes).chain(pulls).collect()
}

/// Sets up all volumes, or brings them up to date. `before` is what was set up earlier.
pub async fn set_up(
    shared: &Arc<Shared>,
    pod: &Arc<Pod>,
    tokens: &Tokens,
    pod_ips: Vec<String>,
    before: Mounted,
) -> Result<Mounted, VolumeError> {
    if pod.spec.volumes.is_empty() {
        return Ok(Mounted::default());
    }
    let images = images(shared, pod, &before).await?;
    let names = pod
        .spec
        .volumes
        .iter()
        .flat_map(|volume| volumes::needs(volume).objects);
    let found = shared.objects.find(&pod.metadata.namespace, names.collect()).await?;
    let issued = issue(shared, pod, tokens).await?;
    let claims = claims(shared, pod, &before).await?;
    let published = csi::set_up(shared, pod, &claims, &before).await?;
    let facts = shared.facts(pod_ips);
    let (shared, pod) = (shared.clone(), pod.clone());
    let done = tokio::task::spawn_blocking(move || {
        let (mut mounted, no_tokens) = (Mounted::new(), BTreeMap::new());
        for volume in &pod.spec.volumes {
            // A claim's volume does not change while a pod has it.
            if let Some(kept) = before.get(&volume.name).filter(|before| before.claim.is_some()) {
                mounted.insert(volume.name.clone(), kept.clone());
                continue;
            }
            let request = SetUp {
                paths: &shared.paths,
                pod: &pod,
                volume,
                found: &found,
                facts: &facts,
                tokens: issued.get(&volume.name).unwrap_or(&no_tokens),
                image: images.get(&volume.name).map(String::as_str),
                claim: claims.get(&volume.name),
                published: published.get(&volume.name),
                now: Moment::now(),
            };
            mounted.insert(volume.name.clone(), volumes::set_up(&request)?);
        }
        Ok(mounted)
    });
    done.await?
}

/// What the claims of a pod's volumes are bound to, for volumes that are not set up yet.
async fn claims(
    shared: &Arc<Shared>,
    pod: &Arc<Pod>,
    before: &Mounted,
) -> Result<BTreeMap<String, BoundVolume>, VolumeError> {
    let mut claims = BTreeMap::new();
    for volume in &pod.spec.volumes {
        let reference = volumes::needs(volume).claim;
        let Some(reference) = reference.filter(|_| !before.contains_key(&volume.name)) else {
            continue;
        };
        let failed = |source: ClaimError| VolumeError::Claim {
            volume: volume.name.clone(),
            source: Box::new(source),
        };
        let is_set_up = |found: &PersistentVolume| volumes::is_set_up(&shared.paths, &pod.metadata.uid, found);
        let bound = claims::resolve(&shared.client, pod, volume, reference, is_set_up).await;
        let bound = bound.map_err(failed)?;
        if bound.volume.has_node_affinity() {
            let node = claims::node_labels(&shared.client, &shared.node_name).await;
            if !bound.volume.is_usable_on(&node.map_err(failed)?) {
                return Err(VolumeError::NodeAffinity {
                    volume: bound.volume.name().to_owned(),
                });
            }
        }
        claims.insert(volume.name.clone(), bound);
    }
    Ok(claims)
}

/// The images that are volumes: each is looked for, or pulled, once in the life of its pod.
async fn images(shared: &Shared, pod: &Pod, before: &Mounted) -> Result<BTreeMap<String, String>, VolumeError> {
    let mut images = BTreeMap::new();
    for volume in &pod.spec.volumes {
        let Some(source) = volumes::needs(volume).image else {
            continue;
        };
        let known = before.get(&volume.name).map(|mounted| &mounted.source);
        let reference = match known {
            Some(MountSource::Image(reference)) => reference.clone(),
            _ => find_image(shared, pod, volume, source).await?,
        };
        images.insert(volume.name.clone(), reference);
    }
    Ok(images)
}

async fn find_image(shared: &Shared, pod: &Pod, volume: &Volume, source: &ImageSource) -> Result<String, VolumeError> {
    let wanted = Container {
        image: source.reference.clone(),
        image_pull_policy: source.pull_policy,
        ..Container::default()
    };
    match image::ensure(shared, pod, &wanted).await {
        Ok(found) => Ok(found.reference),
        Err(NoImage { reason, message }) => Err(VolumeError::Image {
            volume: volume.name.clone(),
            reason: reason.to_string(),
            message,
        }),
    }
}

/// The tokens of every volume, by path.
async fn issue(
    shared: &Shared,
    pod: &Pod,
    tokens: &Tokens,
) -> Result<BTreeMap<String, BTreeMap<String, String>>, VolumeError> {
    let mut issued: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for volume in &pod.spec.volumes {
        for source in volumes::needs(volume).tokens {
            let key = (volume.name.clone(), source.path.clone());
            let kept = tokens.0.lock().get(&key).cloned();
            let token = match kept.filter(|token| Moment::now() < token.refresh_at) {
                Some(token) => token,
                None => {
                    let fresh = request(&shared.client, pod, source).await;
                    let fresh = fresh.map_err(|source| VolumeError::Token {
                        volume: volume.name.clone(),
                        source,
                    })?;
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

async fn request(client: &Client, pod: &Pod, source: &TokenProjection) -> Result<Token, client::Error> {
    let audience = Some(source.audience.as_str()).filter(|audience| !audience.is_empty());
    let seconds = source.expiration_seconds.unwrap_or(DEFAULT_TOKEN_SECONDS);
    let now = Moment::now();
    let issued = service_account_tokens::request(client, pod, audience, seconds).await?;
    let lifetime = issued.expiration_timestamp.since(now);
    Ok(Token {
        text: issued.token,
        refresh_at: now.plus(lifetime.mul_f64(REFRESH_AFTER).min(MAX_TOKEN_AGE)),
    })
}
