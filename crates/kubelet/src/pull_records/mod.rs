//! Who may use an image that is on the node already.
//!
//! An image that was pulled with the secret of one pod is not for pods that could not have pulled it. So each pull is
//! recorded with what it was authorized by, and a pod that finds the image present must show the same, or pull again.
//! Images that no kubelet pulled, such as imported ones, are for everybody. This is upstream's policy
//! `NeverVerifyPreloadedImages`, its default; the files are upstream's too (`files`), so that kubelets can be swapped.

mod files;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use cri::v1;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::moment::Moment;
use files::{Files, PulledRecord};

/// Up to so many secrets, one that is seen to fit is added to a record. Namespaces that come and go would otherwise
/// make it grow without end.
const MAX_ADDED_SECRETS: usize = 100;

/// What an image was pulled with, or what a pod has to pull it with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Credentials {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kubernetes_secrets: Vec<SecretCredential>,
    /// Written by upstream's credential providers. Kept, but nothing here has such credentials.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    kubernetes_service_accounts: Vec<ServiceAccount>,
    /// Pulled without any: every pod of the node could have done so.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub node_pods_accessible: bool,
}

/// Which secret a credential is from, and a digest of the credential itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SecretCredential {
    pub uid: String,
    pub namespace: String,
    pub name: String,
    pub credential_hash: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ServiceAccount {
    uid: String,
    namespace: String,
    name: String,
}

impl Credentials {
    /// Those of a pull that needed none.
    pub fn none() -> Credentials {
        Credentials {
            node_pods_accessible: true,
            ..Credentials::default()
        }
    }

    pub fn secret(secret: SecretCredential) -> Credentials {
        Credentials {
            kubernetes_secrets: vec![secret],
            ..Credentials::default()
        }
    }
}

impl SecretCredential {
    fn is_same_secret(&self, other: &SecretCredential) -> bool {
        (&self.uid, &self.namespace, &self.name) == (&other.uid, &other.namespace, &other.name)
    }

    fn has_same_credential(&self, other: &SecretCredential) -> bool {
        !self.credential_hash.is_empty() && self.credential_hash == other.credential_hash
    }
}

/// Whether a pod may use an image that is present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Granted,
    /// Only with a credential that [`PullRecords::admits`].
    WithCredentials,
    /// Only after it has pulled the image itself.
    Denied,
}

pub struct PullRecords {
    files: Mutex<Files>,
}

/// A pull under way. Until it ends, the image counts as pulled by nobody knows whom.
pub struct Pull<'a> {
    records: &'a PullRecords,
    image: &'a str,
    /// Whether the mark that the pull was begun with is to go.
    ended: bool,
}

impl PullRecords {
    /// Opens the records below the kubelet's directory.
    pub fn open(root: &Path) -> io::Result<PullRecords> {
        Ok(PullRecords {
            files: Mutex::new(Files::open(root)?),
        })
    }

    /// Marks the beginning of a pull, before anything of the image can be on the node.
    pub fn begin<'a>(&'a self, image: &'a str) -> io::Result<Pull<'a>> {
        self.files.lock().begin(image)?;
        Ok(Pull {
            records: self,
            image,
            ended: true,
        })
    }

    /// Whether a kubelet was stopped in the middle of pulls, or is in the middle of some.
    pub fn has_interrupted_pulls(&self) -> bool {
        self.files.lock().is_pulling()
    }

    /// Turns what a kubelet left behind that was stopped in the middle of pulls into records, for those of the node's
    /// images that came of them. Nobody knows what they were pulled with, so nobody gets them for free.
    pub fn adopt(&self, images: &[v1::Image]) {
        let mut files = self.files.lock();
        for image in images {
            for name in image.repo_tags.iter().chain(&image.repo_digests) {
                if !files.is_being_pulled(name) {
                    continue;
                }
                let adopted = record(&mut files, name, &image.id, &Credentials::default());
                if let Err(error) = adopted.and_then(|()| files.forget_pull(name)) {
                    tracing::error!(image = name, %error, "Failed to record an image that was pulled");
                }
            }
        }
    }

