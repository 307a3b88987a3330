//! The gate: who makes a request, as whom, and whether they may.
//!
//! Decisions are made in `auth`; this module brings them the request, and the state of the cluster as it changes.

mod authenticate;
mod authorizers;
mod deleted_nodes;
mod follow;
mod front_proxy;
mod impersonate;
mod issuers;
mod remote;
#[cfg(test)]
mod testing;
mod tokens;

use std::sync::{Arc, OnceLock};

use api::selector::{Selector, parse_fields, parse_labels};
use api::{Error, Value};
use auth::authenticate::{Anonymous, IssuedToken, ServiceAccounts, TokenFile, TokenSpec};
use auth::authorize::configuration::AuthorizerSpec;
use auth::authorize::{Abac, NodeAuthorizer, Rbac};
use auth::{Attributes, Authenticators, Authorizer, Decision, User};
use registry::{Registry, equal_to};
use rustls_pki_types::CertificateDer;
use serde_json::json;
use tracing::warn;

use crate::audit_trail;
use crate::escalation::Escalation;
use crate::peer::ClientCertificate;
use crate::request::{Query, RequestInfo};
use crate::resolve::{Resolved, ResourceRequest, is_path_segment};

pub use authenticate::authenticate;
use authenticate::client_certificate;
pub use authorizers::{AuthorizationSource, AuthorizersError};
use authorizers::{AuthorizerChain, LocalAuthorizers};
use deleted_nodes::DeletedNodes;
pub use deleted_nodes::keep_deleted_nodes;
pub use follow::follow;
pub use front_proxy::{FrontProxies, FrontProxyError, FrontProxyOptions};
pub use impersonate::impersonate;
pub use issuers::{Issuers, IssuersError, IssuersSource};
pub use remote::KubeconfigWebhook;
pub use tokens::TokenWebhook;

/// Where the key set is served, for those who check tokens themselves.
const KEY_SET_PATH: &str = "/openid/v1/jwks";

/// A copy of the whole store, secrets and all. No right to read paths gives it away: it takes the verb, group and
/// resource below, which only a rule for everything or one that names them allows.
pub const BACKUP_PATH: &str = "/debug/karve/backup";
const BACKUP_PERMISSION: (&str, &str, &str) = ("backup", "karve.dev", "stores");

pub struct GateOptions {
    pub tokens: TokenFile,
    pub service_accounts: ServiceAccounts,
    /// Where others find the keys of service account tokens, when it is not this server.
    pub key_set_address: Option<String>,
    pub allow_anonymous: bool,
    /// Whether Secrets of the type `bootstrap.kubernetes.io/token` are tokens.
    pub bootstrap_tokens: bool,
    /// Whether the certificates of a node end when its Node is deleted.
    pub ends_access_of_deleted_nodes: bool,
    /// Issuers of ID tokens.
    pub issuers: Option<Issuers>,
    /// Proxies that name the users of requests in headers.
    pub front_proxies: Option<FrontProxies>,
    /// Asked about tokens that nobody else knows.
    pub token_webhook: Option<TokenWebhook>,
    pub authorization: AuthorizationSource,
    /// The policies of the authorizer ABAC.
    pub abac: Option<Abac>,
}

impl GateOptions {
    /// A gate that knows certificates and service account tokens, and lets in who has neither.
    pub fn new(service_accounts: ServiceAccounts, authorization: Vec<AuthorizerSpec>) -> GateOptions {
        GateOptions {
            tokens: TokenFile::default(),
            service_accounts,
            key_set_address: None,
            allow_anonymous: true,
            bootstrap_tokens: false,
            ends_access_of_deleted_nodes: false,
            issuers: None,
            front_proxies: None,
            token_webhook: None,
            authorization: AuthorizationSource::Given(authorization),
            abac: None,
        }
    }
}

pub struct Gate {
    authenticators: Authenticators,
    issuers: Option<Arc<Issuers>>,
    front_proxies: Option<FrontProxies>,
    token_webhook: Option<TokenWebhook>,
    authorizers: AuthorizerChain,
    key_set_address: Option<String>,
    rbac: Arc<Rbac>,
    nodes: Arc<NodeAuthorizer>,
    impersonators: impersonate::Impersonators,
    deleted_nodes: Option<DeletedNodes>,
    positions: OnceLock<Vec<follow::WatchPosition>>,
}

