//! The gate: who makes a request, as whom, and whether they may.
//!
//! Decisions are made in `auth`; this module brings them the request, and the state of the cluster as it changes.

mod follow;
mod impersonate;

use std::sync::{Arc, OnceLock};

use admission::Lookup;
use api::selector::{Selector, parse_fields};
use api::{Error, Reason, Resource, Value};
use auth::authenticate::{Identity, IssuedToken, Objects, ServiceAccounts, TokenFile, TokenSpec, x509};
use auth::authorize::{AlwaysAllow, NodeAuthorizer, PrivilegedGroup, Rbac};
use auth::{Attributes, Authenticators, Authorizer, Authorizers, Credentials, Decision, User};
use http::HeaderMap;
use http::header::AUTHORIZATION;
use serde_json::json;
use tracing::{debug, warn};

use crate::escalation::Escalation;
use crate::pipeline::{ClientCertificate, Peer};
use crate::registry::{Registry, equal_to};
use crate::request::{Query, RequestInfo};
use crate::resolve::{Resolved, ResourceRequest, is_path_segment};

pub use follow::follow;
pub use impersonate::impersonate;

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
    pub authorization: Vec<AuthorizationMode>,
}

/// The values of `--authorization-mode` that exist here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthorizationMode {
    Node,
    Rbac,
    AlwaysAllow,
}

pub struct Gate {
    authenticators: Authenticators,
    authorizers: Authorizers,
    key_set_address: Option<String>,
    rbac: Arc<Rbac>,
    nodes: Arc<NodeAuthorizer>,
    impersonators: impersonate::Impersonators,
    places: OnceLock<Vec<follow::Place>>,
}

