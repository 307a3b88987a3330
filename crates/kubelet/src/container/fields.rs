//! What a container may learn about its pod: `fieldRef` and `resourceFieldRef`.

use std::collections::BTreeMap;

use crate::pod::quantity::Milli;
use crate::pod::{Pod, ResourceFieldRef};

/// Facts about a running pod that its object may not show yet.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    pub pod_ips: Vec<String>,
    pub host_ips: Vec<String>,
    /// What a container without a limit could use at most: the node's allocatable.
    pub allocatable: BTreeMap<String, String>,
}

/// Why a `fieldRef` or `resourceFieldRef` has no value, in upstream's words where it has them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    #[error("unsupported fieldPath: {0}")]
    UnsupportedPath(String),
    #[error("container {0} not found")]
    UnknownContainer(String),
    #[error("unsupported container resource : {0}")]
    UnsupportedResource(String),
    #[error("{0:?} is not a quantity")]
    InvalidQuantity(String),
    #[error("divisor {0:?} is not positive")]
    InvalidDivisor(String),
}

/// The value at a field path. Labels and annotations as a whole are only allowed in volumes, one per line.
pub fn field(pod: &Pod, path: &str, facts: &Facts) -> Result<String, FieldError> {
    let metadata = &pod.metadata;
    if let Some((map, key)) = subscript(path) {
        let map = match map {
            "metadata.labels" => &metadata.labels,
            "metadata.annotations" => &metadata.annotations,
            _ => return Err(FieldError::UnsupportedPath(path.to_owned())),
        };
        return Ok(map.get(key).cloned().unwrap_or_default());
    }
    Ok(match path {
        "metadata.name" => metadata.name.clone(),
        "metadata.namespace" => metadata.namespace.clone(),
        "metadata.uid" => metadata.uid.clone(),
        "metadata.labels" => lines(&metadata.labels),
        "metadata.annotations" => lines(&metadata.annotations),
        "spec.nodeName" => pod.spec.node_name.clone(),
        "spec.serviceAccountName" => pod.spec.service_account_name.clone(),
        "status.hostIP" => facts.host_ips.first().cloned().unwrap_or_default(),
        "status.hostIPs" => facts.host_ips.join(","),
        "status.podIP" => facts.pod_ips.first().cloned().unwrap_or_default(),
        "status.podIPs" => facts.pod_ips.join(","),
        _ => return Err(FieldError::UnsupportedPath(path.to_owned())),
    })
}

/// A container's request or limit, divided and rounded up.
pub fn resource(pod: &Pod, own: &str, reference: &ResourceFieldRef, facts: &Facts) -> Result<String, FieldError> {
    let name = match reference.container_name.as_str() {
        "" => own,
        name => name,
    };
    let (_, container) = pod
        .container(name)
        .ok_or_else(|| FieldError::UnknownContainer(name.to_owned()))?;
    let resources = &container.resources;
    let unsupported = || FieldError::UnsupportedResource(reference.resource.clone());
    let (list, resource) = reference.resource.split_once('.').ok_or_else(unsupported)?;
    let text = match list {
        "limits" => resources
            .limits
            .get(resource)
            .or_else(|| facts.allocatable.get(resource)),
        "requests" => resources
            .requests
            .get(resource)
            .or_else(|| resources.limits.get(resource)),
        _ => return Err(unsupported()),
    };
    let parse = |text: &str| Milli::parse(text).ok_or_else(|| FieldError::InvalidQuantity(text.to_owned()));
    let value = text.map(|text| parse(text)).transpose()?.unwrap_or_default();
    let divisor = match reference.divisor.as_str() {
        "" | "0" => Milli(1000),
        divisor => parse(divisor)?,
    };
    if divisor.0 <= 0 {
        return Err(FieldError::InvalidDivisor(reference.divisor.clone()));
    }
    Ok(((value.0 + divisor.0 - 1) / divisor.0).to_string())
}

/// Splits `metadata.labels['key']`.
fn subscript(path: &str) -> Option<(&str, &str)> {
    path.strip_suffix("']")?.split_once("['")
}

fn lines(map: &BTreeMap<String, String>) -> String {
    let lines: Vec<String> = map.iter().map(|(key, value)| format!("{key}={value:?}")).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod() -> Pod {
        serde_saphyr::from_str(
            r#"
metadata: {name: web, namespace: ns, labels: {app: a, tier: "b c"}}
spec:
  containers: [{name: main, resources: {limits: {memory: 64Mi}, requests: {cpu: 250m}}}]
"#,
        )
        .unwrap()
    }

    #[test]
    fn fields_are_read_by_path() {
        let facts = Facts {
            pod_ips: vec!["10.0.0.1".into(), "fd00::1".into()],
            ..Facts::default()
        };
        let field = |path| field(&pod(), path, &facts);
        assert_eq!(field("metadata.labels['app']"), Ok("a".into()));
        assert_eq!(field("metadata.annotations['none']"), Ok(String::new()));
        assert_eq!(field("metadata.labels"), Ok("app=\"a\"\ntier=\"b c\"".into()));
        assert_eq!(field("status.podIPs"), Ok("10.0.0.1,fd00::1".into()));
        assert_eq!(
            field("spec.hostname"),
            Err(FieldError::UnsupportedPath("spec.hostname".into()))
        );
    }

    #[test]
    fn resources_are_divided_and_rounded_up() {
        let facts = Facts {
            allocatable: BTreeMap::from([("cpu".to_owned(), "2".to_owned())]),
            ..Facts::default()
        };
        let check = |name: &str, divisor: &str| {
            let reference = ResourceFieldRef {
                resource: name.to_owned(),
                divisor: divisor.to_owned(),
                ..ResourceFieldRef::default()
            };
            resource(&pod(), "main", &reference, &facts).unwrap()
        };
        assert_eq!(check("requests.cpu", ""), "1");
        assert_eq!(check("requests.cpu", "1m"), "250");
        assert_eq!(check("limits.memory", "1Mi"), "64");
        assert_eq!(
            check("limits.cpu", ""),
            "2",
            "without a limit it is the node's allocatable"
        );
    }
}
