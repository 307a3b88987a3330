//! The API server's flags of what is unreadable on the disk.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use apiserver::Encryption;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use ring::rand::{SecureRandom, SystemRandom};
use store::embedded::Embedded;
use tracing::{info, warn};

use crate::layout::{Layout, read, write_private};

/// How often it is looked whether the configuration has changed.
const RELOAD_INTERVAL: Duration = Duration::from_secs(2);

#[derive(Args, Clone, Debug)]
pub struct EncryptionArgs {
    /// File with the EncryptionConfiguration for encryption at rest
    #[arg(long, conflicts_with = "encrypt_secrets")]
    pub encryption_provider_config: Option<PathBuf>,
    /// Reload the EncryptionConfiguration when the file changes
    #[arg(long, num_args = 0..=1, default_value_t = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub encryption_provider_config_automatic_reload: bool,
    /// Encrypt Secrets at rest from now on, with a key that is generated in the cluster's pki directory
    #[arg(long)]
    pub encrypt_secrets: bool,
}

/// What encrypts values, and the file that says so.
pub struct EncryptionFile {
    pub encryption: Arc<Encryption>,
    file: Option<(PathBuf, String)>,
    reloads: bool,
}

impl EncryptionArgs {
    /// Reads the configuration that is given or was made earlier. All keys of the store begin with `root`.
    pub fn open(&self, layout: &Layout, root: &str) -> Result<EncryptionFile> {
        let own = layout.pki().join("encryption.yaml");
        if self.encrypt_secrets && !own.exists() {
            write_private(&own, new_configuration()?.as_bytes())?;
        }
        let path = match &self.encryption_provider_config {
            Some(given) => given.clone(),
            None if own.exists() => own,
            None => {
                return Ok(EncryptionFile {
                    encryption: Arc::new(Encryption::none(root)),
                    file: None,
                    reloads: false,
                });
            }
        };
        let text = read(&path)?;
        let encryption = Encryption::parse(root, &text)
            .with_context(|| format!("{} is not a valid EncryptionConfiguration", path.display()))?;
        Ok(EncryptionFile {
            encryption: Arc::new(encryption),
            file: Some((path, text)),
            reloads: self.encryption_provider_config_automatic_reload,
        })
    }
}

impl EncryptionFile {
    /// Takes over a changed file for as long as the process runs. An embedded store is written anew then, so that an old
    /// key can be removed with the next change.
    pub async fn follow(self, embedded: Option<Arc<Embedded>>) {
        let Some((path, mut seen)) = self.file else { return };
        if self.encryption.has_read_outdated() {
            rewrite(embedded.as_deref(), &path).await;
        }
        if !self.reloads {
            return;
        }
        loop {
            tokio::time::sleep(RELOAD_INTERVAL).await;
            let Ok(text) = std::fs::read_to_string(&path) else {
                continue;
            };
            if text == seen {
                continue;
            }
            match self.encryption.replace(&text) {
                Ok(()) => {
                    info!(path = %path.display(), "Reloaded the encryption configuration");
                    rewrite(embedded.as_deref(), &path).await;
                }
                Err(error) => {
                    warn!(path = %path.display(), %error, "Failed to reload the encryption configuration; the previous one stays in effect");
                }
            }
            seen = text;
        }
    }
}

async fn rewrite(embedded: Option<&Embedded>, path: &Path) {
    let Some(embedded) = embedded else { return };
    match embedded.rewrite().await {
        Ok(()) => info!(path = %path.display(), "Rewrote the store with the first encryption provider"),
        Err(error) => {
            warn!(path = %path.display(), %error, "Failed to rewrite the store; previous keys are still required")
        }
    }
}

