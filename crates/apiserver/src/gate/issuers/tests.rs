use auth::authenticate::SigningKey;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::super::testing::{Scripted, reply};
use super::*;

const NOW: i64 = 1_800_000_000;
const PATIENCE: Duration = Duration::from_secs(60);

fn configuration(server: &Scripted, rest: &str) -> String {
    let authority = server.authority.replace('\n', "\n      ");
    format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:\n- issuer:\n    url: {}\n    \
         audiences: [kubernetes]\n    certificateAuthority: |\n      {authority}\n  claimMappings:\n    \
         username: {{claim: sub, prefix: \"oidc:\"}}\n{rest}",
        server.url
    )
}

struct World {
    server: Scripted,
    path: PathBuf,
    _directory: tempfile::TempDir,
}

impl World {
    async fn new() -> World {
        let directory = tempfile::tempdir().expect("a directory");
        let world = World {
            server: Scripted::start().await,
            path: directory.path().join("authentication.yaml"),
            _directory: directory,
        };
        world.configure("");
        world
    }

    fn configure(&self, rest: &str) {
        std::fs::write(&self.path, configuration(&self.server, rest)).expect("a file");
    }

    fn issuers(&self) -> Arc<Issuers> {
        let source = IssuersSource::File(self.path.clone());
        Arc::new(Issuers::open(source, Vec::new()).expect("a sound configuration"))
    }

    /// Serves discovery and these keys.
    fn publish(&self, keys: &[&SigningKey]) {
        let keys: Vec<Value> = keys.iter().map(|key| key.public().to_jwk()).collect();
        let url = self.server.url.clone();
        self.server.answer(move |path, _| match path {
            "/.well-known/openid-configuration" => Some(reply(
                200,
                json!({"issuer": url, "jwks_uri": format!("{url}/keys")}).to_string(),
            )),
            "/keys" => Some(reply(200, json!({ "keys": keys }).to_string())),
            _ => Some(reply(404, "no")),
        });
    }

    fn token(&self, key: &SigningKey, sub: &str) -> String {
        let encode = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let header = encode(json!({"alg": "ES256", "kid": key.public().id}));
        let claims = encode(json!({"iss": self.server.url, "sub": sub, "aud": "kubernetes", "exp": NOW + 60}));
        let signed = format!("{header}.{claims}");
        let signature = key.sign(signed.as_bytes()).expect("a signature");
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

fn key() -> SigningKey {
    SigningKey::generate().expect("a key").0
}

/// The only issuer, after it was asked for its keys once.
async fn first_issuer(issuers: &Issuers) -> Arc<Issuer> {
    let issuer = issuers.state.load().issuers[0].clone();
    issuer.fetch_first().await;
    issuer
}

#[tokio::test]
async fn the_keys_of_an_issuer_are_found_and_tokens_believed() {
    let world = World::new().await;
    let (key, stranger) = (key(), key());
    world.publish(&[&key]);
    let issuers = world.issuers();
    let early = issuers.authenticate(&world.token(&key, "jane"), NOW).await;
    assert_eq!(early.unwrap_err(), "oidc: authenticator not initialized");
    first_issuer(&issuers).await;
    let user = issuers
        .authenticate(&world.token(&key, "jane"), NOW)
        .await
        .expect("a good token")
        .expect("a user");
    assert_eq!(user.name, "oidc:jane");
    assert!(
        issuers
            .authenticate(&world.token(&stranger, "jane"), NOW)
            .await
            .is_err()
    );
    assert_eq!(
        issuers.authenticate("opaque", NOW).await,
        Ok(None),
        "others may know it"
    );
}

#[tokio::test]
async fn a_new_key_is_found_but_made_up_ones_do_not_flood_the_issuer() {
    let world = World::new().await;
    let (old, new) = (key(), key());
    world.publish(&[&old]);
    let issuers = world.issuers();
    let issuer = first_issuer(&issuers).await;
    let asked = world.server.calls();

    // Right after a fetch nobody makes the server ask again, whatever they send.
    for index in 0..20 {
        let made_up = world.token(&key(), &format!("user{index}"));
        assert!(issuers.authenticate(&made_up, NOW).await.is_err());
    }
    assert_eq!(world.server.calls(), asked);

    // The issuer rotates; a while later the first token with its new key makes the server look.
    world.publish(&[&new]);
    *issuer.fetched.lock().await = Instant::now().checked_sub(MIN_FETCH_INTERVAL * 2);
    let user = issuers
        .authenticate(&world.token(&new, "jane"), NOW)
        .await
        .expect("a good token");
    assert!(user.is_some());
    assert_eq!(world.server.calls(), asked + 2, "discovery and keys, once");
    assert!(
        issuers.authenticate(&world.token(&old, "eve"), NOW).await.is_err(),
        "the old key is gone"
    );
}

#[tokio::test]
async fn an_issuer_that_lies_redirects_or_sends_too_much_has_no_keys() {
    let world = World::new().await;
    let key = key();
    let issuers = world.issuers();
    let issuer = issuers.state.load().issuers[0].clone();
    let url = world.server.url.clone();

    let other = json!({"issuer": "https://other.example", "jwks_uri": format!("{url}/keys")}).to_string();
    world.server.answer(move |_, _| Some(reply(200, other.clone())));
    let error = issuer.present_keys().await.unwrap_err();
    assert!(
        error.contains("issuer did not match the issuer returned by provider"),
        "{error}"
    );

    // Somewhere else with the same content would do for a client that follows.
    let elsewhere = Scripted::start().await;
    let target = format!("{}/.well-known/openid-configuration", elsewhere.url);
    world.server.answer(move |_, _| {
        let mut response = reply(302, "");
        response
            .headers_mut()
            .insert(http::header::LOCATION, target.parse().expect("a header"));
        Some(response)
    });
    let error = issuer.present_keys().await.unwrap_err();
    assert!(error.contains("redirects are not followed"), "{error}");
    assert_eq!(elsewhere.calls(), 0);

    for jwks_uri in ["http://127.0.0.1:1/keys", "file:///etc/passwd", ""] {
        let document = json!({"issuer": url, "jwks_uri": jwks_uri}).to_string();
        world.server.answer(move |_, _| Some(reply(200, document.clone())));
        assert!(
            issuer.present_keys().await.unwrap_err().contains("is not an https URL"),
            "{jwks_uri}"
        );
    }

    world
        .server
        .answer(|_, _| Some(reply(200, vec![b' '; 2 * 1024 * 1024])));
    assert!(
        issuer
            .present_keys()
            .await
            .unwrap_err()
            .contains("cannot read the response")
    );
    let many: Vec<Value> = (0..200).map(|_| key.public().to_jwk()).collect();
    let many = json!({ "keys": many }).to_string();
    let discovery = json!({"issuer": url, "jwks_uri": format!("{url}/keys")}).to_string();
    world.server.answer(move |path, _| match path {
        "/keys" => Some(reply(200, many.clone())),
        _ => Some(reply(200, discovery.clone())),
    });
    assert!(issuer.present_keys().await.unwrap_err().contains("more than 100"));
    assert!(issuer.keys.load().is_none());
}

#[tokio::test]
async fn an_issuer_that_hangs_is_given_up() {
    let world = World::new().await;
    world.server.answer(|_, _| None);
    let url = format!("{}/keys", world.server.url);
    let error = remote::get(&url, Some(&world.server.authority), Duration::from_secs(1))
        .await
        .unwrap_err();
    assert!(matches!(error, remote::RemoteError::Timeout { seconds: 1 }), "{error}");
}

#[tokio::test]
async fn a_server_with_another_certificate_is_not_the_issuer() {
    let (world, other) = (World::new().await, Scripted::start().await);
    let key = key();
    world.publish(&[&key]);
    let text = configuration(&world.server, "").replace(
        &world.server.authority.replace('\n', "\n      "),
        &other.authority.replace('\n', "\n      "),
    );
    std::fs::write(&world.path, text).expect("a file");
    let issuer = world.issuers().state.load().issuers[0].clone();
    assert!(issuer.present_keys().await.is_err());
    assert_eq!(world.server.calls(), 0);
}

#[tokio::test]
async fn a_changed_file_counts_and_a_broken_one_does_not() {
    let world = World::new().await;
    let key = key();
    world.publish(&[&key]);
    let issuers = world.issuers();
    let running = tokio::spawn(issuers.clone().run());
    let until = async |wanted: Option<Anonymous>| {
        let begun = Instant::now();
        while issuers.anonymous() != wanted {
            assert!(begun.elapsed() < PATIENCE, "the file was not loaded");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    world.configure("anonymous: {enabled: true, conditions: [{path: /livez}]}\n");
    until(Some(Anonymous::Paths(vec!["/livez".to_owned()]))).await;
    let token = world.token(&key, "jane");
    assert!(issuers.authenticate(&token, NOW).await.is_ok_and(|user| user.is_some()));

    // Broken files change nothing: first one is written, then a good one, and only the latter is ever seen.
    std::fs::write(&world.path, "apiVersion: v1\n").expect("a file");
    tokio::time::sleep(RELOAD_INTERVAL + Duration::from_millis(500)).await;
    assert_eq!(issuers.anonymous(), Some(Anonymous::Paths(vec!["/livez".to_owned()])));
    world.configure("anonymous: {enabled: false}\n");
    until(Some(Anonymous::Nobody)).await;

    // Without the issuer its tokens are nobody's, those that were believed a moment ago too.
    std::fs::write(
        &world.path,
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n",
    )
    .expect("a file");
    until(None).await;
    assert_eq!(issuers.authenticate(&token, NOW).await, Ok(None));
    running.abort();
}
