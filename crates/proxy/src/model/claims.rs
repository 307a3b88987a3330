//! Who has which destination: two Services may ask for the same external address and port.
//!
//! The first one has it until it gives it back, but a Service's own address is never another's to have. Whoever is
//! refused waits, and is looked at again only when what it waits for becomes free.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use client::Key;

use network::Protocol;

use super::{Clients, Frontend, FrontendAddress, ServicePort};

/// All destinations that Services ask for.
#[derive(Debug, Default)]
pub struct Claims {
    owners: HashMap<At, Owner>,
    /// Services that did not get all they asked for, with all they asked for.
    unsatisfied: HashMap<Key, Vec<ServicePort>>,
    waiting: HashMap<At, BTreeSet<Key>>,
}

/// What packets of one protocol and one kind of client are looked up by.
type At = (FrontendAddress, Protocol, Clients);

#[derive(Debug)]
struct Owner {
    service: Key,
    /// It is the Service's own address.
    own: bool,
}

/// Who comes first. A Service that changes in some other way keeps what it had, and among those who are new the older
/// one gets it: nobody takes an address by the choice of a name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    Own,
    Had,
    New,
}

impl Turn {
    fn of_frontend(frontend: &Frontend, had: bool) -> Turn {
        match (frontend.own, had) {
            (true, _) => Turn::Own,
            (false, true) => Turn::Had,
            (false, false) => Turn::New,
        }
    }
}

impl Claims {
    /// Adds those who must be looked at again because of what changes: who waits for what is given back, and who has
    /// what turns out to be another Service's own. `applied` is what all Services have.
    pub fn extend(&self, changing: &mut BTreeMap<Key, Vec<ServicePort>>, applied: &HashMap<Key, Vec<ServicePort>>) {
        let mut more = BTreeSet::new();
        for (key, ports) in changing.iter() {
            let before = applied.get(key).into_iter().flatten();
            let given_back = before.flat_map(places).filter_map(|(at, _)| self.waiting.get(&at));
            more.extend(given_back.flatten().cloned());
            let own = ports.iter().flat_map(places).filter(|(_, frontend)| frontend.own);
            let in_the_way = own
                .filter_map(|(at, _)| self.owners.get(&at))
                .filter(|owner| !owner.own);
            more.extend(in_the_way.map(|owner| owner.service.clone()));
        }
        for key in more {
            let wanted = self.unsatisfied.get(&key).or_else(|| applied.get(&key));
            if let Some(wanted) = wanted {
                changing.entry(key).or_insert_with(|| wanted.clone());
            }
        }
    }

    /// The Services that packets to that address belong to: at most one for each kind of client.
    pub fn owners_of(&self, address: FrontendAddress, protocol: Protocol) -> impl Iterator<Item = &Key> {
        let clients = [Clients::Anyone, Clients::Outside];
        clients
            .into_iter()
            .filter_map(move |clients| Some(&self.owners.get(&(address, protocol, clients))?.service))
    }

    /// Gives the ports of each Service without the frontends that another one has. `applied` is what these Services had
    /// before, which they give back.
    pub fn replace(
        &mut self,
        services: BTreeMap<Key, Vec<ServicePort>>,
        applied: &HashMap<Key, Vec<ServicePort>>,
    ) -> BTreeMap<Key, Vec<ServicePort>> {
        let mut told = HashSet::new();
        for key in services.keys() {
            let had = applied.get(key).into_iter().flatten();
            had.flat_map(places).for_each(|(at, _)| drop(self.owners.remove(&at)));
            self.stop_waiting(key, &mut told);
        }
        let had = |key: &Key| -> HashSet<At> {
            let ports = applied.get(key).into_iter().flatten();
            ports.flat_map(places).map(|(at, _)| at).collect()
        };
        let mut in_turn: Vec<(&Key, &Vec<ServicePort>, HashSet<At>)> =
            services.iter().map(|(key, ports)| (key, ports, had(key))).collect();
        in_turn.sort_by_key(|(_, ports, _)| ports.first().map(|port| &port.created));
        for turn in [Turn::Own, Turn::Had, Turn::New] {
            for (key, ports, had) in &in_turn {
                for (at, frontend) in ports.iter().flat_map(places) {
                    if Turn::of_frontend(frontend, had.contains(&at)) == turn {
                        self.claim(key, at, frontend.own);
                    }
                }
            }
        }
        let granted = services.into_iter().map(|(key, ports)| {
            let granted = self.granted(&key, &ports, &told);
            (key, granted)
        });
        granted.collect()
    }

    fn claim(&mut self, key: &Key, at: At, own: bool) {
        self.owners.entry(at).or_insert_with(|| Owner {
            service: key.clone(),
            own,
        });
    }

    fn granted(&mut self, key: &Key, ports: &[ServicePort], told: &HashSet<(Key, At)>) -> Vec<ServicePort> {
        let mut granted = ports.to_vec();
        let mut refused = false;
        for port in &mut granted {
            let protocol = port.protocol;
            port.frontends.retain(|frontend| {
                let at = (frontend.address, protocol, frontend.clients);
                let Some(owner) = self.owners.get(&at).filter(|owner| owner.service != *key) else {
                    return true;
                };
                refused = true;
                if !told.contains(&(key.clone(), at)) {
                    tracing::warn!(
                        service = %key, %frontend, owner = %owner.service,
                        "Address and port are already used by another Service; ignoring them for this one"
                    );
                }
                self.waiting.entry(at).or_default().insert(key.clone());
                false
            });
        }
        if refused {
            self.unsatisfied.insert(key.clone(), ports.to_vec());
        }
        granted
    }

    /// Notes in `told` what is known to have been refused, so that it is not told again.
    fn stop_waiting(&mut self, key: &Key, told: &mut HashSet<(Key, At)>) {
        for (at, _) in self.unsatisfied.remove(key).iter().flatten().flat_map(places) {
            let Some(waiting) = self.waiting.get_mut(&at) else {
                continue;
            };
            if waiting.remove(key) {
                told.insert((key.clone(), at));
            }
            if waiting.is_empty() {
                self.waiting.remove(&at);
            }
        }
    }
}

fn places(port: &ServicePort) -> impl Iterator<Item = (At, &Frontend)> {
    let protocol = port.protocol;
    port.frontends
        .iter()
        .map(move |frontend| ((frontend.address, protocol, frontend.clients), frontend))
}
