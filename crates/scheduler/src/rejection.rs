//! A plugin's refusal of a pod.

use std::borrow::Cow;

/// Why a pod cannot run on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    pub plugin: &'static str,
    pub reasons: Vec<Cow<'static, str>>,
    /// Removing pods from the node would not help.
    pub unresolvable: bool,
}

impl Rejection {
    pub fn new(plugin: &'static str, reason: impl Into<Cow<'static, str>>) -> Rejection {
        Rejection {
            plugin,
            reasons: vec![reason.into()],
            unresolvable: false,
        }
    }

    pub fn unresolvable(plugin: &'static str, reason: impl Into<Cow<'static, str>>) -> Rejection {
        Rejection {
            unresolvable: true,
            ..Rejection::new(plugin, reason)
        }
    }
}
