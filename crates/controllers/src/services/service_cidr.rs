//! ServiceCIDRs: the server gives addresses out of those that are ready, and one goes only when no Service would be left
//! with an address of no range.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use api::kinds::ip_address::IP_ADDRESS;
use api::kinds::service_cidr::SERVICE_CIDR;
use api::{Fields, ObjectMeta, Value};
use async_trait::async_trait;
use client::when::Moment;
use client::{Cache, Key};
use serde::Deserialize;
use serde_json::json;

use crate::conditions::{self, Condition};
use crate::driver::{Attempt, Reconcile, Row, Setup};
use crate::model::{Metadata, with_metadata};
use crate::plan::{Action, Form, Patch, Plan};

pub const ROW: Row = Row {
    name: "service-cidr",
    account: "service-cidrs-controller",
    queue: "ipaddresses",
    workers: 1,
    start,
};

const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";
const MANAGED_BY: &str = "ipaddress.kubernetes.io/managed-by";
const ALLOCATOR: &str = "ipallocator.k8s.io";
/// How long every server has to learn that a range goes, before it is gone.
const GRACE: Duration = Duration::from_secs(10);

struct Controller {
    ranges: Arc<Cache<Range>>,
    addresses: Arc<Cache<Metadata>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Range {
    metadata: ObjectMeta,
    spec: RangeSpec,
    status: Value,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct RangeSpec {
    cidrs: Vec<String>,
}

with_metadata!(Range);

fn start(setup: &mut Setup<'_>) -> Box<dyn Reconcile> {
    let ranges = setup.cache::<Range>(&SERVICE_CIDR);
    let addresses = setup.cache::<Metadata>(&IP_ADDRESS);
    // Whether one may go depends on the others.
    let all = ranges.clone();
    setup.watch(&ranges, move |range| {
        let others = all.all().into_iter().filter(|other| other.metadata.is_deleting());
        let others = others.map(|other| Key::new("", &other.metadata.name));
        others.chain([Key::new("", &range.metadata.name)]).collect()
    });
    let going = ranges.clone();
    setup.watch(&addresses, move |_| {
        let going = going.all().into_iter().filter(|range| range.metadata.is_deleting());
        going.map(|range| Key::new("", &range.metadata.name)).collect()
    });
    Box::new(Controller { ranges, addresses })
}

#[async_trait]
impl Reconcile for Controller {
    async fn plan(&self, key: &Key, attempt: &Attempt) -> client::Result<Plan> {
        let Some(range) = self.ranges.get_key(key.as_str()) else {
            return Ok(Plan::nothing());
        };
        if !range.metadata.is_deleting() {
            return Ok(plan_present(&range, attempt.now));
        }
        let others: Vec<Arc<Range>> = self.ranges.all();
        let others = others
            .into_iter()
            .filter(|other| other.metadata.name != range.metadata.name);
        let others: Vec<Arc<Range>> = others.collect();
        Ok(plan_going(&range, &others, &self.addresses.all(), attempt.now))
    }
}

fn plan_present(range: &Range, now: Moment) -> Plan {
    let mut plan = Plan::default();
    if !is_protected(range) {
        let body = json!({"metadata": {"uid": range.metadata.uid, "finalizers": [FINALIZER]}});
        plan.actions.push(Action::Patch(Patch {
            form: Form::Strategic,
            ..Patch::new(&SERVICE_CIDR, &range.metadata, body)
        }));
    }
    let ready = Condition {
        kind: "Ready",
        status: "True",
        reason: "",
        message: "Kubernetes Service CIDR is ready".to_owned(),
    };
    plan.status = condition(range, &ready, now);
    plan
}

fn plan_going(range: &Range, others: &[Arc<Range>], addresses: &[Arc<Metadata>], now: Moment) -> Plan {
    let mut plan = Plan::default();
    if is_needed(range, others, addresses) {
        let waiting = Condition {
            kind: "Ready",
            status: "False",
            reason: "Terminating",
            message: "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new \
                      ServiceCIDR"
                .to_owned(),
        };
        plan.status = condition(range, &waiting, now);
        return plan;
    }
    if !is_protected(range) {
        return plan;
    }
    let deleted = range.metadata.deletion_timestamp.as_deref().and_then(Moment::parse);
    let gone_for = deleted.map_or(GRACE, |deleted| now.since(deleted));
    match GRACE.checked_sub(gone_for).filter(|left| !left.is_zero()) {
        Some(left) => plan.again_after(left),
        None => {
            let body = json!({"metadata": {
                "uid": range.metadata.uid, "$deleteFromPrimitiveList/finalizers": [FINALIZER],
            }});
            plan.actions.push(Action::Patch(Patch {
                form: Form::Strategic,
                ..Patch::new(&SERVICE_CIDR, &range.metadata, body)
            }));
        }
    }
    plan
}

fn is_protected(range: &Range) -> bool {
    range.metadata.finalizers.iter().any(|finalizer| finalizer == FINALIZER)
}

/// Whether a Service would be left with an address of no range.
fn is_needed(range: &Range, others: &[Arc<Range>], addresses: &[Arc<Metadata>]) -> bool {
    let networks = |range: &Range| -> Vec<Network> {
        range
            .spec
            .cidrs
            .iter()
            .filter_map(|cidr| Network::parse(cidr))
            .collect()
    };
    let own = networks(range);
    let others: Vec<Network> = others.iter().flat_map(|other| networks(other)).collect();
    let is_covered = |network: &Network| others.iter().any(|other| other.covers(network));
    if own.iter().all(is_covered) {
        return false;
    }
    let managed = addresses.iter().filter(|address| {
        let manager = address.metadata.labels.get(MANAGED_BY);
        manager.is_some_and(|manager| manager == ALLOCATOR)
    });
    let mut given_out = managed.filter_map(|address| address.metadata.name.parse::<IpAddr>().ok());
    let holds = |networks: &[Network], address: IpAddr| networks.iter().any(|network| network.contains(address));
    given_out.any(|address| holds(&own, address) && !holds(&others, address))
}

fn condition(range: &Range, wanted: &Condition<'_>, now: Moment) -> Option<Patch> {
    let mut conditions = range.status.list("conditions").to_vec();
    if conditions::says(&conditions, wanted) {
        return None;
    }
    conditions::set(&mut conditions, wanted, now);
    let body = json!({"metadata": {"uid": range.metadata.uid}, "status": {"conditions": conditions}});
    let mut patch = Patch::new(&SERVICE_CIDR, &range.metadata, body).at_revision(&range.metadata);
    patch.subresource = "status";
    Some(patch)
}

/// The addresses that share their first bits.
#[derive(Clone, Copy, Debug)]
struct Network {
    /// Of the family, shifted so that the first bit is the highest.
    bits: u128,
    length: u32,
    is_v6: bool,
}

impl Network {
    fn parse(cidr: &str) -> Option<Network> {
        let (address, length) = cidr.split_once('/')?;
        let address: IpAddr = address.parse().ok()?;
        let length: u32 = length.parse().ok()?;
        (length <= if address.is_ipv6() { 128 } else { 32 }).then(|| Network {
            bits: bits_of(address),
            length,
            is_v6: address.is_ipv6(),
        })
    }

    fn contains(&self, address: IpAddr) -> bool {
        self.is_v6 == address.is_ipv6() && self.shares(bits_of(address))
    }

    fn covers(&self, other: &Network) -> bool {
        self.is_v6 == other.is_v6 && self.length <= other.length && self.shares(other.bits)
    }

    fn shares(&self, bits: u128) -> bool {
        self.length == 0 || (self.bits ^ bits) >> (128 - self.length) == 0
    }
}

fn bits_of(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)) << 96,
        IpAddr::V6(address) => u128::from(address),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::testing::{noon, object, objects};

