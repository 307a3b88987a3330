//! Which volumes claims get on a node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::selector::Selector;

use crate::quantity;
use crate::volumes::{Assignment, Capacity, Claim, StorageClass, Volume, Volumes};

type Labels = BTreeMap<String, String>;

const NO_VOLUME: &str = "node(s) didn't find available persistent volumes to bind";
const NO_ROOM: &str = "node(s) did not have enough free storage";
const FILESYSTEM: &str = "Filesystem";

/// A volume for every claim: one that is there, or else one that the claim's class makes.
pub fn all(
    claims: &[Arc<Claim>],
    volumes: &Volumes,
    uid: &str,
    labels: &Labels,
    node: &str,
) -> Result<Vec<Assignment>, &'static str> {
    let mut taken = volumes.promised_volumes(uid);
    let mut assignments = Vec::new();
    for claim in claims {
        // A volume is being made for it already: there or nowhere.
        let selected = claim.selected_node();
        if selected.is_some_and(|selected| selected != node) {
            return Err(NO_VOLUME);
        }
        let found = match selected {
            Some(_) => None,
            None => smallest(claim, volumes, &taken, labels, node),
        };
        assignments.push(match found {
            Some(volume) => {
                taken.insert(&volume.metadata.name);
                Assignment::Bind {
                    claim: claim.clone(),
                    volume: volume.clone(),
                }
            }
            None => {
                provision(claim, volumes, labels)?;
                Assignment::Provision { claim: claim.clone() }
            }
        });
    }
    Ok(assignments)
}

/// The smallest volume that will do; one that is reserved for the claim goes first.
fn smallest<'a>(
    claim: &Claim,
    volumes: &'a Volumes,
    taken: &BTreeSet<&str>,
    labels: &Labels,
    node: &str,
) -> Option<&'a Arc<Volume>> {
    let free = volumes.volumes.iter().filter(|volume| {
        let name = volume.metadata.name.as_str();
        !taken.contains(name) && suits(volume, claim) && volume.reaches(labels, node)
    });
    free.min_by_key(|volume| (!volume.is_reserved_for(claim), volume.bytes()))
}

fn suits(volume: &Volume, claim: &Claim) -> bool {
    let reserved = volume.is_reserved_for(claim);
    let free = volume.spec.claim_ref.is_none() && volume.status.phase == "Available";
    let mode = |mode: &Option<String>| mode.clone().unwrap_or_else(|| FILESYSTEM.to_owned());
    let selected = claim.spec.selector.as_ref().is_none_or(|selector| {
        let selector = Selector::from(selector);
        selector.matches(&volume.metadata.labels)
    });
    let modes = &volume.spec.access_modes;
    (free || reserved)
        && !volume.metadata.is_deleting()
        && volume.spec.storage_class_name == claim.class_name()
        && mode(&volume.spec.volume_mode) == mode(&claim.spec.volume_mode)
        && claim.spec.access_modes.iter().all(|wanted| modes.contains(wanted))
        && volume.bytes() >= claim.requested_bytes()
        && selected
}

fn provision(claim: &Claim, volumes: &Volumes, labels: &Labels) -> Result<(), &'static str> {
    let class = volumes.class_of(claim).ok_or(NO_VOLUME)?;
    if !class.can_provision() || !class.allows(labels) {
        return Err(NO_VOLUME);
    }
    if has_room(class, claim, volumes, labels) {
        Ok(())
    } else {
        Err(NO_ROOM)
    }
}

/// Drivers that tell how much room there is are believed.
fn has_room(class: &StorageClass, claim: &Claim, volumes: &Volumes, labels: &Labels) -> bool {
    let driver = volumes.csi_drivers.get(&class.provisioner);
    if !driver.is_some_and(|driver| driver.spec.storage_capacity) {
        return true;
    }
    let wanted = claim.requested_bytes();
    let enough = |capacity: &Capacity| {
        let most = capacity.maximum_volume_size.as_ref().or(capacity.capacity.as_ref());
        most.is_some_and(|most| quantity::units(most) >= wanted)
    };
    let near = |capacity: &Capacity| {
        let topology = capacity.node_topology.as_ref();
        topology.is_some_and(|topology| Selector::from(topology).matches(labels))
    };
    let mut capacities = volumes.capacities.iter();
    capacities.any(|one| one.storage_class_name == class.metadata.name && near(one) && enough(one))
}
