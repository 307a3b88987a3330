//! What a pod refers to: a node may make no pod that refers to other objects, and gets tokens only for audiences that
//! a pod of its own names.

use std::sync::Arc;

use api::kinds::csi_driver::CSI_DRIVER;
use api::kinds::persistent_volume::PERSISTENT_VOLUME;
use api::kinds::persistent_volume_claim::PERSISTENT_VOLUME_CLAIM;
use api::{Fields, Value};
use auth::authorize::node::{Kind, pod_references};

use crate::Lookup;

/// The sources of volumes that need an object of the API, besides those that hold a Secret or ConfigMap.
const VOLUME_SOURCES: &[(&str, &str)] = &[
    ("csi", "csidrivers (via CSI volumes)"),
    ("glusterfs", "endpoints (via glusterFS volumes)"),
    ("persistentVolumeClaim", "persistentvolumeclaims"),
    ("ephemeral", "persistentvolumeclaims (via ephemeral volumes)"),
    ("azureFile", "secrets (via azureFile volumes)"),
];

const PROJECTED_SOURCES: &[(&str, &str)] = &[
    ("serviceAccountToken", "serviceaccounts (via projected volumes)"),
    ("clusterTrustBundle", "clustertrustbundles"),
    ("podCertificate", "podcertificates"),
];

/// The first resource that the pod refers to, if any.
pub fn referenced_resource(pod: &Value) -> Option<&'static str> {
    let references = pod_references(pod);
    let named = [
        (Kind::ServiceAccount, "serviceaccounts"),
        (Kind::Secret, "secrets"),
        (Kind::ConfigMap, "configmaps"),
    ];
    let found = named
        .into_iter()
        .find(|(kind, _)| references.iter().any(|(other, _)| other == kind));
    if let Some((_, resource)) = found {
        return Some(resource);
    }
    if !pod["spec"].list("resourceClaims").is_empty() {
        return Some("resourceclaims");
    }
    pod["spec"].list("volumes").iter().find_map(|volume| {
        let own = source_in(volume, VOLUME_SOURCES);
        let projected = || volume["projected"].list("sources").iter();
        own.or_else(|| projected().find_map(|source| source_in(source, PROJECTED_SOURCES)))
    })
}

fn source_in(holder: &Value, table: &[(&str, &'static str)]) -> Option<&'static str> {
    let row = table.iter().find(|(source, _)| holder.has(source));
    row.map(|(_, resource)| *resource)
}

/// Whether a volume of the pod needs a token for the audience: a projected one, or one whose CSI driver asks for it.
pub fn needs_audience(pod: &Value, audience: &str, lookup: &dyn Lookup) -> bool {
    pod["spec"].list("volumes").iter().any(|volume| {
        let projected = volume["projected"].list("sources").iter();
        let mut tokens = projected.filter(|source| source.has("serviceAccountToken"));
        tokens.any(|source| source["serviceAccountToken"].text("audience") == audience)
            || csi_driver(pod, volume, lookup).is_some_and(|driver| {
                let requests = driver["spec"].list("tokenRequests");
                requests.iter().any(|request| request.text("audience") == audience)
            })
    })
}

/// The driver behind a volume: named by it, or by the PersistentVolume that its claim is bound to.
fn csi_driver(pod: &Value, volume: &Value, lookup: &dyn Lookup) -> Option<Arc<Value>> {
    let generated = format!("{}-{}", pod["metadata"].text("name"), volume.text("name"));
    let claim = match volume["persistentVolumeClaim"].text("claimName") {
        "" if volume.has("ephemeral") => generated.as_str(),
        claim => claim,
    };
    if claim.is_empty() {
        return lookup.get(&CSI_DRIVER, "", volume["csi"].text("driver"));
    }
    let claim = lookup.get(&PERSISTENT_VOLUME_CLAIM, pod["metadata"].text("namespace"), claim)?;
    let bound = lookup.get(&PERSISTENT_VOLUME, "", claim["spec"].text("volumeName"))?;
    lookup.get(&CSI_DRIVER, "", bound["spec"]["csi"].text("driver"))
}
