//! The names of sandboxes and containers: each belongs to one from the moment it is asked for until it is removed.
//!
//! A kubelet that asks again because it lost an answer is told which one it has, instead of getting a second.

use std::collections::HashMap;

use cri::v1;
use parking_lot::Mutex;

/// Names and the ids they are reserved for.
#[derive(Default)]
pub struct Names(Mutex<HashMap<String, String>>);

impl Names {
    /// Reserves a name for as long as the answer is kept, or for good with [`Reserved::keep`].
    pub fn reserve<'a>(&'a self, kind: &str, name: String, id: &str) -> cri::Result<Reserved<'a>> {
        let mut names = self.0.lock();
        if let Some(other) = names.get(&name) {
            return Err(cri::Error::internal(format!(
                "failed to reserve {kind} name {name:?}: name {name:?} is reserved for {other:?}"
            )));
        }
        names.insert(name.clone(), id.to_owned());
        drop(names);
        Ok(Reserved {
            names: self,
            name: Some(name),
        })
    }

    pub fn release(&self, name: &str) {
        self.0.lock().remove(name);
    }
}

/// A name that is free again unless it is kept.
pub struct Reserved<'a> {
    names: &'a Names,
    name: Option<String>,
}

impl Reserved<'_> {
    pub fn keep(mut self) {
        self.name = None;
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            self.names.release(name);
        }
    }
}

/// The name of a sandbox, in the form of other runtimes.
pub fn sandbox_name(config: &v1::PodSandboxConfig) -> String {
    let pod = config.metadata.clone().unwrap_or_default();
    format!("{}_{}_{}_{}", pod.name, pod.namespace, pod.uid, pod.attempt)
}

/// The name of a container in a sandbox.
pub fn container_name(config: &v1::ContainerConfig, sandbox: &v1::PodSandboxConfig) -> String {
    let (own, pod) = (
        config.metadata.clone().unwrap_or_default(),
        sandbox.metadata.clone().unwrap_or_default(),
    );
    format!(
        "{}_{}_{}_{}_{}",
        own.name, pod.name, pod.namespace, pod.uid, own.attempt
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_free_again_after_a_failure_and_a_removal() {
        let names = Names::default();
        let reserve = |id: &str| names.reserve("sandbox", "web_default_u_0".to_owned(), id);
        drop(reserve("a").unwrap());
        reserve("b").unwrap().keep();
        assert_eq!(
            reserve("c").err().unwrap().to_string(),
            "failed to reserve sandbox name \"web_default_u_0\": name \"web_default_u_0\" is reserved for \"b\""
        );
        names.release("web_default_u_0");
        reserve("c").unwrap().keep();
    }
}
