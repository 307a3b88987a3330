//! Cluster IPs: an address is taken when its IPAddress object exists.

use std::net::Ipv4Addr;

use api::{Error, FieldError, Path, Resource, Value};
use serde_json::json;
use store::{Snapshot, Write};

use super::{Claims, ServiceNetwork, Services};

impl Services {
    pub(super) fn claim_cluster_ip(
        &self,
        resource: &Resource,
        value: &mut Value,
        old: Option<&Value>,
        snapshot: &dyn Snapshot,
        dry_run: bool,
        claims: &mut Claims,
    ) -> Result<(), Error> {
        let old_ip = old.and_then(claimed_ip);
        let external = value["spec"]["type"] == "ExternalName";
        let wanted = value["spec"]["clusterIP"].as_str().unwrap_or_default().to_owned();
        if external || wanted == "None" {
            if let Some(ip) = old_ip.filter(|_| external) {
                self.free(ip, claims);
            }
            if wanted == "None" {
                set_addresses(value, "None");
            }
            return Ok(());
        }
        let ip = match (wanted.as_str(), old_ip) {
            ("", Some(ip)) => ip,
            ("", None) => self
                .free_address(snapshot)
                .ok_or_else(|| Error::internal("failed to allocate a serviceIP: range is full"))?,
            (text, old_ip) => {
                let ip = self
                    .requested(text, snapshot)
                    .map_err(|why| invalid(resource, value, text, why))?;
                if !dry_run && old_ip != Some(ip) && snapshot.get(&self.ip_key(ip)).is_some() {
                    return Err(invalid(
                        resource,
                        value,
                        text,
                        "provided IP is already allocated".to_owned(),
                    ));
                }
                ip
            }
        };
        set_addresses(value, &ip.to_string());
        if old_ip != Some(ip) {
            claims.put_new(self.ip_key(ip), address_object(ip, value));
        }
        Ok(())
    }

    pub(super) fn release_cluster_ip(&self, value: &Value, claims: &mut Claims) {
        if let Some(ip) = claimed_ip(value) {
            self.free(ip, claims);
        }
    }

    fn free(&self, ip: Ipv4Addr, claims: &mut Claims) {
        claims.writes.push(Write::Delete {
            key: self.ip_key(ip).into(),
        });
    }

    fn ip_key(&self, ip: Ipv4Addr) -> String {
        format!("{}/ipaddresses/{ip}", self.root)
    }

    fn requested(&self, text: &str, snapshot: &dyn Snapshot) -> Result<Ipv4Addr, String> {
        let ip: Ipv4Addr = text
            .parse()
            .map_err(|_| "must be empty, 'None', or a valid IP address".to_owned())?;
        let is_given_out = || self.networks(snapshot).iter().any(|network| network.contains(ip));
        match self.network.contains(ip) || is_given_out() {
            true => Ok(ip),
            false => Err(format!(
                "the provided IP ({ip}) is not in the valid range. The range of valid IPs is {}/{}",
                self.network.base, self.network.prefix_length
            )),
        }
    }

    /// A random free address of the first network that has one.
    fn free_address(&self, snapshot: &dyn Snapshot) -> Option<Ipv4Addr> {
        let own = self.free_address_of(self.network, snapshot);
        own.or_else(|| {
            let networks = self.networks(snapshot);
            networks
                .into_iter()
                .skip(1)
                .find_map(|network| self.free_address_of(network, snapshot))
        })
    }

    /// The first 16 are left for those who ask for a certain one.
    fn free_address_of(&self, network: ServiceNetwork, snapshot: &dyn Snapshot) -> Option<Ipv4Addr> {
        let size = network.size();
        let reserved = 16.min(size / 2);
        let start = clock::below(size - reserved);
        let preferred = (0..size - reserved).map(|step| reserved + (start + step) % (size - reserved) + 1);
        preferred
            .chain(1..=reserved)
            .map(|offset| network.address(offset))
            .find(|ip| snapshot.get(&self.ip_key(*ip)).is_none())
    }
}

fn claimed_ip(service: &Value) -> Option<Ipv4Addr> {
    service["spec"]["clusterIP"].as_str()?.parse().ok()
}

fn set_addresses(service: &mut Value, ip: &str) {
    let spec = &mut service["spec"];
    spec["clusterIP"] = ip.into();
    spec["clusterIPs"] = json!([ip]);
    if spec["ipFamilies"].as_array().is_none_or(Vec::is_empty) {
        spec["ipFamilies"] = json!(["IPv4"]);
    }
    if !spec["ipFamilyPolicy"].is_string() {
        spec["ipFamilyPolicy"] = "SingleStack".into();
    }
}

fn address_object(ip: Ipv4Addr, service: &Value) -> bytes::Bytes {
    let metadata = &service["metadata"];
    let object = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "IPAddress",
        "metadata": {
            "name": ip.to_string(),
            "uid": clock::uid(),
            "creationTimestamp": schema::time::format(schema::time::now()),
            "labels": {
                "ipaddress.kubernetes.io/ip-family": "IPv4",
                "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
            },
        },
        "spec": {
            "parentRef": { "resource": "services", "namespace": metadata["namespace"], "name": metadata["name"] },
        },
    });
    schema::encode_json(&object).into()
}

fn invalid(resource: &Resource, service: &Value, ip: &str, why: String) -> Error {
    let problem = FieldError::invalid(
        &Path::new("spec").child("clusterIPs"),
        json!([ip]),
        format!("failed to allocate IP {ip}: {why}"),
    );
    Error::invalid(
        resource,
        service["metadata"]["name"].as_str().unwrap_or_default(),
        vec![problem],
    )
}
