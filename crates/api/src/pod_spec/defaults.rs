//! What a pod or a template of one gets where the user said nothing.
//!
//! Controllers of every origin compare templates, so these must be exactly upstream's: one default more or less and a
//! swap of components starts a rollout.

use serde_json::json;

use super::{drop_old_annotations, pull_policy};
use crate::{Fields, Value};

/// Seconds a container has to stop.
const TERMINATION_GRACE_PERIOD_SECONDS: i64 = 30;
/// Files of secrets, config maps and the like: 0644.
const VOLUME_FILE_MODE: i64 = 0o644;
/// Seconds a projected service account token is valid.
const TOKEN_EXPIRATION_SECONDS: i64 = 3600;

/// Defaults `spec.template` of the workload whose `spec` is given.
pub fn default_template(spec: &mut Value) {
    let template = spec.ensure("template");
    drop_old_annotations(template);
    default_pod_spec(template.ensure("spec"));
}

/// The defaults that hold in a pod as well as in a template.
pub fn default_pod_spec(spec: &mut Value) {
    spec.fill("dnsPolicy", "ClusterFirst");
    spec.fill("restartPolicy", "Always");
    spec.fill("securityContext", json!({}));
    spec.fill("terminationGracePeriodSeconds", TERMINATION_GRACE_PERIOD_SECONDS);
    spec.fill("schedulerName", "default-scheduler");
    // The old name of the field is kept equal for clients that still read it.
    let account = spec.text("serviceAccountName").to_owned();
    let deprecated = spec.text("serviceAccount").to_owned();
    if account.is_empty() {
        if !deprecated.is_empty() {
            spec.set("serviceAccountName", deprecated);
        }
    } else {
        spec.set("serviceAccount", account);
    }
    for volume in spec.list_mut("volumes") {
        default_volume(volume);
    }
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for container in spec.list_mut(list) {
            default_container(container);
        }
    }
}

/// An ephemeral container is defaulted like any other.
pub fn default_container(container: &mut Value) {
    let policy = pull_policy(container.text("image"));
    container.fill("imagePullPolicy", policy);
    container.fill("terminationMessagePath", "/dev/termination-log");
    container.fill("terminationMessagePolicy", "File");
    container.fill("resources", json!({}));
    for port in container.list_mut("ports") {
        port.fill("protocol", "TCP");
    }
    for variable in container.list_mut("env") {
        if let Some(source) = variable.child_mut("valueFrom") {
            default_field_reference(source);
            if let Some(file) = source.child_mut("fileKeyRef") {
                file.fill("optional", false);
            }
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.child_mut(probe) {
            default_probe(probe);
        }
    }
    if let Some(lifecycle) = container.child_mut("lifecycle") {
        for hook in ["postStart", "preStop"] {
            if let Some(hook) = lifecycle.child_mut(hook) {
                default_http_get(hook);
            }
        }
    }
}

fn default_probe(probe: &mut Value) {
    probe.fill_zero("timeoutSeconds", 1);
    probe.fill_zero("periodSeconds", 10);
    probe.fill_zero("successThreshold", 1);
    probe.fill_zero("failureThreshold", 3);
    default_http_get(probe);
    if let Some(grpc) = probe.child_mut("grpc")
        && !grpc.has("service")
    {
        grpc.set("service", "");
    }
}

fn default_http_get(handler: &mut Value) {
    if let Some(request) = handler.child_mut("httpGet") {
        request.fill("path", "/");
        request.fill("scheme", "HTTP");
    }
}

fn default_field_reference(source: &mut Value) {
    if let Some(reference) = source.child_mut("fieldRef") {
        reference.fill("apiVersion", "v1");
    }
}

/// A volume that names no source is an empty directory.
fn default_volume(volume: &mut Value) {
    let sources = volume
        .as_object()
        .map_or(0, |fields| fields.keys().filter(|key| *key != "name").count());
    if sources == 0 {
        volume.set("emptyDir", json!({}));
    }
    for source in ["secret", "configMap"] {
        if let Some(source) = volume.child_mut(source) {
            source.fill("defaultMode", VOLUME_FILE_MODE);
        }
    }
    if let Some(downward) = volume.child_mut("downwardAPI") {
        downward.fill("defaultMode", VOLUME_FILE_MODE);
        downward.list_mut("items").iter_mut().for_each(default_field_reference);
    }
    if let Some(projected) = volume.child_mut("projected") {
        projected.fill("defaultMode", VOLUME_FILE_MODE);
        projected.list_mut("sources").iter_mut().for_each(default_projection);
    }
    if let Some(host_path) = volume.child_mut("hostPath")
        && !host_path.has("type")
    {
        host_path.set("type", "");
    }
    if let Some(claim) = volume
        .child_mut("ephemeral")
        .and_then(|ephemeral| ephemeral.child_mut("volumeClaimTemplate"))
    {
        let claim = claim.ensure("spec");
        claim.fill_absent("volumeMode", "Filesystem");
    }
    if let Some(image) = volume.child_mut("image") {
        let policy = pull_policy(image.text("reference"));
        image.fill("pullPolicy", policy);
    }
    default_legacy_volume(volume);
}

fn default_projection(projection: &mut Value) {
    if let Some(downward) = projection.child_mut("downwardAPI") {
        downward.list_mut("items").iter_mut().for_each(default_field_reference);
    }
    if let Some(token) = projection.child_mut("serviceAccountToken") {
        token.fill("expirationSeconds", TOKEN_EXPIRATION_SECONDS);
    }
}

/// Sources whose drivers are gone from upstream but whose fields are still served, here and in PersistentVolumes.
pub(crate) fn default_legacy_volume(source: &mut Value) {
    if let Some(iscsi) = source.child_mut("iscsi") {
        iscsi.fill("iscsiInterface", "default");
    }
    if let Some(rbd) = source.child_mut("rbd") {
        rbd.fill("pool", "rbd");
        rbd.fill("user", "admin");
        rbd.fill("keyring", "/etc/ceph/keyring");
    }
    if let Some(scale_io) = source.child_mut("scaleIO") {
        scale_io.fill("storageMode", "ThinProvisioned");
        scale_io.fill("fsType", "xfs");
    }
    if let Some(azure) = source.child_mut("azureDisk") {
        azure.fill("cachingMode", "ReadWrite");
        azure.fill("kind", "Shared");
        azure.fill("fsType", "ext4");
        azure.fill("readOnly", false);
    }
}
