//! Images: found on the node or pulled, by the container's pull policy.

use cri::v1;
use tokio::time::Instant;

use super::keyring::{Credential, Keyring};
use crate::container::security::ImageUser;
use crate::objects::{Found, Kind};
use crate::pod::{Container, Pod, PullPolicy};
use crate::pull_records::{Access, Credentials};
use crate::shared::Shared;

/// An image that containers can be made from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadyImage {
    pub reference: String,
    pub user: ImageUser,
}

/// Why there is no image: a waiting reason and its message.
#[derive(Clone, Debug)]
pub struct NoImage {
    pub reason: &'static str,
    pub message: String,
}

/// Why an image could not be pulled.
#[derive(Debug, thiserror::Error)]
enum PullError {
    #[error("Failed to record image pull intent for container image {image:?}: {source}")]
    Record { image: String, source: std::io::Error },
    #[error("failed to inspect the image after it was pulled: {0}")]
    Inspect(#[source] cri::Error),
    #[error("image {0:?} vanished after it was pulled")]
    Vanished(String),
    /// With what the runtime said to each of the credentials.
    #[error("{}", .0.join(", "))]
    Refused(Vec<String>),
}

impl NoImage {
    fn new(reason: &'static str, message: impl Into<String>) -> NoImage {
        NoImage {
            reason,
            message: message.into(),
        }
    }
}

/// Finds the image or pulls it. An image that is there is only for pods that could have pulled it.
pub async fn ensure(shared: &Shared, pod: &Pod, container: &Container) -> Result<ReadyImage, NoImage> {
    let image = &container.image;
    if image.is_empty() || image.contains(char::is_whitespace) {
        let message = format!(
            "Failed to apply default image tag {image:?}: couldn't parse image name {image:?}: invalid reference format"
        );
        shared.warning(pod, &container.name, "InspectFailed", message.clone());
        return Err(NoImage::new("InvalidImageName", message));
    }
    let mut credentials = PodCredentials::default();
    if container.image_pull_policy != PullPolicy::Always {
        if let Some(found) = find(shared, pod, container).await?
            && may_use(shared, pod, container, &found, &mut credentials).await
        {
            let message =
                format!("Container image {image:?} already present on machine and can be accessed by the pod");
            shared.normal(pod, &container.name, "Pulled", message);
            return Ok(found);
        }
        // Whether the image is there is not told to those who may not use it.
        if container.image_pull_policy == PullPolicy::Never {
            let message = format!("Container image {image:?} is not present with pull policy of Never");
            shared.warning(pod, &container.name, "ErrImageNeverPull", message.clone());
            return Err(NoImage::new("ErrImageNeverPull", message));
        }
    }
    pull(shared, pod, container, &mut credentials).await
}

/// What a pod has to pull an image with, looked up at most once and only when it is needed.
#[derive(Default)]
struct PodCredentials(Option<Vec<Credential>>);

impl PodCredentials {
    async fn get(&mut self, shared: &Shared, pod: &Pod, image: &str) -> &[Credential] {
        if self.0.is_none() {
            self.0 = Some(keyring(shared, pod).await.lookup(image));
        }
        self.0.as_deref().unwrap_or_default()
    }
}

async fn may_use(
    shared: &Shared,
    pod: &Pod,
    container: &Container,
    found: &ReadyImage,
    credentials: &mut PodCredentials,
) -> bool {
    let image = &container.image;
    match shared.pull_records.access(image, &found.reference) {
        Access::Granted => true,
        Access::Denied => false,
        Access::WithCredentials => {
            let credentials = credentials.get(shared, pod, image).await.iter();
            let offered: Vec<_> = credentials.map(|credential| credential.source.clone()).collect();
            shared.pull_records.admits(image, &found.reference, &offered)
        }
    }
}

async fn find(shared: &Shared, pod: &Pod, container: &Container) -> Result<Option<ReadyImage>, NoImage> {
    let image = &container.image;
    match status(shared, image).await {
        Ok(found) => Ok(found.map(|found| ready(&found))),
        Err(error) => {
            let message = format!("Failed to inspect image {image:?}: {error}");
            shared.warning(pod, &container.name, "InspectFailed", message.clone());
            Err(NoImage::new("ImageInspectError", message))
        }
    }
}

async fn pull(
    shared: &Shared,
    pod: &Pod,
    container: &Container,
    credentials: &mut PodCredentials,
) -> Result<ReadyImage, NoImage> {
    let image = &container.image;
    let asked = Instant::now();
    // The semaphore is never closed.
    let _permit = shared.pulls.acquire().await;
    let begun = Instant::now();
    shared.normal(pod, &container.name, "Pulling", format!("Pulling image {image:?}"));
    let credentials = credentials.get(shared, pod, image).await;
    match pull_with_credentials(shared, pod, container, credentials).await {
        Ok(found) => {
            let print = |from: Instant| crate::text::go_duration(from.elapsed());
            let message = format!(
                "Successfully pulled image {image:?} in {} ({} including waiting). Image size: {} bytes.",
                print(begun),
                print(asked),
                found.size
            );
            shared.normal(pod, &container.name, "Pulled", message);
            Ok(ready(&found))
        }
        Err(error) => {
            let message = format!("Failed to pull image {image:?}: {error}");
            shared.warning(pod, &container.name, "Failed", message);
            shared.warning(pod, &container.name, "Failed", "Error: ErrImagePull");
            Err(NoImage::new("ErrImagePull", error.to_string()))
        }
    }
}

/// Tries the credentials for the image's registry one after the other; without any, as nobody. What succeeds is
/// recorded.
async fn pull_with_credentials(
    shared: &Shared,
    pod: &Pod,
    container: &Container,
    credentials: &[Credential],
) -> Result<v1::Image, PullError> {
    let image = &container.image;
    let pull = shared.pull_records.begin(image);
    let pull = pull.map_err(|source| PullError::Record {
        image: image.clone(),
        source,
    })?;
    let tried: Vec<Option<&Credential>> = match credentials {
        [] => vec![None],
        some => some.iter().map(Some).collect(),
    };
    let sandbox_config = crate::container::sandbox::config(pod, 0, &shared.sandbox_context(pod)).ok();
    let mut failures = Vec::new();
    for credential in tried {
        let request = v1::PullImageRequest {
            image: Some(spec(image)),
            auth: credential.map(|credential| credential.auth.clone()),
            sandbox_config: sandbox_config.clone(),
        };
        match shared.runtime.pull_image(request).await {
            Ok(answer) => {
                let pulled = status(shared, &answer.image_ref).await.map_err(PullError::Inspect)?;
                let pulled = pulled.ok_or_else(|| PullError::Vanished(image.clone()))?;
                let used = credential.map(|credential| Credentials::secret(credential.source.clone()));
                pull.succeeded(&pulled.id, &used.unwrap_or_else(Credentials::none));
                return Ok(pulled);
            }
            Err(error) => failures.push(error.to_string()),
        }
    }
    failures.dedup();
    Err(PullError::Refused(failures))
}

/// The pull secrets of the pod; those that are missing are told about and left out.
async fn keyring(shared: &Shared, pod: &Pod) -> Keyring {
    let names = pod
        .spec
        .image_pull_secrets
        .iter()
        .map(|secret| (Kind::Secret, secret.name.clone()));
    let found = shared.objects.find(&pod.metadata.namespace, names.collect()).await;
    let found: Found = found.unwrap_or_default();
    let secrets = pod.spec.image_pull_secrets.iter();
    let (present, missing): (Vec<_>, Vec<_>) = secrets.partition(|s| found.exists(Kind::Secret, &s.name));
    if !missing.is_empty() {
        let names: Vec<&str> = missing.iter().map(|secret| secret.name.as_str()).collect();
        let message = format!(
            "Unable to retrieve some image pull secrets ({}); attempting to pull the image may not succeed.",
            names.join(", ")
        );
        shared.warning(pod, "", "FailedToRetrieveImagePullSecret", message);
    }
    let mut keyring = Keyring::default();
    for secret in present {
        if let Ok(data) = found.get(Kind::Secret, &secret.name) {
            keyring.add(&pod.metadata.namespace, &secret.name, data);
        }
    }
    keyring
}

async fn status(shared: &Shared, image: &str) -> cri::Result<Option<v1::Image>> {
    let request = v1::ImageStatusRequest {
        image: Some(spec(image)),
        verbose: false,
    };
    match shared.runtime.image_status(request).await {
        Ok(answer) => Ok(answer.image.filter(|image| !image.id.is_empty())),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

fn spec(image: &str) -> v1::ImageSpec {
    v1::ImageSpec {
        image: image.to_owned(),
        user_specified_image: image.to_owned(),
        ..v1::ImageSpec::default()
    }
}

fn ready(image: &v1::Image) -> ReadyImage {
    ReadyImage {
        reference: image.id.clone(),
        user: ImageUser {
            uid: image.uid.as_ref().map(|uid| uid.value),
            name: image.username.clone(),
        },
    }
}