    /// Whether a pod may use `image`, as its spec says, which is present with this id.
    pub fn access(&self, image: &str, id: &str) -> Access {
        let files = self.files.lock();
        let Some(known) = files.pulled(id) else {
            return match files.is_being_pulled(image) {
                true => Access::Denied,
                false => Access::Granted,
            };
        };
        // What cannot be read may have said anything.
        let credentials = known.and_then(|known| known.credential_mapping.get(repository(image)));
        match credentials {
            Some(credentials) if credentials.node_pods_accessible => Access::Granted,
            Some(credentials) if !credentials.kubernetes_secrets.is_empty() => Access::WithCredentials,
            _ => Access::Denied,
        }
    }

    /// Whether one of a pod's credentials is one that the image was pulled with: the same credential, or the same
    /// secret, which may have got a new one since.
    pub fn admits(&self, image: &str, id: &str, offered: &[SecretCredential]) -> bool {
        let mut files = self.files.lock();
        let known = files.pulled(id).flatten();
        let Some(credentials) = known.and_then(|known| known.credential_mapping.get(repository(image))) else {
            return false;
        };
        let known = credentials.kubernetes_secrets.clone();
        let fitting = offered.iter().find_map(|offered| {
            let mut known = known.iter();
            let same = known.find(|known| known.has_same_credential(offered) || known.is_same_secret(offered))?;
            Some((offered, same == offered))
        });
        let Some((offered, recorded)) = fitting else {
            return false;
        };
        // Either the secret or its credential is new. Next time it will be known.
        if !recorded && known.len() < MAX_ADDED_SECRETS {
            let added = record(&mut files, image, id, &Credentials::secret(offered.clone()));
            if let Err(error) = added {
                tracing::error!(image, %error, "Failed to record a pull secret that fits an image");
            }
        }
        true
    }

    /// Forgets the images that are gone. `present` was asked for after `as_of`.
    pub fn prune(&self, present: &BTreeSet<&str>, as_of: Moment) {
        let mut files = self.files.lock();
        for id in files.recorded_before(as_of) {
            if !present.contains(id.as_str())
                && let Err(error) = files.remove(&id)
            {
                tracing::warn!(image = id, %error, "Failed to remove the record of an image that was removed");
            }
        }
    }
}

impl Pull<'_> {
    /// The image is on the node, with this id.
    pub fn succeeded(mut self, id: &str, credentials: &Credentials) {
        let mut files = self.records.files.lock();
        if let Err(error) = record(&mut files, self.image, id, credentials) {
            tracing::error!(image = self.image, %error, "Failed to record an image that was pulled");
            // The mark stays, so that the image does not pass for one that nobody pulled.
            self.ended = false;
        }
    }
}

impl Drop for Pull<'_> {
    fn drop(&mut self) {
        let mut files = self.records.files.lock();
        if self.ended
            && let Err(error) = files.end(self.image)
        {
            tracing::error!(image = self.image, %error, "Failed to remove the record of a pull that has ended");
        }
    }
}

/// Adds credentials to the record of an image. Empty ones only make the image known as pulled.
fn record(files: &mut Files, image: &str, id: &str, credentials: &Credentials) -> io::Result<()> {
    let known = files.pulled(id).flatten().cloned();
    let mut changed = known.clone().unwrap_or_else(|| PulledRecord::new(id));
    if *credentials != Credentials::default() {
        let entry = changed.credential_mapping.entry(repository(image).to_owned());
        merge(entry.or_default(), credentials);
    }
    if known.as_ref() == Some(&changed) {
        return Ok(());
    }
    changed.last_updated_time = Moment::now();
    files.write(changed)
}

fn merge(known: &mut Credentials, new: &Credentials) {
    if known.node_pods_accessible || new.node_pods_accessible {
        *known = Credentials::none();
        return;
    }
    for secret in &new.kubernetes_secrets {
        known.kubernetes_secrets.retain(|known| !known.is_same_secret(secret));
        known.kubernetes_secrets.push(secret.clone());
    }
    let order = |secret: &SecretCredential| (secret.namespace.clone(), secret.name.clone(), secret.uid.clone());
    known.kubernetes_secrets.sort_by_key(order);
}

/// An image's name as a spec says it, without tag and digest.
fn repository(image: &str) -> &str {
    let name = image.split('@').next().unwrap_or_default();
    let path = name.rfind('/').map_or(0, |slash| slash + 1);
    match name[path..].find(':') {
        Some(colon) => &name[..path + colon],
        None => name,
    }
}
