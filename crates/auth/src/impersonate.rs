//! Acting as somebody else: which ways there are, and what each asks of the one who wants it.
//!
//! The constrained ways ask for two rights, one to be that user and one to do this very thing as such a user. The old
//! way asks for the first alone and gives everything that the user may do.

use api::{Error, FieldError, Path, names};

use crate::User;
use crate::authorize::{Attributes, Decision, forbidden};
use crate::user::{ANONYMOUS, AUTHENTICATED, MASTERS, NODES, UNAUTHENTICATED};

const GROUP: &str = "authentication.k8s.io";
const NODE_PREFIX: &str = "system:node:";
/// What a service account's token says of the node that its pod is on.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
/// From so many values on, the right to all of them is asked for first.
const MANY: usize = 4;
/// What a path may consist of besides letters and digits.
const PATH_PUNCTUATION: &str = "/-._~%!$&'()*+,;=:";

/// Answers whether the attributes are allowed.
pub type AskAuthorizer<'a> = &'a dyn Fn(&Attributes<'_>) -> Decision;

/// A way to become another user, in the order in which they are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A service account becomes the node that its pod is on.
    AssociatedNode,
    ArbitraryNode,
    ServiceAccount,
    /// Users that are neither, with whatever groups and extra values they have.
    UserInfo,
    /// The old way.
    Legacy,
}

const MODES: [Mode; 5] = [
    Mode::AssociatedNode,
    Mode::ArbitraryNode,
    Mode::ServiceAccount,
    Mode::UserInfo,
    Mode::Legacy,
];

/// The user that a request is to be made as, who is named by headers and is nobody yet; `request` is what its real user
/// asks for. The first way that is open counts, beginning with the one that was open last; if none is, the first refusal.
pub fn impersonate(
    ask: AskAuthorizer<'_>,
    request: &Attributes<'_>,
    wanted: &User,
    last: Option<Mode>,
) -> Result<(User, Mode), Error> {
    let mut refusal = None;
    let others = MODES.into_iter().filter(|mode| Some(*mode) != last);
    let modes = last.into_iter().chain(others);
    for mode in modes.filter(|mode| mode.fits(wanted, request.user)) {
        match mode.check(ask, request, wanted) {
            Ok(user) => return Ok((user, mode)),
            Err(error) => drop(refusal.get_or_insert(error)),
        }
    }
    Err(refusal.unwrap_or_else(|| Error::internal("all impersonation modes failed")))
}

impl Mode {
    fn verb(self) -> &'static str {
        match self {
            Mode::AssociatedNode => "impersonate:associated-node",
            Mode::ArbitraryNode => "impersonate:arbitrary-node",
            Mode::ServiceAccount => "impersonate:serviceaccount",
            Mode::UserInfo => "impersonate:user-info",
            Mode::Legacy => "impersonate",
        }
    }

    fn fits(self, wanted: &User, requestor: &User) -> bool {
        let is_bare = wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty();
        let node = node_of(&wanted.name);
        let is_account = wanted.as_service_account().is_some();
        match self {
            Mode::AssociatedNode => is_bare && node.is_some() && node_of_account(requestor) == node,
            Mode::ArbitraryNode => is_bare && node.is_some(),
            Mode::ServiceAccount => is_bare && is_account,
            Mode::UserInfo => node.is_none() && !is_account,
            Mode::Legacy => true,
        }
    }

    fn check(self, ask: AskAuthorizer<'_>, request: &Attributes<'_>, wanted: &User) -> Result<User, Error> {
        if self != Mode::Legacy {
            let mode = self.verb().trim_start_matches("impersonate:");
            let verb = format!("impersonate-on:{mode}:{}", request.verb);
            require(
                ask,
                &Attributes {
                    verb: &verb,
                    ..*request
                },
            )?;
        }
        let mut user = wanted.clone();
        self.check_name(ask, request.user, wanted, &mut user.groups)?;
        self.check_uid(ask, request.user, &wanted.uid)?;
        self.check_groups(ask, request.user, &wanted.groups)?;
        self.check_extra(ask, request.user, wanted)?;
        let implied = match user.name.as_str() {
            ANONYMOUS => UNAUTHENTICATED,
            _ if user.is_in(UNAUTHENTICATED) => return Ok(user),
            _ => AUTHENTICATED,
        };
        if !user.is_in(implied) {
            user.groups.push(implied.to_owned());
        }
        Ok(user)
    }

    /// Nodes and service accounts have the groups that all of them have.
    fn check_name(
        self,
        ask: AskAuthorizer<'_>,
        requestor: &User,
        wanted: &User,
        groups: &mut Vec<String>,
    ) -> Result<(), Error> {
        let group = if self == Mode::Legacy { "" } else { GROUP };
        let of = |resource: &'static str| Attributes::resource(requestor, self.verb(), group, resource);
        if let Some(node) = node_of(&wanted.name).filter(|_| self != Mode::Legacy) {
            *groups = vec![NODES.to_owned()];
            // A pod of the account may be on any node.
            let name = if self == Mode::AssociatedNode { "*" } else { node };
            return require(ask, &of("nodes").named("", name));
        }
        let Some((namespace, name)) = wanted.as_service_account() else {
            return require(ask, &of("users").named("", &wanted.name));
        };
        if groups.is_empty() {
            *groups = User::service_account(namespace, name, "").groups;
        }
        require(ask, &of("serviceaccounts").named(namespace, name))
    }

    fn check_uid(self, ask: AskAuthorizer<'_>, requestor: &User, uid: &str) -> Result<(), Error> {
        match uid {
            "" => Ok(()),
            uid => require(
                ask,
                &Attributes::resource(requestor, self.verb(), GROUP, "uids").named("", uid),
            ),
        }
    }

    fn check_groups(self, ask: AskAuthorizer<'_>, requestor: &User, groups: &[String]) -> Result<(), Error> {
        let group = if self == Mode::Legacy { "" } else { GROUP };
        let attributes = Attributes::resource(requestor, self.verb(), group, "groups");
        if self != Mode::Legacy {
            if groups.iter().any(String::is_empty) {
                let why = "impersonating the empty string group is not allowed";
                return Err(forbidden(&attributes, why));
            }
            if groups.iter().any(|group| group == MASTERS) {
                let why = "impersonating the system:masters group is not allowed";
                return Err(forbidden(&attributes.named("", MASTERS), why));
            }
            if groups.len() >= MANY && require(ask, &attributes.named("", "*")).is_ok() {
                return Ok(());
            }
        }
        groups
            .iter()
            .try_for_each(|group| require(ask, &attributes.named("", group)))
    }

    fn check_extra(self, ask: AskAuthorizer<'_>, requestor: &User, wanted: &User) -> Result<(), Error> {
        let attributes = Attributes::resource(requestor, self.verb(), GROUP, "userextras");
        if self != Mode::Legacy {
            check_extra_form(wanted).map_err(|why| forbidden(&attributes, &why))?;
            let values = wanted.extra.values().map(Vec::len).sum::<usize>();
            let is_many = wanted.extra.len().max(values) >= MANY;
            if is_many && require(ask, &attributes.subresource("*").named("", "*")).is_ok() {
                return Ok(());
            }
        }
        for (key, values) in &wanted.extra {
            for value in values {
                require(ask, &attributes.subresource(key).named("", value))?;
            }
        }
        Ok(())
    }
}

