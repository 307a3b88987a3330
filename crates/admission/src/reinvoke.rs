//! A second round of the mutating phase, for plugins that were called before a later one changed the object.

use std::collections::{BTreeMap, BTreeSet};

use api::Value;

/// Where the mutating phase of one request stands.
#[derive(Clone, Debug, Default)]
pub struct Reinvocation {
    /// Whether this is the second round.
    pub again: bool,
    /// Whether a second round is needed.
    pub wanted: bool,
    plugins: BTreeMap<&'static str, Called>,
}

/// What one plugin has called so far, by name.
#[derive(Clone, Debug, Default)]
pub struct Called {
    before: BTreeSet<String>,
    again: BTreeSet<String>,
    last_output: Option<Value>,
}

impl Reinvocation {
    pub fn round(&self) -> usize {
        usize::from(self.again)
    }

    /// A plugin begins its turn. Whatever changed the object since its last turn makes it call everything again.
    pub fn begin(&mut self, plugin: &'static str, object: &Value) {
        let again = self.again;
        let called = self.plugins.entry(plugin).or_default();
        if again && called.last_output.as_ref() != Some(object) {
            called.require();
        }
    }

    pub fn end(&mut self, plugin: &'static str, object: &Value) {
        self.plugins.entry(plugin).or_default().last_output = Some(object.clone());
    }

    /// In the second round only those are called that were called before the object changed and asked for it.
    pub fn should_call(&self, plugin: &'static str, name: &str) -> bool {
        !self.again
            || self
                .plugins
                .get(plugin)
                .is_some_and(|called| called.again.contains(name))
    }

    /// Notes a call, whether it changed the object and whether it wants to see later changes.
    pub fn called(&mut self, plugin: &'static str, name: &str, changed: bool, if_needed: bool) {
        let called = self.plugins.entry(plugin).or_default();
        if changed {
            called.require();
            self.wanted = true;
        }
        if if_needed {
            called.before.insert(name.to_owned());
        }
    }
}

impl Called {
    fn require(&mut self) {
        self.again.append(&mut self.before);
    }
}
