//! Who decides, in order: those in this process and webhooks. A file that says so is read again when it changes.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use auth::authorize::configuration::{self, AuthorizerSpec, WebhookSpec};
use auth::authorize::{Abac, AlwaysAllow, AlwaysDeny, NodeAuthorizer, PrivilegedGroup, Rbac, review};
use auth::configuration::ConfigurationError;
use auth::{Attributes, Authorizer, Decision};
use client::ConfigError;
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::{info, warn};

use super::issuers::read_bounded;
use super::remote::KubeconfigWebhook;

/// How often the configuration file is looked at.
const RELOAD_INTERVAL: Duration = Duration::from_secs(2);
/// How many answers of one webhook are remembered.
const MAX_REMEMBERED: usize = 8192;
/// Questions that are longer are not remembered, so that nobody fills the memory with long names.
const MAX_REMEMBERED_BYTES: usize = 10_000;

#[derive(Debug, thiserror::Error)]
pub enum AuthorizersError {
    #[error("cannot read {path}: {source}", path = path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{path} is not a valid AuthorizationConfiguration: {source}", path = path.display())]
    Configuration { path: PathBuf, source: ConfigurationError },
    #[error("cannot set up authorizer {name:?}: {source}")]
    Webhook { name: String, source: ConfigError },
    #[error("the authorizer ABAC needs --authorization-policy-file")]
    NoPolicyFile,
}

/// Who decides.
pub enum AuthorizationSource {
    Given(Vec<AuthorizerSpec>),
    File(PathBuf),
}

/// What those in this process decide by.
#[derive(Clone)]
pub struct LocalAuthorizers {
    pub rbac: Arc<Rbac>,
    pub nodes: Arc<NodeAuthorizer>,
    pub abac: Option<Arc<Abac>>,
}

/// The chain of those who decide.
#[derive(Clone)]
pub struct AuthorizerChain {
    state: Arc<ArcSwap<State>>,
    local: LocalAuthorizers,
    file: Option<PathBuf>,
}

struct State {
    links: Vec<Link>,
    /// Whether everybody may do everything.
    allows_everything: bool,
    text: String,
}

enum Link {
    Local(Arc<dyn Authorizer>),
    Webhook(Arc<WebhookAuthorizer>),
}

impl AuthorizerChain {
    pub fn open(source: AuthorizationSource, local: LocalAuthorizers) -> Result<AuthorizerChain, AuthorizersError> {
        let (state, file) = match source {
            AuthorizationSource::Given(specs) => (State::new(specs, &local, String::new())?, None),
            AuthorizationSource::File(path) => (State::read(&path, &local)?, Some(path)),
        };
        Ok(AuthorizerChain {
            state: Arc::new(ArcSwap::from_pointee(state)),
            local,
            file,
        })
    }

    /// Asks one after the other until one has an opinion.
    pub async fn decide(&self, attributes: &Attributes<'_>) -> Decision {
        let state = self.state.load_full();
        let mut reasons = Vec::new();
        for link in &state.links {
            let decision = match link {
                Link::Local(local) => local.authorize(attributes),
                Link::Webhook(webhook) => webhook.decide(attributes).await,
            };
            if let Some(decided) = weigh(decision, &mut reasons) {
                return decided;
            }
        }
        Decision::NoOpinion(reasons.join("\n"))
    }

    pub fn has_webhook(&self) -> bool {
        let state = self.state.load();
        state.links.iter().any(|link| matches!(link, Link::Webhook(_)))
    }

    pub fn allows_everything(&self) -> bool {
        self.state.load().allows_everything
    }

    /// Takes over a changed file for as long as the server runs.
    pub async fn run(self) {
        let Some(path) = &self.file else { return };
        let mut refused = String::new();
        loop {
            tokio::time::sleep(RELOAD_INTERVAL).await;
            match read_bounded(path) {
                Ok(text) if text == self.state.load().text || text == refused => continue,
                Ok(text) => refused = text,
                Err(_) => {}
            }
            match State::read(path, &self.local) {
                Ok(state) => {
                    self.state.store(Arc::new(state));
                    info!(path = %path.display(), "Reloaded the authorization configuration");
                }
                Err(error) => {
                    warn!(path = %path.display(), %error, "Failed to load the changed authorization configuration; the previous one stays in use");
                }
            }
        }
    }
}

/// For those who cannot wait: admission plugins and expressions. The thread stands still while a webhook is asked, and
/// others take over its work.
impl Authorizer for AuthorizerChain {
    fn authorize(&self, attributes: &Attributes) -> Decision {
        let state = self.state.load_full();
        let mut reasons = Vec::new();
        for link in &state.links {
            let decision = match link {
                Link::Local(local) => local.authorize(attributes),
                Link::Webhook(webhook) => webhook.decide_here(attributes),
            };
            if let Some(decided) = weigh(decision, &mut reasons) {
                return decided;
            }
        }
        Decision::NoOpinion(reasons.join("\n"))
    }
}