impl Gate {
    pub fn new(options: GateOptions) -> Result<Gate, AuthorizersError> {
        let (rbac, nodes) = (Arc::new(Rbac::default()), Arc::new(NodeAuthorizer::default()));
        let local = LocalAuthorizers {
            rbac: rbac.clone(),
            nodes: nodes.clone(),
            abac: options.abac.map(Arc::new),
        };
        let authorizers = AuthorizerChain::open(options.authorization, local)?;
        // Those who need no rights must at least say who they are.
        if authorizers.allows_everything() && options.allow_anonymous {
            warn!(
                "Anonymous authentication is disabled because the authorization mode AlwaysAllow would let anonymous users do everything"
            );
        }
        let authenticators = Authenticators {
            tokens: options.tokens,
            service_accounts: Some(options.service_accounts),
            bootstrap_tokens: options.bootstrap_tokens,
            anonymous: match options.allow_anonymous {
                true => Anonymous::Everybody,
                false => Anonymous::Nobody,
            },
        };
        Ok(Gate {
            authenticators,
            issuers: options.issuers.map(Arc::new),
            front_proxies: options.front_proxies,
            token_webhook: options.token_webhook,
            authorizers,
            key_set_address: options.key_set_address,
            rbac,
            nodes,
            impersonators: impersonate::Impersonators::default(),
            deleted_nodes: options.ends_access_of_deleted_nodes.then(DeletedNodes::default),
            positions: OnceLock::new(),
        })
    }

    /// The same decisions for those who must ask on behalf of a request.
    pub fn authorizer(&self) -> Arc<dyn Authorizer> {
        Arc::new(self.authorizers.clone())
    }

    /// The check that nobody grants more than they hold.
    pub fn escalation(&self) -> Escalation {
        Escalation {
            rbac: self.rbac.clone(),
            authorizer: self.authorizer(),
        }
    }

    /// Nobody is refused what they could have heard of already: a kubelet asks for a pod's token as soon as its watch
    /// shows the pod, and that may be before the authorizers have looked.
    pub async fn decide(&self, registry: &Registry, attributes: &Attributes<'_>) -> Decision {
        // A webhook is not asked twice.
        if self.authorizers.has_webhook() {
            self.catch_up(registry);
            return self.authorizers.decide(attributes).await;
        }
        self.decide_here(registry, attributes)
    }

    /// The same for those who cannot wait.
    fn decide_here(&self, registry: &Registry, attributes: &Attributes<'_>) -> Decision {
        match self.authorizers.authorize(attributes) {
            Decision::Allow(reason) => Decision::Allow(reason),
            Decision::Deny(_) | Decision::NoOpinion(_) => {
                self.catch_up(registry);
                self.authorizers.authorize(attributes)
            }
        }
    }

    /// What keeps the authorizers as their file says while the server runs.
    pub fn follow_authorization_file(&self) -> impl Future<Output = ()> + Send + use<> {
        self.authorizers.clone().run()
    }

    /// Whom a connection's certificate names, and whether it is a front proxy's.
    pub fn judge_certificate(&self, chain: &[CertificateDer<'_>]) -> (Option<ClientCertificate>, bool) {
        match &self.front_proxies {
            Some(proxies) => proxies.judge(chain),
            None => (chain.first().and_then(|leaf| client_certificate(leaf)), false),
        }
    }

    /// What keeps issuers current while the server runs.
    pub fn issuers(&self) -> Option<Arc<Issuers>> {
        self.issuers.clone()
    }

    pub fn issue_token(&self, spec: &TokenSpec<'_>) -> Result<IssuedToken, Error> {
        let accounts = self.accounts()?;
        accounts
            .issue_token(spec, schema::time::now().seconds)
            .map_err(Error::internal)
    }

    /// The audiences of tokens that are meant for this server.
    pub fn audiences(&self) -> Vec<String> {
        self.accounts()
            .map(|accounts| accounts.audiences().to_vec())
            .unwrap_or_default()
    }

    /// Says where the keys are: at the address that was configured, or at this server's own.
    pub fn issuer_metadata(&self, address: &str) -> Value {
        let own = || format!("https://{address}{KEY_SET_PATH}");
        let key_set = self.key_set_address.clone().unwrap_or_else(own);
        self.accounts()
            .map(|accounts| accounts.openid_configuration(&key_set))
            .unwrap_or_default()
    }

    pub fn key_set(&self) -> Value {
        self.accounts().map(ServiceAccounts::jwks).unwrap_or_default()
    }

    /// The status of a SelfSubjectRulesReview.
    pub fn rules_of(&self, user: &User, namespace: &str) -> Value {
        let found = self.rbac.rules_of(user, namespace);
        let (resources, paths): (Vec<_>, Vec<_>) = found.rules.iter().partition(|rule| !rule.resources.is_empty());
        let resources: Vec<Value> = resources
            .iter()
            .map(|rule| {
                json!({
                    "verbs": rule.verbs, "apiGroups": rule.api_groups, "resources": rule.resources,
                    "resourceNames": rule.resource_names,
                })
            })
            .collect();
        let paths: Vec<Value> = paths
            .iter()
            .map(|rule| json!({ "verbs": rule.verbs, "nonResourceURLs": rule.non_resource_urls }))
            .collect();
        json!({
            "resourceRules": resources, "nonResourceRules": paths, "incomplete": !found.errors.is_empty(),
            "evaluationError": found.errors.join(", "),
        })
    }

    fn accounts(&self) -> Result<&ServiceAccounts, Error> {
        let accounts = self.authenticators.service_accounts.as_ref();
        accounts.ok_or_else(|| Error::internal("this server issues no service account tokens"))
    }
}

/// May this user do that?
pub async fn authorize(
    gate: &Gate,
    registry: &Registry,
    user: &User,
    (info, resolved): (&RequestInfo, &Resolved<'_>),
    query: &Query,
) -> Result<(), Error> {
    if info.path == BACKUP_PATH {
        let backup = Attributes::resource(user, BACKUP_PERMISSION.0, BACKUP_PERMISSION.1, BACKUP_PERMISSION.2);
        return require(gate, registry, &backup).await;
    }
    let selectors = AuthorizedSelectors::new(info, query);
    // The very place that the registry goes to. Where there is nothing, what the path says: nobody learns more than they
    // may.
    let namespace = match resolved {
        Resolved::Resource(request) => request.authorized_namespace(),
        Resolved::Path | Resolved::Remote(_) | Resolved::NotServed(_) => &info.namespace,
    };
    require(gate, registry, &attributes(user, info, namespace, &selectors)).await
}

/// May they do something else to the same objects as well?
pub fn require_verb(
    gate: &Gate,
    registry: &Registry,
    user: &User,
    request: &ResourceRequest<'_>,
    verb: &str,
) -> Result<(), Error> {
    let attributes = attributes_of_verb(user, request, verb);
    allowed(gate.decide_here(registry, &attributes), &attributes)
}

/// The same as a decision, for those who have words of their own for a refusal.
pub async fn decide_verb(
    gate: &Gate,
    registry: &Registry,
    user: &User,
    request: &ResourceRequest<'_>,
    verb: &str,
) -> Decision {
    gate.decide(registry, &attributes_of_verb(user, request, verb)).await
}

fn attributes_of_verb<'a>(user: &'a User, request: &'a ResourceRequest<'_>, verb: &'a str) -> Attributes<'a> {
    Attributes {
        namespace: request.authorized_namespace(),
        verb,
        ..attributes_of_path(user, request.info())
    }
}

/// What authorization is asked about a whole request.
fn attributes<'a>(
    user: &'a User,
    info: &'a RequestInfo,
    namespace: &'a str,
    selectors: &'a AuthorizedSelectors,
) -> Attributes<'a> {
    // A list that is narrowed to one name is as good as a request for that name.
    let name = match (info.verb, &selectors.fields) {
        ("list" | "watch", Some(selector)) if info.name.is_empty() => {
            let name = equal_to(selector, "metadata.name").unwrap_or_default();
            if is_path_segment(name) { name } else { "" }
        }
        _ => &info.name,
    };
    Attributes {
        namespace,
        name,
        field_selector: selectors.fields.as_ref(),
        label_selector: selectors.labels.as_ref(),
        ..attributes_of_path(user, info)
    }
}

