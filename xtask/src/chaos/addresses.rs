//! Addresses that are held and that nobody uses: each node's journal of pod addresses against the pods that there are,
//! and the claims of cluster addresses against the Services.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::cluster::{Karve, Kubectl};
use crate::signals::wait_for;

/// Sandboxes are taken apart after their pods have gone.
const PATIENCE: Duration = Duration::from_secs(60);

type Addresses = BTreeSet<String>;

/// Waits until exactly the addresses are held that are in use.
pub fn none_leaked(cluster: &mut Karve, kubectl: &Kubectl) -> Result<usize> {
    let journals = cluster.address_journals();
    let pods = r#"jsonpath={range .items[*]}{.status.podIP} {.spec.hostNetwork}{"\n"}{end}"#;
    let held = || -> Result<Addresses> {
        let read = |path: &std::path::PathBuf| held_in(path);
        let each: Vec<Addresses> = journals.iter().map(read).collect::<Result<_>>()?;
        Ok(each.into_iter().flatten().collect())
    };
    let used = || Ok(own_addresses(&kubectl.run(&["get", "pods", "-A", "-o", pods])?));
    let of_pods = agree("pod addresses", held, used)?;
    let claims = ["get", "ipaddresses", "-o", "jsonpath={.items[*].metadata.name}"];
    let services = ["get", "services", "-A", "-o", "jsonpath={.items[*].spec.clusterIP}"];
    let of_services = agree(
        "cluster addresses",
        || words(kubectl, &claims),
        || {
            let mut used = words(kubectl, &services)?;
            used.remove("None");
            Ok(used)
        },
    )?;
    Ok(of_pods + of_services)
}

fn agree(what: &str, held: impl Fn() -> Result<Addresses>, used: impl Fn() -> Result<Addresses>) -> Result<usize> {
    let mut last = String::new();
    let agreed = wait_for(&format!("{what} held to be those in use"), PATIENCE, || {
        let (held, used) = (held().ok()?, used().ok()?);
        last = format!("held are {held:?}, in use are {used:?}");
        (held == used).then_some(held.len())
    });
    agreed.with_context(|| last)
}

fn words(kubectl: &Kubectl, query: &[&str]) -> Result<Addresses> {
    Ok(kubectl.run(query)?.split_whitespace().map(str::to_owned).collect())
}

/// Of lines with a pod's address and whether that is its node's.
fn own_addresses(pods: &str) -> Addresses {
    let lines = pods.lines().filter_map(|line| line.split_once(' '));
    let own = lines.filter(|(address, on_host)| !address.is_empty() && *on_host != "true");
    own.map(|(address, _)| address.to_owned()).collect()
}

/// What a journal of the built-in network says: `+ ID IP…` is given out, `- ID` is taken back.
fn held_in(path: &Path) -> Result<Addresses> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(held(&text))
}

fn held(journal: &str) -> Addresses {
    let mut by_id = std::collections::BTreeMap::new();
    for line in journal.lines() {
        let mut words = line.split(' ');
        match (words.next(), words.next()) {
            (Some("+"), Some(id)) => {
                by_id.insert(id.to_owned(), words.map(str::to_owned).collect::<Vec<_>>());
            }
            (Some("-"), Some(id)) => {
                by_id.remove(id);
            }
            _ => {}
        }
    }
    by_id.into_values().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_on_their_nodes_network_have_no_address_of_their_own() {
        let pods = "10.0.0.2 \n10.99.0.1 true\n \n";
        assert_eq!(own_addresses(pods), ["10.0.0.2".to_owned()].into());
    }

    #[test]
    fn a_journal_holds_what_was_not_given_back() {
        let journal = "+ a 10.0.0.2\n+ b 10.0.0.3 fd00::3\n- a\n~ 10.0.0.2\n";
        let wanted: Addresses = ["10.0.0.3", "fd00::3"].map(str::to_owned).into();
        assert_eq!(held(journal), wanted);
    }
}
