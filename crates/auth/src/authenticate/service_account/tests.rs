use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use expect_test::expect;

use super::*;

const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
pub const NOW: i64 = 1_800_000_000;

/// A cluster with one pod of the account `default/robot`.
struct Cluster {
    pod_deleted_at: Option<i64>,
}

impl Objects for Cluster {
    fn identity(&self, resource: &'static Resource, namespace: &str, name: &str) -> Option<Identity> {
        let (uid, deleted_at) = match (resource.plural, namespace, name) {
            ("serviceaccounts", "default", "robot") => ("account", None),
            ("pods", "default", "web") => ("pod", self.pod_deleted_at),
            _ => return None,
        };
        Some(Identity {
            uid: uid.to_owned(),
            deleted_at,
        })
    }

    fn object(&self, _: &'static Resource, _: &str, _: &str) -> Option<Value> {
        None
    }
}

fn accounts(key: SigningKey) -> ServiceAccounts {
    ServiceAccounts::new(vec![ISSUER.to_owned()], Vec::new(), Some(key), Vec::new())
}

fn pod_token() -> TokenSpec<'static> {
    TokenSpec {
        namespace: "default",
        name: "robot",
        uid: "account",
        expiration_seconds: 3607,
        pod: Some(Bound {
            name: "web",
            uid: "pod",
        }),
        node: Some(Bound {
            name: "one",
            uid: "node",
        }),
        warn_after_seconds: Some(3600),
        ..TokenSpec::default()
    }
}

const ALIVE: Cluster = Cluster { pod_deleted_at: None };

#[test]
fn a_token_names_the_account_and_the_pod_it_was_made_for() {
    let accounts = accounts(SigningKey::generate().unwrap().0);
    let issued = accounts.issue_token(&pod_token(), NOW).unwrap();
    let payload = issued.token.split('.').nth(1).unwrap();
    let claims = String::from_utf8(URL_SAFE_NO_PAD.decode(payload).unwrap()).unwrap();
    expect![[r#"{"aud":["https://kubernetes.default.svc.cluster.local"],"exp":1800003607,"iat":1800000000,"iss":"https://kubernetes.default.svc.cluster.local","jti":"ID","kubernetes.io":{"namespace":"default","node":{"name":"one","uid":"node"},"pod":{"name":"web","uid":"pod"},"serviceaccount":{"name":"robot","uid":"account"},"warnafter":1800003600},"nbf":1800000000,"sub":"system:serviceaccount:default:robot"}"#]]
    .assert_eq(&claims.replace(&issued.id, "ID"));

    let (user, audiences) = accounts.authenticate(&issued.token, None, &ALIVE, NOW).unwrap();
    assert_eq!(audiences, [ISSUER]);
    expect![[r#"
        User {
            name: "system:serviceaccount:default:robot",
            uid: "account",
            groups: [
                "system:serviceaccounts",
                "system:serviceaccounts:default",
                "system:authenticated",
            ],
            extra: {
                "authentication.kubernetes.io/credential-id": [
                    "JTI=ID",
                ],
                "authentication.kubernetes.io/node-name": [
                    "one",
                ],
                "authentication.kubernetes.io/node-uid": [
                    "node",
                ],
                "authentication.kubernetes.io/pod-name": [
                    "web",
                ],
                "authentication.kubernetes.io/pod-uid": [
                    "pod",
                ],
            },
        }"#]]
    .assert_eq(&format!("{user:#?}").replace(&issued.id, "ID"));
}

#[test]
fn a_token_ends_with_its_time_its_pod_and_its_audience() {
    let accounts = accounts(SigningKey::generate().unwrap().0);
    let token = accounts.issue_token(&pod_token(), NOW).unwrap().token;
    let check = |cluster: &Cluster, audiences: Option<&[String]>, now: i64| match accounts
        .authenticate(&token, audiences, cluster, now)
    {
        Ok(_) => "fine".to_owned(),
        Err(refused) => refused.to_string(),
    };
    expect!["fine"].assert_eq(&check(&ALIVE, None, NOW + 3607));
    expect!["the service account token is not valid: it has expired"].assert_eq(&check(&ALIVE, None, NOW + 3700));
    let dying = Cluster {
        pod_deleted_at: Some(NOW),
    };
    expect!["fine"].assert_eq(&check(&dying, None, NOW + 30));
    expect![[r#"the service account token is not valid: its pod "web" has been deleted"#]].assert_eq(&check(
        &dying,
        None,
        NOW + 90,
    ));
    let vault = ["vault".to_owned()];
    expect![[r#"the service account token is not valid: it is meant for ["https://kubernetes.default.svc.cluster.local"], not for ["vault"]"#]]
    .assert_eq(&check(&ALIVE, Some(&vault), NOW));
}

#[test]
fn only_our_keys_and_issuers_are_believed() {
    let ours = accounts(SigningKey::generate().unwrap().0);
    let theirs = accounts(SigningKey::generate().unwrap().0);
    let token = theirs.issue_token(&pod_token(), NOW).unwrap().token;
    let refused = ours.authenticate(&token, None, &ALIVE, NOW).unwrap_err();
    assert_eq!(
        refused,
        Refused::ServiceAccountToken("no key verifies its signature".to_owned())
    );

    let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#);
    let unsigned = format!("{header}.{}.", token.split('.').nth(1).unwrap());
    assert!(ours.authenticate(&unsigned, None, &ALIVE, NOW).is_err());
    assert_eq!(
        ours.authenticate("a.b.c", None, &ALIVE, NOW).unwrap_err(),
        Refused::UnknownToken
    );
}

/// kubeadm makes RSA keys; tokens signed by them must survive a swap of servers.
#[test]
fn rsa_keys_sign_and_verify() {
    let accounts = accounts(SigningKey::from_pem(include_str!("rsa-test-key.pem")).unwrap());
    let token = accounts.issue_token(&pod_token(), NOW).unwrap().token;
    assert!(accounts.authenticate(&token, None, &ALIVE, NOW).is_ok());
    let jwk = &accounts.jwks()["keys"][0];
    assert_eq!(
        (&jwk["kty"], &jwk["alg"], &jwk["e"]),
        (&"RSA".into(), &"RS256".into(), &"AQAB".into())
    );
    let public = PublicKey::from_pem(include_str!("rsa-test-key.pub.pem")).unwrap();
    assert_eq!(Value::from(public[0].id.clone()), jwk["kid"]);
    assert_eq!(
        accounts.openid_configuration("x")["id_token_signing_alg_values_supported"],
        json!(["RS256"])
    );
}

#[test]
fn openssl_keys_of_either_form_are_read() {
    let sec1 = SigningKey::from_pem(include_str!("ec-test-key.pem")).unwrap();
    let public = PublicKey::from_pem(include_str!("ec-test-key.pub.pem")).unwrap();
    assert_eq!(sec1.public().id, public[0].id);
    let signature = sec1.sign(b"message").unwrap();
    assert!(public[0].verifies(b"message", &signature));
    assert!(!public[0].verifies(b"another", &signature));
}
