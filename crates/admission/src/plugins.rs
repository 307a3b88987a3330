//! The in-tree plugins, one file each, in the order in which upstream runs them.

mod certificates;
mod claim_resize;
mod default_ingress_class;
mod default_storage_class;
mod default_toleration_seconds;
mod deny_service_external_ips;
mod limit_ranger;
mod namespace_lifecycle;
mod network_policy_enforcement;
mod node_restriction;
mod pod_security;
mod pod_topology_labels;
mod priority;
mod resource_quota;
mod runtime_class;
mod service_account;
mod storage_protection;
mod taint_nodes;

use crate::settings::Settings;
use crate::{Chain, Plugin, policy, webhook};

/// Why the chain cannot be built from the names in `--enable-admission-plugins` and `--disable-admission-plugins`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PluginNameError {
    #[error("there is no admission plugin {0:?}")]
    Unknown(String),
    #[error("the admission plugin {0:?} is not supported yet")]
    Unsupported(String),
}

/// A plugin that can be switched on and off by name.
pub struct Row {
    pub name: &'static str,
    pub on_by_default: bool,
    make: fn(&Settings) -> Box<dyn Plugin>,
}

#[rustfmt::skip]
pub static TABLE: &[Row] = &[
    Row::on("NamespaceLifecycle", |_| Box::new(namespace_lifecycle::NamespaceLifecycle)),
    Row::on("LimitRanger", |_| Box::new(limit_ranger::LimitRanger)),
    Row::on("ServiceAccount", |_| Box::new(service_account::ServiceAccount::default())),
    // Upstream leaves this one off, but every installer switches it on with the Node authorizer.
    Row::on("NodeRestriction", |settings| Box::new(node_restriction::NodeRestriction(settings.authorizer.clone()))),
    Row::on("TaintNodesByCondition", |_| Box::new(taint_nodes::TaintNodesByCondition)),
    Row::on("Priority", |_| Box::new(priority::Priority)),
    Row::on("DefaultTolerationSeconds", |_| Box::new(default_toleration_seconds::DefaultTolerationSeconds)),
    Row::on("DefaultStorageClass", |_| Box::new(default_storage_class::DefaultStorageClass)),
    Row::on("StorageObjectInUseProtection", |_| Box::new(storage_protection::StorageObjectInUseProtection)),
    Row::on("PersistentVolumeClaimResize", |_| Box::new(claim_resize::PersistentVolumeClaimResize)),
    Row::on("RuntimeClass", |_| Box::new(runtime_class::RuntimeClass)),
    Row::on("CertificateApproval", |settings| Box::new(certificates::Approval(settings.authorizer.clone()))),
    Row::on("CertificateSigning", |settings| Box::new(certificates::Signing(settings.authorizer.clone()))),
    Row::on("CertificateSubjectRestriction", |_| Box::new(certificates::SubjectRestriction)),
    Row::on("DefaultIngressClass", |_| Box::new(default_ingress_class::DefaultIngressClass)),
    Row::off("DenyServiceExternalIPs", |_| Box::new(deny_service_external_ips::DenyServiceExternalIPs)),
    Row::on("PodTopologyLabels", |_| Box::new(pod_topology_labels::PodTopologyLabels)),
    Row::on("PodSecurity", |_| Box::new(pod_security::PodSecurity)),
    // Not one of upstream's, which knows nothing of the networks that enforce policies.
    Row::on("NetworkPolicyEnforcement", |_| Box::new(network_policy_enforcement::NetworkPolicyEnforcement)),
    // Those that the cluster's owner writes come after ours and see what ours made of the object.
    Row::on("MutatingAdmissionPolicy", |settings| Box::new(policy::Mutating::new(settings))),
    Row::on("MutatingAdmissionWebhook", |settings| Box::new(webhook::Mutating::new(settings))),
    Row::on("ValidatingAdmissionPolicy", |settings| Box::new(policy::Validating::new(settings))),
    Row::on("ValidatingAdmissionWebhook", |settings| Box::new(webhook::Validating::new(settings))),
    // The last, so that nothing is charged for what another plugin refuses.
    Row::on("ResourceQuota", |_| Box::new(resource_quota::ResourceQuota)),
];

/// Upstream's plugins that are on by default there and not written yet. They can be disabled, which changes nothing, but
/// not enabled.
pub const ABSENT: &[&str] = &["ClusterTrustBundleAttest"];

impl Row {
    const fn on(name: &'static str, make: fn(&Settings) -> Box<dyn Plugin>) -> Row {
        Row {
            name,
            on_by_default: true,
            make,
        }
    }

    const fn off(name: &'static str, make: fn(&Settings) -> Box<dyn Plugin>) -> Row {
        Row {
            name,
            on_by_default: false,
            make,
        }
    }
}

/// The chain with the defaults, changed by what `--enable-admission-plugins` and `--disable-admission-plugins` name.
/// A name that is not known is an error.
pub fn chain(settings: &Settings, enable: &[String], disable: &[String]) -> Result<Chain, PluginNameError> {
    let is_absent = |name: &&String| ABSENT.contains(&name.as_str());
    let is_known = |name: &&String| TABLE.iter().any(|row| row.name == **name) || is_absent(name);
    if let Some(unknown) = enable.iter().chain(disable).find(|name| !is_known(name)) {
        return Err(PluginNameError::Unknown(unknown.clone()));
    }
    if let Some(absent) = enable.iter().find(is_absent) {
        return Err(PluginNameError::Unsupported(absent.clone()));
    }
    let named = |names: &[String], row: &Row| names.iter().any(|name| name == row.name);
    let wanted = TABLE
        .iter()
        .filter(|row| named(enable, row) || row.on_by_default && !named(disable, row));
    Ok(Chain::new(wanted.map(|row| (row.make)(settings)).collect()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn plugins_are_switched_by_name() {
        let settings = Settings {
            authorizer: Arc::new(auth::authorize::AlwaysAllow),
        };
        let names = |wanted: fn(&&Row) -> bool| TABLE.iter().filter(wanted).map(|row| row.name).collect::<Vec<_>>();
        let defaults = chain(&settings, &[], &[]).unwrap();
        assert_eq!(defaults.names(), names(|row| row.on_by_default));
        let all = chain(&settings, &["DenyServiceExternalIPs".to_owned()], &[]).unwrap();
        assert_eq!(all.names(), names(|_| true));
        let fewer = chain(&settings, &[], &["Priority".to_owned()]).unwrap();
        assert!(!fewer.names().contains(&"Priority"));
        assert_eq!(
            chain(&settings, &["X".to_owned()], &[]).err().unwrap().to_string(),
            "there is no admission plugin \"X\""
        );
    }
}
