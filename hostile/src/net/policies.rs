//! Pods that NetworkPolicies isolate.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::cases::Case;
use crate::network::NODE;
use crate::pods::{Done, MAIN, Pod, container, pod_spec};
use crate::signals::wait_for;
use crate::verdict::{Verdict, judge};
use crate::world::{Namespace, PATIENCE, World};

pub const ISOLATED_POD: Case = Case {
    name: "network/isolated-pod",
    class: "",
    must_not: "A pod that a NetworkPolicy isolates is reached by one whom no policy names: when it starts, while Karve \
               restarts, after packet rules were flushed, by frames and addresses that are forged, or through a Service.",
    needs: &[],
    run: isolated_pod,
};

/// The port that victims listen on.
const PORT: &str = "9999";
const VICTIMS: usize = 6;

fn isolated_pod(world: &World) -> Result<Verdict> {
    let namespace = world.namespace(json!({}))?;
    isolate(&namespace)?;
    let friend = knocker(&namespace, "friend", "friend")?;
    let stranger = knocker(&namespace, "stranger", "stranger")?;
    let open = listener(&namespace, "open")?;
    hears(&open, "stranger")?;

    let mut attempts = Vec::new();
    let mut victims = Vec::new();
    for _ in 0..VICTIMS {
        victims.push(listener(&namespace, "victim")?);
    }
    for victim in &victims {
        hears(victim, "friend")?;
        attempts.push(verdict(victim, "stranger", "when it starts")?);
    }
    world.cluster.restart()?;
    victims.push(listener(&namespace, "victim")?);
    for victim in &victims {
        hears(victim, "friend")?;
        attempts.push(verdict(victim, "stranger", "while Karve restarts")?);
    }
    flush_rules().context("cannot flush the packet rules")?;
    // Those who come after the rules are there again; what was on its way in between is lost to nobody's fault.
    let others = [
        knocker(&namespace, "friend", "late-friend")?,
        knocker(&namespace, "stranger", "late-stranger")?,
    ];
    hears(&open, "late-stranger")?;
    for victim in &victims {
        hears(victim, "late-friend")?;
        attempts.push(verdict(victim, "late-stranger", "after packet rules were flushed")?);
    }
    for pod in &others {
        pod.delete()?;
    }
    attempts.extend(forged(&namespace, &friend, &stranger, &victims[0])?);
    judge(&attempts)
}

/// Lets nobody but friends reach victims.
fn isolate(namespace: &Namespace<'_>) -> Result<()> {
    let friends = json!({"podSelector": {"matchLabels": {"app": "friend"}}});
    let spec = json!({
        "podSelector": {"matchLabels": {"app": "victim"}},
        "policyTypes": ["Ingress"],
        "ingress": [{"from": [friends]}],
    });
    let path = namespace.path_in("networking.k8s.io/v1", "networkpolicies");
    let policy = json!({"metadata": {"name": "friends"}, "spec": spec});
    namespace.world.admin.must_post(&path, &policy)?;
    Ok(())
}

fn labelled<'a>(namespace: &'a Namespace<'a>, label: &str, actions: &[&str]) -> Result<Pod<'a>> {
    let mut main = container(actions);
    main["securityContext"] = json!({"capabilities": {"add": ["NET_RAW"]}});
    let pod = namespace.pod_with(json!({"labels": {"app": label}}), pod_spec(vec![main], json!([])))?;
    pod.running()?;
    Ok(pod)
}

/// A pod that says a text to all its neighbours, those that are to come among them.
fn knocker<'a>(namespace: &'a Namespace<'a>, label: &str, text: &str) -> Result<Pod<'a>> {
    labelled(namespace, label, &["knock", PORT, text])
}

fn listener<'a>(namespace: &'a Namespace<'a>, label: &str) -> Result<Pod<'a>> {
    labelled(namespace, label, &["listen", PORT])
}

fn heard(pod: &Pod<'_>) -> Result<Vec<Done>> {
    pod.log(MAIN)
}

fn hears(pod: &Pod<'_>, text: &str) -> Result<()> {
    wait_for(&format!("{} to hear {text:?}", pod.name), PATIENCE, || {
        Ok(heard(pod)?.iter().any(|done| done.text() == text).then_some(()))
    })
}

/// What a victim heard that it should not have.
fn verdict(victim: &Pod<'_>, text: &str, when: &str) -> Result<Verdict> {
    let heard = heard(victim)?;
    Ok(match heard.iter().any(|done| done.text() == text) {
        true => Verdict::Succeeded(format!("a stranger reaches an isolated pod {when}")),
        false => Verdict::Blocked(format!("only friends reach an isolated pod {when}")),
    })
}

