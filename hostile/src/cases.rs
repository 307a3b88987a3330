//! The table of all attacks.

use std::fs;

use anyhow::Result;

use crate::verdict::Verdict;
use crate::world::World;
use crate::{containers, floods, images, net, nodes, requests, volumes};

/// One attack, carried out from outside on a running cluster.
pub struct Case {
    /// Its group and name.
    pub name: &'static str,
    /// The known hole it stands for, where there is one.
    pub class: &'static str,
    /// What must not happen.
    pub must_not: &'static str,
    pub needs: &'static [Need],
    pub run: fn(&World) -> Result<Verdict>,
}

/// What an attack needs that not every machine has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Need {
    AppArmor,
}

impl Need {
    /// Whether this machine has it.
    pub fn is_met(self) -> bool {
        match self {
            Self::AppArmor => {
                fs::read_to_string("/sys/module/apparmor/parameters/enabled").is_ok_and(|text| text.trim() == "Y")
            }
        }
    }
}

/// All cases, in the order in which they run.
pub fn all() -> impl Iterator<Item = &'static Case> {
    [
        requests::CASES,
        images::CASES,
        volumes::CASES,
        containers::CASES,
        net::CASES,
        nodes::CASES,
        floods::CASES,
    ]
    .into_iter()
    .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_say_their_group() {
        let names: Vec<&str> = all().map(|case| case.name).collect();
        for (index, name) in names.iter().enumerate() {
            assert!(!names[..index].contains(name), "{name} is there twice");
            assert!(
                name.contains('/')
                    && name
                        .bytes()
                        .all(|byte| byte.is_ascii_lowercase() || b"-/0123456789".contains(&byte)),
                "{name}"
            );
        }
    }

    #[test]
    fn what_must_not_happen_is_a_sentence() {
        for case in all() {
            assert!(
                case.must_not.ends_with('.') && case.must_not.starts_with(char::is_uppercase),
                "{}",
                case.name
            );
        }
    }
}