fn attributes_of_path<'a>(user: &'a User, info: &'a RequestInfo) -> Attributes<'a> {
    Attributes {
        user,
        verb: info.verb,
        group: &info.group,
        version: &info.version,
        resource: &info.resource,
        subresource: &info.subresource,
        namespace: &info.namespace,
        name: &info.name,
        path: &info.path,
        is_resource: info.is_resource,
        field_selector: None,
        label_selector: None,
    }
}

/// The selectors that authorizers may go by. Those who put the verb into the path have none.
#[derive(Default)]
struct AuthorizedSelectors {
    fields: Option<Selector>,
    labels: Option<Selector>,
}

impl AuthorizedSelectors {
    fn new(info: &RequestInfo, query: &Query) -> AuthorizedSelectors {
        match info.verb {
            "list" | "watch" | "deletecollection" if !info.is_verb_in_path => AuthorizedSelectors {
                fields: query.text("fieldSelector").and_then(|text| parse_fields(text).ok()),
                labels: query.text("labelSelector").and_then(|text| parse_labels(text).ok()),
            },
            _ => AuthorizedSelectors::default(),
        }
    }
}

async fn require(gate: &Gate, registry: &Registry, attributes: &Attributes<'_>) -> Result<(), Error> {
    let decision = gate.decide(registry, attributes).await;
    if let Some(trail) = audit_trail::current() {
        trail.authorized(&decision);
    }
    allowed(decision, attributes)
}

fn allowed(decision: Decision, attributes: &Attributes<'_>) -> Result<(), Error> {
    match decision {
        Decision::Allow(_) => Ok(()),
        Decision::Deny(reason) | Decision::NoOpinion(reason) => Err(auth::forbidden(attributes, &reason)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(authorization: Vec<AuthorizerSpec>) -> Gate {
        let accounts = ServiceAccounts::new(vec!["issuer".to_owned()], Vec::new(), None, Vec::new());
        Gate::new(GateOptions::new(accounts, authorization)).expect("a sound chain")
    }

    #[test]
    fn where_everyone_may_do_everything_nobody_is_anonymous() {
        use AuthorizerSpec::{AlwaysAllow, Node, Rbac};
        assert!(gate(vec![Node, Rbac]).is_open_to_anonymous("/healthz"));
        assert!(!gate(vec![AlwaysAllow]).is_open_to_anonymous("/healthz"));
        assert!(!gate(vec![Node, Rbac, AlwaysAllow]).is_open_to_anonymous("/healthz"));
    }
}
