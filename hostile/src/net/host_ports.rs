//! Ports of the node that pods ask for.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::cases::Case;
use crate::cluster::{API_PORT, KUBELET_PORT};
use crate::network::NODE;
use crate::pods::{Settled, container, pod_spec};
use crate::signals::wait_for;
use crate::verdict::{Verdict, judge};
use crate::wire::serve::{Answer, Server};
use crate::world::{PATIENCE, World};

pub const HOST_PORT_STEALS: Case = Case {
    name: "network/host-port-steals",
    class: "",
    must_not: "A pod's hostPort takes over a port that the API server, the kubelet or another program of the node listens on.",
    needs: &[],
    run: host_port_steals,
};

const STOLEN: &str = "stolen-by-a-pod";
/// A port that nobody uses, and one that a program of the node does.
const FREE: u16 = 18080;
const TAKEN: u16 = 18081;

fn host_port_steals(world: &World) -> Result<Verdict> {
    let namespace = world.namespace(json!({}))?;
    let program = Server::start((Ipv4Addr::UNSPECIFIED, TAKEN).into(), None, |_| {
        Answer::text(200, "the node's own program")
    })?;
    let honest = namespace.pod(stealing(FREE))?;
    honest.running()?;
    wait_for("an honest hostPort", PATIENCE, || {
        Ok(says(NODE.into(), FREE).contains(STOLEN).then_some(()))
    })?;

    let mut attempts = Vec::new();
    for port in [TAKEN, KUBELET_PORT, API_PORT] {
        let pod = namespace.pod(stealing(port))?;
        let settled = pod.settled();
        let thief = [NODE, Ipv4Addr::LOCALHOST]
            .into_iter()
            .find(|address| says((*address).into(), port).contains(STOLEN));
        // Through the connection that is open already, should the pod have taken the way for new ones.
        pod.delete()?;
        // The kubelet listens at the node's address alone.
        wait_for(&format!("port {port} to be the node's again"), PATIENCE, || {
            Ok(TcpStream::connect((NODE, port)).is_ok().then_some(()))
        })?;
        attempts.push(match (thief, settled) {
            (Some(address), _) => Verdict::Succeeded(format!("{address}:{port} is answered by the pod")),
            (None, Ok(Settled::Refused(why))) => Verdict::Blocked(format!("hostPort {port}: {why}")),
            (None, Ok(Settled::Ran)) => Verdict::Blocked(format!("hostPort {port}: the pod runs, but is not reached")),
            (None, Err(error)) => return Err(error),
        });
    }
    let verdict = judge(&attempts)?;
    let reached = matches!(verdict, Verdict::Succeeded(_)) || program.was_reached();
    ensure!(reached, "the node's own program was never asked");
    Ok(verdict)
}

fn stealing(port: u16) -> Value {
    let mut main = container(&["serve", "8080", STOLEN]);
    main["ports"] = json!([{"containerPort": 8080, "hostPort": port}]);
    pod_spec(vec![main], json!([]))
}

/// What is answered in clear text; empty when it is nothing.
fn says(address: IpAddr, port: u16) -> String {
    let ask = || -> Result<String> {
        let patience = Duration::from_secs(2);
        let mut socket = TcpStream::connect_timeout(&SocketAddr::new(address, port), patience)?;
        socket.set_read_timeout(Some(patience))?;
        socket.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
        let mut answer = vec![0; 4096];
        let count = socket.read(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer[..count]).into_owned())
    };
    ask().unwrap_or_default()
}