/// Secrets by a new key. What is not encrypted yet stays readable.
fn new_configuration() -> Result<String> {
    let mut key = [0; 32];
    let filled = SystemRandom::new().fill(&mut key);
    filled.ok().context("failed to generate a random key")?;
    // Secretbox has nonces so long that random ones never meet, however often something is written.
    Ok(format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  \
         providers:\n  - secretbox:\n      keys:\n      - name: key1\n        secret: {}\n  - identity: {{}}\n",
        STANDARD.encode(key)
    ))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use apiserver::STORE_ROOT;
    use bytes::Bytes;
    use clap::Parser;
    use store::codec::Codec;
    use store::{Store, Transaction, Write};

    use super::*;

    const PLACE: &str = "/registry/secrets/default/a";
    const PLAIN: &[u8] = b"{\"data\":\"hunter2-in-plain-text\"}";

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        args: EncryptionArgs,
    }

    fn open(layout: &Layout, flags: &[&str]) -> Result<EncryptionFile> {
        let command = Command::try_parse_from(std::iter::once(&"karve").chain(flags))?;
        command.args.open(layout, STORE_ROOT)
    }

    fn layout() -> (tempfile::TempDir, Layout) {
        let directory = tempfile::tempdir().expect("a directory");
        let layout = Layout {
            name: "test".to_owned(),
            root: directory.path().to_owned(),
        };
        layout.create().expect("directories");
        (directory, layout)
    }

    async fn open_store(layout: &Layout, encryption: &EncryptionFile) -> Result<Arc<Embedded>> {
        let options = store::embedded::Options::default();
        let codec = encryption.encryption.clone();
        Ok(store::embedded::open_with_codec(&layout.store(), options, codec).await?)
    }

    async fn put(store: &Embedded, key: &str) {
        let writes = vec![Write::Put {
            key: key.into(),
            value: Bytes::from_static(PLAIN),
            ttl: None,
        }];
        let transaction = Transaction {
            compares: Vec::new(),
            writes,
        };
        store.commit(transaction).await.expect("a write");
    }

    fn is_on_disk(layout: &Layout, text: &[u8]) -> bool {
        let files = std::fs::read_dir(layout.store()).expect("a store");
        let mut contents = files.map(|file| std::fs::read(file.expect("a file").path()).expect("its content"));
        contents.any(|content| content.windows(text.len()).any(|window| window == text))
    }

    #[test]
    fn the_key_is_private_and_stays() {
        let (_directory, layout) = layout();
        open(&layout, &["--encrypt-secrets"]).expect("a new key");
        let path = layout.pki().join("encryption.yaml");
        let mode = std::fs::metadata(&path).expect("the key").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let before = read(&path).expect("the key");
        let again = open(&layout, &[]).expect("the same key").encryption;
        assert_eq!(read(&path).expect("the key"), before);
        let stored = again.to_disk(PLACE, &Bytes::from_static(PLAIN)).expect("a value");
        assert!(stored.starts_with(b"k8s:enc:secretbox:v1:key1:"));
        let twice = open(&layout, &["--encrypt-secrets", "--encryption-provider-config=/x"]);
        assert!(twice.is_err(), "two configurations");
        let missing = open(&layout, &["--encryption-provider-config=/nowhere"])
            .err()
            .expect("no file");
        assert!(format!("{missing:#}").contains("failed to read /nowhere"));
    }

    #[tokio::test]
    async fn secrets_are_never_on_the_disk_in_plain_text() {
        let (_directory, layout) = layout();
        let encryption = open(&layout, &["--encrypt-secrets"]).expect("a key");
        let store = open_store(&layout, &encryption).await.expect("a store");
        put(&store, PLACE).await;
        assert!(!is_on_disk(&layout, b"hunter2"), "in the log");
        store.rewrite().await.expect("a checkpoint");
        assert!(!is_on_disk(&layout, b"hunter2"), "in the checkpoint");
        let mut backup = Vec::new();
        store::backup::write(&*store.snapshot(), &*encryption.encryption, &mut backup).expect("a backup");
        assert!(!backup.windows(7).any(|window| window == b"hunter2"), "in a backup");
        put(&store, "/registry/configmaps/default/a").await;
        assert!(is_on_disk(&layout, b"hunter2"), "other resources are as they were");
        store.close().await;

        let store = open_store(&layout, &encryption).await.expect("the store again");
        assert_eq!(store.snapshot().get(PLACE).expect("the secret").value, PLAIN);
        store.close().await;
        let none = EncryptionFile {
            encryption: Arc::new(Encryption::none(STORE_ROOT)),
            file: None,
            reloads: false,
        };
        let error = open_store(&layout, &none).await.err().expect("no key").to_string();
        assert!(error.contains("tried to read encrypted data"), "{error}");
    }

    #[tokio::test]
    async fn what_was_plain_text_is_encrypted_after_the_start() {
        let (_directory, layout) = layout();
        let store = open_store(&layout, &open(&layout, &[]).expect("no key"))
            .await
            .expect("a store");
        put(&store, PLACE).await;
        store.close().await;
        assert!(is_on_disk(&layout, b"hunter2"));

        let encryption = open(
            &layout,
            &[
                "--encrypt-secrets",
                "--encryption-provider-config-automatic-reload=false",
            ],
        );
        let encryption = encryption.expect("a key");
        let store = open_store(&layout, &encryption).await.expect("the store again");
        encryption.follow(Some(store.clone())).await;
        // The file that was last written to goes after the next write.
        put(&store, "/registry/secrets/default/b").await;
        let deadline = tokio::time::Instant::now() + Duration::from_secs(90);
        while is_on_disk(&layout, b"hunter2") {
            assert!(tokio::time::Instant::now() < deadline, "plain text stays");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(store.snapshot().get(PLACE).expect("the secret").value, PLAIN);
        store.close().await;
    }
}
