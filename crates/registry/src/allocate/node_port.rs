//! Node ports: a bit in upstream's range object, changed by compare-and-swap.

use std::collections::{HashMap, HashSet};

use api::{Error, FieldError, Fields, Path, Problems, Resource, Value};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use store::{Compare, Snapshot, Write};

use super::{Claims, Services};

/// The taken ports of a range: bit N of a big-endian number is the port at offset N.
struct PortMap {
    first: u16,
    last: u16,
    bytes: Vec<u8>,
}

/// The ports of one Service while they are chosen.
struct Choice<'a> {
    resource: &'a Resource,
    name: &'a str,
    map: PortMap,
    had: HashSet<u16>,
    kept: Vec<u16>,
    taken: HashSet<u16>,
    dry_run: bool,
}

impl<'a> Choice<'a> {
    fn new(resource: &'a Resource, name: &'a str, map: PortMap, had: &[u16], dry_run: bool) -> Choice<'a> {
        Choice {
            resource,
            name,
            map,
            had: had.iter().copied().collect(),
            kept: Vec::new(),
            taken: HashSet::new(),
            dry_run,
        }
    }

    /// Gives every port its number. What is asked for comes first, or it might be chosen for another port before.
    fn fill(&mut self, spec: &mut Value, wants: bool) -> Result<(), Error> {
        let health = is_health_checked(spec);
        let path = Path::new("spec");
        let mut shared: HashMap<i64, i64> = HashMap::new();
        for are_asked_for in [true, false] {
            for (index, port) in spec.list_mut("ports").iter_mut().enumerate() {
                let (number, asked) = (port.number("port"), port.number("nodePort"));
                if (asked != 0) != are_asked_for || (asked == 0 && !wants) {
                    continue;
                }
                let requested = match (asked, shared.get(&number)) {
                    (0, Some(shared)) => *shared,
                    _ => asked,
                };
                let chosen = self.choose(requested, &path.child("ports").index(index).child("nodePort"))?;
                port.set("nodePort", chosen);
                shared.entry(number).or_insert(chosen);
            }
            let requested = spec.number("healthCheckNodePort");
            if health && (requested != 0) == are_asked_for {
                let chosen = self.choose(requested, &path.child("healthCheckNodePort"))?;
                spec.set("healthCheckNodePort", chosen);
            }
        }
        Ok(())
    }

    /// A port that was asked for, or any for 0.
    fn choose(&mut self, requested: i64, path: &Path) -> Result<i64, Error> {
        let wanted = u16::try_from(requested).unwrap_or(0);
        let chosen = match requested {
            0 => self
                .map
                .take_free()
                .ok_or_else(|| Error::internal("failed to allocate a nodePort: range is full"))?,
            // What is asked for in a dry run is granted.
            _ if self.dry_run => return Ok(requested),
            _ if wanted != 0 && (self.had.contains(&wanted) || self.taken.contains(&wanted)) => wanted,
            _ => self.map.take(wanted).map_err(|why| {
                let problem = FieldError::invalid(path, requested, why);
                Error::invalid(self.resource, self.name, vec![problem])
            })?,
        };
        self.kept.push(chosen);
        self.taken.insert(chosen);
        Ok(chosen.into())
    }
}

