//! Who breaks a rule, in upstream's words.

use std::collections::BTreeSet;

use api::{Fields, Value};

pub fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    lists.into_iter().flat_map(|list| pod["spec"].list(list))
}

/// `container "a" must …` or `containers "a", "b" must …`.
pub fn named<'a>(found: impl Iterator<Item = &'a Value>, what: &str) -> Vec<String> {
    let names: Vec<&str> = found.map(|container| container.text("name")).collect();
    match names.is_empty() {
        true => Vec::new(),
        false => vec![format!("{} {what}", plural("container", &names))],
    }
}

pub fn plural(noun: &str, names: &[&str]) -> String {
    format!("{} {}", counted(noun, names), quoted(names))
}

pub fn quoted(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
    quoted.join(", ")
}

/// The pod and its containers whose security context is bad, with what they must do or not do.
pub fn set_by(pod: &Value, is_bad: impl Fn(&Value) -> bool, what: &str) -> Vec<String> {
    let setters = setters(pod, is_bad);
    match setters.is_empty() {
        true => Vec::new(),
        false => vec![format!("{} {what}", setters.join(" and "))],
    }
}

/// `pod` and `containers "a", "b"`, as far as their security context is bad.
pub fn setters(pod: &Value, is_bad: impl Fn(&Value) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    if is_bad(&pod["spec"]["securityContext"]) {
        found.push("pod".to_owned());
    }
    let bad = containers(pod).filter(|container| is_bad(&container["securityContext"]));
    let names: Vec<&str> = bad.map(|container| container.text("name")).collect();
    if !names.is_empty() {
        found.push(plural("container", &names));
    }
    found
}

/// The security contexts of the pod and of its containers.
pub fn contexts(pod: &Value) -> impl Iterator<Item = &Value> {
    std::iter::once(&pod["spec"]["securityContext"])
        .chain(containers(pod).map(|container| &container["securityContext"]))
}

/// The values without repetition, in order and in quotes.
pub fn quoted_once<'a>(values: impl Iterator<Item = &'a str>) -> String {
    let values: BTreeSet<&str> = values.collect();
    quoted(&values.into_iter().collect::<Vec<_>>())
}

/// Who uses what: names of containers or volumes, and what they all use, each once and in order.
pub fn users<'a, T: Ord>(items: impl Iterator<Item = (&'a Value, Vec<T>)>) -> Option<(Vec<&'a str>, Vec<T>)> {
    let mut names = Vec::new();
    let mut used = Vec::new();
    for (item, of_item) in items.filter(|(_, of_item)| !of_item.is_empty()) {
        names.push(item.text("name"));
        used.extend(of_item);
    }
    used.sort_unstable();
    used.dedup();
    (!names.is_empty()).then_some((names, used))
}

/// `uses` or `use`.
pub fn uses(names: &[&str]) -> &'static str {
    if names.len() == 1 { "uses" } else { "use" }
}

/// A noun in the number of what follows it.
pub fn counted<T>(noun: &str, items: &[T]) -> String {
    let s = if items.len() == 1 { "" } else { "s" };
    format!("{noun}{s}")
}
