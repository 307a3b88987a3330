//! Who breaks a rule, in upstream's words.

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

/// The pod and its containers whose security context is bad, each with what it must do or not do.
pub fn set_by(pod: &Value, is_bad: impl Fn(&Value) -> bool, what: &str) -> Vec<String> {
    let mut found = Vec::new();
    if is_bad(&pod["spec"]["securityContext"]) {
        found.push(format!("pod {what}"));
    }
    let bad = containers(pod).filter(|container| is_bad(&container["securityContext"]));
    found.extend(named(bad, what));
    found
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
