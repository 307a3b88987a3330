//! Secrets of the type `kubernetes.io/service-account-token` get a token of their service account, and go when it goes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use api::ObjectMeta;
use api::kinds::secret::SECRET;
use api::kinds::service_account::SERVICE_ACCOUNT;
use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use client::{Cache, Client, Key, Selection};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::driver::{Attempt, Reconcile, Row, Setup};
use crate::model::with_metadata;
use crate::plan::{Action, Delete, Patch, Plan};
use crate::settings::TokenSigner;

pub const ROW: Row = Row {
    name: "serviceaccount-token",
    // As upstream: no account of its own, for all others may need the tokens that it makes.
    account: "",
    queue: "serviceaccount_tokens_secret",
    workers: 5,
    start,
};

const TYPE: &str = "kubernetes.io/service-account-token";
const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";
const BY_ACCOUNT: &str = "account";

/// Keys are accounts, whether they exist or not.
struct Controller {
    client: Client,
    signer: Option<TokenSigner>,
    root_ca: Option<String>,
    accounts: Arc<Cache<Account>>,
    secrets: Arc<Cache<TokenSecret>>,
    /// Names of Secrets that are gone and may still be listed by their account.
    gone: Arc<Mutex<HashMap<Key, BTreeSet<String>>>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Account {
    metadata: ObjectMeta,
    secrets: Vec<SecretReference>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct SecretReference {
    name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct TokenSecret {
    metadata: ObjectMeta,
    data: BTreeMap<String, String>,
}

with_metadata!(Account, TokenSecret);

impl TokenSecret {
    fn account(&self) -> Option<Key> {
        let name = self.metadata.annotations.get(ACCOUNT_NAME);
        // Anybody who may write Secrets writes this annotation: what cannot be an account's name leads nowhere.
        let name = name.filter(|name| api::names::dns1123_subdomain(name, false).is_empty())?;
        Some(Key::new(&self.metadata.namespace, name))
    }

    /// A Secret that names no UID belongs to whatever account has the name.
    fn is_of(&self, account: &Account) -> bool {
        let uid = self.metadata.annotations.get(ACCOUNT_UID);
        uid.is_none_or(|uid| uid.is_empty() || *uid == account.metadata.uid)
    }
}

fn start(setup: &mut Setup<'_>) -> Box<dyn Reconcile> {
    let only = Selection {
        field_selector: format!("type={TYPE}"),
        ..Selection::default()
    };
    let accounts = setup.cache::<Account>(&SERVICE_ACCOUNT);
    let secrets = setup.selected::<TokenSecret>(&SECRET, only);
    secrets.add_index(BY_ACCOUNT, |secret| {
        secret.account().iter().map(ToString::to_string).collect()
    });
    let gone: Arc<Mutex<HashMap<Key, BTreeSet<String>>>> = Arc::default();
    let record = gone.clone();
    // Before the key is planned because of the same change.
    secrets.on_change(move |old, new| {
        if let (Some(old), None) = (old, new)
            && let Some(account) = old.account()
        {
            let mut record = record.lock();
            record.entry(account).or_default().insert(old.metadata.name.clone());
        }
    });
    setup.watch_own(&accounts);
    setup.watch(&secrets, |secret| secret.account().into_iter().collect());
    Box::new(Controller {
        client: setup.client(),
        signer: setup.settings().token_signer.clone(),
        root_ca: setup.settings().root_ca.clone(),
        accounts,
        secrets,
        gone,
    })
}

#[async_trait]
impl Reconcile for Controller {
    async fn plan(&self, key: &Key, _attempt: &Attempt) -> client::Result<Plan> {
        let Some(signer) = &self.signer else {
            return Ok(Plan::nothing());
        };
        let mut secrets = self.secrets.by(BY_ACCOUNT, key.as_str());
        secrets.sort_by(|one, other| one.metadata.name.cmp(&other.metadata.name));
        let account = self.account(key, &secrets).await?;
        let mut plan = Plan::default();
        match &account {
            Some(account) => {
                for secret in &secrets {
                    let action = fill(account, secret, self.root_ca.as_deref(), signer);
                    plan.actions.extend(action);
                }
                plan.actions
                    .extend(forget(account, &self.gone_of(key, account, &secrets)));
            }
            None => {
                self.gone.lock().remove(key);
                plan.actions.extend(secrets.iter().map(|secret| remove(secret)));
            }
        }
        Ok(plan)
    }
}

impl Controller {
    /// The Secrets that the account still lists though they are gone. They are remembered until it does not.
    fn gone_of(&self, key: &Key, account: &Account, secrets: &[Arc<TokenSecret>]) -> BTreeSet<String> {
        let mut all = self.gone.lock();
        let Some(gone) = all.get_mut(key) else {
            return BTreeSet::new();
        };
        gone.retain(|name| {
            let is_listed = account.secrets.iter().any(|secret| secret.name == *name);
            is_listed && !secrets.iter().any(|secret| secret.metadata.name == *name)
        });
        let gone = gone.clone();
        if gone.is_empty() {
            all.remove(key);
        }
        gone
    }

    /// The account of a key. No Secret is removed because a cache is behind: what it does not know is asked for.
    async fn account(&self, key: &Key, secrets: &[Arc<TokenSecret>]) -> client::Result<Option<Arc<Account>>> {
        let known = self.accounts.get_key(key.as_str());
        let fits = known
            .as_ref()
            .is_some_and(|account| secrets.iter().all(|secret| secret.is_of(account)));
        if fits || secrets.is_empty() {
            return Ok(known);
        }
        let accounts = self.client.resource(&SERVICE_ACCOUNT).in_namespace(key.namespace());
        match accounts.get::<Account>(key.name()).await {
            Ok(account) => Ok(Some(Arc::new(account))),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Gives a Secret what it lacks, or removes it if its account is not the one that it was made for.
fn fill(account: &Account, secret: &TokenSecret, root_ca: Option<&str>, signer: &TokenSigner) -> Option<Action> {
    if secret.metadata.is_deleting() {
        return None;
    }
    if !secret.is_of(account) {
        return Some(remove(secret));
    }
    let mut data = Map::new();
    let metadata = &secret.metadata;
    let root_ca = root_ca
        .filter(|root_ca| !root_ca.is_empty())
        .map(|root_ca| BASE64.encode(root_ca));
    if root_ca.is_some() && root_ca.as_ref() != secret.data.get("ca.crt") {
        data.insert("ca.crt".to_owned(), json!(root_ca));
    }
    let lacks = |field: &str| secret.data.get(field).is_none_or(String::is_empty);
    if lacks("namespace") {
        data.insert("namespace".to_owned(), json!(BASE64.encode(&metadata.namespace)));
    }
    if lacks("token") {
        match signer.sign(&metadata.namespace, &account.metadata, &metadata.name) {
            Ok(token) => data.insert("token".to_owned(), json!(BASE64.encode(token))),
            Err(error) => {
                tracing::error!(secret = metadata.name, %error, "a token of a service account could not be signed");
                return None;
            }
        };
    }
    if data.is_empty() {
        return None;
    }
    let annotations = json!({ACCOUNT_NAME: account.metadata.name, ACCOUNT_UID: account.metadata.uid});
    let body = json!({"metadata": {"uid": metadata.uid, "annotations": annotations}, "data": data});
    let patch = Patch::new(&SECRET, metadata, body);
    Some(Action::Patch(patch.at_revision(metadata).by_update()))
}

/// Only as it was seen: it may have been given to another account since.
fn remove(secret: &TokenSecret) -> Action {
    let mut delete = Delete::new(&SECRET, &secret.metadata);
    delete.only_at = secret.metadata.resource_version.clone();
    Action::Delete(delete)
}

/// An account does not list Secrets that are gone.
fn forget(account: &Account, gone: &BTreeSet<String>) -> Option<Action> {
    if !account.secrets.iter().any(|secret| gone.contains(&secret.name)) {
        return None;
    }
    let kept = account.secrets.iter().filter(|secret| !gone.contains(&secret.name));
    let kept: Vec<Value> = kept.map(|secret| json!({"name": secret.name})).collect();
    let patch = Patch::new(&SERVICE_ACCOUNT, &account.metadata, json!({"secrets": kept}));
    Some(Action::Patch(patch.at_revision(&account.metadata).by_update()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use auth::authenticate::{ServiceAccounts, SigningKey};
    use expect_test::{Expect, expect};

    use super::*;
    use crate::testing::object;

    fn signer() -> TokenSigner {
        let (key, _) = SigningKey::generate().unwrap();
        TokenSigner::new(Arc::new(ServiceAccounts::new(
            Vec::new(),
            Vec::new(),
            Some(key),
            Vec::new(),
        )))
    }

    fn account() -> Arc<Account> {
        object(
            "{metadata: {name: robot, namespace: team, uid: u1, resourceVersion: '4'}, secrets: [{name: one}, {name: two}]}",
        )
    }

    fn check(annotations: &str, data: &str, expected: Expect) {
        let secret: Arc<TokenSecret> = object(&format!(
            "metadata: {{name: one, namespace: team, uid: s1, resourceVersion: '5', annotations: {{{annotations}}}}}\ndata: {{{data}}}"
        ));
        let action = fill(&account(), &secret, Some("PEM"), &signer());
        let mut text = action.map_or_else(String::new, |action| action.to_string());
        if let Some((before, rest)) = text.clone().split_once("\"token\":\"") {
            let after = rest.split_once('"').map_or("", |(_, after)| after);
            text = format!("{before}\"token\":\"…\"{after}");
        }
        expected.assert_eq(&text);
    }

    #[test]
    fn a_secret_gets_what_it_lacks() {
        let name = format!("{ACCOUNT_NAME}: robot");
        check(
            &name,
            "",
            expect![[
                r#"patch secrets team/one: {"data":{"ca.crt":"UEVN","namespace":"dGVhbQ==","token":"…"},"metadata":{"annotations":{"kubernetes.io/service-account.name":"robot","kubernetes.io/service-account.uid":"u1"},"resourceVersion":"5","uid":"s1"}}"#
            ]],
        );
        check(
            &name,
            "ca.crt: T0xE, namespace: dGVhbQ==, token: eA==",
            expect![[
                r#"patch secrets team/one: {"data":{"ca.crt":"UEVN"},"metadata":{"annotations":{"kubernetes.io/service-account.name":"robot","kubernetes.io/service-account.uid":"u1"},"resourceVersion":"5","uid":"s1"}}"#
            ]],
        );
        check(
            &format!("{name}, {ACCOUNT_UID}: u1"),
            "ca.crt: UEVN, namespace: dGVhbQ==, token: eA==",
            expect![""],
        );
    }

    #[test]
    fn a_secret_of_an_earlier_account_goes() {
        check(
            &format!("{ACCOUNT_NAME}: robot, {ACCOUNT_UID}: u0"),
            "token: eA==",
            expect!["delete secrets team/one"],
        );
    }

    #[test]
    fn an_account_forgets_secrets_that_are_gone() {
        let forget = |name: &str| forget(&account(), &BTreeSet::from([name.to_owned()]));
        expect![[
            r#"patch serviceaccounts team/robot: {"metadata":{"resourceVersion":"4"},"secrets":[{"name":"two"}]}"#
        ]]
        .assert_eq(&forget("one").unwrap().to_string());
        assert!(forget("three").is_none());
    }
}
