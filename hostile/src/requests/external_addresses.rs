//! Services that want addresses which are not theirs, where the administrator has forbidden it.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::refused;
use crate::cases::Case;
use crate::cluster::administrator;
use crate::server::OtherServer;
use crate::verdict::{Verdict, judge};
use crate::world::World;

pub const DENIED_EXTERNAL_ADDRESSES: Case = Case {
    name: "requests/denied-external-addresses",
    class: "CVE-2020-8554",
    must_not: "With the admission plugin DenyServiceExternalIPs a Service gets external addresses, when it is made or later.",
    needs: &[],
    run: denied_external_addresses,
};

const SERVICES: &str = "/api/v1/namespaces/default/services";

fn service(name: &str, addresses: &[&str]) -> Value {
    json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], "externalIPs": addresses}})
}

fn denied_external_addresses(world: &World) -> Result<Verdict> {
    let address: SocketAddr = (Ipv4Addr::LOCALHOST, 7444).into();
    let port = address.port().to_string();
    let mut server = OtherServer::start(
        world,
        &[
            "kube-apiserver",
            "--secure-port",
            &port,
            "--enable-admission-plugins",
            "DenyServiceExternalIPs",
        ],
    )?;
    let admin = server.until("an API server with DenyServiceExternalIPs", |pki| {
        let admin = administrator(pki, address).ok()?;
        let ready = admin
            .get("/api/v1/namespaces/default")
            .is_ok_and(|answer| answer.is_success());
        ready.then_some(admin)
    })?;
    let made = admin.must_post(SERVICES, &service("plain", &[]))?;
    let plain = format!("{SERVICES}/plain");
    let taking = json!({"spec": {"externalIPs": ["198.51.100.7"]}});
    let mut replaced = made;
    replaced["spec"]["externalIPs"] = json!(["198.51.100.7"]);
    let attempts = vec![
        refused(&admin, "POST", SERVICES, Some(&service("taking", &["198.51.100.7"])))?,
        refused(&admin, "PATCH", &plain, Some(&taking))?,
        refused(&admin, "PUT", &plain, Some(&replaced))?,
    ];
    let left = admin.must_get(&plain)?;
    ensure!(
        left["spec"]["externalIPs"].is_null() || attempts.iter().any(|one| matches!(one, Verdict::Succeeded(_))),
        "a refused change was made: {left}"
    );
    judge(&attempts)
}
