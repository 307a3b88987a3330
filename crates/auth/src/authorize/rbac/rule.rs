//! One rule of a role.

use api::Value;
use serde::Deserialize;

use crate::authorize::Attributes;

/// What a rule allows: verbs on resources, or verbs on paths.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rule {
    #[serde(deserialize_with = "null_is_empty")]
    pub verbs: Vec<Box<str>>,
    #[serde(deserialize_with = "null_is_empty")]
    pub api_groups: Vec<Box<str>>,
    #[serde(deserialize_with = "null_is_empty")]
    pub resources: Vec<Box<str>>,
    #[serde(deserialize_with = "null_is_empty")]
    pub resource_names: Vec<Box<str>>,
    #[serde(rename = "nonResourceURLs", deserialize_with = "null_is_empty")]
    pub non_resource_urls: Vec<Box<str>>,
}

fn null_is_empty<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<Box<str>>, D::Error> {
    Ok(Option::<Vec<Box<str>>>::deserialize(deserializer)?.unwrap_or_default())
}

impl Rule {
    /// The rules of a role. Rules that cannot be read allow nothing.
    pub fn parse_all(rules: &Value) -> Vec<Rule> {
        let rules = rules.as_array().into_iter().flatten();
        rules.filter_map(|rule| Rule::deserialize(rule).ok()).collect()
    }

    pub fn allows(&self, attributes: &Attributes) -> bool {
        if !has(&self.verbs, attributes.verb) {
            return false;
        }
        if !attributes.is_resource {
            return self
                .non_resource_urls
                .iter()
                .any(|url| url_matches(url, attributes.path));
        }
        has(&self.api_groups, attributes.group)
            && self
                .resources
                .iter()
                .any(|rule| resource_matches(rule, attributes.resource, attributes.subresource))
            && (self.resource_names.is_empty() || self.resource_names.iter().any(|name| **name == *attributes.name))
    }

    /// The rule as rules with one verb, one group, one resource and one name each.
    pub fn parts(&self) -> Vec<Rule> {
        let one = |value: &str| vec![Box::from(value)];
        let mut parts = Vec::new();
        for verb in &self.verbs {
            for url in &self.non_resource_urls {
                parts.push(Rule {
                    verbs: one(verb),
                    non_resource_urls: one(url),
                    ..Rule::default()
                });
            }
            for group in &self.api_groups {
                for resource in &self.resources {
                    let part = Rule {
                        verbs: one(verb),
                        api_groups: one(group),
                        resources: one(resource),
                        ..Rule::default()
                    };
                    if self.resource_names.is_empty() {
                        parts.push(part);
                        continue;
                    }
                    parts.extend(self.resource_names.iter().map(|name| Rule {
                        resource_names: one(name),
                        ..part.clone()
                    }));
                }
            }
        }
        parts
    }

    /// Whether this rule allows all that one of the [`Rule::parts`] of another does.
    pub fn covers(&self, part: &Rule) -> bool {
        let all_held = |wanted: &[Box<str>], held: &[Box<str>]| wanted.iter().all(|value| has(held, value));
        if !all_held(&part.verbs, &self.verbs) {
            return false;
        }
        if !part.non_resource_urls.is_empty() {
            let covered = |wanted: &str| {
                self.non_resource_urls
                    .iter()
                    .any(|url| **url == *wanted || url_matches(url, wanted))
            };
            return part.non_resource_urls.iter().all(|url| covered(url));
        }
        let resource_held = |wanted: &str| {
            let (resource, subresource) = wanted.split_once('/').unwrap_or((wanted, ""));
            self.resources
                .iter()
                .any(|held| **held == *wanted || resource_matches(held, resource, subresource))
        };
        let names_held = self.resource_names.is_empty()
            || !part.resource_names.is_empty()
                && part
                    .resource_names
                    .iter()
                    .all(|name| self.resource_names.contains(name));
        all_held(&part.api_groups, &self.api_groups)
            && part.resources.iter().all(|resource| resource_held(resource))
            && names_held
    }
}

fn has(values: &[Box<str>], wanted: &str) -> bool {
    values.iter().any(|value| **value == *"*" || **value == *wanted)
}

/// `pods`, `pods/log`, `*` for all, `*/scale` for a subresource of all. What is asked for is compared as one text, so that
/// a review may name `pods/log` as a resource.
fn resource_matches(rule: &str, resource: &str, subresource: &str) -> bool {
    let below = |resource: &str| rule.strip_prefix(resource).and_then(|below| below.strip_prefix('/'));
    match subresource {
        _ if rule == "*" => true,
        "" => rule == resource,
        subresource => below(resource) == Some(subresource) || below("*") == Some(subresource),
    }
}

fn url_matches(rule: &str, path: &str) -> bool {
    rule == path || rule.ends_with('*') && path.starts_with(rule.trim_end_matches('*'))
}
