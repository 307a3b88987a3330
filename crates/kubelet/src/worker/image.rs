//! Images: found on the node or pulled, by the container's pull policy.

use std::time::Instant;

use cri::v1;

use super::keyring::Keyring;
use crate::container::security::ImageUser;
use crate::objects::{Found, Kind};
use crate::pod::{Container, Pod, PullPolicy};
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

impl NoImage {
    fn new(reason: &'static str, message: impl Into<String>) -> NoImage {
        NoImage {
            reason,
            message: message.into(),
        }
    }
}

/// Finds the image or pulls it.
pub async fn ensure(shared: &Shared, pod: &Pod, container: &Container) -> Result<ReadyImage, NoImage> {
    let image = &container.image;
    if image.is_empty() || image.contains(char::is_whitespace) {
        let message = format!(
            "Failed to apply default image tag {image:?}: couldn't parse image name {image:?}: invalid reference format"
        );
        shared.warning(pod, &container.name, "InspectFailed", message.clone());
        return Err(NoImage::new("InvalidImageName", message));
    }
    if container.image_pull_policy != PullPolicy::Always {
        if let Some(found) = find(shared, pod, container).await? {
            let message =
                format!("Container image {image:?} already present on machine and can be accessed by the pod");
            shared.normal(pod, &container.name, "Pulled", message);
            return Ok(found);
        }
        if container.image_pull_policy == PullPolicy::Never {
            let message = format!("Container image {image:?} is not present with pull policy of Never");
            shared.warning(pod, &container.name, "ErrImageNeverPull", message.clone());
            return Err(NoImage::new("ErrImageNeverPull", message));
        }
    }
    pull(shared, pod, container).await
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

async fn pull(shared: &Shared, pod: &Pod, container: &Container) -> Result<ReadyImage, NoImage> {
    let image = &container.image;
    let asked = Instant::now();
    // The semaphore is never closed.
    let _permit = shared.pulls.acquire().await;
    let begun = Instant::now();
    shared.normal(pod, &container.name, "Pulling", format!("Pulling image {image:?}"));
    match pull_with_credentials(shared, pod, container).await {
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
            Err(NoImage::new("ErrImagePull", error))
        }
    }
}

/// Tries the credentials for the image's registry one after the other; without any, as nobody.
async fn pull_with_credentials(shared: &Shared, pod: &Pod, container: &Container) -> Result<v1::Image, String> {
    let mut credentials: Vec<Option<v1::AuthConfig>> = keyring(shared, pod).await.lookup(&container.image);
    if credentials.is_empty() {
        credentials.push(None);
    }
    let sandbox_config = crate::container::sandbox::config(pod, 0, &shared.sandbox_context(pod)).ok();
    let mut failures = Vec::new();
    for auth in credentials {
        let request = v1::PullImageRequest {
            image: Some(spec(&container.image)),
            auth,
            sandbox_config: sandbox_config.clone(),
        };
        match shared.runtime.pull_image(request).await {
            Ok(answer) => {
                let pulled = status(shared, &answer.image_ref)
                    .await
                    .map_err(|error| error.to_string())?;
                return pulled.ok_or_else(|| format!("image {:?} vanished after it was pulled", container.image));
            }
            Err(error) => failures.push(error.to_string()),
        }
    }
    failures.dedup();
    Err(failures.join(", "))
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
            keyring.add(data);
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
