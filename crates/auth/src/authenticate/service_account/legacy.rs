//! Tokens that are kept in Secrets of the type `kubernetes.io/service-account-token`. They do not expire: a token is good
//! for as long as its Secret holds it and its account is the one that it was made for.

use std::sync::Arc;

use api::kinds::{secret::SECRET, service_account::SERVICE_ACCOUNT};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::check_identity;
use crate::User;
use crate::authenticate::Objects;
use crate::authenticate::jwt::{self, Claims, Reference};
use crate::authenticate::keys::{KeyError, SigningKey};

/// Who issues them, whatever the issuer of all other tokens is called.
pub const ISSUER: &str = "kubernetes/serviceaccount";
const SECRET_TYPE: &str = "kubernetes.io/service-account-token";
/// The cleaner of tokens that nobody has used for long marks their Secrets by this label before it deletes them.
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";

/// Makes the token of a Secret.
pub fn sign(key: &SigningKey, namespace: &str, account: &Reference, secret: &str) -> Result<String, KeyError> {
    let claims = json!({
        "iss": ISSUER,
        "sub": crate::user::service_account_name(namespace, &account.name),
        "kubernetes.io/serviceaccount/namespace": namespace,
        "kubernetes.io/serviceaccount/secret.name": secret,
        "kubernetes.io/serviceaccount/service-account.name": account.name,
        "kubernetes.io/serviceaccount/service-account.uid": account.uid,
    });
    jwt::sign(key, &claims)
}

/// Whether verified claims are those of such a token.
pub fn is_legacy(claims: &Claims) -> bool {
    claims.iss == ISSUER && claims.kubernetes.namespace.is_empty()
}

/// The user of a token whose signature is good.
pub fn user(token: &str, claims: &Claims, objects: &dyn Objects, now: i64) -> Result<Arc<User>, String> {
    let required = [
        ("namespace", &claims.legacy_namespace),
        ("secret name", &claims.legacy_secret_name),
        ("service account name", &claims.legacy_account_name),
        ("service account UID", &claims.legacy_account_uid),
    ];
    if let Some((what, _)) = required.iter().find(|(_, value)| value.is_empty()) {
        return Err(format!("it has no {what}"));
    }
    let (namespace, name) = (&claims.legacy_namespace, &claims.legacy_account_name);
    if claims.sub != crate::user::service_account_name(namespace, name) {
        return Err("its subject is not its service account".to_owned());
    }
    let secret = objects.object(&SECRET, namespace, &claims.legacy_secret_name);
    check_secret(&secret.unwrap_or_default(), token)?;
    let account = Reference {
        name: name.clone(),
        uid: claims.legacy_account_uid.clone(),
    };
    let found = objects.identity(&SERVICE_ACCOUNT, namespace, name);
    // An account on its way out has no time left.
    if found.as_ref().is_some_and(|found| found.deleted_at.is_some()) {
        return Err(format!("its serviceaccount {name:?} has been deleted"));
    }
    check_identity(&SERVICE_ACCOUNT, &account, found, now)?;
    Ok(Arc::new(
        User::service_account(namespace, name, &account.uid).authenticated(),
    ))
}

