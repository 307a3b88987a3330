//! Issuers of ID tokens: finds their keys, keeps them, and finds them again when a token names one that is new.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use auth::User;
use auth::authenticate::Anonymous;
use auth::authenticate::oidc::spec::{AuthenticationConfiguration, JwtAuthenticatorSpec};
use auth::authenticate::oidc::{JwtAuthenticator, KeySet, TokenError, UnverifiedToken};
use auth::configuration::{ConfigurationError, MAX_FILE_BYTES};
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use serde::Deserialize;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{info, warn};

use super::remote;

const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
/// How soon an issuer that cannot be reached is asked again, as upstream does.
const UNREACHABLE_PAUSE: Duration = Duration::from_secs(10);
/// Keys are looked for again after this long even if every token fits, so that one that the issuer gave up is given up.
const REFRESH_INTERVAL: Duration = Duration::from_secs(600);
/// Tokens with unknown keys make the server ask the issuer no more often than this: anybody can make up such tokens.
const MIN_FETCH_INTERVAL: Duration = Duration::from_secs(5);
/// How often the configuration file is looked at.
const RELOAD_INTERVAL: Duration = Duration::from_secs(2);
/// How long a user is remembered for a token, and how many are, as upstream does.
const REMEMBERED_FOR: Duration = Duration::from_secs(10);
const MAX_REMEMBERED: usize = 4096;

/// Why the configuration of issuers cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IssuersError {
    #[error("cannot read {path}: {source}", path = path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{path} is not a valid AuthenticationConfiguration: {source}", path = path.display())]
    Configuration { path: PathBuf, source: ConfigurationError },
    #[error(transparent)]
    Flags(#[from] ConfigurationError),
}

/// Where issuers come from.
pub enum IssuersSource {
    /// One issuer, by flags.
    Flags(Box<JwtAuthenticator>),
    /// A file that is read again when it changes.
    File(PathBuf),
}

/// All issuers that are believed just now.
pub struct Issuers {
    state: ArcSwap<State>,
    file: Option<PathBuf>,
    own_issuers: Vec<String>,
    remembered: Mutex<HashMap<[u8; 32], Remembered>>,
}

/// The user of a token, and since when that is known.
type Remembered = (Arc<User>, Instant);

#[derive(Default)]
struct State {
    issuers: Vec<Arc<Issuer>>,
    /// What the file says of requests without credentials, if it does.
    anonymous: Option<Anonymous>,
    text: String,
}

/// One issuer and its keys.
struct Issuer {
    spec: Option<JwtAuthenticatorSpec>,
    authenticator: JwtAuthenticator,
    keys: ArcSwap<Option<KeySet>>,
    /// When the keys were last asked for. Held while they are, so that they are asked for once.
    fetched: tokio::sync::Mutex<Option<Instant>>,
}

#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: String,
}

impl Issuers {
    /// `own_issuers` sign service account tokens; nobody else may issue in their name.
    pub fn open(source: IssuersSource, own_issuers: Vec<String>) -> Result<Issuers, IssuersError> {
        let (state, file) = match source {
            IssuersSource::Flags(authenticator) => {
                let issuer = Arc::new(Issuer::new(None, *authenticator));
                let issuers = vec![issuer];
                (
                    State {
                        issuers,
                        ..State::default()
                    },
                    None,
                )
            }
            IssuersSource::File(path) => {
                let text = read_bounded(&path).map_err(|source| IssuersError::Read {
                    path: path.clone(),
                    source,
                })?;
                let state = State::parse(text, &own_issuers, &[]).map_err(|source| IssuersError::Configuration {
                    path: path.clone(),
                    source,
                })?;
                (state, Some(path))
            }
        };
        Ok(Issuers {
            state: ArcSwap::from_pointee(state),
            file,
            own_issuers,
            remembered: Mutex::default(),
        })
    }

    pub fn anonymous(&self) -> Option<Anonymous> {
        self.state.load().anonymous.clone()
    }