    const GOING: &str = "metadata: {name: more, uid: u, resourceVersion: '5', finalizers: [networking.k8s.io/service-cidr-finalizer], deletionTimestamp: '2026-01-01T11:59:55Z'}\nspec: {cidrs: [10.9.0.0/24]}";

    fn check_going(others: &str, addresses: &str, now: Moment, expected: Expect) {
        let plan = plan_going(&object::<Range>(GOING), &objects(others), &objects(addresses), now);
        expected.assert_eq(&plan.to_string());
    }

    fn address(name: &str, manager: &str) -> String {
        format!("metadata: {{name: {name}, labels: {{ipaddress.kubernetes.io/managed-by: {manager}}}}}")
    }

    #[test]
    fn a_range_is_protected_and_becomes_ready() {
        let range = object("{metadata: {name: more, uid: u, resourceVersion: '5'}, spec: {cidrs: [10.9.0.0/24]}}");
        expect![[r#"
            patch servicecidrs more: {"metadata":{"finalizers":["networking.k8s.io/service-cidr-finalizer"],"uid":"u"}}
            patch servicecidrs more/status: {"metadata":{"resourceVersion":"5","uid":"u"},"status":{"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"Kubernetes Service CIDR is ready","reason":"","status":"True","type":"Ready"}]}}
        "#]]
        .assert_eq(&plan_present(&range, noon()).to_string());
    }

    #[test]
    fn a_range_with_addresses_of_services_stays() {
        let waits = expect![[r#"
            patch servicecidrs more/status: {"metadata":{"resourceVersion":"5","uid":"u"},"status":{"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR","reason":"Terminating","status":"False","type":"Ready"}]}}
        "#]];
        check_going(
            "{metadata: {name: other}, spec: {cidrs: [10.9.0.0/25]}}",
            &address("10.9.0.200", ALLOCATOR),
            noon(),
            waits,
        );
    }

    #[test]
    fn a_range_goes_when_another_has_its_addresses_or_there_are_none() {
        let wait = expect![[r#"
            again after 5s
        "#]];
        check_going("", &address("10.8.0.1", ALLOCATOR), noon(), wait);
        let gone = || {
            expect![[r#"
                patch servicecidrs more: {"metadata":{"$deleteFromPrimitiveList/finalizers":["networking.k8s.io/service-cidr-finalizer"],"uid":"u"}}
            "#]]
        };
        let later = noon().plus(Duration::from_secs(5));
        check_going("", &address("10.9.0.1", "somebody"), later, gone());
        check_going(
            "{metadata: {name: other}, spec: {cidrs: [10.0.0.0/8]}}",
            &address("10.9.0.1", ALLOCATOR),
            later,
            gone(),
        );
        check_going(
            "{metadata: {name: other}, spec: {cidrs: [10.9.0.0/25]}}",
            &address("10.9.0.1", ALLOCATOR),
            later,
            gone(),
        );
    }
}
