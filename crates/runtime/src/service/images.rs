//! The CRI's image service.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use cri::v1;
use parking_lot::Mutex;

use super::stats::disk_usage;
use super::{Embedded, now_ns};
use crate::image::reference::Reference;
use crate::image::registry::{Credentials, PullError};
use crate::image::{Image, ImageError, builtin};
use crate::plan;

impl Image {
    pub fn shown(&self) -> v1::Image {
        let (uid, username) = plan::image_user(&self.config.user);
        v1::Image {
            id: self.id.clone(),
            repo_tags: self.tags.clone(),
            repo_digests: self.digests.clone(),
            size: self.size,
            uid: uid.map(|value| v1::Int64Value { value }),
            username,
            spec: Some(v1::ImageSpec {
                image: self.id.clone(),
                ..Default::default()
            }),
            pinned: self.pinned,
        }
    }

    /// The image as a container's status names it: with its digest at the registry that the pod means, where it has one,
    /// by its id otherwise.
    pub fn reference_for(&self, spec: Option<&v1::ImageSpec>) -> String {
        let asked = spec
            .into_iter()
            .flat_map(|spec| [&spec.user_specified_image, &spec.image]);
        let repositories = asked
            .filter_map(|name| Reference::parse(name).ok())
            .map(|name| name.repository);
        let of = |repository: String| {
            let mut digests = self.digests.iter();
            digests.find(|digest| digest.split('@').next() == Some(&repository))
        };
        let meant = repositories.filter_map(of).next();
        meant.or(self.digests.first()).unwrap_or(&self.id).clone()
    }
}

pub fn images_dir(root_dir: &Path) -> PathBuf {
    root_dir.join("images")
}

impl Embedded {
    pub(super) fn list_images_of(&self, request: &v1::ListImagesRequest) -> Vec<v1::Image> {
        let wanted = request
            .filter
            .as_ref()
            .and_then(|filter| filter.image.as_ref())
            .map(|image| &image.image);
        match wanted.filter(|name| !name.is_empty()) {
            Some(name) => self.images.find(name).iter().map(|image| image.shown()).collect(),
            None => self.images.list().iter().map(|image| image.shown()).collect(),
        }
    }

    pub(super) fn find_image(&self, spec: Option<&v1::ImageSpec>) -> cri::Result<Option<Arc<Image>>> {
        Ok(self.images.find(named(spec)?))
    }

    /// Pulls an image. What is here already is asked for again, because a name may have come to mean another image;
    /// only the built-in one has no registry to ask.
    pub(super) async fn pull(&self, request: v1::PullImageRequest) -> cri::Result<String> {
        let name = named(request.image.as_ref())?;
        let reference = Reference::parse(name).map_err(|error| cri::Error::invalid(error.to_string()))?;
        if reference.key() == builtin::TAG
            && let Some(image) = self.images.find(name)
        {
            return Ok(image.id.clone());
        }
        // Who asks for the same image meanwhile waits, and then finds its layers here.
        let turn = self.pulls.turn(&reference.key());
        let _turn = turn.lock().await;
        let work = self.images.work_dir()?;
        let credentials = Credentials::new(request.auth.as_ref());
        let failed = |error| pull_failed(&reference, &error);
        let found = self.registries.find(&reference, &credentials).await.map_err(failed)?;
        let held = self.images.hold_layers(&found.config);
        self.images.check_room(found.missing_bytes(&held.present))?;
        let fetched = found.fetch(&work, &held.present).await.map_err(failed)?;
        let images = self.images.clone();
        let image = self
            .unpack(move || {
                let _held = held;
                images.take(fetched)
            })
            .await?;
        // The id, as its status says: kubelets keep by it who may use the image.
        Ok(image.id.clone())
    }

    /// Imports the images of an archive: an OCI layout or the output of `docker save`, compressed or not. Answers the
    /// names that the archive gives them, or their ids where it gives none.
    pub async fn import_images(&self, archive: File) -> cri::Result<Vec<String>> {
        let images = self.images.clone();
        let images = self.unpack(move || images.import(&archive)).await?;
        let names = images.into_iter().flat_map(|imported| match imported.names.is_empty() {
            true => vec![imported.image.id.clone()],
            false => imported.names,
        });
        Ok(names.collect())
    }

