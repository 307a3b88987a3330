//! Node ports: a bit in upstream's range object, changed by compare-and-swap.

use api::{Error, FieldError, Fields, Path, Problems, Resource, Value};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use store::{Compare, Snapshot, Write};

use super::{Claims, Services, random};

/// The taken ports of a range: bit N of a big-endian number is the port at offset N.
struct PortMap {
    first: u16,
    last: u16,
    bytes: Vec<u8>,
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
        let mut map = self.load_ports(snapshot);
        let mut kept: Vec<u16> = Vec::new();
        let mut choose = |requested: i64, path: &Path| -> Result<Option<u16>, Error> {
            let wanted = u16::try_from(requested).unwrap_or(0);
            let chosen = match requested {
                0 => map
                    .take_free()
                    .ok_or_else(|| Error::internal("failed to allocate a nodePort: range is full"))?,
                // What is asked for in a dry run is granted.
                _ if dry_run => return Ok(None),
                _ if wanted != 0 && (had.contains(&wanted) || kept.contains(&wanted)) => wanted,
                _ => map.take(wanted).map_err(|why| {
                    let problem = FieldError::invalid(path, requested, why);
                    Error::invalid(resource, &name, vec![problem])
                })?,
            };
            kept.push(chosen);
            Ok(Some(chosen))
        };
        let spec = value.ensure("spec");
        let mut shared: Vec<(i64, i64)> = Vec::new();
        for (index, port) in spec.list_mut("ports").iter_mut().enumerate() {
            let number = port.number("port");
            let requested = match port.number("nodePort") {
                0 => shared
                    .iter()
                    .find(|(other, _)| *other == number)
                    .map_or(0, |(_, port)| *port),
                requested => requested,
            };
            let path = Path::new("spec").child("ports").index(index).child("nodePort");
            if requested == 0 && !wants {
                continue;
            }
            let chosen = choose(requested, &path)?.map_or(requested, i64::from);
            port.set("nodePort", chosen);
            shared.push((number, chosen));
        }
        if health {
            let path = Path::new("spec").child("healthCheckNodePort");
            if let Some(chosen) = choose(spec.number("healthCheckNodePort"), &path)? {
                spec.set("healthCheckNodePort", chosen);
            }
        }
        had.iter()
            .filter(|port| !kept.contains(port))
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
        let start = random(size);
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
    let mut seen = Vec::new();
    if !matches!(spec.text("type"), "NodePort" | "LoadBalancer") {
        return Vec::new();
    }
    for (index, port) in spec.list("ports").iter().enumerate() {
        let (number, asked) = (port.number("port"), port.number("nodePort"));
        let taken = |(other, node_port): &(i64, i64)| *node_port == asked && *other != number;
        if asked != 0 && seen.iter().any(taken) {
            let path = Path::new("spec").child("ports").index(index);
            problems.invalid(&path, "nodePort", asked, "provided port is already allocated");
        }
        seen.push((number, asked));
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
