use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA512, RSA_PSS_SHA256, RsaEncoding, RsaKeyPair};
use rustls_pki_types::PrivatePkcs1KeyDer;
use rustls_pki_types::pem::PemObject;
use serde_json::{Value, json};

use super::spec::AuthenticationConfiguration;
use super::*;
use crate::User;
use crate::authenticate::SigningKey;

const ISSUER: &str = "https://issuer.example.com";
const NOW: i64 = 1_800_000_000;
const RSA_PEM: &str = include_str!("../service_account/rsa-test-key.pem");

const SIMPLE: &str = r#"
  claimMappings:
    username: {claim: sub, prefix: "oidc:"}
    groups: {claim: groups, prefix: "oidc:"}
"#;

fn configuration(rest: &str) -> String {
    format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:\n- issuer:\n    url: {ISSUER}\n    audiences: [kubernetes]\n{}",
        rest.trim_start_matches('\n')
    )
}

fn authenticator(rest: &str) -> JwtAuthenticator {
    let parsed = AuthenticationConfiguration::parse(&configuration(rest)).expect("a configuration");
    parsed
        .authenticators(&[])
        .expect("a sound one")
        .pop()
        .expect("an issuer")
}

fn problems(text: &str) -> String {
    let parsed = match AuthenticationConfiguration::parse(text) {
        Ok(parsed) => parsed,
        Err(error) => return error.to_string(),
    };
    let own = ["https://kubernetes.default.svc".to_owned()];
    parsed.authenticators(&own).expect_err("a wrong one").to_string()
}

/// An issuer with one P-256 and one RSA key.
struct Issuer {
    ecdsa: SigningKey,
    rsa: RsaKeyPair,
}

impl Issuer {
    fn new() -> Issuer {
        let der = PrivatePkcs1KeyDer::from_pem_slice(RSA_PEM.as_bytes()).expect("a key");
        Issuer {
            ecdsa: SigningKey::generate().expect("a key").0,
            rsa: RsaKeyPair::from_der(der.secret_pkcs1_der()).expect("an RSA key"),
        }
    }

    fn rsa_jwk(&self) -> Value {
        let key = SigningKey::from_pem(RSA_PEM).expect("an RSA key");
        let mut jwk = key.public().to_jwk();
        jwk["kid"] = "rsa".into();
        jwk
    }

    fn keys(&self) -> KeySet {
        let mut any = self.rsa_jwk();
        // Without an algorithm of its own, a key is good for all of its kind.
        any.as_object_mut().expect("an object").remove("alg");
        KeySet::parse(
            json!({"keys": [self.ecdsa.public().to_jwk(), any]})
                .to_string()
                .as_bytes(),
        )
        .expect("keys")
    }

