//! What a failure leaves undone is done later.

use std::cell::RefCell;

use super::*;
use crate::model::{Clients, Frontend, Masquerade, Step, Target};

/// A kernel that refuses as often as it is told to, and says what it has been given.
#[derive(Default)]
struct Refusing {
    refusals: usize,
    log: Vec<String>,
}

impl Refusing {
    fn answer(&mut self, line: String) -> Result<(), BackendError> {
        let refused = self.refusals > 0;
        self.refusals = self.refusals.saturating_sub(1);
        self.log
            .push(format!("{line}{}", if refused { ": refused" } else { "" }));
        match refused {
            true => Err(BackendError::Interrupted("refused".to_owned())),
            false => Ok(()),
        }
    }
}

impl Backend for Refusing {
    fn apply(&mut self, step: &Step) -> Result<(), BackendError> {
        self.answer(format!("apply -{} +{}", step.old.len(), step.new.len()))
    }

    fn protect(&mut self, old: &BTreeSet<SocketAddr>, new: &BTreeSet<SocketAddr>) -> Result<(), BackendError> {
        self.answer(format!("protect -{} +{}", old.len(), new.len()))
    }

    fn resync(&mut self, wanted: Wanted<'_>) -> Result<(), BackendError> {
        let (services, protected) = (wanted.services.ports().count(), wanted.protected.len());
        self.answer(format!("resync {services} services {protected} protected"))
    }
}

thread_local! {
    /// What was forgotten, and how often forgetting still fails.
    static FORGOTTEN: RefCell<(Vec<String>, usize)> = const { RefCell::new((Vec::new(), 0)) };
}

fn forget(targets: &UdpTargets) -> Result<usize, netlink::Error> {
    FORGOTTEN.with_borrow_mut(|(log, failures)| {
        if *failures > 0 {
            *failures -= 1;
            return Err(netlink::Error::new(libc::ENOBUFS));
        }
        log.push(targets.to_string());
        Ok(1)
    })
}

fn applied() -> Applied<Refusing> {
    FORGOTTEN.set((Vec::new(), 0));
    let mut applied = Applied {
        forget,
        ..Applied::new(Refusing::default())
    };
    applied.apply([service(1)].into()).unwrap();
    taken(&mut applied);
    applied
}

/// What the backend and the connections saw since the last call.
fn taken(applied: &mut Applied<Refusing>) -> (Vec<String>, Vec<String>) {
    let forgotten = FORGOTTEN.with_borrow_mut(|(log, _)| std::mem::take(log));
    (std::mem::take(&mut applied.backend.log), forgotten)
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn service(number: u8) -> (Key, Vec<ServicePort>) {
    let port = ServicePort {
        name: format!("ns/s{number}"),
        protocol: Protocol::Udp,
        created: String::new(),
        frontends: vec![Frontend {
            address: FrontendAddress::Address(address(&format!("10.96.0.{number}:53"))),
            clients: Clients::Anyone,
            own: true,
            masquerade: Masquerade::Nobody,
            allowed: Vec::new(),
            target: Target::Endpoints(vec![address(&format!("10.244.0.{number}:53"))]),
        }],
        affinity_s: None,
        local: BTreeSet::new(),
    };
    (Key::new("ns", &format!("s{number}")), vec![port])
}

fn gone(number: u8) -> BTreeMap<Key, Vec<ServicePort>> {
    [(service(number).0, Vec::new())].into()
}

#[test]
fn connections_of_a_removed_service_are_forgotten_although_applying_failed() {
    let mut applied = applied();
    applied.backend.refusals = 2;
    applied.apply(gone(1)).unwrap_err();
    let (rules, forgotten) = taken(&mut applied);
    assert_eq!(
        rules,
        ["apply -1 +0: refused", "resync 0 services 0 protected: refused"]
    );
    assert!(forgotten.is_empty(), "the old rules would only make them anew");
    applied.apply(BTreeMap::new()).unwrap();
    let (rules, forgotten) = taken(&mut applied);
    assert_eq!(rules, ["resync 0 services 0 protected"]);
    assert_eq!(forgotten, ["10.96.0.1:53 →"]);
}

#[test]
fn connections_that_could_not_be_forgotten_are_tried_again() {
    let mut applied = applied();
    FORGOTTEN.with_borrow_mut(|(_, failures)| *failures = 1);
    applied.apply(gone(1)).unwrap_err();
    applied.apply([service(2)].into()).unwrap();
    let (_, forgotten) = taken(&mut applied);
    assert_eq!(forgotten, ["10.96.0.1:53 →, 10.96.0.2:53 → 10.244.0.2:53"]);
    applied.apply(BTreeMap::new()).unwrap();
    assert_eq!(taken(&mut applied).1, Vec::<String>::new());
}

#[test]
fn no_service_is_lost_when_protecting_endpoints_fails() {
    let mut applied = applied();
    applied.backend.refusals = 2;
    applied.protect([address("192.0.2.1:6443")].into()).unwrap_err();
    applied.backend.refusals = 1;
    applied.apply([service(2)].into()).unwrap_err();
    taken(&mut applied);
    applied.apply(BTreeMap::new()).unwrap();
    assert_eq!(taken(&mut applied).0, ["resync 2 services 1 protected"]);
}

#[test]
fn a_change_is_applied_alone_while_nothing_is_in_doubt() {
    let mut applied = applied();
    applied.apply([service(2)].into()).unwrap();
    applied.protect([address("192.0.2.1:6443")].into()).unwrap();
    applied.protect([address("192.0.2.1:6443")].into()).unwrap();
    assert_eq!(taken(&mut applied).0, ["apply -0 +1", "protect -0 +1"]);
}
