//! Tokens of service accounts, changed or used where they should not be.

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use ring::hmac;
use serde_json::{Value, json};

use crate::cases::Case;
use crate::client::Client;
use crate::pods::waiting_spec;
use crate::verdict::{Verdict, judge};
use crate::world::{Namespace, World};

pub const TAMPERED_TOKENS: Case = Case {
    name: "requests/tampered-tokens",
    class: "",
    must_not: "A service account's token is accepted after it was changed, for another audience or after its pod is gone.",
    needs: &[],
    run: tampered_tokens,
};

fn tampered_tokens(world: &World) -> Result<Verdict> {
    let namespace = world.namespace(json!({}))?;
    let token = request(&namespace, json!({}))?;
    ensure!(accepted(world, &token)?, "an honest token is not accepted");
    let parts: Vec<&str> = token.split('.').collect();
    let [head, claims, signature] = parts[..] else {
        anyhow::bail!("the token has no three parts")
    };
    let mut all: Value = serde_json::from_slice(&BASE64.decode(claims)?)?;
    all["sub"] = json!("system:serviceaccount:kube-system:generic-garbage-collector");
    all["kubernetes.io"]["namespace"] = json!("kube-system");
    let forged = BASE64.encode(all.to_string());
    let header = |algorithm: &str| BASE64.encode(json!({"alg": algorithm, "typ": "JWT"}).to_string());
    let mut flipped = BASE64.decode(signature)?;
    flipped[0] ^= 1;

    let mut tokens = vec![
        ("other claims", format!("{head}.{forged}.{signature}")),
        ("no algorithm", format!("{}.{forged}.", header("none"))),
        ("no algorithm, in capitals", format!("{}.{forged}.", header("NONE"))),
        ("no signature", format!("{head}.{claims}.")),
        (
            "another signature",
            format!("{head}.{claims}.{}", BASE64.encode(flipped)),
        ),
        ("the public key as a secret", by_public_key(world, &forged)?),
        (
            "another audience",
            request(&namespace, json!({"audiences": ["somebody-else"]}))?,
        ),
        ("the bytes after it", format!("{token}.x")),
    ];
    tokens.push(("a pod that is gone", of_deleted_pod(&namespace)?));
    let attempts: Result<Vec<Verdict>> = tokens
        .iter()
        .map(|(what, token)| {
            Ok(match accepted(world, token)? {
                true => Verdict::Succeeded(format!("a token with {what} is accepted")),
                false => Verdict::Blocked(format!("a token with {what}: 401")),
            })
        })
        .collect();
    judge(&attempts?)
}

fn request(namespace: &Namespace<'_>, spec: Value) -> Result<String> {
    let path = namespace.path("serviceaccounts/default/token");
    let made = namespace.world.admin.must_post(
        &path,
        &json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}),
    )?;
    Ok(made["status"]["token"].as_str().context("no token")?.to_owned())
}

/// Whether the server knows who it is; what it may do then is another question.
fn accepted(world: &World, token: &str) -> Result<bool> {
    let answer = Client::with_token(world.cluster.api(), token).get("/api/v1/namespaces/default/pods")?;
    ensure!(matches!(answer.status, 401 | 403 | 200), "{}", answer.summary());
    Ok(answer.status != 401)
}

/// Signed with what everybody may read, for servers that let the token choose how it is verified.
fn by_public_key(world: &World, claims: &str) -> Result<String> {
    let keys = world.admin.must_get("/openid/v1/jwks")?.to_string();
    let signed = format!(
        "{}.{claims}",
        BASE64.encode(json!({"alg": "HS256", "typ": "JWT"}).to_string())
    );
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, keys.as_bytes()), signed.as_bytes());
    Ok(format!("{signed}.{}", BASE64.encode(tag)))
}

fn of_deleted_pod(namespace: &Namespace<'_>) -> Result<String> {
    let pod = namespace.pod(waiting_spec())?;
    pod.running()?;
    let uid = pod.read()?["metadata"]["uid"].clone();
    let bound = json!({"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": uid}});
    let token = request(namespace, bound)?;
    ensure!(
        accepted(namespace.world, &token)?,
        "a token of a pod that is there is not accepted"
    );
    pod.delete()?;
    Ok(token)
}
