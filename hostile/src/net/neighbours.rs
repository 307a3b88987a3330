//! Pods that say to be their neighbours.

use std::fs;
use std::thread;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::cases::Case;
use crate::pods::{Pod, container, pod_spec};
use crate::signals::wait_for;
use crate::verdict::{Verdict, blocked, judge, succeeded};
use crate::world::{PATIENCE, World};

pub const ADDRESS_OF_ANOTHER: Case = Case {
    name: "network/address-of-another",
    class: "",
    must_not: "A pod makes others or the node believe, by ARP, that a neighbour's address is its own.",
    needs: &[],
    run: address_of_another,
};

pub const SOURCE_OF_ANOTHER: Case = Case {
    name: "network/source-of-another",
    class: "",
    must_not: "A pod sends packets under the address of another pod or of the node.",
    needs: &[],
    run: source_of_another,
};

/// The capability is in every runtime's default; it is asked for so that the attack does not depend on that.
fn raw(actions: &[&str]) -> serde_json::Value {
    let mut main = container(actions);
    main["securityContext"] = json!({"capabilities": {"add": ["NET_RAW"]}});
    pod_spec(vec![main], json!([]))
}

/// Whom the node takes for the owner of an address.
fn owner(address: &str) -> Result<Option<String>> {
    let table = fs::read_to_string("/proc/net/arp")?;
    let entry = table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .find(|entry| entry.first() == Some(&address));
    Ok(entry.and_then(|entry| entry.get(3).map(|link| (*link).to_owned())))
}

fn address_of_another(world: &World) -> Result<Verdict> {
    let namespace = world.namespace(json!({}))?;
    let victim = namespace.pod(pod_spec(vec![container(&["serve", "8080", "victim"])], json!([])))?;
    let attacker = namespace.pod(raw(&["wait"]))?;
    let third = namespace.attacker()?;
    victim.running()?;
    attacker.running()?;
    let address = victim.address()?;
    let link = victim
        .must(&["link-address"])?
        .as_str()
        .context("no link address")?
        .to_owned();
    let own = attacker
        .must(&["link-address"])?
        .as_str()
        .context("no link address")?
        .to_owned();
    ensure!(own != link, "both pods have the same link address");
    answers(&third, &address)?;
    wait_for("the node to know the victim", PATIENCE, || {
        let _ = std::net::TcpStream::connect((address.as_str(), 8080));
        Ok(owner(&address)?.filter(|known| *known == link))
    })?;

    let claimed = attacker.act(&["claim", &address, "20"])?;
    let mut attempts = Vec::new();
    let after = owner(&address)?;
    attempts.push(match after.as_deref() == Some(own.as_str()) {
        true => Verdict::Succeeded("the node takes the attacker for the victim".to_owned()),
        false => Verdict::Blocked(format!("frames sent: {}; the node knows better", claimed.ok)),
    });
    let seen = third.act(&["read", "/proc/net/arp"])?;
    let poisoned = seen
        .text()
        .lines()
        .any(|line| line.starts_with(&address) && line.contains(&own));
    attempts.push(match poisoned {
        true => Verdict::Succeeded("another pod takes the attacker for the victim".to_owned()),
        false => Verdict::Blocked("another pod knows better".to_owned()),
    });
    ensure!(
        claimed.ok || claimed.error == "EPERM",
        "the frames could not even be made: {}",
        claimed.error
    );
    let still = third.act(&["ask", &address, "8080", "/"])?;
    attempts.push(match still.text().contains("victim") {
        true => Verdict::Blocked("the victim still answers".to_owned()),
        false => Verdict::Succeeded(format!("the victim is cut off: {}", still.error)),
    });
    judge(&attempts)
}

fn answers(pod: &Pod<'_>, address: &str) -> Result<()> {
    wait_for("the victim to answer", PATIENCE, || {
        Ok(pod
            .act(&["ask", address, "8080", "/"])?
            .text()
            .contains("victim")
            .then_some(()))
    })
}

fn source_of_another(world: &World) -> Result<Verdict> {
    let namespace = world.namespace(json!({}))?;
    let receiver = namespace.attacker()?;
    let attacker = namespace.pod(raw(&["wait"]))?;
    attacker.running()?;
    let victim = namespace.attacker()?;
    let (to, own, forged) = (receiver.address()?, attacker.address()?, victim.address()?);
    let link = receiver
        .must(&["link-address"])?
        .as_str()
        .context("no link address")?
        .to_owned();
    let node = crate::network::NODE.to_string();
    let received = thread::scope(|scope| {
        let receiving = scope.spawn(|| receiver.act(&["receive", "9999", "4"]));
        let send = |from: &str, text: &str| -> Result<()> {
            for _ in 0..5 {
                attacker.act(&["raw-datagram", &link, from, &to, "9999", text])?;
            }
            Ok(())
        };
        // Until the receiver listens, all of them are lost.
        thread::sleep(std::time::Duration::from_secs(1));
        let sent = send(&own, "honest")
            .and_then(|()| send(&forged, "forged"))
            .and_then(|()| send(&node, "forged-node"));
        (receiving.join(), sent)
    });
    let (Ok(received), sent) = received else {
        anyhow::bail!("receiving panicked")
    };
    sent?;
    let received = received?.value.to_string();
    ensure!(
        received.contains("honest"),
        "not even an honest packet arrived: {received}"
    );
    match received.contains("forged") {
        true => succeeded(format!("packets of others arrived: {received}")),
        false => blocked("only packets with the pod's own address arrived"),
    }
}
