//! Tokens: what a registry wants to see before it gives out even public images.

use ::http::StatusCode;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Deserialize;

use super::PullError;
use super::http::{Http, Origin};

/// What a token may come wrapped in, and the token itself.
const MAX_ANSWER_BYTES: u64 = 1 << 20;
const MAX_TOKEN_BYTES: usize = 64 << 10;

/// What a pod's pull secret says about a registry; empty for none.
#[derive(Clone, Default)]
pub struct Credentials {
    pub username: String,
    pub password: String,
    /// A bearer token to use as it is.
    pub registry_token: String,
}

impl Credentials {
    /// Reads the CRI's, which may have user and password joined and encoded.
    pub fn new(auth: Option<&cri::v1::AuthConfig>) -> Self {
        let Some(auth) = auth else { return Self::default() };
        let mut credentials = Self {
            username: auth.username.clone(),
            password: auth.password.clone(),
            registry_token: auth.registry_token.clone(),
        };
        let joined = BASE64
            .decode(auth.auth.trim_end_matches('\0'))
            .ok()
            .and_then(|bytes| String::from_utf8(bytes).ok());
        if credentials.username.is_empty()
            && let Some((username, password)) = joined.as_deref().and_then(|joined| joined.split_once(':'))
        {
            credentials.username = username.to_owned();
            credentials.password = password.trim_end_matches('\0').to_owned();
        }
        credentials
    }

    fn basic(&self) -> Option<String> {
        let joined = format!("{}:{}", self.username, self.password);
        (!self.username.is_empty()).then(|| format!("Basic {}", BASE64.encode(joined)))
    }
}

#[derive(Deserialize)]
struct Token {
    #[serde(default)]
    token: String,
    #[serde(default)]
    access_token: String,
}

/// What a challenge in `WWW-Authenticate` asks for.
#[derive(Debug, PartialEq, Eq)]
enum Challenge {
    Basic,
    Bearer {
        realm: String,
        service: Option<String>,
        scope: Option<String>,
    },
}

/// The authorization that answers a challenge, or None where there is none to give.
///
/// The registry names the server that gives out tokens, and is not trusted with that: see [`Http::get`].
pub async fn answer(
    http: &Http,
    registry: &Origin,
    challenge: &str,
    credentials: &Credentials,
) -> Result<Option<String>, PullError> {
    match parse(challenge) {
        None => Ok(None),
        Some(Challenge::Basic) => Ok(credentials.basic()),
        Some(Challenge::Bearer { .. }) if !credentials.registry_token.is_empty() => {
            Ok(Some(format!("Bearer {}", credentials.registry_token)))
        }
        Some(Challenge::Bearer { realm, service, scope }) => {
            let query: Vec<_> = [("service", service), ("scope", scope)]
                .into_iter()
                .filter_map(|(name, value)| Some(format!("{name}={}", escape(&value?))))
                .collect();
            let separator = if realm.contains('?') { '&' } else { '?' };
            let url = format!("{realm}{separator}{}", query.join("&"));
            let answer = http
                .get(registry, &url, "application/json", credentials.basic().as_deref())
                .await?;
            match answer.status() {
                status if status.is_success() => {}
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => return Ok(None),
                status => return Err(PullError::Status { url, status }),
            }
            let bytes = answer.bytes(MAX_ANSWER_BYTES).await?;
            let token: Token = serde_json::from_slice(&bytes).map_err(|source| PullError::Malformed {
                what: "token",
                reference: url,
                source,
            })?;
            let token = if token.token.is_empty() {
                token.access_token
            } else {
                token.token
            };
            let usable = !token.is_empty() && token.len() <= MAX_TOKEN_BYTES;
            Ok(usable.then(|| format!("Bearer {token}")))
        }
    }
}

/// Reads a challenge and does nothing about it.
pub fn read_challenge(challenge: &str) {
    if let Some(Challenge::Bearer { scope: Some(scope), .. }) = parse(challenge) {
        let escaped = escape(&scope);
        assert!(!escaped.contains(['&', '#', ' ']), "{escaped}");
    }
}

fn parse(challenge: &str) -> Option<Challenge> {
    let (scheme, rest) = challenge.split_once(' ').unwrap_or((challenge, ""));
    if scheme.eq_ignore_ascii_case("basic") {
        return Some(Challenge::Basic);
    }
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    let parameter = |name: &str| parameters(rest).find(|(key, _)| key == name).map(|(_, value)| value);
    Some(Challenge::Bearer {
        realm: parameter("realm")?,
        service: parameter("service"),
        scope: parameter("scope"),
    })
}

/// Parameters as `name="value"`, where a value may have commas.
fn parameters(mut text: &str) -> impl Iterator<Item = (String, String)> {
    std::iter::from_fn(move || {
        let (name, rest) = text.trim_start_matches([',', ' ']).split_once('=')?;
        let (value, rest) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => rest.split_once(',').unwrap_or((rest, "")),
        };
        text = rest;
        Some((name.trim().to_ascii_lowercase(), value.to_owned()))
    })
}

fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' | b':' => {
                escaped.push(char::from(byte));
            }
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_read_with_commas_in_their_values() {
        let text = r#"Bearer realm="https://auth.example/token",service="reg",scope="repository:a/b:pull,push""#;
        assert_eq!(
            parse(text),
            Some(Challenge::Bearer {
                realm: "https://auth.example/token".into(),
                service: Some("reg".into()),
                scope: Some("repository:a/b:pull,push".into()),
            })
        );
        assert_eq!(parse("Basic realm=\"x\""), Some(Challenge::Basic));
        assert_eq!(parse("Negotiate"), None);
    }

    #[test]
    fn secrets_may_be_joined() {
        let auth = cri::v1::AuthConfig {
            auth: BASE64.encode("me:secret"),
            ..Default::default()
        };
        let credentials = Credentials::new(Some(&auth));
        assert_eq!(
            (credentials.username.as_str(), credentials.password.as_str()),
            ("me", "secret")
        );
    }
}
