//! What a case has at hand: the cluster, its administrator, and attackers of any kind.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::client::Client;
use crate::cluster::{Cluster, administrator};
use crate::identity::Authority;
use crate::image::{ATTACKER, Image, archive, base_layer};
use crate::registry::Registry;
use crate::signals::wait_for;

/// How long anything that works may take, in the slowest of machines.
pub const PATIENCE: Duration = Duration::from_secs(90);

pub struct World {
    pub cluster: Cluster,
    pub admin: Client,
    pub authority: Authority,
    pub registry: Registry,
    /// The layer that attacking images stand on.
    pub base: Vec<u8>,
    next: AtomicUsize,
}

impl World {
    pub fn new(cluster: Cluster) -> Result<Self> {
        let pki = cluster.data_dir().join("pki");
        let world = Self {
            admin: administrator(&pki, cluster.api())?,
            authority: Authority::open(&pki)?,
            registry: Registry::start()?,
            base: base_layer()?,
            next: AtomicUsize::new(1),
            cluster,
        };
        world.import(&Image::honest(ATTACKER, vec![world.base.clone()]))?;
        Ok(world)
    }

    /// A number that nobody else has.
    pub fn number(&self) -> usize {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub fn import(&self, image: &Image) -> Result<()> {
        self.import_all(std::slice::from_ref(image))
    }

    pub fn import_all(&self, images: &[Image]) -> Result<()> {
        let path = self.cluster.dir().join(format!("image-{}.tar", self.number()));
        fs::write(&path, archive(images))?;
        let result = self.cluster.import(&path);
        fs::remove_file(&path)?;
        result
    }

    /// A client with a certificate of the cluster.
    pub fn user(&self, name: &str, groups: &[&str]) -> Result<Client> {
        Ok(Client::with_certificate(
            self.cluster.api(),
            self.authority.client(name, groups)?,
        ))
    }

    /// A user that nobody has heard of yet, and its name.
    pub fn stranger(&self) -> Result<(Client, String)> {
        let name = format!("mallory-{}", self.number());
        Ok((self.user(&name, &[])?, name))
    }

    /// The same with rights in one namespace.
    pub fn user_of(&self, namespace: &Namespace<'_>, rules: Value) -> Result<Client> {
        let (client, name) = self.stranger()?;
        namespace.grant(&name, rules)?;
        Ok(client)
    }

    /// The same with rights everywhere.
    pub fn user_with(&self, rules: Value) -> Result<Client> {
        let (client, name) = self.stranger()?;
        self.grant_everywhere(&name, rules)?;
        Ok(client)
    }

    /// Gives a user these rights in the whole cluster.
    pub fn grant_everywhere(&self, name: &str, rules: Value) -> Result<()> {
        let rbac = "/apis/rbac.authorization.k8s.io/v1";
        self.admin.must_post(
            &format!("{rbac}/clusterroles"),
            &json!({"metadata": {"name": name}, "rules": rules}),
        )?;
        self.admin.must_post(
            &format!("{rbac}/clusterrolebindings"),
            &json!({
                "metadata": {"name": name},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}],
            }),
        )?;
        Ok(())
    }

    pub fn anonymous(&self) -> Client {
        Client::anonymous(self.cluster.api())
    }

    pub fn at(&self, address: SocketAddr, name: &str, groups: &[&str]) -> Result<Client> {
        Ok(Client::with_certificate(address, self.authority.client(name, groups)?))
    }

    /// A namespace that pods can be made in; it goes with this value.
    pub fn namespace(&self, labels: Value) -> Result<Namespace<'_>> {
        let name = format!("case-{}", self.number());
        self.admin.must_post(
            "/api/v1/namespaces",
            &json!({"metadata": {"name": name, "labels": labels}}),
        )?;
        let namespace = Namespace { world: self, name };
        let account = namespace.path("serviceaccounts/default");
        wait_for("the default service account", PATIENCE, || {
            Ok(self.admin.get(&account)?.is_success().then_some(()))
        })?;
        Ok(namespace)
    }

    /// A directory of the host that belongs to a case.
    pub fn host_dir(&self) -> Result<PathBuf> {
        let dir = self.cluster.dir().join(format!("host-{}", self.number()));
        fs::create_dir_all(&dir)?;
        Ok(dir)
    }

    /// What no case may lose: the API server answers and the authority's key is what it was.
    pub fn is_well(&mut self) -> Result<()> {
        ensure!(self.cluster.is_alive(), "karve ended: {}", self.cluster.last_words());
        // On a connection of its own, as any new client.
        let fresh = administrator(&self.cluster.data_dir().join("pki"), self.cluster.api())?;
        let ready = fresh.get("/readyz").context("the API server does not answer")?;
        ensure!(ready.is_success(), "the API server is not ready: {}", ready.summary());
        let key =
            fs::read_to_string(self.cluster.data_dir().join("pki/ca.key")).context("the authority's key is gone")?;
        ensure!(key == self.authority.key_pem, "the authority's key was changed");
        let log = fs::read(self.cluster.log())?;
        let panicked = String::from_utf8_lossy(&log)
            .lines()
            .find(|line| line.contains("panicked at"))
            .map(str::to_owned);
        ensure!(
            panicked.is_none(),
            "a part of karve panicked: {}",
            panicked.unwrap_or_default()
        );
        Ok(())
    }
}

/// A namespace of one case.
pub struct Namespace<'a> {
    pub world: &'a World,
    pub name: String,
}

impl Namespace<'_> {
    /// A path of the core group inside.
    pub fn path(&self, rest: &str) -> String {
        format!("/api/v1/namespaces/{}/{rest}", self.name)
    }

    /// A path of another group inside.
    pub fn path_in(&self, group: &str, rest: &str) -> String {
        format!("/apis/{group}/namespaces/{}/{rest}", self.name)
    }

    /// Gives a user these rights in the namespace.
    pub fn grant(&self, user: &str, rules: Value) -> Result<()> {
        let admin = &self.world.admin;
        let group = "rbac.authorization.k8s.io/v1";
        admin.must_post(
            &self.path_in(group, "roles"),
            &json!({"metadata": {"name": user}, "rules": rules}),
        )?;
        admin.must_post(
            &self.path_in(group, "rolebindings"),
            &json!({
                "metadata": {"name": user},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": user},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
            }),
        )?;
        Ok(())
    }
}

impl Drop for Namespace<'_> {
    fn drop(&mut self) {
        // Pods first and at once, for they hold memory and processors.
        let options = json!({"gracePeriodSeconds": 0, "propagationPolicy": "Background"});
        let pods = self.path("pods");
        let _ = self.world.admin.body("DELETE", &pods, crate::client::JSON, &options);
        let _ = self.world.admin.delete(&format!("/api/v1/namespaces/{}", self.name));
    }
}
