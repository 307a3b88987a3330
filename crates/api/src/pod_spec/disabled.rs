//! What a pod or a template of one may say without being heard: annotations of another time, and features that upstream
//! has off.

use crate::{Fields, Value};

/// The same for the template that stands at `path` of a workload.
pub(crate) fn drop_disabled_in(object: &mut Value, old: &Value, path: &[&str]) {
    let (mut at, mut before) = (object, old);
    for step in path.iter().chain(&["spec"]) {
        before = &before[*step];
        match at.child_mut(step) {
            Some(child) => at = child,
            None => return,
        }
    }
    drop_disabled(at, before);
}

/// Annotations that once were what fields are now; what the fields say counts.
pub(crate) fn drop_old_annotations(object: &mut Value) {
    let Some(annotations) = object
        .child_mut("metadata")
        .and_then(|metadata| metadata.child_mut("annotations"))
    else {
        return;
    };
    for stage in ["alpha", "beta"] {
        for what in ["init-containers", "init-container-statuses"] {
            annotations.remove(&format!("pod.{stage}.kubernetes.io/{what}"));
        }
    }
}

/// Sources of projected volumes, and what of a container's life cycle, only clusters with the feature have; upstream has
/// them off unless told otherwise. What a pod already has stays.
const DISABLED_SOURCES: [&str; 2] = ["clusterTrustBundle", "podCertificate"];

pub(crate) fn drop_disabled(spec: &mut Value, old: &Value) {
    let volumes = |spec: &Value, source: &str| {
        let volumes = spec.list("volumes").iter();
        let mut sources = volumes.flat_map(|volume| volume["projected"].list("sources"));
        sources.any(|projection| projection.has(source))
    };
    for source in DISABLED_SOURCES.into_iter().filter(|source| !volumes(old, source)) {
        for volume in spec.list_mut("volumes") {
            let projected = volume.child_mut("projected");
            for projection in projected
                .map(|projected| projected.list_mut("sources"))
                .unwrap_or_default()
            {
                projection.remove(source);
            }
        }
    }
    let lists = ["containers", "initContainers", "ephemeralContainers"];
    let stops = |spec: &Value| {
        let mut containers = lists.iter().flat_map(|list| spec.list(list));
        containers.any(|container| container["lifecycle"].has("stopSignal"))
    };
    if !stops(old) {
        for list in lists {
            for container in spec.list_mut(list) {
                let lifecycle = container.child_mut("lifecycle");
                let dropped = lifecycle.is_some_and(|lifecycle| {
                    let dropped = lifecycle.remove("stopSignal").is_some();
                    dropped && lifecycle.as_object().is_some_and(|left| left.is_empty())
                });
                if dropped {
                    container.remove("lifecycle");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_off_is_dropped_unless_it_is_there_already() {
        let spec = json!({
            "containers": [{"lifecycle": {"stopSignal": "SIGTERM"}}],
            "volumes": [{"projected": {"sources": [{"clusterTrustBundle": {"path": "a"}}]}}],
        });
        let mut new = json!({"template": {"spec": spec}});
        drop_disabled_in(&mut new, &json!({"template": {"spec": spec}}), &["template"]);
        assert_eq!(new["template"]["spec"], spec);
        drop_disabled_in(&mut new, &Value::Null, &["template"]);
        let expected = json!({
            "containers": [{}], "volumes": [{"projected": {"sources": [{}]}}],
        });
        assert_eq!(new["template"]["spec"], expected);
    }
}
