//! Requests, limits, and references to them.

use std::collections::{HashMap, HashSet};

use schema::quantity::Quantity;

use crate::names::{dns1123_label, dns1123_subdomain, label_key};
use crate::pod_spec::resources::{is_pod_level, of_containers, read};
use crate::{FieldError, FieldProblem, Fields, Path, Problems, Value, texts};

const REFERABLE: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

pub fn validate_requirements(resources: &Value, path: &Path, problems: &mut Problems) {
    for list in ["limits", "requests"] {
        for (resource, quantity) in &read(resources, list) {
            let path = path.child(list).key(resource);
            validate_name(resource, &path, problems);
            validate_amount(resource, quantity, &path, problems);
            validate_pages(resource, quantity, &path, problems);
        }
    }
    validate_order(resources, path, problems);
    let says = |prefix: &str| {
        ["limits", "requests"].iter().any(|list| {
            resources
                .entries(list)
                .any(|(resource, _)| resource.starts_with(prefix))
        })
    };
    if says("hugepages-") && !says("cpu") && !says("memory") {
        problems.forbidden(path, "", "HugePages require cpu or memory");
    }
}

/// A request stays below its limit, and equals it where there cannot be more in sum than there is.
fn validate_order(resources: &Value, path: &Path, problems: &mut Problems) {
    let limits = read(resources, "limits");
    for (resource, request) in &read(resources, "requests") {
        let shared = is_overcommitted(resource);
        match limits.get(resource) {
            Some(limit) if !shared && request != limit => {
                let detail = format!("must be equal to {resource} limit of {limit}");
                problems.invalid(path, "requests", request.to_string(), detail);
            }
            Some(limit) if request > limit => {
                let detail = format!("must be less than or equal to {resource} limit of {limit}");
                problems.invalid(path, "requests", request.to_string(), detail);
            }
            None if !shared => {
                problems.required(path, "limits", "Limit must be set for non overcommitable resources");
            }
            _ => {}
        }
    }
}

/// What a pod asks for as a whole covers what its containers ask for.
pub fn validate_pod_resources(spec: &Value, path: &Path, problems: &mut Problems) {
    let (resources, path) = (&spec["resources"], path.child("resources"));
    if !resources.is_object() {
        return;
    }
    if !resources.list("claims").is_empty() {
        problems.forbidden(&path, "claims", "claims may not be set for Resources at pod-level");
    }
    validate_claims(&Claims::from_pod_spec(spec), resources, &path, problems);
    for list in ["limits", "requests"] {
        for resource in read(resources, list).keys().filter(|resource| !is_pod_level(resource)) {
            let supported = ["cpu", "hugepages-", "memory"];
            let path = path.child(list).key(resource);
            problems.extend([FieldError::not_supported(&path, resource.as_str(), &supported)]);
        }
    }
    validate_order(resources, &path, problems);
    let asked = of_containers(spec, "requests");
    for (resource, amount) in &read(resources, "requests") {
        if let Some(sum) = asked.get(resource).filter(|sum| amount < *sum) {
            let detail = format!("must be greater than or equal to aggregate container requests of {sum}");
            problems.invalid(&path.child("requests").key(resource), "", amount.to_string(), detail);
        }
    }
}