    /// Does what starts an unpacker, when not too many run already.
    async fn unpack<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, ImageError> + Send + 'static,
    ) -> cri::Result<T> {
        let permit = self
            .unpackers
            .clone()
            .acquire_owned()
            .await
            .map_err(|_| super::gone())?;
        let done = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            work()
        });
        Ok(done.await.map_err(|error| cri::Error::internal(error.to_string()))??)
    }

    pub(super) fn remove_image_of(&self, spec: Option<&v1::ImageSpec>) -> cri::Result<()> {
        let used = |id: &str| {
            // A container stands on its image, and may have mounted others as volumes.
            let layers = self
                .images
                .find(id)
                .map(|image| image.layers.clone())
                .unwrap_or_default();
            self.containers.read().values().any(|container| {
                let mut volumes = container.record.spec.mounts.iter().flat_map(|mount| &mount.layers);
                container.record.image_id == id || volumes.any(|layer| layers.contains(layer))
            })
        };
        Ok(self.images.remove(named(spec)?, used)?)
    }

    pub(super) async fn image_file_system(&self) -> cri::Result<v1::ImageFsInfoResponse> {
        let runtime = self.itself.upgrade().ok_or_else(super::gone)?;
        let measured = tokio::task::spawn_blocking(move || runtime.measure_file_systems()).await;
        measured.map_err(|error| cri::Error::internal(error.to_string()))
    }

    fn measure_file_systems(&self) -> v1::ImageFsInfoResponse {
        let usage = |dir: PathBuf, bytes: u64, inodes: u64| v1::FilesystemUsage {
            timestamp: now_ns(),
            fs_id: Some(v1::FilesystemIdentifier {
                mountpoint: dir.display().to_string(),
            }),
            used_bytes: Some(v1::UInt64Value { value: bytes }),
            inodes_used: Some(v1::UInt64Value { value: inodes }),
        };
        let images = self.images.list();
        let layers: BTreeSet<_> = images.iter().flat_map(|image| &image.layers).collect();
        let bytes = images.iter().map(|image| image.size).sum();
        let inodes = layers.into_iter().map(|layer| self.inodes_of_layer(layer)).sum();
        let containers: Vec<_> = self.containers.read().keys().cloned().collect();
        let written = containers
            .iter()
            .map(|id| disk_usage(&self.container_dir(id).join("upper"), 0));
        let written = written.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        v1::ImageFsInfoResponse {
            image_filesystems: vec![usage(images_dir(&self.root_dir), bytes, inodes)],
            container_filesystems: vec![usage(self.root_dir.join("containers"), written.0, written.1)],
        }
    }

    /// A layer never changes, so it is looked at once.
    fn inodes_of_layer(&self, layer: &str) -> u64 {
        if let Some(inodes) = self.layer_inodes.lock().get(layer) {
            return *inodes;
        }
        let (_, inodes) = disk_usage(&self.images.layer_dir(layer), 0);
        self.layer_inodes.lock().insert(layer.to_owned(), inodes);
        inodes
    }
}

/// Those who wait for a pull of the same image.
#[derive(Default)]
pub struct Pulls(Mutex<HashMap<String, Weak<tokio::sync::Mutex<()>>>>);

impl Pulls {
    fn turn(&self, key: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.0.lock();
        turns.retain(|_, turn| turn.strong_count() > 0);
        if let Some(turn) = turns.get(key).and_then(Weak::upgrade) {
            return turn;
        }
        let turn = Arc::default();
        turns.insert(key.to_owned(), Arc::downgrade(&turn));
        turn
    }
}

/// The words users know from other runtimes.
fn pull_failed(reference: &Reference, error: &PullError) -> cri::Error {
    let code = match error {
        PullError::NotFound { .. } => cri::Code::NotFound,
        PullError::Denied(_) => cri::Code::PermissionDenied,
        PullError::Http(_) | PullError::Status { .. } => cri::Code::Unavailable,
        _ => cri::Code::Internal,
    };
    cri::Error::new(
        code,
        format!("failed to pull and unpack image \"{reference}\": {error}"),
    )
}

fn named(spec: Option<&v1::ImageSpec>) -> cri::Result<&str> {
    match spec {
        Some(spec) if !spec.image.is_empty() => Ok(&spec.image),
        _ => Err(cri::Error::invalid("an image needs a name")),
    }
}
