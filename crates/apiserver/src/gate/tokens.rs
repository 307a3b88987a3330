//! Tokens that somebody else knows: a webhook is asked whose they are.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use auth::User;
use auth::authenticate::token_review::{self, Reviewed};
use client::ConfigError;
use parking_lot::Mutex;
use ring::digest::{Context, SHA256};
use tokio::time::Instant;

use super::remote::KubeconfigWebhook;

/// How long a webhook may take with all attempts. A request waits for it.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How many answers are remembered.
const MAX_REMEMBERED: usize = 4096;
/// The longest token that a webhook is asked about.
const MAX_TOKEN_BYTES: usize = 64 * 1024;

/// How a webhook is asked whose token it is.
pub struct TokenWebhook {
    webhook: KubeconfigWebhook,
    version: &'static str,
    cache_ttl: Duration,
    remembered: Mutex<HashMap<[u8; 32], Remembered>>,
}

struct Remembered {
    answer: Option<(Arc<User>, Vec<String>)>,
    until: Instant,
}

impl TokenWebhook {
    pub fn open(kubeconfig: &Path, version: &'static str, cache_ttl: Duration) -> Result<TokenWebhook, ConfigError> {
        Ok(TokenWebhook {
            webhook: KubeconfigWebhook::open(kubeconfig)?,
            version,
            cache_ttl,
            remembered: Mutex::default(),
        })
    }

    /// The user of a token and for which of the wanted audiences; `None` when the webhook does not know it. Failures are
    /// not remembered.
    pub async fn authenticate(
        &self,
        token: &str,
        wanted: &[String],
        own: &[String],
    ) -> Result<Option<(Arc<User>, Vec<String>)>, String> {
        if token.len() > MAX_TOKEN_BYTES {
            return Ok(None);
        }
        let key = key(token, wanted);
        if let Some(found) = self.remembered.lock().get(&key)
            && Instant::now() < found.until
        {
            return Ok(found.answer.clone());
        }
        let question = token_review::question(self.version, token, wanted);
        let body = self.webhook.post(&question, TIMEOUT).await;
        let body = body.map_err(|error| format!("the token webhook failed: {error}"))?;
        let answer = match token_review::answer(&body, wanted, own)? {
            Reviewed::User(user, audiences) => Some((Arc::new(user), audiences)),
            Reviewed::Unknown => None,
        };
        self.remember(key, answer.clone());
        Ok(answer)
    }

    fn remember(&self, key: [u8; 32], answer: Option<(Arc<User>, Vec<String>)>) {
        let now = Instant::now();
        let mut remembered = self.remembered.lock();
        if remembered.len() >= MAX_REMEMBERED {
            remembered.retain(|_, found| now < found.until);
        }
        // Made-up tokens must not push out those of users: what does not fit is asked again.
        if remembered.len() < MAX_REMEMBERED {
            let until = now + self.cache_ttl;
            remembered.insert(key, Remembered { answer, until });
        }
    }
}

/// Tokens are not kept, only what tells them apart.
fn key(token: &str, audiences: &[String]) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    for part in std::iter::once(token).chain(audiences.iter().map(String::as_str)) {
        context.update(&part.len().to_le_bytes());
        context.update(part.as_bytes());
    }
    let mut key = [0; 32];
    key.copy_from_slice(context.finish().as_ref());
    key
}

#[cfg(test)]
mod tests;
