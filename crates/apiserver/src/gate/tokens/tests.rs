use serde_json::{Value, json};

use super::super::testing::{Scripted, reply};
use super::*;

fn own() -> Vec<String> {
    vec!["api".to_owned()]
}

async fn webhook(server: &Scripted, cache_ttl: Duration) -> TokenWebhook {
    let directory = tempfile::tempdir().expect("a directory");
    let kubeconfig = server.kubeconfig(directory.path(), "/review");
    TokenWebhook::open(&kubeconfig, "v1", cache_ttl).expect("a sound kubeconfig")
}

#[tokio::test]
async fn a_webhook_names_users_and_is_not_asked_twice() {
    let server = Scripted::start().await;
    server.answer(|path, body| {
        assert_eq!(path, "/review");
        let asked: Value = serde_json::from_slice(body).expect("JSON");
        assert_eq!(asked["apiVersion"], "authentication.k8s.io/v1");
        assert_eq!(asked["spec"]["audiences"], json!(["api"]));
        let known = asked["spec"]["token"] == "good";
        let status = json!({"authenticated": known, "user": {"username": "jane", "groups": ["dev"]}});
        Some(reply(200, json!({"kind": "TokenReview", "status": status}).to_string()))
    });
    let webhook = webhook(&server, Duration::from_secs(120)).await;
    for _ in 0..3 {
        let (user, audiences) = webhook
            .authenticate("good", &own(), &own())
            .await
            .expect("an answer")
            .expect("a user");
        assert_eq!((user.name.as_str(), audiences), ("jane", own()));
        assert_eq!(webhook.authenticate("bad", &own(), &own()).await, Ok(None));
    }
    assert_eq!(server.calls(), 2);
    assert_eq!(
        webhook
            .authenticate(&"x".repeat(MAX_TOKEN_BYTES + 1), &own(), &own())
            .await,
        Ok(None)
    );
    assert_eq!(server.calls(), 2, "nobody is asked about tokens without bounds");
}

#[tokio::test]
async fn a_webhook_that_fails_or_lies_authenticates_nobody_and_is_asked_again() {
    let server = Scripted::start().await;
    let webhook = webhook(&server, Duration::from_secs(120)).await;
    for answer in [
        reply(200, "<html>"),
        reply(200, json!({"status": {"authenticated": true}}).to_string()),
        reply(403, "no"),
        reply(200, vec![b'{'; 2 * 1024 * 1024]),
    ] {
        let (parts, body) = answer.into_parts();
        let body = http_body_util::BodyExt::collect(body).await.expect("a body").to_bytes();
        let code = parts.status.as_u16();
        let before = server.calls();
        server.answer(move |_, _| Some(reply(code, body.clone())));
        assert!(webhook.authenticate("good", &own(), &own()).await.is_err());
        assert!(server.calls() > before);
    }
    // A redirect would show the token to somebody else.
    let other = Scripted::start().await;
    let location = other.url.clone();
    server.answer(move |_, _| {
        let mut response = reply(307, "");
        response
            .headers_mut()
            .insert(http::header::LOCATION, location.parse().expect("a header"));
        Some(response)
    });
    assert!(webhook.authenticate("good", &own(), &own()).await.is_err());
    assert_eq!(other.calls(), 0);
}

#[tokio::test]
async fn a_webhook_that_is_away_for_a_moment_is_asked_again() {
    let server = Scripted::start().await;
    let asked = std::sync::atomic::AtomicUsize::new(0);
    server.answer(move |_, _| {
        let status = json!({"authenticated": true, "user": {"username": "jane"}});
        match asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
            0 => Some(reply(503, "busy")),
            _ => Some(reply(200, json!({ "status": status }).to_string())),
        }
    });
    let webhook = webhook(&server, Duration::ZERO).await;
    assert!(
        webhook
            .authenticate("good", &own(), &own())
            .await
            .is_ok_and(|found| found.is_some())
    );
    assert_eq!(server.calls(), 2);
}