/// What one decided, if it did; why not otherwise is kept.
fn weigh(decision: Decision, reasons: &mut Vec<String>) -> Option<Decision> {
    match decision {
        Decision::NoOpinion(reason) => {
            reasons.extend(Some(reason).filter(|reason| !reason.is_empty()));
            None
        }
        Decision::Deny(reason) => {
            reasons.push(reason);
            Some(Decision::Deny(reasons.join("\n")))
        }
        allow @ Decision::Allow(_) => Some(allow),
    }
}

impl State {
    fn read(path: &Path, local: &LocalAuthorizers) -> Result<State, AuthorizersError> {
        let text = read_bounded(path).map_err(|source| AuthorizersError::Read {
            path: path.to_owned(),
            source,
        })?;
        let specs = configuration::parse(&text).map_err(|source| AuthorizersError::Configuration {
            path: path.to_owned(),
            source,
        })?;
        State::new(specs, local, text)
    }

    fn new(specs: Vec<AuthorizerSpec>, local: &LocalAuthorizers, text: String) -> Result<State, AuthorizersError> {
        let allows_everything = specs.iter().any(|spec| matches!(spec, AuthorizerSpec::AlwaysAllow));
        Ok(State {
            links: links(specs, local)?,
            allows_everything,
            text,
        })
    }
}

/// The group that may do everything comes first, so that no mistake locks everybody out.
fn links(specs: Vec<AuthorizerSpec>, local: &LocalAuthorizers) -> Result<Vec<Link>, AuthorizersError> {
    let mut links = vec![Link::Local(Arc::new(PrivilegedGroup))];
    for spec in specs {
        links.push(match spec {
            AuthorizerSpec::AlwaysAllow => Link::Local(Arc::new(AlwaysAllow)),
            AuthorizerSpec::AlwaysDeny => Link::Local(Arc::new(AlwaysDeny)),
            AuthorizerSpec::Node => Link::Local(local.nodes.clone()),
            AuthorizerSpec::Rbac => Link::Local(local.rbac.clone()),
            AuthorizerSpec::Abac => Link::Local(local.abac.clone().ok_or(AuthorizersError::NoPolicyFile)?),
            AuthorizerSpec::Webhook(spec) => Link::Webhook(Arc::new(WebhookAuthorizer::open(spec)?)),
        });
    }
    Ok(links)
}

/// One webhook, and what it said lately.
struct WebhookAuthorizer {
    spec: WebhookSpec,
    webhook: KubeconfigWebhook,
    remembered: Mutex<HashMap<String, (Decision, Instant)>>,
}

impl WebhookAuthorizer {
    fn open(spec: WebhookSpec) -> Result<WebhookAuthorizer, AuthorizersError> {
        let webhook = KubeconfigWebhook::open(&spec.kubeconfig).map_err(|source| AuthorizersError::Webhook {
            name: spec.name.clone(),
            source,
        })?;
        Ok(WebhookAuthorizer {
            spec,
            webhook,
            remembered: Mutex::default(),
        })
    }

    async fn decide(&self, attributes: &Attributes<'_>) -> Decision {
        let question = review::spec(attributes);
        match self.spec.conditions.hold(&question) {
            Ok(true) => {}
            Ok(false) => return Decision::NoOpinion(String::new()),
            Err(error) => return self.failed(&error),
        }
        let key = question.to_string();
        if let Some((decision, until)) = self.remembered.lock().get(&key)
            && Instant::now() < *until
        {
            return decision.clone();
        }
        let question = review::question(&self.spec.version, question);
        let answer = match self.webhook.post(&question, self.spec.timeout).await {
            Ok(body) => review::answer(&body),
            Err(error) => Err(error.to_string()),
        };
        match answer {
            Ok(decision) => {
                self.remember(key, &decision);
                decision
            }
            Err(error) => self.failed(&error),
        }
    }

    fn decide_here(&self, attributes: &Attributes<'_>) -> Decision {
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(self.decide(attributes)))
    }

    fn failed(&self, error: &str) -> Decision {
        warn!(
            authorizer = self.spec.name,
            error, "Failed to call an authorization webhook"
        );
        match self.spec.denies_on_failure {
            true => Decision::Deny(String::new()),
            false => Decision::NoOpinion(String::new()),
        }
    }

    fn remember(&self, key: String, decision: &Decision) {
        let ttl = match decision {
            Decision::Allow(_) => self.spec.authorized_ttl,
            Decision::Deny(_) | Decision::NoOpinion(_) => self.spec.unauthorized_ttl,
        };
        if ttl.is_zero() || key.len() > MAX_REMEMBERED_BYTES {
            return;
        }
        let now = Instant::now();
        let mut remembered = self.remembered.lock();
        if remembered.len() >= MAX_REMEMBERED {
            remembered.retain(|_, (_, until)| now < *until);
        }
        if remembered.len() >= MAX_REMEMBERED {
            remembered.clear();
        }
        remembered.insert(key, (decision.clone(), now + ttl));
    }
}

#[cfg(test)]
mod tests;
