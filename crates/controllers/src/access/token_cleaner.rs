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

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Token {
    metadata: ObjectMeta,
    data: BTreeMap<String, String>,
}

with_metadata!(Token);

fn start(setup: &mut Setup<'_>) -> Box<dyn Reconcile> {
    let only = Selection {
        field_selector: format!("type={TYPE}"),
        ..Selection::default()
    };
    let tokens = setup.selected::<Token>(&SECRET, only);
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
    let Some(encoded) = token.data.get("expiration").filter(|_| !token.metadata.is_deleting()) else {
        return plan;
    };
    let text = BASE64
        .decode(encoded)
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok());
    match text.as_deref().and_then(Moment::parse) {
        Some(expires) if expires > now => plan.again_after(expires.since(now)),
        _ => plan.actions.push(Action::Delete(Delete::new(&SECRET, &token.metadata))),
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
