//! The headers by which a request is made as somebody else.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use api::Error;
use auth::{Authorizer, ImpersonationMode, User};
use http::{HeaderMap, HeaderName, HeaderValue};
use parking_lot::Mutex;
use registry::Registry;

use super::{AuthorizedSelectors, Gate, attributes};
use crate::request::{Query, RequestInfo, unescape};

const USER: HeaderName = HeaderName::from_static("impersonate-user");
const UID: HeaderName = HeaderName::from_static("impersonate-uid");
const GROUP: HeaderName = HeaderName::from_static("impersonate-group");
const EXTRA_PREFIX: &str = "impersonate-extra-";

/// How many users are remembered.
const MAX_IMPERSONATORS: usize = 1_000;

/// In which way users last became somebody else, who will most likely do it in the same way again.
#[derive(Default)]
pub struct Impersonators(Mutex<HashMap<String, ImpersonationMode>>);

/// A user who may impersonate acts as the one the headers name.
pub fn impersonate(
    gate: &Gate,
    registry: &Registry,
    user: Arc<User>,
    headers: &HeaderMap,
    (info, query): (&RequestInfo, &Query),
) -> Result<Arc<User>, Error> {
    let Some(wanted) = wanted_user(headers)? else {
        return Ok(user);
    };
    let selectors = AuthorizedSelectors::new(info, query);
    let request = attributes(&user, info, &info.namespace, &selectors);
    let ask = |attributes: &auth::Attributes<'_>| gate.authorizers.authorize(attributes);
    let last = gate.impersonators.last(&user.name);
    let (impersonated, mode) = auth::impersonate(&ask, &request, &wanted, last).or_else(|_| {
        gate.catch_up(registry);
        auth::impersonate(&ask, &request, &wanted, last)
    })?;
    if last != Some(mode) {
        gate.impersonators.remember(&user.name, mode);
    }
    Ok(Arc::new(impersonated))
}

impl Impersonators {
    fn last(&self, name: &str) -> Option<ImpersonationMode> {
        self.0.lock().get(name).copied()
    }

    fn remember(&self, name: &str, mode: ImpersonationMode) {
        let mut modes = self.0.lock();
        if modes.len() >= MAX_IMPERSONATORS {
            modes.clear();
        }
        modes.insert(name.to_owned(), mode);
    }
}

/// The user that the headers describe, with nothing added. Without a name there is nobody to be.
fn wanted_user(headers: &HeaderMap) -> Result<Option<User>, Error> {
    let first = |name: &HeaderName| headers.get(name).map(|value| text(name, value)).transpose();
    let mut wanted = User {
        name: first(&USER)?.unwrap_or_default(),
        uid: first(&UID)?.unwrap_or_default(),
        ..User::default()
    };
    for value in headers.get_all(&GROUP) {
        wanted.groups.push(text(&GROUP, value)?);
    }
    for (name, value) in headers {
        if let Some(key) = name.as_str().strip_prefix(EXTRA_PREFIX) {
            let values = wanted.extra.entry(extra_key(key)).or_default();
            values.push(text(name, value)?);
        }
    }
    let claims_more = !wanted.uid.is_empty() || !wanted.groups.is_empty() || !wanted.extra.is_empty();
    match (wanted.name.is_empty(), claims_more) {
        (false, _) => Ok(Some(wanted)),
        (true, false) => Ok(None),
        (true, true) => Err(Error::bad_request(format!(
            "requested {} without impersonating a user name",
            go_text(&wanted)
        ))),
    }
}

/// A header that cannot be read is an error: leaving it out would make the request as somebody else than was asked for.
fn text(name: &HeaderName, value: &HeaderValue) -> Result<String, Error> {
    String::from_utf8(value.as_bytes().to_vec())
        .map_err(|_| Error::bad_request(format!("the header {name} is not valid UTF-8")))
}

/// Keys may be escaped, because names of headers cannot have all characters.
fn extra_key(key: &str) -> String {
    let key = key.to_lowercase();
    let unescaped = unescape(key.as_bytes()).unwrap_or(Cow::Borrowed(key.as_bytes()));
    String::from_utf8_lossy(&unescaped).into_owned()
}

/// A user as upstream's language shows one.
fn go_text(user: &User) -> String {
    let list = |values: &[String]| {
        let values: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
        format!("[]string{{{}}}", values.join(", "))
    };
    let groups = match user.groups.as_slice() {
        [] => "[]string(nil)".to_owned(),
        groups => list(groups),
    };
    let extra: Vec<String> = user
        .extra
        .iter()
        .map(|(key, values)| format!("{key:?}:{}", list(values)))
        .collect();
    let extra = match extra.is_empty() {
        true => "map[string][]string(nil)".to_owned(),
        false => format!("map[string][]string{{{}}}", extra.join(", ")),
    };
    format!(
        "&user.DefaultInfo{{Name:{:?}, UID:{:?}, Groups:{groups}, Extra:{extra}}}",
        user.name, user.uid
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(headers: &[(&str, &[u8])]) -> Result<Option<User>, String> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
            map.append(name, HeaderValue::from_bytes(value).expect("a value"));
        }
        wanted_user(&map).map_err(|error| error.message)
    }

    #[test]
    fn headers_describe_a_user() {
        let user = wanted(&[
            ("Impersonate-User", "j\u{fc}rgen".as_bytes()),
            ("Impersonate-Uid", b"u1"),
            ("Impersonate-Group", b"a"),
            ("Impersonate-Group", b"b"),
            ("Impersonate-Extra-Acme.io%2fScopes", b"x"),
            ("Impersonate-Extra-acme.io%2Fscopes", b"y"),
        ]);
        let user = user.expect("sound headers").expect("a user");
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("j\u{fc}rgen", "u1"));
        assert_eq!(user.groups, ["a", "b"]);
        assert_eq!(user.extra["acme.io/scopes"], ["x", "y"]);
        assert_eq!(wanted(&[("accept", b"x"), ("impersonate-user", b"")]), Ok(None));
    }

    /// Neither of these may be answered as if nothing had been asked for.
    #[test]
    fn half_a_user_is_refused() {
        for (header, shown) in [
            (
                "Impersonate-Uid",
                r#"UID:"x", Groups:[]string(nil), Extra:map[string][]string(nil)"#,
            ),
            (
                "Impersonate-Group",
                r#"UID:"", Groups:[]string{"x"}, Extra:map[string][]string(nil)"#,
            ),
            (
                "Impersonate-Extra-K",
                r#"UID:"", Groups:[]string(nil), Extra:map[string][]string{"k":[]string{"x"}}"#,
            ),
        ] {
            let expected =
                format!(r#"requested &user.DefaultInfo{{Name:"", {shown}}} without impersonating a user name"#);
            assert_eq!(wanted(&[(header, b"x")]), Err(expected), "{header}");
        }
        assert!(wanted(&[("Impersonate-User", b"\xff")]).is_err());
        assert!(wanted(&[("Impersonate-User", b"a"), ("Impersonate-Group", b"\xff")]).is_err());
    }
}