/// Claims of the pod, each by one of two ways.
pub fn validate_pod_claims(spec: &Value, path: &Path, problems: &mut Problems) {
    let mut names = HashSet::new();
    for (index, claim) in spec.list("resourceClaims").iter().enumerate() {
        let path = path.child("resourceClaims").index(index);
        let name = claim.text("name");
        if problems.needs(claim, &path, "name") {
            if names.insert(name) {
                problems.form(&path, "name", name, dns1123_label(name, false));
            } else {
                problems.duplicate(&path, "name", name);
            }
        }
        let ways = ["resourceClaimName", "resourceClaimTemplateName"];
        let set: Vec<&str> = ways.into_iter().filter(|way| claim.has(way)).collect();
        match set.len() {
            0 => {
                let detail = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`";
                problems.invalid(&path, "", claim.clone(), detail);
            }
            1 => {}
            _ => {
                let detail = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified";
                problems.invalid(&path, "", claim.clone(), detail);
            }
        }
        for way in set {
            problems.form(&path, way, claim.text(way), dns1123_subdomain(claim.text(way), false));
        }
    }
}

/// How many names are told to somebody who used another one. Each claim may be wrong, and each is told them.
const MAX_SHOWN_CLAIMS: usize = 100;

/// The claims of a pod, for its containers to look up.
pub struct Claims<'a> {
    known: HashSet<&'a str>,
    /// What is told to somebody who used another name.
    shown: String,
}

impl<'a> Claims<'a> {
    pub fn from_pod_spec(spec: &'a Value) -> Claims<'a> {
        let claims = spec.list("resourceClaims");
        let names: Vec<&str> = claims
            .iter()
            .map(|claim| claim.text("name"))
            .take(MAX_SHOWN_CLAIMS)
            .collect();
        Claims {
            known: texts(claims, "name"),
            shown: match names.is_empty() {
                true => "must be one of the names in pod.spec.resourceClaims which is empty".to_owned(),
                false => format!(
                    "must be one of the names in pod.spec.resourceClaims: {}",
                    names.join(", ")
                ),
            },
        }
    }
}

/// Claims of a container must be claims of its pod.
pub fn validate_claims(of_pod: &Claims, resources: &Value, path: &Path, problems: &mut Problems) {
    let path = path.child("claims");
    let mut seen: HashMap<&str, HashSet<&str>> = HashMap::new();
    for (index, claim) in resources.list("claims").iter().enumerate() {
        let name = claim.text("name");
        let path = path.index(index);
        if name.is_empty() {
            problems.required(&path, "", "");
            continue;
        }
        let request = claim.text("request");
        let before = seen.entry(name).or_default();
        // Of what is named already no request is looked at.
        if !request.is_empty() && !before.contains("") {
            problems.form(&path, "request", request, dns1123_label(request, false));
        }
        if let Some(repeated) = repeated_claim(before, name, request) {
            problems.duplicate(&path, "", repeated);
        }
        if !of_pod.known.contains(name) {
            let detail = of_pod.shown.as_str();
            problems.extend([FieldError::new(FieldProblem::NotFound, &path, name, detail)]);
        }
    }
}

/// What of a claim was named before: all of it, or the same request. Without a request all of a claim is meant.
fn repeated_claim<'a>(before: &mut HashSet<&'a str>, name: &str, request: &'a str) -> Option<String> {
    let covers = request.is_empty() || before.contains("");
    if covers && !before.is_empty() {
        return Some(name.to_owned());
    }
    (!before.insert(request)).then(|| format!("{name}/{request}"))
}

/// A reference from a variable, which may leave out its own container's name, or from a file.
pub fn validate_reference(reference: &Value, in_container: bool, path: &Path, problems: &mut Problems) {
    let resource = reference.text("resource");
    let huge = resource.starts_with("limits.hugepages-") || resource.starts_with("requests.hugepages-");
    if !in_container && reference.text("containerName").is_empty() {
        problems.required(path, "containerName", "");
    } else if !huge {
        problems.one_of(reference, path, "resource", &REFERABLE);
    }
    validate_divisor(reference, path, problems);
}

const BYTES: [&str; 13] = [
    "1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei",
];

/// Amounts are told in whole units.
fn validate_divisor(reference: &Value, path: &Path, problems: &mut Problems) {
    let Ok(divisor) = reference.text("divisor").parse::<Quantity>() else {
        return;
    };
    let resource = reference.text("resource");
    let (_, name) = resource.split_once('.').unwrap_or(("", resource));
    let (units, listed, title) = match name {
        "cpu" => (&["1m", "1"][..], "1m and 1".to_owned(), "cpu"),
        "memory" => (&BYTES[..], BYTES.join(", "), "memory"),
        "ephemeral-storage" => (&BYTES[..], BYTES.join(", "), "local ephemeral storage"),
        name if name.starts_with("hugepages-") => (&BYTES[..], BYTES.join(", "), "hugepages"),
        _ => return,
    };
    if !divisor.is_zero() && !units.contains(&divisor.to_string().as_str()) {
        let detail = format!("only divisor's values {listed} are supported with the {title} resource");
        problems.invalid(path, "divisor", resource, detail);
    }
}

pub fn validate_name(resource: &str, path: &Path, problems: &mut Problems) {
    validate_any_name(resource, path, problems);
    let standard = matches!(resource, "cpu" | "memory" | "ephemeral-storage") || resource.starts_with("hugepages-");
    if !resource.contains('/') && !standard {
        problems.invalid(path, "", resource, "must be a standard resource for containers");
    }
}

/// A resource's name anywhere, quotas and limits of namespaces included.
pub fn validate_any_name(resource: &str, path: &Path, problems: &mut Problems) {
    let found = label_key(resource);
    if found.is_empty() && !resource.contains('/') && !is_standard(resource) {
        problems.invalid(
            path,
            "",
            resource,
            "must be a standard resource type or fully qualified",
        );
    }
    problems.form(path, "", resource, found);
}

fn is_standard(resource: &str) -> bool {
    let counted = [
        "configmaps",
        "persistentvolumeclaims",
        "pods",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "services",
        "services.loadbalancers",
        "services.nodeports",
    ];
    is_divisible(resource) || counted.contains(&resource)
}

/// Resources with a domain are counted in whole pieces.
pub fn validate_amount(resource: &str, quantity: &Quantity, path: &Path, problems: &mut Problems) {
    if quantity.is_negative() {
        problems.invalid(path, "", quantity.to_string(), "must be greater than or equal to 0");
    }
    let is_extended = resource
        .split_once('/')
        .is_some_and(|(domain, _)| !domain.contains("kubernetes.io"));
    let is_counted = !resource.contains('/') && is_standard(resource) && !is_divisible(resource);
    if (is_extended || is_counted) && quantity.milli_value() % 1000 != 0 {
        problems.invalid(path, "", quantity.to_string(), "must be an integer");
    }
}

/// Large pages are given out whole.
fn validate_pages(resource: &str, quantity: &Quantity, path: &Path, problems: &mut Problems) {
    let size = resource
        .strip_prefix("hugepages-")
        .and_then(|size| size.parse::<Quantity>().ok());
    let Some(size) = size.map(|size| size.milli_value()).filter(|size| *size > 0) else {
        return;
    };
    if quantity.milli_value() % size != 0 {
        let detail = format!("{quantity} is not positive integer multiple of {resource}");
        problems.invalid(path, "", quantity.to_string(), detail);
    }
}

/// Whether there can be a part of one.
fn is_divisible(resource: &str) -> bool {
    let name = resource
        .strip_prefix("requests.")
        .or(resource.strip_prefix("limits."))
        .unwrap_or(resource);
    matches!(name, "cpu" | "memory" | "ephemeral-storage" | "storage") || name.starts_with("hugepages-")
}

/// Whether containers may ask for more in sum than there is.
fn is_overcommitted(resource: &str) -> bool {
    let native = resource
        .split_once('/')
        .is_none_or(|(domain, _)| domain.ends_with("kubernetes.io"));
    native && !resource.starts_with("hugepages-")
}