    fn sign(&self, header: &Value, claims: &Value) -> String {
        let signed = unsigned(header, claims);
        let signature = self.ecdsa.sign(signed.as_bytes()).expect("a signature");
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    fn sign_rsa(&self, algorithm: &str, encoding: &'static dyn RsaEncoding) -> String {
        let signed = unsigned(&json!({"alg": algorithm, "kid": "rsa"}), &claims());
        let mut signature = vec![0; self.rsa.public().modulus_len()];
        self.rsa
            .sign(encoding, &SystemRandom::new(), signed.as_bytes(), &mut signature)
            .expect("a signature");
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    fn token(&self, claims: &Value) -> String {
        self.sign(&json!({"alg": "ES256", "kid": self.ecdsa.public().id}), claims)
    }
}

fn unsigned(header: &Value, claims: &Value) -> String {
    let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}", encode(header), encode(claims))
}

fn claims() -> Value {
    json!({"iss": ISSUER, "sub": "jane", "aud": "kubernetes", "exp": NOW + 60, "iat": NOW, "groups": ["dev", "ops"]})
}

fn with(field: &str, value: impl Into<Value>) -> Value {
    let mut claims = claims();
    claims[field] = value.into();
    claims
}

fn verify(authenticator: &JwtAuthenticator, keys: &KeySet, token: &str) -> Result<User, String> {
    let token = UnverifiedToken::parse(token).ok_or("not a token")?;
    authenticator
        .verify(&token, keys, NOW)
        .map_err(|error| error.to_string())
}

#[test]
fn a_token_of_the_issuer_names_a_user_and_groups() {
    let issuer = Issuer::new();
    let user = verify(&authenticator(SIMPLE), &issuer.keys(), &issuer.token(&claims())).expect("a user");
    assert_eq!(user.name, "oidc:jane");
    assert_eq!(user.groups, ["oidc:dev", "oidc:ops", "system:authenticated"]);
    let several = with("aud", json!(["other", "kubernetes"]));
    assert!(verify(&authenticator(SIMPLE), &issuer.keys(), &issuer.token(&several)).is_ok());
    let fraction = with("exp", NOW as f64 + 30.5);
    assert!(verify(&authenticator(SIMPLE), &issuer.keys(), &issuer.token(&fraction)).is_ok());
}

#[test]
fn rsa_signs_with_either_padding() {
    let issuer = Issuer::new();
    for (algorithm, encoding) in [
        ("RS512", &RSA_PKCS1_SHA512 as &dyn RsaEncoding),
        ("PS256", &RSA_PSS_SHA256),
    ] {
        let token = issuer.sign_rsa(algorithm, encoding);
        assert!(
            verify(&authenticator(SIMPLE), &issuer.keys(), &token).is_ok(),
            "{algorithm}"
        );
    }
    let lied = issuer.sign_rsa("PS256", &RSA_PKCS1_SHA512);
    assert!(verify(&authenticator(SIMPLE), &issuer.keys(), &lied).is_err());
    let only = KeySet::parse(json!({"keys": [issuer.rsa_jwk()]}).to_string().as_bytes()).expect("keys");
    let other = issuer.sign_rsa("RS512", &RSA_PKCS1_SHA512);
    assert!(
        verify(&authenticator(SIMPLE), &only, &other).is_err(),
        "the key is for RS256 alone"
    );
}

#[test]
fn claims_that_do_not_fit_are_refused() {
    let issuer = Issuer::new();
    for (claims, why) in [
        (
            with("iss", "https://evil.example.com"),
            "issued by a different provider",
        ),
        (
            with("aud", "other"),
            "expected audience in [\"kubernetes\"] got [\"other\"]",
        ),
        (with("aud", Value::Null), "expected audience"),
        (with("exp", NOW), "token is expired"),
        (with("exp", Value::Null), "token is expired"),
        (with("exp", "never"), "exp is not a number"),
        (with("exp", 1e300), "exp is out of range"),
        (with("nbf", NOW + 301), "before the nbf"),
        (with("iat", NOW + 301), "before the iat"),
        (with("sub", Value::Null), "parse username claims \"sub\""),
        (with("sub", ""), "username of the token is empty"),
        (with("sub", json!(["jane"])), "claim is not a string"),
        (with("groups", json!([1])), "parse groups claim"),
        (with("groups", json!({"a": "b"})), "parse groups claim"),
    ] {
        let error = verify(&authenticator(SIMPLE), &issuer.keys(), &issuer.token(&claims)).unwrap_err();
        assert!(error.contains(why), "{error}");
    }
    for fine in [with("nbf", NOW + 299), with("iat", NOW + 299), with("groups", "dev")] {
        assert!(verify(&authenticator(SIMPLE), &issuer.keys(), &issuer.token(&fine)).is_ok());
    }
}

/// Whoever knows only what everybody knows, the public keys among it, makes no token.
#[test]
fn a_token_that_the_issuer_did_not_sign_is_refused() {
    let (issuer, stranger) = (Issuer::new(), Issuer::new());
    let (rules, keys) = (authenticator(SIMPLE), issuer.keys());
    let kid = issuer.ecdsa.public().id.clone();
    let refused = |token: &str| verify(&rules, &keys, token).unwrap_err();

    for algorithm in ["none", "None", "NONE", "", "HS256", "HS512", "EdDSA", "ES512"] {
        let header = json!({"alg": algorithm, "kid": kid});
        let error = refused(&issuer.sign(&header, &claims()));
        assert!(error.contains("unexpected signature algorithm"), "{algorithm}: {error}");
        let unsigned = format!("{}.", unsigned(&header, &claims()));
        assert!(
            refused(&unsigned).contains("unexpected signature algorithm"),
            "{algorithm}"
        );
    }

    // The public key as a secret: what a reader that goes by the header alone would take.
    let header = json!({"alg": "HS256", "kid": "rsa"});
    let signed = unsigned(&header, &claims());
    let secret = SigningKey::from_pem(RSA_PEM).expect("a key").public().to_jwk()["n"].to_string();
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), signed.as_bytes());
    let confused = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(tag));
    assert!(refused(&confused).contains("unexpected signature algorithm"));

    let failed = "oidc: verify token: failed to verify signature: failed to verify id token signature";
    assert_eq!(
        refused(&stranger.sign(&json!({"alg": "ES256", "kid": kid}), &claims())),
        failed
    );
    assert_eq!(
        refused(&stranger.sign(&json!({"alg": "ES256"}), &claims())),
        failed,
        "without a key id all are tried"
    );
    assert_eq!(
        refused(&issuer.sign(&json!({"alg": "ES256", "kid": "rsa"}), &claims())),
        failed,
        "another kind of key"
    );
    assert_eq!(
        refused(&issuer.sign(&json!({"alg": "ES256", "kid": "gone"}), &claims())),
        failed
    );
    let critical = json!({"alg": "ES256", "kid": kid, "crit": ["exp"]});
    assert!(refused(&issuer.sign(&critical, &claims())).contains("unsupported crit header"));

    // A good signature over other claims.
    let token = issuer.token(&claims());
    let other = issuer.token(&with("sub", "root"));
    let mut parts: Vec<&str> = token.split('.').collect();
    parts[1] = other.split('.').nth(1).expect("claims");
    assert_eq!(refused(&parts.join(".")), failed);
}