fn check_secret(secret: &Value, token: &str) -> Result<(), String> {
    let metadata = &secret["metadata"];
    if secret["type"] != SECRET_TYPE || metadata["deletionTimestamp"].is_string() {
        return Err("its secret is gone".to_owned());
    }
    if metadata["labels"][INVALID_SINCE].is_string() {
        return Err("its secret has been marked as invalid".to_owned());
    }
    let held = STANDARD.decode(secret["data"]["token"].as_str().unwrap_or_default());
    match held.is_ok_and(|held| held == token.as_bytes()) {
        true => Ok(()),
        false => Err("its secret holds another token".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ServiceAccounts, tests::NOW};
    use super::*;
    use crate::authenticate::{Identity, Refused};

    /// The account `default/robot`, and a Secret of it.
    struct Cluster {
        account: Option<Identity>,
        secret: Value,
    }

    impl Objects for Cluster {
        fn identity(&self, resource: &'static api::Resource, namespace: &str, name: &str) -> Option<Identity> {
            let is_account = (resource.plural, namespace, name) == ("serviceaccounts", "default", "robot");
            self.account.clone().filter(|_| is_account)
        }

        fn object(&self, resource: &'static api::Resource, namespace: &str, name: &str) -> Option<Value> {
            let is_secret = (resource.plural, namespace, name) == ("secrets", "default", "robot-token");
            is_secret.then(|| self.secret.clone())
        }
    }

    impl Cluster {
        fn with(token: &str) -> Cluster {
            Cluster {
                account: Some(Identity {
                    uid: "account".to_owned(),
                    deleted_at: None,
                }),
                secret: json!({
                    "type": SECRET_TYPE,
                    "metadata": {"name": "robot-token"},
                    "data": {"token": STANDARD.encode(token)},
                }),
            }
        }
    }

    fn accounts() -> ServiceAccounts {
        let key = SigningKey::generate().unwrap().0;
        ServiceAccounts::new(vec!["https://issuer".to_owned()], Vec::new(), Some(key), Vec::new())
    }

    fn refusal(accounts: &ServiceAccounts, token: &str, cluster: &Cluster) -> String {
        match accounts.authenticate(token, None, cluster, NOW) {
            Ok((user, _)) => format!("{} is let in", user.name),
            Err(Refused::ServiceAccountToken(why)) => why,
            Err(refused) => refused.to_string(),
        }
    }

    #[test]
    fn a_token_is_good_while_its_secret_holds_it() {
        let accounts = accounts();
        let token = accounts
            .issue_secret_token("default", "robot", "account", "robot-token")
            .unwrap();
        let cluster = Cluster::with(&token);
        let (user, audiences) = accounts.authenticate(&token, None, &cluster, NOW).unwrap();
        assert_eq!(user.name, "system:serviceaccount:default:robot");
        assert_eq!(
            (user.uid.as_str(), audiences),
            ("account", vec!["https://issuer".to_owned()])
        );
        assert!(
            user.groups
                .iter()
                .any(|group| group == "system:serviceaccounts:default")
        );
        let vault = ["vault".to_owned()];
        assert!(accounts.authenticate(&token, Some(&vault), &cluster, NOW).is_err());
    }

    #[test]
    fn a_token_ends_with_its_secret_and_its_account() {
        let accounts = accounts();
        let token = accounts
            .issue_secret_token("default", "robot", "account", "robot-token")
            .unwrap();
        let check = |change: &dyn Fn(&mut Cluster), expected: &str| {
            let mut cluster = Cluster::with(&token);
            assert!(accounts.authenticate(&token, None, &cluster, NOW).is_ok());
            change(&mut cluster);
            assert_eq!(refusal(&accounts, &token, &cluster), expected);
        };
        check(&|cluster| cluster.secret = Value::Null, "its secret is gone");
        check(
            &|cluster| cluster.secret["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:00Z".into(),
            "its secret is gone",
        );
        check(
            &|cluster| cluster.secret["type"] = "Opaque".into(),
            "its secret is gone",
        );
        check(
            &|cluster| cluster.secret["data"]["token"] = STANDARD.encode("another").into(),
            "its secret holds another token",
        );
        check(
            &|cluster| cluster.secret["metadata"]["labels"] = json!({INVALID_SINCE: "2026-01-01"}),
            "its secret has been marked as invalid",
        );
        check(
            &|cluster| cluster.account = None,
            "its serviceaccount \"robot\" is gone",
        );
        let deleted = |cluster: &mut Cluster| {
            cluster.account.as_mut().unwrap().deleted_at = Some(NOW);
        };
        check(&deleted, "its serviceaccount \"robot\" has been deleted");
    }

    /// What a Secret holds is written by users. It is the signature that makes a token.
    #[test]
    fn forged_tokens_are_refused_even_where_a_secret_holds_them() {
        let ours = accounts();
        let forged = accounts()
            .issue_secret_token("default", "robot", "account", "robot-token")
            .unwrap();
        let refused = refusal(&ours, &forged, &Cluster::with(&forged));
        assert_eq!(refused, "no key verifies its signature");

        let unsigned = format!("{}.", forged.rsplit_once('.').unwrap().0);
        assert_eq!(
            refusal(&ours, &unsigned, &Cluster::with(&unsigned)),
            "no key verifies its signature"
        );
        assert_eq!(refusal(&ours, "", &Cluster::with("")), "the bearer token is not known");
    }

    #[test]
    fn a_token_of_an_account_that_was_made_anew_is_refused() {
        let accounts = accounts();
        let token = accounts
            .issue_secret_token("default", "robot", "before", "robot-token")
            .unwrap();
        assert_eq!(
            refusal(&accounts, &token, &Cluster::with(&token)),
            "its serviceaccount \"robot\" is not the one it was made for"
        );
    }

    /// Our key signs other claims too. None of them must pass for those of a Secret's token.
    #[test]
    fn claims_that_disagree_or_are_missing_are_refused() {
        let key = SigningKey::generate().unwrap().0;
        let whole = json!({
            "iss": ISSUER,
            "sub": "system:serviceaccount:default:robot",
            "kubernetes.io/serviceaccount/namespace": "default",
            "kubernetes.io/serviceaccount/secret.name": "robot-token",
            "kubernetes.io/serviceaccount/service-account.name": "robot",
            "kubernetes.io/serviceaccount/service-account.uid": "account",
        });
        let mut tokens = Vec::new();
        for (claim, expected) in [
            ("sub", "its subject is not its service account"),
            ("kubernetes.io/serviceaccount/namespace", "it has no namespace"),
            ("kubernetes.io/serviceaccount/secret.name", "it has no secret name"),
            (
                "kubernetes.io/serviceaccount/service-account.name",
                "it has no service account name",
            ),
            (
                "kubernetes.io/serviceaccount/service-account.uid",
                "it has no service account UID",
            ),
        ] {
            let mut claims = whole.clone();
            claims.as_object_mut().unwrap().remove(claim);
            tokens.push((jwt::sign(&key, &claims).unwrap(), expected));
        }
        let mut other = whole.clone();
        other["sub"] = "system:serviceaccount:kube-system:admin".into();
        tokens.push((
            jwt::sign(&key, &other).unwrap(),
            "its subject is not its service account",
        ));
        let mut bound = whole.clone();
        bound["kubernetes.io"] = json!({"namespace": "default", "serviceaccount": {"name": "robot", "uid": "account"}});
        tokens.push((jwt::sign(&key, &bound).unwrap(), "the bearer token is not known"));
        let sound = jwt::sign(&key, &whole).unwrap();
        let accounts = ServiceAccounts::new(vec!["https://issuer".to_owned()], Vec::new(), Some(key), Vec::new());
        assert!(accounts.authenticate(&sound, None, &Cluster::with(&sound), NOW).is_ok());
        for (token, expected) in tokens {
            assert_eq!(refusal(&accounts, &token, &Cluster::with(&token)), expected);
        }
    }
}
