//! Signs the ConfigMap `cluster-info` with every bootstrap token that is for signing, so that whoever holds a token can
//! tell the cluster's own word from somebody else's before it trusts the server.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::kinds::config_map::CONFIG_MAP;
use api::{ObjectMeta, Value};
use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use client::when::Moment;
use client::{Cache, Key, Selection};
use ring::hmac;
use serde::Deserialize;
use serde_json::json;

use super::token_cleaner::{Token, tokens};
use crate::driver::{Attempt, Reconcile, Row, Setup};
use crate::model::with_metadata;
use crate::plan::{Action, Patch, Plan};

pub const ROW: Row = Row {
    name: "bootstrap-signer",
    account: "bootstrap-signer",
    queue: "bootstrap_signer",
    workers: 1,
    start,
};

const NAMESPACE: &str = "kube-public";
const NAME: &str = "cluster-info";
/// What is signed.
const CONTENT: &str = "kubeconfig";
/// What the signatures' keys begin with; the rest is the token's id.
const SIGNATURE_PREFIX: &str = "jws-kubeconfig-";

struct Controller {
    tokens: Arc<Cache<Token>>,
    maps: Arc<Cache<ConfigMap>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ConfigMap {
    metadata: ObjectMeta,
    data: BTreeMap<String, String>,
}

with_metadata!(ConfigMap);

fn start(setup: &mut Setup<'_>) -> Box<dyn Reconcile> {
    let only = Selection {
        namespace: NAMESPACE.to_owned(),
        field_selector: format!("metadata.name={NAME}"),
        ..Selection::default()
    };
    let maps = setup.selected::<ConfigMap>(&CONFIG_MAP, only);
    let tokens = tokens(setup);
    setup.watch_own(&maps);
    setup.watch(&tokens, |_| vec![Key::new(NAMESPACE, NAME)]);
    Box::new(Controller { tokens, maps })
}

#[async_trait]
impl Reconcile for Controller {
    async fn plan(&self, _: &Key, attempt: &Attempt) -> client::Result<Plan> {
        let Some(map) = self.maps.get(NAMESPACE, NAME) else {
            return Ok(Plan::nothing());
        };
        let tokens: Vec<Arc<Token>> = self.tokens.all();
        Ok(plan(&map, &tokens, attempt.now))
    }
}

/// Brings the signatures in line with the tokens. A signature of a token that is gone or over goes, too: it would vouch
/// for the ConfigMap to whoever still holds the token.
fn plan(map: &ConfigMap, tokens: &[Arc<Token>], now: Moment) -> Plan {
    let mut plan = Plan::default();
    let mut wanted = BTreeMap::new();
    if let Some(content) = map.data.get(CONTENT) {
        for token in tokens {
            let Some((id, secret)) = token.signs(now) else { continue };
            wanted.insert(format!("{SIGNATURE_PREFIX}{id}"), sign(content, &id, &secret));
            if let Some(expires) = token.expires().filter(|expires| *expires > now) {
                plan.again_after(expires.since(now));
            }
        }
    }
    let mut changes = serde_json::Map::new();
    for key in map.data.keys().filter(|key| key.starts_with(SIGNATURE_PREFIX)) {
        if !wanted.contains_key(key) {
            changes.insert(key.clone(), Value::Null);
        }
    }
    for (key, signature) in wanted {
        if map.data.get(&key) != Some(&signature) {
            changes.insert(key, signature.into());
        }
    }
    if !changes.is_empty() {
        let patch = Patch::new(&CONFIG_MAP, &map.metadata, json!({"data": changes}));
        let patch = patch.at_revision(&map.metadata).by_update();
        plan.actions.push(Action::Patch(patch));
    }
    plan
}

/// A signature in the form of a JWS whose content stands elsewhere: header and signature with nothing between.
fn sign(content: &str, id: &str, secret: &str) -> String {
    let header = URL_SAFE_NO_PAD.encode(json!({"alg": "HS256", "kid": id}).to_string());
    let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(content));
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let signature = URL_SAFE_NO_PAD.encode(hmac::sign(&key, signed.as_bytes()));
    format!("{header}..{signature}")
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::STANDARD;
    use expect_test::{Expect, expect};

    use super::*;
    use crate::testing::{noon, object};

    const SIGNED: &str = "eyJhbGciOiJIUzI1NiIsImtpZCI6ImFiY2RlZiJ9..psz1NayrXM3IaFzKZGsb5n_mBl7MjtlsZ1xE8MRmF_4";

    fn token(changes: &[(&str, &str)]) -> Arc<Token> {
        let sound = [
            ("token-id", "abcdef"),
            ("token-secret", "0123456789abcdef"),
            ("usage-bootstrap-signing", "true"),
        ];
        let mut data: BTreeMap<&str, &str> = sound.into_iter().collect();
        data.extend(changes.iter().copied());
        let data: Vec<String> = data
            .iter()
            .map(|(key, value)| format!("{key}: {}", STANDARD.encode(value)))
            .collect();
        object(&format!(
            "metadata: {{name: bootstrap-token-abcdef, namespace: kube-system}}\ndata: {{{}}}",
            data.join(", ")
        ))
    }

    fn check(data: &str, tokens: &[Arc<Token>], expected: Expect) {
        let metadata = "metadata: {name: cluster-info, namespace: kube-public, resourceVersion: '3'}";
        let map: Arc<ConfigMap> = object(&format!("{metadata}\ndata: {data}"));
        expected.assert_eq(&plan(&map, tokens, noon()).to_string());
    }

    #[test]
    fn every_token_for_signing_signs() {
        let unsigned = "{kubeconfig: content}";
        check(
            unsigned,
            &[token(&[("expiration", "2026-01-01T12:00:30Z")])],
            expect![[r#"
                patch configmaps kube-public/cluster-info: {"data":{"jws-kubeconfig-abcdef":"eyJhbGciOiJIUzI1NiIsImtpZCI6ImFiY2RlZiJ9..psz1NayrXM3IaFzKZGsb5n_mBl7MjtlsZ1xE8MRmF_4"},"metadata":{"resourceVersion":"3"}}
                again after 30s
            "#]],
        );
        check(
            &format!("{{kubeconfig: content, jws-kubeconfig-abcdef: {SIGNED}}}"),
            &[token(&[])],
            expect![""],
        );
    }

    #[test]
    fn what_must_not_sign_does_not() {
        for changes in [
            ("usage-bootstrap-signing", "false"),
            ("expiration", "2026-01-01T11:59:59Z"),
            ("expiration", "soon"),
            ("token-id", "ABCDEF"),
            ("token-id", "abcdeg"),
            ("token-secret", "short"),
        ] {
            check("{kubeconfig: content}", &[token(&[changes])], expect![""]);
        }
    }

    #[test]
    fn signatures_go_with_their_tokens_and_nothing_else_does() {
        check(
            "{kubeconfig: content, jws-kubeconfig-123456: old, other: stays}",
            &[],
            expect![[r#"
                patch configmaps kube-public/cluster-info: {"data":{"jws-kubeconfig-123456":null},"metadata":{"resourceVersion":"3"}}
            "#]],
        );
        check("{other: stays}", &[token(&[])], expect![""]);
    }
}
