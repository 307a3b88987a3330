//! TokenReviews as a webhook is asked them and as it answers.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::User;

#[derive(Deserialize)]
struct Answer {
    status: Option<Status>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    authenticated: bool,
    user: Info,
    audiences: Vec<String>,
    error: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Info {
    username: String,
    uid: String,
    groups: Option<Vec<String>>,
    extra: Option<BTreeMap<String, Vec<String>>>,
}

/// What a webhook said of a token.
#[derive(Debug, PartialEq, Eq)]
pub enum Reviewed {
    /// The user, and for which of the wanted audiences.
    User(User, Vec<String>),
    Unknown,
}

/// The question, in `authentication.k8s.io/v1` or `v1beta1`.
pub fn question(version: &str, token: &str, audiences: &[String]) -> Value {
    json!({
        "apiVersion": format!("authentication.k8s.io/{version}"), "kind": "TokenReview",
        "metadata": {}, "spec": {"token": token, "audiences": audiences},
    })
}

/// Reads an answer. A webhook that does not speak of audiences means those of the API server, `own`.
pub fn answer(body: &[u8], wanted: &[String], own: &[String]) -> Result<Reviewed, String> {
    let answer: Answer =
        serde_json::from_slice(body).map_err(|error| format!("the answer is not a TokenReview: {error}"))?;
    let status = answer.status.ok_or("the answer has no status")?;
    if !status.authenticated {
        return match status.error.as_str() {
            "" => Ok(Reviewed::Unknown),
            error => Err(error.to_owned()),
        };
    }
    let held = if status.audiences.is_empty() {
        own
    } else {
        &status.audiences
    };
    let granted: Vec<String> = wanted
        .iter()
        .filter(|audience| held.contains(audience))
        .cloned()
        .collect();
    if granted.is_empty() && !wanted.is_empty() {
        return Ok(Reviewed::Unknown);
    }
    if status.user.username.is_empty() {
        return Err("the answer authenticates a user without a name".to_owned());
    }
    let user = User {
        name: status.user.username,
        uid: status.user.uid,
        groups: status.user.groups.unwrap_or_default(),
        extra: status.user.extra.unwrap_or_default(),
    };
    Ok(Reviewed::User(user.authenticated(), granted))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(status: &Value) -> Result<Reviewed, String> {
        let own = ["api".to_owned()];
        answer(
            json!({"kind": "TokenReview", "status": status}).to_string().as_bytes(),
            &own,
            &own,
        )
    }

    #[test]
    fn an_answer_names_a_user_for_the_wanted_audiences() {
        let user = json!({"username": "jane", "uid": "1", "groups": ["dev"], "extra": {"k": ["v"]}});
        let Ok(Reviewed::User(found, audiences)) = read(&json!({"authenticated": true, "user": user})) else {
            panic!("no user");
        };
        assert_eq!((found.name.as_str(), found.uid.as_str()), ("jane", "1"));
        assert_eq!(found.groups, ["dev", "system:authenticated"]);
        assert_eq!(audiences, ["api"]);
        let elsewhere = json!({"authenticated": true, "user": user, "audiences": ["other"]});
        assert_eq!(read(&elsewhere), Ok(Reviewed::Unknown));
    }

    #[test]
    fn anything_else_authenticates_nobody() {
        let user = json!({"username": "jane"});
        assert_eq!(read(&json!({"user": user})), Ok(Reviewed::Unknown));
        assert_eq!(
            read(&json!({"authenticated": false, "user": user})),
            Ok(Reviewed::Unknown)
        );
        assert_eq!(
            read(&json!({"authenticated": false, "error": "revoked"})),
            Err("revoked".to_owned())
        );
        for status in [
            json!({"authenticated": true}),
            json!({"authenticated": true, "user": {"username": ""}}),
            json!({"authenticated": "true", "user": user}),
            json!({"authenticated": true, "user": {"username": "jane", "groups": "system:masters"}}),
            Value::Null,
        ] {
            assert!(read(&status).is_err(), "{status}");
        }
        assert!(answer(b"<html>", &[], &[]).is_err());
        assert!(answer(b"", &[], &[]).is_err());
    }
}