impl Services {
    pub(super) fn claim_node_ports(
        &self,
        resource: &Resource,
        value: &mut Value,
        old: Option<&Value>,
        snapshot: &dyn Snapshot,
        dry_run: bool,
        claims: &mut Claims,
    ) -> Result<(), Error> {
        let had = old.map(ports_of).unwrap_or_default();
        let name = value["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let wants = matches!(value["spec"]["type"].as_str(), Some("NodePort" | "LoadBalancer"))
            && value["spec"]["allocateLoadBalancerNodePorts"] != false;
        if !wants {
            strip_ports(value);
        }
        let health = is_health_checked(&value["spec"]);
        if had.is_empty() && !wants && !health {
            return Ok(());
        }
        let mut choice = Choice::new(resource, &name, self.load_ports(snapshot), &had, dry_run);
        choice.fill(value.ensure("spec"), wants)?;
        let Choice {
            mut map, kept, taken, ..
        } = choice;
        had.iter()
            .filter(|port| !taken.contains(port))
            .for_each(|port| map.free(*port));
        if had != kept {
            self.store_ports(&map, snapshot, claims);
        }
        Ok(())
    }

    pub(super) fn release_node_ports(&self, value: &Value, snapshot: &dyn Snapshot, claims: &mut Claims) {
        let had = ports_of(value);
        if had.is_empty() {
            return;
        }
        let mut map = self.load_ports(snapshot);
        had.iter().for_each(|port| map.free(*port));
        self.store_ports(&map, snapshot, claims);
    }

    fn ports_key(&self) -> String {
        format!("{}/ranges/servicenodeports", self.root)
    }

    fn load_ports(&self, snapshot: &dyn Snapshot) -> PortMap {
        let stored = snapshot.get(&self.ports_key());
        let value: Value = stored
            .and_then(|entry| serde_json::from_slice(&entry.value).ok())
            .unwrap_or(Value::Null);
        let bytes = value["data"]
            .as_str()
            .and_then(|text| STANDARD.decode(text).ok())
            .unwrap_or_default();
        PortMap {
            first: self.node_ports.0,
            last: self.node_ports.1,
            bytes,
        }
    }

    fn store_ports(&self, map: &PortMap, snapshot: &dyn Snapshot, claims: &mut Claims) {
        let key: std::sync::Arc<str> = self.ports_key().into();
        claims.compares.push(match snapshot.get(&key) {
            Some(entry) => Compare::Unchanged {
                key: key.clone(),
                mod_revision: entry.mod_revision,
            },
            None => Compare::Absent { key: key.clone() },
        });
        let object = json!({
            "apiVersion": "v1", "kind": "RangeAllocation", "metadata": {},
            "range": format!("{}-{}", map.first, map.last), "data": STANDARD.encode(&map.bytes),
        });
        claims.writes.push(Write::Put {
            key,
            value: schema::encode_json(&object).into(),
            ttl: None,
        });
    }
}

impl PortMap {
    fn take(&mut self, port: u16) -> Result<u16, String> {
        if !(self.first..=self.last).contains(&port) {
            return Err(format!(
                "provided port is not in the valid range. The range of valid ports is {}-{}",
                self.first, self.last
            ));
        }
        if self.has(port) {
            return Err("provided port is already allocated".to_owned());
        }
        self.set(port, true);
        Ok(port)
    }

    fn take_free(&mut self) -> Option<u16> {
        let size = u32::from(self.last - self.first) + 1;
        let start = clock::below(size);
        let port = (0..size)
            .map(|step| self.first + ((start + step) % size) as u16)
            .find(|port| !self.has(*port))?;
        self.set(port, true);
        Some(port)
    }

    fn free(&mut self, port: u16) {
        if (self.first..=self.last).contains(&port) {
            self.set(port, false);
        }
    }

    fn has(&self, port: u16) -> bool {
        let offset = usize::from(port - self.first);
        let at = self.bytes.len().checked_sub(1 + offset / 8);
        at.is_some_and(|at| self.bytes[at] & (1 << (offset % 8)) != 0)
    }