fn require(ask: AskAuthorizer<'_>, attributes: &Attributes<'_>) -> Result<(), Error> {
    match ask(attributes) {
        Decision::Allow(_) => Ok(()),
        Decision::Deny(reason) | Decision::NoOpinion(reason) => Err(forbidden(attributes, &reason)),
    }
}

/// The node that a user's name is of, whatever groups they are in.
fn node_of(name: &str) -> Option<&str> {
    let node = name.strip_prefix(NODE_PREFIX)?;
    names::dns1123_subdomain(node, false).is_empty().then_some(node)
}

/// The node that a service account's pod is on.
fn node_of_account(user: &User) -> Option<&str> {
    user.as_service_account()?;
    match user.extra.get(NODE_NAME)?.as_slice() {
        [node] => Some(node),
        _ => None,
    }
}

/// Extra values that could be mistaken for others.
fn check_extra_form(wanted: &User) -> Result<(), String> {
    for (key, values) in &wanted.extra {
        if key.is_empty() {
            return Err("impersonating the empty string key in extra is not allowed".to_owned());
        }
        if let Some(problem) = key_problem(key) {
            return Err(format!(
                "impersonating an invalid key in extra is not allowed: {problem}"
            ));
        }
        if *key != key.to_lowercase() {
            return Err(format!(
                "impersonating a non-lowercase key in extra is not allowed: {key:?}"
            ));
        }
        if values.is_empty() {
            return Err("impersonating empty values in extra is not allowed".to_owned());
        }
        if values.iter().any(String::is_empty) {
            return Err("impersonating the empty string value in extra is not allowed".to_owned());
        }
    }
    Ok(())
}

/// A key is a domain and a path.
fn key_problem(key: &str) -> Option<FieldError> {
    let at = Path::new("extra").child("key");
    let parts = key
        .split_once('/')
        .filter(|(host, path)| !host.is_empty() && !path.is_empty());
    let Some((host, path)) = parts else {
        let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
        return Some(FieldError::invalid(&at, key, detail));
    };
    if let Some(problem) = names::dns1123_subdomain(host, false).into_iter().next() {
        return Some(FieldError::invalid(&at, host, problem));
    }
    let is_known = |character: char| character.is_ascii_alphanumeric() || PATH_PUNCTUATION.contains(character);
    match path.chars().all(is_known) {
        true => None,
        false => Some(FieldError::invalid(
            &at,
            path,
            "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')",
        )),
    }
}

#[cfg(test)]
mod tests;
