//! Objects of the server's own making, above all those every cluster begins with. Written in few large batches, because
//! readiness waits for them.

use std::borrow::Cow;

use api::{Error, Resource, Value};
use store::{Compare, Outcome, Transaction, Write};

use crate::errors::store_error;
use crate::options::{Scope, WriteOptions};
use crate::registry::Registry;

/// Real etcd refuses transactions of more than 128 operations.
const BATCH: usize = 100;
/// How often a batch is tried again when another server writes the same objects.
const MAX_TRIES: usize = 5;

/// One object to create unless it exists.
pub struct Seed {
    pub resource: &'static Resource,
    pub value: Value,
}

impl Seed {
    pub fn new(resource: &'static Resource, value: Value) -> Seed {
        Seed { resource, value }
    }
}

impl Registry {
    /// Creates what is missing; what exists is left alone.
    pub async fn seed(&self, seeds: Vec<Seed>) -> Result<(), Error> {
        for batch in seeds.chunks(BATCH) {
            self.seed_batch(batch).await?;
        }
        Ok(())
    }

    async fn seed_batch(&self, batch: &[Seed]) -> Result<(), Error> {
        for _ in 0..MAX_TRIES {
            let snapshot = self.store.latest().await.map_err(store_error)?;
            let mut transaction = Transaction::default();
            for seed in batch {
                let served = self.served(seed.resource)?;
                let namespace = seed.value["metadata"]["namespace"].as_str().unwrap_or_default();
                let name = seed.value["metadata"]["name"].as_str().unwrap_or_default();
                let key = self.key(served, namespace, name)?;
                if snapshot.get(&key).is_none() {
                    let mut value = self.prepare_seed(served, seed.value.clone(), namespace)?;
                    let claims = self
                        .services
                        .claim(served.resource, &mut value, None, &*snapshot, false)?;
                    transaction.compares.push(Compare::Absent { key: key.clone() });
                    transaction.writes.push(Write::Put {
                        key,
                        value: served.encode_stored(Cow::Owned(value))?,
                        ttl: None,
                    });
                    claims.add_to(&mut transaction);
                }
            }
            if transaction.writes.is_empty() {
                return Ok(());
            }
            if let Outcome::Committed { .. } = self.store.commit(transaction).await.map_err(store_error)? {
                return Ok(());
            }
        }
        Err(Error::internal(
            "the first objects of the cluster could not be written: another server keeps changing them",
        ))
    }

    /// Creates objects, or brings those that exist up to date.
    pub async fn seed_current(&self, seeds: Vec<Seed>) -> Result<(), Error> {
        let options = WriteOptions::own();
        for Seed { resource, value } in seeds {
            let served = self.served(resource)?.clone();
            let text = |field: &str| value["metadata"][field].as_str().unwrap_or_default().to_owned();
            let (namespace, name) = (text("namespace"), text("name"));
            self.seed(vec![Seed::new(resource, value.clone())]).await?;
            let mut change = |current: &Value| {
                let mut changed = current.clone();
                for (field, wanted) in value
                    .as_object()
                    .into_iter()
                    .flatten()
                    .filter(|(field, _)| *field != "metadata")
                {
                    changed[field] = wanted.clone();
                }
                Ok(changed)
            };
            self.update(&served, &namespace, &name, Scope::Main, &options, &mut change)
                .await?;
        }
        Ok(())
    }
}