    /// The user of a token of one of the issuers; `None` for a token of somebody else.
    pub async fn authenticate(&self, token: &str, now: i64) -> Result<Option<Arc<User>>, String> {
        let mut key = [0; 32];
        key.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
        if let Some((user, at)) = self.remembered.lock().get(&key)
            && at.elapsed() < REMEMBERED_FOR
        {
            return Ok(Some(user.clone()));
        }
        let Some(token) = UnverifiedToken::parse(token) else {
            return Ok(None);
        };
        let state = self.state.load_full();
        let mut issuers = state.issuers.iter();
        let Some(issuer) = issuers.find(|issuer| issuer.authenticator.issuer_url() == token.issuer()) else {
            return Ok(None);
        };
        let user = Arc::new(issuer.user(&token, now).await?);
        let mut remembered = self.remembered.lock();
        if remembered.len() >= MAX_REMEMBERED {
            remembered.retain(|_, (_, at)| at.elapsed() < REMEMBERED_FOR);
        }
        // Nobody is remembered by rules that were replaced meanwhile.
        if remembered.len() < MAX_REMEMBERED && Arc::ptr_eq(&state, &self.state.load()) {
            remembered.insert(key, (user.clone(), Instant::now()));
        }
        Ok(Some(user))
    }

    /// Keeps keys and configuration current for as long as the server runs.
    pub async fn run(self: Arc<Self>) {
        loop {
            let state = self.state.load_full();
            let mut fetching = JoinSet::new();
            for issuer in &state.issuers {
                let issuer = issuer.clone();
                fetching.spawn(async move { issuer.keep_keys().await });
            }
            self.changed_file().await;
            fetching.shutdown().await;
        }
    }

    /// Returns when a usable new configuration has taken the place of the old one.
    async fn changed_file(&self) {
        let Some(path) = &self.file else {
            return std::future::pending().await;
        };
        let mut refused = String::new();
        loop {
            tokio::time::sleep(RELOAD_INTERVAL).await;
            let text = match read_bounded(path) {
                Ok(text) => text,
                Err(error) => {
                    warn!(path = %path.display(), %error, "Failed to read the authentication configuration; the previous one stays in use");
                    continue;
                }
            };
            let current = self.state.load_full();
            if text == current.text || text == refused {
                continue;
            }
            match State::parse(text.clone(), &self.own_issuers, &current.issuers) {
                Ok(state) => {
                    for issuer in state.issuers.iter().filter(|issuer| issuer.keys.load().is_none()) {
                        issuer.fetch_first().await;
                    }
                    self.state.store(Arc::new(state));
                    self.remembered.lock().clear();
                    info!(path = %path.display(), "Reloaded the authentication configuration");
                    return;
                }
                Err(error) => {
                    warn!(path = %path.display(), %error, "Failed to load the changed authentication configuration; the previous one stays in use");
                    refused = text;
                }
            }
        }
    }
}

impl State {
    /// Issuers that did not change keep their keys.
    fn parse(text: String, own_issuers: &[String], present: &[Arc<Issuer>]) -> Result<State, ConfigurationError> {
        let configuration = AuthenticationConfiguration::parse(&text)?;
        let authenticators = configuration.authenticators(own_issuers)?;
        let issuers = authenticators.into_iter().zip(&configuration.jwt);
        let issuers = issuers.map(|(authenticator, spec)| {
            let kept = present.iter().find(|issuer| issuer.spec.as_ref() == Some(spec));
            kept.cloned()
                .unwrap_or_else(|| Arc::new(Issuer::new(Some(spec.clone()), authenticator)))
        });
        let anonymous = configuration.anonymous.as_ref().map(|anonymous| match anonymous {
            anonymous if !anonymous.enabled => Anonymous::Nobody,
            anonymous if anonymous.conditions.is_empty() => Anonymous::Everybody,
            anonymous => Anonymous::Paths(
                anonymous
                    .conditions
                    .iter()
                    .map(|condition| condition.path.clone())
                    .collect(),
            ),
        });
        Ok(State {
            issuers: issuers.collect(),
            anonymous,
            text,
        })
    }
}

