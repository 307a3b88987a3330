//! The headers that say who we are.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{Config, ConfigError, Token, TransportError};

/// How long a token that was read from a file is used before the file is read again.
const TOKEN_FILE_AGE: Duration = Duration::from_secs(60);

pub(super) struct Credentials {
    token: Option<Token>,
    /// The last value read from a token file, and when.
    read: Mutex<Option<(Instant, HeaderValue)>>,
    /// Headers that never change.
    fixed: Vec<(HeaderName, HeaderValue)>,
}

impl Credentials {
    pub fn new(config: &Config) -> Result<Credentials, ConfigError> {
        let mut fixed = Vec::new();
        if let Some((user, password)) = &config.basic {
            let value = format!("Basic {}", STANDARD.encode(format!("{user}:{password}")));
            fixed.push((AUTHORIZATION, header_value("username", &value)?));
        }
        if let Some(Token::Text(token)) = &config.token {
            fixed.push((
                AUTHORIZATION,
                header_value("token", &format!("Bearer {}", token.trim()))?,
            ));
        }
        let who = &config.impersonate;
        let users = [("impersonate-user", &who.user), ("impersonate-uid", &who.uid)];
        let groups = who.groups.iter().map(|group| ("impersonate-group", group));
        for (name, value) in users.into_iter().chain(groups).filter(|(_, value)| !value.is_empty()) {
            fixed.push((HeaderName::from_static(name), header_value("as", value)?));
        }
        for (key, values) in &who.extra {
            let name = format!("impersonate-extra-{}", key.to_ascii_lowercase());
            let name = HeaderName::try_from(name).map_err(|_| unusable("as-user-extra"))?;
            for value in values {
                fixed.push((name.clone(), header_value("as-user-extra", value)?));
            }
        }
        Ok(Credentials {
            token: config.token.clone(),
            read: Mutex::new(None),
            fixed,
        })
    }

    pub fn add(&self, headers: &mut HeaderMap) -> Result<(), TransportError> {
        for (name, value) in &self.fixed {
            headers.append(name, value.clone());
        }
        if let Some(Token::File(path)) = &self.token {
            let mut read = self.read.lock();
            let value = match &*read {
                Some((at, value)) if at.elapsed() < TOKEN_FILE_AGE => value.clone(),
                _ => {
                    let problem = |why: String| TransportError::Credentials(format!("{}: {why}", path.display()));
                    let text = std::fs::read_to_string(path).map_err(|error| problem(error.to_string()))?;
                    let value = header_value("token", &format!("Bearer {}", text.trim()));
                    let value = value.map_err(|error| problem(error.to_string()))?;
                    read.insert((Instant::now(), value)).1.clone()
                }
            };
            headers.insert(AUTHORIZATION, value);
        }
        Ok(())
    }
}

fn header_value(what: &'static str, text: &str) -> Result<HeaderValue, ConfigError> {
    let mut value = HeaderValue::from_str(text).map_err(|_| unusable(what))?;
    value.set_sensitive(true);
    Ok(value)
}

fn unusable(what: &'static str) -> ConfigError {
    ConfigError::Certificate {
        what,
        message: "it holds characters that cannot stand in an HTTP header".to_owned(),
    }
}