impl Gate {
    pub fn new(options: GateOptions) -> Gate {
        let (rbac, nodes) = (Arc::new(Rbac::default()), Arc::new(NodeAuthorizer::default()));
        // Those who need no rights must at least say who they are.
        let anyone_may = options.authorization.contains(&AuthorizationMode::AlwaysAllow);
        if anyone_may && options.allow_anonymous {
            warn!(
                "anonymous requests are refused because the authorization mode AlwaysAllow would let them do everything"
            );
        }
        let mut chain: Vec<Arc<dyn Authorizer>> = vec![Arc::new(PrivilegedGroup)];
        for mode in options.authorization {
            chain.push(match mode {
                AuthorizationMode::Node => nodes.clone(),
                AuthorizationMode::Rbac => rbac.clone(),
                AuthorizationMode::AlwaysAllow => Arc::new(AlwaysAllow),
            });
        }
        let authenticators = Authenticators {
            tokens: options.tokens,
            service_accounts: Some(options.service_accounts),
            allow_anonymous: options.allow_anonymous && !anyone_may,
        };
        Gate {
            authenticators,
            authorizers: Authorizers { chain },
            key_set_address: options.key_set_address,
            rbac,
            nodes,
            impersonators: impersonate::Impersonators::default(),
            places: OnceLock::new(),
        }
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
    pub fn decide(&self, registry: &Registry, attributes: &Attributes<'_>) -> Decision {
        match self.authorizers.authorize(attributes) {
            Decision::Allow(reason) => Decision::Allow(reason),
            Decision::Deny(_) | Decision::NoOpinion(_) => {
                self.catch_up(registry);
                self.authorizers.authorize(attributes)
            }
        }
    }

    /// The user of a token, and for which of the wanted audiences it is good; this answers a TokenReview.
    pub fn authenticate_token(
        &self,
        registry: &Registry,
        token: &str,
        audiences: &[String],
    ) -> Result<(Arc<User>, Vec<String>), String> {
        let wanted = (!audiences.is_empty()).then_some(audiences);
        let now = schema::time::now().seconds;
        let found = self
            .authenticators
            .authenticate_token(token, wanted, &RegistryObjects(registry), now);
        found.map_err(|refused| match refused {
            auth::authenticate::Refused::UnknownToken => "invalid bearer token".to_owned(),
            refused => format!("invalid bearer token, {refused}"),
        })
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

/// Who makes this request.
pub fn authenticate(gate: &Gate, registry: &Registry, peer: &Peer, headers: &HeaderMap) -> Result<Arc<User>, Error> {
    let certificate = match peer {
        Peer::InProcess(user) => return Ok(user.clone()),
        Peer::Tls { certificate } => certificate.as_ref(),
    };
    // A token that is no text is a wrong one, and whoever shows it is not nobody.
    let header = headers
        .get(AUTHORIZATION)
        .map(|value| String::from_utf8_lossy(value.as_bytes()));
    let token = header.as_deref().and_then(bearer);
    let now = schema::time::now().seconds;
    let credentials = Credentials {
        certificate: certified(certificate, token.is_some(), now)?,
        token,
    };
    gate.authenticators
        .authenticate(&credentials, &RegistryObjects(registry), now)
        .map_err(|refused| {
            debug!(%refused, "a request was not authenticated");
            unauthorized()
        })
}

fn unauthorized() -> Error {
    Error::new(Reason::Unauthorized, "Unauthorized")
}

/// The user of a connection's certificate. TLS looked at it when the connection began, and that may be long ago.
fn certified(certificate: Option<&ClientCertificate>, has_token: bool, now: i64) -> Result<Option<Arc<User>>, Error> {
    match certificate {
        Some(expired) if expired.expires < now && has_token => Ok(None),
        // Somebody who shows a certificate is not nobody.
        Some(expired) if expired.expires < now => Err(unauthorized()),
        certificate => Ok(certificate.map(|certificate| certificate.user.clone())),
    }
}

/// Whom a connection's certificate names; read once per connection.
pub fn client_certificate(der: &[u8]) -> Option<ClientCertificate> {
    match x509::user(der) {
        Ok((user, expires)) => Some(ClientCertificate {
            user: Arc::new(user),
            expires,
        }),
        Err(error) => {
            debug!(%error, "a client certificate names no user");
            None
        }
    }
}

/// May this user do that?
pub fn authorize(
    gate: &Gate,
    registry: &Registry,
    user: &User,
    (info, resolved): (&RequestInfo, &Resolved<'_>),
    query: &Query,
) -> Result<(), Error> {
    if info.path == BACKUP_PATH {
        let backup = Attributes::resource(user, BACKUP_PERMISSION.0, BACKUP_PERMISSION.1, BACKUP_PERMISSION.2);
        return require(gate, registry, &backup);
    }
    let selector = authorized_selector(info, query);
    // The very place that the registry goes to. Where there is nothing, what the path says: nobody learns more than they
    // may.
    let namespace = match resolved {
        Resolved::Resource(request) => request.authorized_namespace(),
        Resolved::Path | Resolved::Remote(_) | Resolved::Nothing(_) => &info.namespace,
    };
    require(gate, registry, &attributes(user, info, namespace, selector.as_ref()))
}

/// May they do something else to the same objects as well?
pub fn require_verb(
    gate: &Gate,
    registry: &Registry,
    user: &User,
    request: &ResourceRequest<'_>,
    verb: &str,
) -> Result<(), Error> {
    require(gate, registry, &attributes_of_verb(user, request, verb))
}

/// The same as a decision, for those who have words of their own for a refusal.
pub fn decide_verb(
    gate: &Gate,
    registry: &Registry,
    user: &User,
    request: &ResourceRequest<'_>,
    verb: &str,
) -> Decision {
    gate.decide(registry, &attributes_of_verb(user, request, verb))
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
    selector: Option<&'a Selector>,
) -> Attributes<'a> {
    // A list that is narrowed to one name is as good as a request for that name.
    let name = match (info.verb, selector) {
        ("list" | "watch", Some(selector)) if info.name.is_empty() => {
            let name = equal_to(selector, "metadata.name").unwrap_or_default();
            if is_path_segment(name) { name } else { "" }
        }
        _ => &info.name,
    };
    Attributes {
        namespace,
        name,
        field_selector: selector,
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
    }
}

/// The selector that authorizers may go by. Those who put the verb into the path have none.
fn authorized_selector(info: &RequestInfo, query: &Query) -> Option<Selector> {
    match info.verb {
        "list" | "watch" | "deletecollection" if !info.is_verb_in_path => {
            query.text("fieldSelector").and_then(|text| parse_fields(text).ok())
        }
        _ => None,
    }
}

fn require(gate: &Gate, registry: &Registry, attributes: &Attributes<'_>) -> Result<(), Error> {
    match gate.decide(registry, attributes) {
        Decision::Allow(_) => Ok(()),
        Decision::Deny(reason) | Decision::NoOpinion(reason) => Err(auth::forbidden(attributes, &reason)),
    }
}

fn bearer(header: &str) -> Option<&str> {
    let (scheme, token) = header.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then(|| token.trim())
        .filter(|token| !token.is_empty())
}

/// What tokens are bound to, as the registry has it.
struct RegistryObjects<'a>(&'a Registry);

impl Objects for RegistryObjects<'_> {
    fn identity(&self, resource: &'static Resource, namespace: &str, name: &str) -> Option<Identity> {
        let object = self.0.lookup().get(resource, namespace, name)?;
        let metadata = &object["metadata"];
        let deleted = metadata["deletionTimestamp"]
            .as_str()
            .and_then(|text| schema::time::parse(text).ok());
        Some(Identity {
            uid: metadata["uid"].as_str().unwrap_or_default().to_owned(),
            deleted_at: deleted.map(|instant| instant.seconds),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(authorization: Vec<AuthorizationMode>) -> Gate {
        Gate::new(GateOptions {
            tokens: TokenFile::default(),
            service_accounts: ServiceAccounts::new(vec!["issuer".to_owned()], Vec::new(), None, Vec::new()),
            key_set_address: None,
            allow_anonymous: true,
            authorization,
        })
    }

    #[test]
    fn where_everyone_may_do_everything_nobody_is_anonymous() {
        use AuthorizationMode::{AlwaysAllow, Node, Rbac};
        assert!(gate(vec![Node, Rbac]).authenticators.allow_anonymous);
        assert!(!gate(vec![AlwaysAllow]).authenticators.allow_anonymous);
        assert!(!gate(vec![Node, Rbac, AlwaysAllow]).authenticators.allow_anonymous);
    }

    #[test]
    fn a_certificate_counts_until_it_expires_however_old_the_connection() {
        let certificate = ClientCertificate {
            user: Arc::new(User::system("system:node:a", &["system:nodes"])),
            expires: 100,
        };
        let name = |has_token, now| {
            certified(Some(&certificate), has_token, now).map(|user| user.map(|user| user.name.clone()))
        };
        assert_eq!(name(false, 100), Ok(Some("system:node:a".to_owned())));
        assert_eq!(name(true, 101), Ok(None), "the token decides");
        assert_eq!(name(false, 101).unwrap_err().reason, Reason::Unauthorized);
        assert!(certified(None, false, 101).is_ok_and(|user| user.is_none()));
    }
}