#[test]
fn what_is_no_token_is_nobodys() {
    let issuer = Issuer::new();
    let token = issuer.token(&claims());
    let huge = issuer.token(&with("filler", "x".repeat(64 * 1024)));
    let deep = format!(
        "{}.{}.AA",
        URL_SAFE_NO_PAD.encode(r#"{"alg":"ES256"}"#),
        URL_SAFE_NO_PAD.encode("[".repeat(20_000))
    );
    for text in [
        "",
        ".",
        "..",
        "a.b.c",
        &token[1..],
        &format!("{token}.x"),
        &huge,
        &deep,
        &token.replace('.', ".."),
    ] {
        assert!(UnverifiedToken::parse(text).is_none());
    }
    assert_eq!(
        UnverifiedToken::parse(&token).map(|token| token.issuer().to_owned()),
        Some(ISSUER.to_owned())
    );
}

#[test]
fn expressions_map_and_check_claims() {
    let issuer = Issuer::new();
    let rules = authenticator(
        r#"
  claimValidationRules:
  - claim: hd
    requiredValue: example.com
  - expression: "claims.exp - claims.iat <= 3600"
    message: the token lives too long
  claimMappings:
    username: {expression: "claims.email_verified ? 'mail:' + claims.email : 'sub:' + claims.sub"}
    groups: {expression: "claims.roles.split(',')"}
    uid: {claim: sub}
    extra:
    - {key: example.com/tenant, valueExpression: claims.tenant}
  userValidationRules:
  - expression: "!user.username.startsWith('system:') && user.groups.all(group, !group.startsWith('system:'))"
    message: system names are the cluster's own
"#,
    );
    let sound = || {
        let mut claims = with("hd", "example.com");
        claims["email"] = "jane@example.com".into();
        claims["email_verified"] = true.into();
        claims["roles"] = "a,,b".into();
        claims["tenant"] = json!(["t1", ""]);
        claims
    };
    let keys = issuer.keys();
    let user = verify(&rules, &keys, &issuer.token(&sound())).expect("a user");
    assert_eq!(
        (user.name.as_str(), user.uid.as_str()),
        ("mail:jane@example.com", "jane")
    );
    assert_eq!(user.groups, ["a", "b", "system:authenticated"]);
    assert_eq!(user.extra["example.com/tenant"], ["t1"]);

    for (field, value, why) in [
        (
            "hd",
            json!("evil.com"),
            "required claim hd value does not match. Got = evil.com, want = example.com",
        ),
        ("hd", Value::Null, "parse claim hd"),
        ("exp", json!(NOW + 86_400), "failed: the token lives too long"),
        (
            "roles",
            json!("system:masters"),
            "failed: system names are the cluster's own",
        ),
        ("roles", json!(7), "error evaluating group claim expression"),
        ("tenant", json!([1]), "error evaluating extra claim expression"),
        (
            "email_verified",
            json!("yes"),
            "error evaluating username claim expression",
        ),
    ] {
        let mut claims = sound();
        claims[field] = value;
        let error = verify(&rules, &keys, &issuer.token(&claims)).unwrap_err();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn an_address_counts_only_if_the_issuer_verified_it() {
    let issuer = Issuer::new();
    let rules = authenticator("  claimMappings:\n    username: {claim: email, prefix: \"\"}\n");
    let user = |verified: Option<Value>| {
        let mut claims = with("email", "jane@example.com");
        if let Some(verified) = verified {
            claims["email_verified"] = verified;
        }
        verify(&rules, &issuer.keys(), &issuer.token(&claims)).map(|user| user.name)
    };
    assert_eq!(user(None), Ok("jane@example.com".to_owned()));
    assert_eq!(user(Some(json!(true))), Ok("jane@example.com".to_owned()));
    assert_eq!(user(Some(json!(false))), Err("oidc: email not verified".to_owned()));
    assert!(user(Some(json!("true"))).is_err());
}

#[test]
fn groups_that_are_kept_elsewhere_are_not_left_out_silently() {
    let issuer = Issuer::new();
    let mut claims = claims();
    claims.as_object_mut().expect("an object").remove("groups");
    claims["_claim_names"] = json!({"groups": "src1"});
    let error = verify(&authenticator(SIMPLE), &issuer.keys(), &issuer.token(&claims)).unwrap_err();
    assert!(error.contains("distributed claim"), "{error}");
}

/// An expression of an administrator over claims of a stranger ends.
#[test]
fn expressions_are_bounded() {
    let issuer = Issuer::new();
    let rules = authenticator(
        "  claimMappings:\n    username: {expression: \"claims.l.all(a, claims.l.all(b, claims.l.all(c, a + b + c > 0))) ? 'a' : 'b'\"}\n",
    );
    let claims = with("l", json!(vec![1; 2_000]));
    let error = verify(&rules, &issuer.keys(), &issuer.token(&claims)).unwrap_err();
    assert!(error.contains("cost limit exceeded"), "{error}");
}

#[test]
fn what_is_wrong_with_a_configuration_is_said_in_upstreams_words() {
    let user = "  claimMappings:\n    username: {claim: sub, prefix: \"\"}\n";
    let base = configuration(user);
    for (from, to, why) in [
        (
            ISSUER,
            "http://issuer.example.com",
            r#"jwt[0].issuer.url: Invalid value: "http://issuer.example.com": URL scheme must be https"#,
        ),
        (
            ISSUER,
            "https://a:b@issuer.example.com",
            "URL must not contain a username or password",
        ),
        (ISSUER, "https://issuer.example.com?x=y", "URL must not contain a query"),
        (
            ISSUER,
            "https://issuer.example.com#x",
            "URL must not contain a fragment",
        ),
        (
            ISSUER,
            "https://kubernetes.default.svc",
            "URL must not overlap with disallowed issuers: [https://kubernetes.default.svc]",
        ),
        (ISSUER, "\"\"", "jwt[0].issuer.url: Required value"),
        (
            "[kubernetes]",
            "[]",
            "jwt[0].issuer.audiences: Required value: at least one jwt[0].issuer.audiences is required",
        ),
        (
            "[kubernetes]",
            "[a, a]\n    audienceMatchPolicy: MatchAny",
            r#"jwt[0].issuer.audiences[1]: Duplicate value: "a""#,
        ),
        (
            "[kubernetes]",
            "[a, b]",
            "audienceMatchPolicy must be MatchAny for multiple audiences",
        ),
        (
            "[kubernetes]",
            "[a]\n    audienceMatchPolicy: MatchAll",
            "audienceMatchPolicy must be empty or MatchAny for single audience",
        ),
        (
            "[kubernetes]",
            "[a]\n    discoveryURL: https://issuer.example.com/",
            "discoveryURL must be different from URL",
        ),
        (
            "[kubernetes]",
            "[a]\n    certificateAuthority: nonsense",
            r#"jwt[0].issuer.certificateAuthority: Invalid value: "<omitted>""#,
        ),
        (
            "[kubernetes]",
            "[a]\n    egressSelectorType: cluster",
            "egress selectors are not supported",
        ),
        (
            ", prefix: \"\"",
            "",
            "jwt[0].claimMappings.username.prefix: Required value: prefix is required when claim is set",
        ),
        (
            "claim: sub",
            "claim: sub, expression: claims.sub",
            "claim and expression can't both be set",
        ),
        (
            "claim: sub, prefix: \"\"",
            "",
            "jwt[0].claimMappings.username: Required value: claim or expression is required",
        ),
        (
            "claim: sub, prefix: \"\"",
            "expression: claims.sub +",
            "compilation failed",
        ),
        (
            "claim: sub, prefix: \"\"",
            "expression: claims.email",
            "claims.email_verified must be used in",
        ),
        ("username", "usrname", "unknown field `usrname`"),
        (
            "AuthenticationConfiguration",
            "AuthorizationConfiguration",
            "no kind \"AuthorizationConfiguration\" is registered",
        ),
    ] {
        let changed = base.replacen(from, to, 1);
        assert_ne!(changed, base);
        let found = problems(&changed);
        assert!(found.contains(why), "{found}");
    }
    for (added, why) in [
        (
            "  userValidationRules:\n  - expression: user.username\n",
            "must evaluate to bool",
        ),
        (
            "  userValidationRules:\n  - message: x\n",
            "jwt[0].userValidationRules[0].expression: Required value",
        ),
        (
            "  claimValidationRules:\n  - {}\n",
            "jwt[0].claimValidationRules[0]: Required value: claim or expression is required",
        ),
        (
            "  claimValidationRules:\n  - {claim: a, message: b}\n",
            "may not be specified when claim is set",
        ),
        (
            "    extra:\n    - {key: authentication.kubernetes.io/credential-id, valueExpression: claims.a}\n",
            "are reserved for Kubernetes use",
        ),
        (
            "    extra:\n    - {key: example.com/A, valueExpression: claims.a}\n",
            "must be lowercase",
        ),
        (
            "    extra:\n    - {key: plain, valueExpression: claims.a}\n",
            "must be a domain-prefixed path",
        ),
        (
            "anonymous: {enabled: false, conditions: [{path: /healthz}]}\n",
            "enabled should be set to true when conditions are defined",
        ),
    ] {
        let found = problems(&format!("{base}{added}"));
        assert!(found.contains(why), "{found}");
    }
    let twice = base.replacen("jwt:", "", 1);
    let issuer = twice.split_once("- issuer").expect("an issuer").1;
    let found = problems(&format!("{base}- issuer{issuer}"));
    assert_eq!(found, format!("jwt[1].issuer.url: Duplicate value: {ISSUER:?}"));
}
