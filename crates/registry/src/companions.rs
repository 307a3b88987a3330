//! Objects that change together with another one: a quota with what is charged to it.

use std::borrow::Cow;

use admission::{Attributes, Companion};
use api::Error;
use store::{Compare, Transaction, Write};
use tokio::sync::MutexGuard;

use crate::metadata::text;
use crate::registry::Registry;

impl Registry {
    /// What must change together with the object. The turn is taken only when there is something, and is to be held
    /// until that is written.
    pub(crate) async fn companion_writes<'a>(
        &'a self,
        attributes: &Attributes,
        turn: &mut Option<MutexGuard<'a, ()>>,
    ) -> Result<Vec<Companion>, Error> {
        let companions = self.admission.companions(attributes, &self.lookup())?;
        if companions.is_empty() || turn.is_some() || attributes.dry_run {
            return Ok(companions);
        }
        *turn = Some(self.namespace_locks.lock_for(&attributes.namespace).lock().await);
        // Those who went first have changed what was just read.
        self.admission.companions(attributes, &self.lookup())
    }

    pub(crate) fn add_companions(
        &self,
        companions: Vec<Companion>,
        transaction: &mut Transaction,
    ) -> Result<(), Error> {
        for companion in companions {
            let served = self.served(companion.resource)?;
            let object = companion.object;
            let key = self.key(served, text(&object, "namespace"), text(&object, "name"))?;
            let mod_revision = text(&object, "resourceVersion").parse().map_err(Error::internal)?;
            transaction.compares.push(Compare::Unchanged {
                key: key.clone(),
                mod_revision,
            });
            transaction.writes.push(Write::Put {
                key,
                value: served.encode_stored(Cow::Owned(object))?,
                ttl: None,
            });
        }
        Ok(())
    }
}
