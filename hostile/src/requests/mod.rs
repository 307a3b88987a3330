//! What users and clients ask for.

mod aggregated;
mod certificates;
mod collector;
mod connections;
mod dry_run;
mod escalation;
mod external_addresses;
mod identity;
mod loopback;
mod paths;
mod pod_security;
mod scope;
mod tokens;
mod updates;
mod upgrades;

use anyhow::Result;
use serde_json::Value;

use crate::cases::Case;
use crate::client::{Client, JSON, MERGE_PATCH};
use crate::verdict::Verdict;

pub const CASES: &[Case] = &[
    scope::CLUSTER_KIND_IN_NAMESPACE,
    upgrades::GET_EXECUTES,
    updates::PUT_CREATES,
    pod_security::OTHER_SYSTEM,
    identity::IMPERSONATION,
    identity::PROXY_HEADERS,
    identity::ANONYMOUS_WITH_ALL_RIGHTS,
    dry_run::EMPTY_DRY_RUN,
    paths::ENCODED_PATHS,
    certificates::CERTIFICATE_REQUESTS,
    tokens::TAMPERED_TOKENS,
    escalation::RIGHTS_FOR_ONESELF,
    escalation::QUOTA_RACE,
    escalation::EPHEMERAL_CONTAINERS,
    connections::AFTER_A_REFUSED_UPGRADE,
    connections::REDIRECTS,
    loopback::ENDPOINTS_ON_LOOPBACK,
    aggregated::ENCODED_SLASHES,
    aggregated::DOCUMENTS_AS_MASTERS,
    collector::OWNERS_THAT_LEAD_NOWHERE,
    external_addresses::DENIED_EXTERNAL_ADDRESSES,
];

/// One request that must not be answered with success.
fn refused(client: &Client, method: &str, path: &str, body: Option<&Value>) -> Result<Verdict> {
    let content_type = if method == "PATCH" { MERGE_PATCH } else { JSON };
    let response = match body {
        Some(body) => client.body(method, path, content_type, body)?,
        None => client.send(method, path, &[], &[])?,
    };
    Ok(match response.is_success() {
        true => Verdict::Succeeded(format!("{method} {path} was answered {}", response.status)),
        false => Verdict::Blocked(format!("{method} {path}: {}", response.summary())),
    })
}
