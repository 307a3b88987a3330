//! Bootstrap tokens, by which a new node is somebody until it has a certificate: `ID.SECRET`, kept in a Secret of
//! `kube-system`.

use api::Value;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::User;

/// Where the Secrets of bootstrap tokens are.
pub const NAMESPACE: &str = "kube-system";
const SECRET_TYPE: &str = "bootstrap.kubernetes.io/token";
const NAME_PREFIX: &str = "bootstrap-token-";
const USER_PREFIX: &str = "system:bootstrap:";
/// Everyone who comes with a bootstrap token; the only groups that one can have begin with it.
const GROUP: &str = "system:bootstrappers";
const ID_CHARS: usize = 6;
const SECRET_CHARS: usize = 16;
const MAX_GROUP_CHARS: usize = 256;

/// A token of the right form. Whether it is anybody's is for the Secret to say.
#[derive(Clone, Copy, Debug)]
pub struct BootstrapToken<'a> {
    id: &'a str,
    secret: &'a str,
}

impl<'a> BootstrapToken<'a> {
    pub fn parse(token: &'a str) -> Option<BootstrapToken<'a>> {
        let (id, secret) = token.split_once('.')?;
        let is_sound = |text: &str, chars: usize| {
            text.len() == chars
                && text
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        };
        (is_sound(id, ID_CHARS) && is_sound(secret, SECRET_CHARS)).then_some(BootstrapToken { id, secret })
    }

    /// The name of the Secret that it must be in.
    pub fn secret_name(&self) -> String {
        format!("{NAME_PREFIX}{}", self.id)
    }

    /// Whom the Secret says it is. `now` is in seconds since the epoch.
    pub fn user(&self, secret: &Value, now: i64) -> Result<User, String> {
        if secret["metadata"]["deletionTimestamp"].is_string() {
            return Err("its secret is being deleted".to_owned());
        }
        if secret["type"] != SECRET_TYPE {
            return Err(format!("its secret is not of type {SECRET_TYPE}"));
        }
        let data = |key: &str| -> Vec<u8> {
            let encoded = secret["data"][key].as_str().unwrap_or_default();
            STANDARD.decode(encoded).unwrap_or_default()
        };
        if data("token-id") != self.id.as_bytes() {
            return Err("its secret has another token-id".to_owned());
        }
        if !is_same_secret(&data("token-secret"), self.secret.as_bytes()) {
            return Err("its secret has another token-secret".to_owned());
        }
        if has_expired(&data("expiration"), now) {
            return Err("it has expired".to_owned());
        }
        if data("usage-bootstrap-authentication") != b"true" {
            return Err("it is not for authentication".to_owned());
        }
        let mut groups = vec![GROUP.to_owned()];
        groups.extend(extra_groups(&data("auth-extra-groups"))?);
        let user = User {
            name: format!("{USER_PREFIX}{}", self.id),
            groups,
            ..User::default()
        };
        Ok(user.authenticated())
    }
}

/// Takes as long wherever the texts differ, so that nobody finds out a secret piece by piece.
fn is_same_secret(held: &[u8], shown: &[u8]) -> bool {
    let differences = held
        .iter()
        .zip(shown)
        .fold(0, |found, (one, other)| found | (one ^ other));
    // The result must not be known before all has been looked at.
    held.len() == shown.len() && std::hint::black_box(differences) == 0
}

/// An end that cannot be read is over: a typing mistake must not make a token that never ends.
fn has_expired(expiration: &[u8], now: i64) -> bool {
    if expiration.is_empty() {
        return false;
    }
    let parsed = std::str::from_utf8(expiration)
        .ok()
        .and_then(|text| schema::time::parse(text).ok());
    parsed.is_none_or(|end| end.seconds <= now)
}

fn extra_groups(groups: &[u8]) -> Result<Vec<String>, String> {
    let text = std::str::from_utf8(groups).map_err(|_| "its auth-extra-groups are not text".to_owned())?;
    let mut found: Vec<String> = text
        .split(',')
        .filter(|group| !group.is_empty())
        .map(str::to_owned)
        .collect();
    found.sort_unstable();
    found.dedup();
    match found.iter().find(|group| !is_bootstrap_group(group)) {
        Some(other) => Err(format!(
            "bootstrap group {other:?} is invalid (must begin with {GROUP}:)"
        )),
        None => Ok(found),
    }
}

fn is_bootstrap_group(group: &str) -> bool {
    let Some(name) = group.strip_prefix(GROUP).and_then(|rest| rest.strip_prefix(':')) else {
        return false;
    };
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    name.len() <= MAX_GROUP_CHARS
        && name.bytes().all(|byte| is_plain(byte) || byte == b':' || byte == b'-')
        && name.bytes().next_back().is_some_and(is_plain)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn secret(changes: &[(&str, &str)]) -> Value {
        let mut data = json!({});
        let sound = [
            ("token-id", "abcdef"),
            ("token-secret", "0123456789abcdef"),
            ("expiration", "2999-01-01T00:00:00Z"),
            ("usage-bootstrap-authentication", "true"),
            ("auth-extra-groups", "system:bootstrappers:kubeadm:default-node-token"),
        ];
        for (key, value) in sound.iter().chain(changes) {
            data[*key] = STANDARD.encode(value).into();
        }
        json!({"type": SECRET_TYPE, "metadata": {"name": "bootstrap-token-abcdef"}, "data": data})
    }

    fn user(changes: &[(&str, &str)]) -> Result<User, String> {
        let token = BootstrapToken::parse("abcdef.0123456789abcdef").expect("a token");
        assert_eq!(token.secret_name(), "bootstrap-token-abcdef");
        token.user(&secret(changes), NOW)
    }

    #[test]
    fn a_token_is_whom_its_secret_says() {
        let user = user(&[]).expect("a user");
        assert_eq!(user.name, "system:bootstrap:abcdef");
        let groups = [
            "system:bootstrappers",
            "system:bootstrappers:kubeadm:default-node-token",
            "system:authenticated",
        ];
        assert_eq!(user.groups, groups);
    }

    #[test]
    fn what_the_secret_does_not_say_is_refused() {
        for changes in [
            ("token-secret", "0123456789abcdee"),
            ("token-secret", ""),
            ("token-secret", "0123456789abcdef0"),
            ("token-id", "abcdeg"),
            ("expiration", "2020-01-01T00:00:00Z"),
            ("expiration", "next year"),
            ("usage-bootstrap-authentication", "True"),
            ("usage-bootstrap-authentication", ""),
            ("auth-extra-groups", "system:masters"),
            ("auth-extra-groups", "system:bootstrappers:x,system:nodes"),
            ("auth-extra-groups", "system:bootstrappers:X"),
            ("auth-extra-groups", "system:bootstrappers:x-"),
            ("auth-extra-groups", "system:bootstrappers:"),
        ] {
            assert!(user(&[changes]).is_err(), "{changes:?}");
        }
        let token = BootstrapToken::parse("abcdef.0123456789abcdef").expect("a token");
        let mut opaque = secret(&[]);
        opaque["type"] = "Opaque".into();
        assert!(token.user(&opaque, NOW).is_err());
        let mut deleted = secret(&[]);
        deleted["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        assert!(token.user(&deleted, NOW).is_err());
        assert!(token.user(&json!({}), NOW).is_err());
        assert!(token.user(&json!({"type": SECRET_TYPE}), NOW).is_err());
    }

    #[test]
    fn only_the_exact_form_is_a_token() {
        for text in [
            "",
            ".",
            "abcdef",
            "abcdef.",
            "abcde.0123456789abcdef",
            "ABCDEF.0123456789abcdef",
            "abcdef.0123456789abcde",
            "abcdef.0123456789abcdef0",
            "abcdef.0123456789abcdef.",
            "../../.0123456789abcdef",
            "abcdef.0123456789abcde\n",
        ] {
            assert!(BootstrapToken::parse(text).is_none(), "{text:?}");
        }
    }
}