impl Issuer {
    fn new(spec: Option<JwtAuthenticatorSpec>, authenticator: JwtAuthenticator) -> Issuer {
        Issuer {
            spec,
            authenticator,
            keys: ArcSwap::from_pointee(None),
            fetched: tokio::sync::Mutex::default(),
        }
    }

    /// Asks for the keys once more when none of those known made the signature.
    async fn user(&self, token: &UnverifiedToken<'_>, now: i64) -> Result<User, String> {
        let verify = |keys: &Option<KeySet>| match keys {
            None => Err(TokenError::Refused("authenticator not initialized".to_owned())),
            Some(keys) => self.authenticator.verify(token, keys, now),
        };
        let known = self.keys.load_full();
        match verify(&known) {
            Err(TokenError::Signature) => {}
            verified => return verified.map_err(|error| error.to_string()),
        }
        {
            let mut fetched = self.fetched.lock().await;
            let is_recent = fetched.is_some_and(|at| at.elapsed() < MIN_FETCH_INTERVAL);
            // Somebody else may have brought new keys while this waited.
            if !is_recent && Arc::ptr_eq(&known, &self.keys.load()) {
                self.fetch(&mut fetched).await;
            }
        }
        verify(&self.keys.load_full()).map_err(|error| error.to_string())
    }

    async fn fetch_first(&self) {
        let mut fetched = self.fetched.lock().await;
        self.fetch(&mut fetched).await;
    }

    async fn keep_keys(&self) {
        loop {
            let age = {
                let mut fetched = self.fetched.lock().await;
                match *fetched {
                    Some(at) if self.keys.load().is_some() && at.elapsed() < REFRESH_INTERVAL => {}
                    _ => self.fetch(&mut fetched).await,
                }
                fetched.map(|at| at.elapsed()).unwrap_or_default()
            };
            match self.keys.load().is_some() {
                true => tokio::time::sleep(REFRESH_INTERVAL.saturating_sub(age)).await,
                false => tokio::time::sleep(UNREACHABLE_PAUSE).await,
            }
        }
    }

    /// Takes the issuer's present keys; those known stay when it cannot be reached.
    async fn fetch(&self, fetched: &mut Option<Instant>) {
        let found = self.present_keys().await;
        *fetched = Some(Instant::now());
        match found {
            Ok(keys) => self.keys.store(Arc::new(Some(keys))),
            Err(error) => {
                let issuer = self.authenticator.issuer_url();
                warn!(issuer, %error, "Failed to fetch the signing keys of an OIDC issuer");
            }
        }
    }

    async fn present_keys(&self) -> Result<KeySet, String> {
        let authority = self.authenticator.certificate_authority();
        let url = self.authenticator.discovery_url();
        let document = remote::get(&url, authority, FETCH_TIMEOUT).await;
        let document = document.map_err(|error| format!("cannot get {url}: {error}"))?;
        let discovery: Discovery = serde_json::from_slice(&document)
            .map_err(|error| format!("oidc: failed to decode provider discovery object: {error}"))?;
        let expected = self.authenticator.issuer_url();
        if discovery.issuer != expected {
            let got = discovery.issuer;
            return Err(format!(
                "oidc: issuer did not match the issuer returned by provider, expected {expected:?} got {got:?}"
            ));
        }
        let document = remote::get(&discovery.jwks_uri, authority, FETCH_TIMEOUT).await;
        let document = document.map_err(|error| format!("cannot get {}: {error}", discovery.jwks_uri))?;
        let keys = KeySet::parse(&document).map_err(|error| error.to_string())?;
        match keys.is_empty() {
            true => Err("the issuer has no keys that verify tokens here".to_owned()),
            false => Ok(keys),
        }
    }
}

/// Reads a file that somebody may be writing to just now, up to a bound.
pub fn read_bounded(path: &std::path::Path) -> std::io::Result<String> {
    use std::io::Read;
    let mut text = String::new();
    std::fs::File::open(path)?
        .take(MAX_FILE_BYTES)
        .read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests;