    fn set(&mut self, port: u16, taken: bool) {
        let offset = usize::from(port - self.first);
        let needed = offset / 8 + 1;
        if self.bytes.len() < needed {
            let missing = needed - self.bytes.len();
            self.bytes.splice(0..0, std::iter::repeat_n(0, missing));
        }
        let at = self.bytes.len() - needed;
        match taken {
            true => self.bytes[at] |= 1 << (offset % 8),
            false => self.bytes[at] &= !(1 << (offset % 8)),
        }
    }
}

fn ports_of(service: &Value) -> Vec<u16> {
    let spec = &service["spec"];
    let ports = spec.list("ports").iter().map(|port| port.number("nodePort"));
    ports
        .chain([spec.number("healthCheckNodePort")])
        .filter_map(|port| u16::try_from(port).ok().filter(|port| *port != 0))
        .collect()
}

/// Load balancers that send only to nodes with endpoints ask each node whether it has any, at a port of its own.
fn is_health_checked(spec: &Value) -> bool {
    spec.text("type") == "LoadBalancer" && spec.text("externalTrafficPolicy") == "Local"
}

/// Ports that a Service asks for twice. Ports of one number, of two protocols, share one.
pub fn repeated(spec: &Value) -> Vec<FieldError> {
    let mut problems = Problems::default();
    // The number of the first port that asks for a node port, and whether others do, too.
    let mut seen: HashMap<i64, (i64, bool)> = HashMap::new();
    if !matches!(spec.text("type"), "NodePort" | "LoadBalancer") {
        return Vec::new();
    }
    for (index, port) in spec.list("ports").iter().enumerate() {
        let (number, asked) = (port.number("port"), port.number("nodePort"));
        let (first, others) = seen.entry(asked).or_insert((number, false));
        *others |= *first != number;
        if asked != 0 && *others {
            let path = Path::new("spec").child("ports").index(index);
            problems.invalid(&path, "nodePort", asked, "provided port is already allocated");
        }
    }
    let health = spec.number("healthCheckNodePort");
    if health != 0 && is_health_checked(spec) && seen.contains_key(&health) {
        let path = Path::new("spec");
        problems.invalid(
            &path,
            "healthCheckNodePort",
            health,
            "provided port is already allocated",
        );
    }
    problems.into_vec()
}

fn strip_ports(service: &mut Value) {
    for port in service.ensure("spec").list_mut("ports") {
        if let Some(port) = port.as_object_mut() {
            port.remove("nodePort");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(first: u16, last: u16) -> Choice<'static> {
        let bytes = Vec::new();
        let map = PortMap { first, last, bytes };
        Choice::new(&api::kinds::service::SERVICE, "web", map, &[], false)
    }

    #[test]
    fn what_is_asked_for_is_not_chosen_for_another_port() {
        let mut choice = choice(30000, 30002);
        let mut spec = json!({
            "type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 30000,
            "ports": [{"port": 80}, {"port": 81, "nodePort": 30001}, {"port": 81, "protocol": "UDP"}],
        });
        choice.fill(&mut spec, true).unwrap();
        let chosen: Vec<i64> = spec.list("ports").iter().map(|port| port.number("nodePort")).collect();
        assert_eq!(chosen, [30002, 30001, 30001]);
        spec["healthCheckNodePort"] = 30001.into();
        assert_eq!(repeated(&spec)[0].field, "spec.healthCheckNodePort");
    }

    /// As many as a body of 3 MiB can have.
    #[test]
    fn very_many_ports_are_looked_at_once() {
        let port = |at: i64| json!({"port": at, "nodePort": at % 30_000 + 1});
        let ports: Vec<Value> = (0..60_000).map(port).collect();
        let mut spec = json!({"type": "NodePort", "ports": ports});
        let begun = tokio::time::Instant::now();
        assert_eq!(repeated(&spec).len(), 30_000);
        let mut choice = choice(1, 40_000);
        choice.fill(&mut spec, true).unwrap();
        assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
    }

    #[test]
    fn a_port_is_taken_once_and_can_be_given_back() {
        let mut map = PortMap {
            first: 30000,
            last: 30015,
            bytes: Vec::new(),
        };
        assert_eq!(map.take(30009), Ok(30009));
        assert!(map.take(30009).is_err());
        assert!(map.take(29999).is_err());
        for _ in 0..15 {
            assert!(map.take_free().is_some());
        }
        assert_eq!(map.take_free(), None);
        map.free(30003);
        assert_eq!(map.take_free(), Some(30003));
        assert_eq!(map.bytes, [0xff, 0xff]);
    }
}