/// Packets that lie about who sends them, or take another way than through the gateway.
fn forged(namespace: &Namespace<'_>, friend: &Pod<'_>, stranger: &Pod<'_>, victim: &Pod<'_>) -> Result<Vec<Verdict>> {
    let (to, own, other) = (victim.address()?, stranger.address()?, friend.address()?);
    let link = victim.must(&["link-address"])?;
    let link = link.as_str().context("no link address")?;
    let (cluster_ip, node_port) = serve(namespace, victim)?;
    let node = NODE.to_string();
    let ways = [
        ("gateway", own.as_str(), to.as_str(), PORT),
        (link, &own, &to, PORT),
        ("broadcast", &own, &to, PORT),
        ("broadcast", &own, "255.255.255.255", PORT),
        ("gateway", &other, &to, PORT),
        (link, &other, &to, PORT),
        ("gateway", &node, &to, PORT),
        (link, &node, &to, PORT),
        ("gateway", &to, &to, PORT),
        ("gateway", &own, &cluster_ip, "80"),
        ("gateway", &own, &node, &node_port),
    ];
    for (number, (link, from, to, port)) in ways.iter().enumerate() {
        let sent = stranger.act(&["raw-datagram", link, from, to, port, &format!("forged-{number}")])?;
        ensure!(sent.ok, "the frame could not even be sent: {}", sent.error);
    }
    for (text, to, port) in [
        ("last", &to, PORT),
        ("last-of-service", &cluster_ip, "80"),
        ("last-of-port", &node, &node_port),
    ] {
        wait_for("an honest packet", PATIENCE, || {
            friend.must(&["raw-datagram", "gateway", &other, to, port, text])?;
            Ok(heard(victim)?.iter().any(|done| done.text() == text).then_some(()))
        })?;
    }
    let attempt = |(number, way): (usize, &(&str, &str, &str, &str))| {
        verdict(victim, &format!("forged-{number}"), &format!("by {way:?}"))
    };
    ways.iter().enumerate().map(attempt).collect()
}

/// A Service that leads to one victim alone: its address and its port of the node.
fn serve(namespace: &Namespace<'_>, victim: &Pod<'_>) -> Result<(String, String)> {
    let label = json!({"metadata": {"labels": {"served": "yes"}}});
    namespace.world.admin.must_merge(&victim.path(), &label)?;
    let spec = json!({
        "type": "NodePort",
        "selector": {"served": "yes"},
        "ports": [{"port": 80, "targetPort": 9999, "protocol": "UDP"}],
    });
    let service = namespace.world.admin.must_post(
        &namespace.path("services"),
        &json!({"metadata": {"name": "victims"}, "spec": spec}),
    )?;
    let address = service["spec"]["clusterIP"].as_str().context("no address")?;
    let port = &service["spec"]["ports"][0]["nodePort"];
    ensure!(*port != Value::Null, "no port of the node");
    Ok((address.to_owned(), port.to_string()))
}

/// Removes all packet rules of this network, as `nft flush ruleset` does.
fn flush_rules() -> Result<()> {
    /// `struct nlmsghdr` and `struct nfgenmsg`.
    fn message(kind: u16, flags: u16, number: u32, resource: u16) -> Vec<u8> {
        let length = 20u32;
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend((flags | libc::NLM_F_REQUEST as u16).to_ne_bytes());
        bytes.extend(number.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend([libc::AF_UNSPEC as u8, 0]);
        bytes.extend(resource.to_be_bytes());
        bytes
    }
    let subsystem = libc::NFNL_SUBSYS_NFTABLES as u16;
    let remove_tables = subsystem << 8 | libc::NFT_MSG_DELTABLE as u16;
    let acknowledged = libc::NLM_F_ACK as u16;
    let batch = [
        message(libc::NFNL_MSG_BATCH_BEGIN as u16, 0, 1, subsystem),
        message(remove_tables, acknowledged, 2, 0),
        message(libc::NFNL_MSG_BATCH_END as u16, 0, 3, subsystem),
    ]
    .concat();
    // SAFETY: it takes no pointers, and a descriptor that it gives is nobody else's.
    let socket = unsafe {
        let fd = libc::socket(
            libc::AF_NETLINK,
            libc::SOCK_RAW | libc::SOCK_CLOEXEC,
            libc::NETLINK_NETFILTER,
        );
        ensure!(fd >= 0, io::Error::last_os_error());
        OwnedFd::from_raw_fd(fd)
    };
    let mut answer = [0u8; 1024];
    // SAFETY: the buffers live until the calls return, and their lengths are theirs.
    let received = unsafe {
        let sent = libc::send(socket.as_raw_fd(), batch.as_ptr().cast(), batch.len(), 0);
        ensure!(sent == batch.len() as isize, io::Error::last_os_error());
        libc::recv(socket.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), 0)
    };
    ensure!(received >= 20, "the kernel did not answer");
    let code = i32::from_ne_bytes([answer[16], answer[17], answer[18], answer[19]]);
    ensure!(code == 0, io::Error::from_raw_os_error(-code));
    Ok(())
}
