//! What a pod's status may say.

use std::collections::HashSet;

use crate::names::{dns1123_subdomain, ip_address, label_key};
use crate::{Fields, Path, Problems, Value, repeats};
use serde_json::json;

/// `podIPs` starts with `podIP`; a kubelet may know only the older field, which then counts.
pub fn align_addresses(pod: &mut Value) {
    let Some(status) = pod.child_mut("status") else { return };
    let first = status
        .list("podIPs")
        .first()
        .map(|address| address.text("ip").to_owned());
    match (status.text("podIP").to_owned(), first) {
        (one, first) if one.is_empty() => {
            if let Some(first) = first.filter(|first| !first.is_empty()) {
                status.set("podIP", first);
            }
        }
        (one, first) if first.as_deref() != Some(&one) => status.set("podIPs", json!([{"ip": one}])),
        _ => {}
    }
}

pub fn validate(spec: &Value, new: &Value, old: &Value, path: &Path, problems: &mut Problems) {
    if old.has("qosClass") && new["qosClass"] != old["qosClass"] {
        problems.invalid(path, "qosClass", new["qosClass"].clone(), "field is immutable");
    }
    for (index, condition) in new.list("conditions").iter().enumerate() {
        let kind = condition.text("type");
        problems.form(&path.child("conditions").index(index), "Type", kind, label_key(kind));
    }
    validate_addresses(new, path, problems);
    for list in [
        "containerStatuses",
        "initContainerStatuses",
        "ephemeralContainerStatuses",
    ] {
        for (index, status) in new.list(list).iter().enumerate() {
            let path = path.child(list).index(index).child("user").child("linux");
            validate_user(&status["user"]["linux"], &path, problems);
        }
    }
    validate_claims(spec, new, &path.child("resourceClaimStatuses"), problems);
}

/// One address of each family.
fn validate_addresses(status: &Value, path: &Path, problems: &mut Problems) {
    let path = path.child("podIPs");
    let addresses: Vec<&str> = status.list("podIPs").iter().map(|address| address.text("ip")).collect();
    let repeated = repeats(&addresses);
    for (index, address) in addresses.iter().enumerate() {
        problems.form(&path.index(index), "", *address, ip_address(address));
        if repeated[index] {
            problems.duplicate(&path.index(index), "", status.list("podIPs")[index].clone());
        }
    }
    let families = addresses.iter().filter(|address| address.contains(':')).count();
    if addresses.len() > 1 && (families != 1 || addresses.len() > 2) {
        let detail = "may specify no more than one IP for each IP family";
        problems.invalid(&path, "", status["podIPs"].clone(), detail);
    }
}

fn validate_user(user: &Value, path: &Path, problems: &mut Problems) {
    let range = 0..=i64::from(i32::MAX);
    let detail = "must be between 0 and 2147483647, inclusive";
    for field in ["uid", "gid"] {
        if user.is_object() && !range.contains(&user.number(field)) {
            problems.invalid(path, field, user.number(field), detail);
        }
    }
    for (index, group) in user.list("supplementalGroups").iter().enumerate() {
        if !group.as_i64().is_some_and(|group| range.contains(&group)) {
            let path = path.child("supplementalGroups").index(index);
            problems.invalid(&path, "", group.clone(), detail);
        }
    }
}

fn validate_claims(spec: &Value, status: &Value, path: &Path, problems: &mut Problems) {
    let claims = status.list("resourceClaimStatuses");
    let of_pod: HashSet<&str> = spec
        .list("resourceClaims")
        .iter()
        .map(|claim| claim.text("name"))
        .collect();
    let repeated = repeats(claims.iter().map(|claim| claim.text("name")));
    for (index, claim) in claims.iter().enumerate() {
        let (path, name) = (path.index(index), claim.text("name"));
        if !of_pod.contains(name) {
            let detail = "must match the name of an entry in `spec.resourceClaims`";
            problems.invalid(&path, "name", name, detail);
        }
        if repeated[index] {
            problems.duplicate(&path, "name", name);
        }
        if let Some(target) = claim["resourceClaimName"].as_str() {
            problems.form(&path, "name", target, dns1123_subdomain(target, false));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_older_address_counts() {
        let aligned = |status: Value| {
            let mut pod = json!({"status": status});
            align_addresses(&mut pod);
            pod["status"].to_string()
        };
        assert_eq!(
            aligned(json!({"podIP": "1.2.3.5", "podIPs": [{"ip": "1.2.3.4"}]})),
            r#"{"podIP":"1.2.3.5","podIPs":[{"ip":"1.2.3.5"}]}"#
        );
        assert_eq!(
            aligned(json!({"podIPs": [{"ip": "1.2.3.4"}, {"ip": "::1"}]})),
            r#"{"podIP":"1.2.3.4","podIPs":[{"ip":"1.2.3.4"},{"ip":"::1"}]}"#
        );
    }

    #[test]
    fn a_status_names_what_there_is() {
        let mut problems = Problems::default();
        let new = json!({
            "qosClass": "Guaranteed",
            "conditions": [{"type": "bad type"}],
            "podIPs": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}],
            "resourceClaimStatuses": [{"name": "x"}],
            "containerStatuses": [{"user": {"linux": {"uid": -1, "gid": 0}}}],
        });
        let old = json!({"qosClass": "BestEffort"});
        validate(&json!({}), &new, &old, &Path::new("status"), &mut problems);
        let fields: Vec<String> = problems.into_vec().into_iter().map(|problem| problem.field).collect();
        assert_eq!(
            fields,
            [
                "status.qosClass",
                "status.conditions[0].Type",
                "status.podIPs",
                "status.containerStatuses[0].user.linux.uid",
                "status.resourceClaimStatuses[0].name",
            ]
        );
    }
}
