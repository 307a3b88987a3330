//! The resources of the server, by the kinds that objects name.

use api::Resource;
use client::Client;
use parking_lot::Mutex;

/// As they were last discovered.
#[derive(Default)]
pub struct Resources(Mutex<Vec<&'static Resource>>);

impl Resources {
    /// The resource of a kind. One that is not known may have been defined since, so the server is asked again.
    pub async fn find(
        &self,
        client: &Client,
        group: &str,
        kind: &str,
        accept: impl Fn(&Resource) -> bool,
    ) -> Result<Option<&'static Resource>, String> {
        let found = self.find_where(client, |one| one.group == group && one.kind == kind && accept(one));
        found.await.map_err(|error| error.to_string())
    }

    /// The first resource that is accepted; the server is asked again where none is known.
    pub async fn find_where(
        &self,
        client: &Client,
        accept: impl Fn(&Resource) -> bool,
    ) -> client::Result<Option<&'static Resource>> {
        let known = self.0.lock().iter().find(|one| accept(one)).copied();
        if known.is_some() {
            return Ok(known);
        }
        let discovered = client.discover().await?;
        let found = discovered.iter().find(|one| accept(one)).copied();
        *self.0.lock() = discovered;
        Ok(found)
    }

    /// Forgets what was discovered: something of it is gone.
    pub fn forget(&self) {
        self.0.lock().clear();
    }
}

pub fn no_matches(kind: &str, api_version: &str) -> String {
    format!("no matches for kind {kind:?} in version {api_version:?}")
}
