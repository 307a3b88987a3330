//! Bootstrap tokens that have expired are deleted.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::ObjectMeta;
use api::kinds::secret::SECRET;
use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use client::when::Moment;
use client::{Cache, Key, Selection};
use serde::Deserialize;

use crate::driver::{Attempt, Reconcile, Row, Setup};
use crate::model::with_metadata;
use crate::plan::{Action, Delete, Plan};

pub const ROW: Row = Row {
    name: "token-cleaner",
    account: "token-cleaner",
    queue: "token_cleaner",
    workers: 1,
    start,
};

const TYPE: &str = "bootstrap.kubernetes.io/token";
const NAMESPACE: &str = "kube-system";

struct Controller {
    tokens: Arc<Cache<Token>>,
}

/// The Secret of a bootstrap token.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Token {
    metadata: ObjectMeta,
    data: BTreeMap<String, String>,
}

with_metadata!(Token);

/// All Secrets of bootstrap tokens, those in other namespaces included, which count for nothing.
pub(super) fn tokens(setup: &mut Setup<'_>) -> Arc<Cache<Token>> {
    let only = Selection {
        field_selector: format!("type={TYPE}"),
        ..Selection::default()
    };
    setup.selected::<Token>(&SECRET, only)
}

impl Token {
    fn text(&self, key: &str) -> Option<String> {
        let bytes = BASE64.decode(self.data.get(key)?).ok()?;
        String::from_utf8(bytes).ok()
    }

    /// When it is over, if it is ever and that can be read.
    pub(super) fn expires(&self) -> Option<Moment> {
        self.text("expiration").as_deref().and_then(Moment::parse)
    }

    fn is_over(&self, now: Moment) -> bool {
        self.data.contains_key("expiration") && self.expires().is_none_or(|expires| expires <= now)
    }

    /// Its id and secret, if it is for signing now.
    pub(super) fn signs(&self, now: Moment) -> Option<(String, String)> {
        let (id, secret) = (self.text("token-id")?, self.text("token-secret")?);
        let is_sound = |text: &str, length: usize| {
            let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
            text.len() == length && text.bytes().all(is_plain)
        };
        let is_usable = self.metadata.namespace == NAMESPACE
            && self.metadata.name == format!("bootstrap-token-{id}")
            && is_sound(&id, 6)
            && is_sound(&secret, 16)
            && self.text("usage-bootstrap-signing").as_deref() == Some("true")
            && !self.metadata.is_deleting()
            && !self.is_over(now);
        is_usable.then_some((id, secret))
    }
}

fn start(setup: &mut Setup<'_>) -> Box<dyn Reconcile> {
    let tokens = tokens(setup);
    setup.watch_own(&tokens);
    Box::new(Controller { tokens })
}

#[async_trait]
impl Reconcile for Controller {
    async fn plan(&self, key: &Key, attempt: &Attempt) -> client::Result<Plan> {
        let token = self.tokens.get_key(key.as_str());
        let token = token.filter(|token| token.metadata.namespace == NAMESPACE);
        Ok(token.map_or_else(Plan::nothing, |token| plan(&token, attempt.now)))
    }
}

/// A token without an expiration stays; one whose expiration cannot be read is as good as expired.
fn plan(token: &Token, now: Moment) -> Plan {
    let mut plan = Plan::default();
    if token.metadata.is_deleting() {
        return plan;
    }
    match token.expires() {
        _ if token.is_over(now) => plan.actions.push(Action::Delete(Delete::new(&SECRET, &token.metadata))),
        Some(expires) => plan.again_after(expires.since(now)),
        None => {}
    }
    plan
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::testing::{noon, object};

    fn check(expiration: &str, expected: Expect) {
        let encoded = BASE64.encode(expiration);
        let token = object(&format!(
            "metadata: {{name: bootstrap-token-abc, namespace: kube-system}}\ndata: {{expiration: {encoded}}}"
        ));
        expected.assert_eq(&plan(&token, noon()).to_string());
    }

    #[test]
    fn a_token_goes_when_it_expires() {
        check(
            "2026-01-01T12:00:30Z",
            expect![[r#"
            again after 30s
        "#]],
        );
        for past in ["2026-01-01T11:00:00Z", "soon"] {
            check(
                past,
                expect![[r#"
                delete secrets kube-system/bootstrap-token-abc
            "#]],
            );
        }
    }
}
