//! Pods that try to get around the rules by frames of their own, as one with NET_RAW or NET_ADMIN could.

use std::io;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use serde_json::{Value, json};

use crate::node::Node;
use crate::support::{Pod, filter_bridges, on_new_host};

/// A frame with one UDP packet to port 7000 in it.
fn frame(to: [u8; 6], from: &Pod, destination: IpAddr, payload: &[u8]) -> Vec<u8> {
    let octets = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => ip.octets(),
        IpAddr::V6(_) => panic!("{ip}"),
    };
    let source = octets(from.ips[0]);
    let length = 28 + payload.len() as u16;
    let mut header = vec![0x45, 0];
    header.extend(length.to_be_bytes());
    header.extend([0, 0, 0, 0, 64, 17, 0, 0]);
    header.extend(source);
    header.extend(octets(destination));
    let sum: u32 = header
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    let sum = !((sum >> 16) + (sum & 0xffff)) as u16;
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    let udp = [4242u16, 7000, length - 20, 0].map(u16::to_be_bytes).concat();
    [&to[..], &mac(from.ips[0]), &[8, 0], &header, &udp, payload].concat()
}

fn mac(ip: IpAddr) -> [u8; 6] {
    match ip {
        IpAddr::V4(ip) => {
            let [a, b, c, d] = ip.octets();
            [0x0a, 0x4b, a, b, c, d]
        }
        IpAddr::V6(_) => panic!("{ip}"),
    }
}

fn send(pod: &Pod, frame: &[u8]) {
    let sent = pod.namespace.run(|| {
        let every = (libc::ETH_P_ALL as u16).to_be();
        // SAFETY: socket takes no pointers, and a descriptor that it gives is nobody else's.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, i32::from(every)) };
        assert!(fd >= 0, "{}", io::Error::last_os_error());
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: the address and the frame are live for the lengths given; all zeros but these fields are valid.
        unsafe {
            let mut address: libc::sockaddr_ll = std::mem::zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_ifindex = libc::if_nametoindex(c"eth0".as_ptr()) as i32;
            libc::sendto(
                socket.as_raw_fd(),
                frame.as_ptr().cast(),
                frame.len(),
                0,
                (&raw const address).cast(),
                size_of_val(&address) as u32,
            )
        }
    });
    assert_eq!(sent.unwrap(), frame.len() as isize, "{}", io::Error::last_os_error());
}

/// What arrives at the victim of an attack, which is told from an honest packet after it by its payload.
fn arrives(node: &mut Node, spec: Value, attack: impl Fn(&Pod, &Pod) -> Vec<u8>) -> Vec<String> {
    let [victim, attacker] = ["victim", "attacker"].map(|name| node.pod(name));
    let any = std::net::Ipv4Addr::UNSPECIFIED;
    let server = victim.namespace.run(|| UdpSocket::bind((any, 7000))).unwrap().unwrap();
    server.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    node.put_policy("p", spec);
    send(&attacker, &attack(&victim, &attacker));
    // The node is let in whatever policies say, and by the same way at the end.
    let host = UdpSocket::bind((any, 0)).unwrap();
    host.send_to(b"last", (victim.ips[0], 7000)).unwrap();
    let mut arrived = Vec::new();
    loop {
        let mut buffer = [0; 64];
        let (length, _) = server.recv_from(&mut buffer).expect("the last packet");
        let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
        if text == "last" {
            return arrived;
        }
        arrived.push(text);
    }
}

fn deny(app: &str, direction: &str) -> Value {
    json!({"podSelector": {"matchLabels": {"app": app}}, "policyTypes": [direction]})
}

/// Straight to the neighbour's hardware address, or to everybody's: such a frame is not routed, and the rules where
/// packets are routed do not see it.
#[test]
fn frames_straight_to_a_neighbour_do_not_get_around_policies() {
    for filter in [false, true] {
        for (app, direction) in [("victim", "Ingress"), ("attacker", "Egress")] {
            for (what, to) in [("unicast", None), ("broadcast", Some([0xff; 6]))] {
                on_new_host(|| {
                    filter_bridges(filter);
                    let mut node = Node::new();
                    let attack = |victim: &Pod, attacker: &Pod| {
                        let to = to.unwrap_or(mac(victim.ips[0]));
                        frame(to, attacker, victim.ips[0], b"attack")
                    };
                    let arrived = arrives(&mut node, deny(app, direction), attack);
                    assert!(arrived.is_empty(), "{what} {direction} filter {filter}");
                });
            }
        }
    }
}

/// The same frames arrive where no policy is in their way, so that the test above shows something.
#[test]
fn the_same_frames_arrive_where_no_policy_is() {
    for to in [None, Some([0xff; 6])] {
        on_new_host(|| {
            filter_bridges(false);
            let mut node = Node::new();
            let attack = |victim: &Pod, attacker: &Pod| {
                let to = to.unwrap_or(mac(victim.ips[0]));
                frame(to, attacker, victim.ips[0], b"attack")
            };
            let arrived = arrives(&mut node, deny("nobody", "Ingress"), attack);
            assert_eq!(arrived, ["attack"]);
        });
    }
}

/// Broadcasts and multicasts are for pods too that nobody may talk to, also where the kernel applies the rules for packets
/// to what bridges carry.
#[test]
fn an_isolated_pod_hears_no_broadcast_of_its_neighbours() {
    let everybody: [(IpAddr, [u8; 6]); 2] = [
        ([255, 255, 255, 255].into(), [0xff; 6]),
        ([224, 0, 0, 1].into(), [1, 0, 0x5e, 0, 0, 1]),
    ];
    for filter in [false, true] {
        for (to, hardware) in everybody {
            for (app, expected) in [("victim", &[][..]), ("nobody", &["attack"])] {
                on_new_host(|| {
                    filter_bridges(filter);
                    let mut node = Node::new();
                    let arrived = arrives(&mut node, deny(app, "Ingress"), |_, attacker| {
                        frame(hardware, attacker, to, b"attack")
                    });
                    assert_eq!(arrived, expected, "{to} filter {filter}");
                });
            }
        }
    }
}

/// The kernel first asks whether another has the address.
fn address_of_link_is_ready(pod: &Pod) {
    crate::support::eventually(
        || match pod.run("ip", &["-6", "address", "show", "dev", "eth0", "tentative"]) {
            none if none.is_empty() => Ok(()),
            some => Err(some),
        },
    );
}

/// IPv6 gives every link an address of its own, which no policy knows.
#[test]
fn an_isolated_pod_is_not_reached_by_the_address_of_its_link() {
    for filter in [false, true] {
        for (app, direction) in [("victim", "Ingress"), ("attacker", "Egress"), ("nobody", "Ingress")] {
            on_new_host(|| {
                filter_bridges(filter);
                let mut node = Node::new();
                let [victim, attacker] = ["victim", "attacker"].map(|name| node.pod(name));
                let any = std::net::Ipv6Addr::UNSPECIFIED;
                let open = |pod: &Pod, port: u16| pod.namespace.run(|| UdpSocket::bind((any, port))).unwrap().unwrap();
                let (server, client) = (open(&victim, 7000), open(&attacker, 0));
                server.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
                node.put_policy("p", deny(app, direction));
                address_of_link_is_ready(&victim);
                address_of_link_is_ready(&attacker);
                let [a, b, c, d, e, f] = mac(victim.ips[0]);
                let address = format!(
                    "fe80::{:x}:{:x}ff:fe{d:02x}:{e:02x}{f:02x}",
                    u16::from(a ^ 2) << 8 | u16::from(b),
                    c
                );
                let hardware = format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}");
                attacker.run(
                    "ip",
                    &["neighbour", "replace", &address, "lladdr", &hardware, "dev", "eth0"],
                );
                let address: std::net::Ipv6Addr = address.parse().unwrap();
                let scope = attacker
                    .namespace
                    .run(|| unsafe { libc::if_nametoindex(c"eth0".as_ptr()) })
                    .unwrap();
                client
                    .send_to(b"attack", std::net::SocketAddrV6::new(address, 7000, 0, scope))
                    .unwrap();
                let host = UdpSocket::bind((std::net::Ipv4Addr::UNSPECIFIED, 0)).unwrap();
                host.send_to(b"last", (victim.ips[0], 7000)).unwrap();
                let mut buffer = [0; 64];
                let (length, _) = server.recv_from(&mut buffer).unwrap();
                let expected = if app == "nobody" { "attack" } else { "last" };
                let first = String::from_utf8_lossy(&buffer[..length]).into_owned();
                assert_eq!(first, expected, "{app} {direction} filter {filter}");
            });
        }
    }
}

/// Only the first packet of a connection is judged, so nobody may make others believe that one exists.
#[test]
fn an_answer_that_nobody_asked_for_is_not_let_in() {
    on_new_host(|| {
        filter_bridges(false);
        let mut node = Node::new();
        let [victim, attacker] = ["victim", "attacker"].map(|name| node.pod(name));
        node.put_policy("p", deny("victim", "Ingress"));
        let any = std::net::Ipv4Addr::UNSPECIFIED;
        let open = |pod: &Pod, port: u16| pod.namespace.run(|| UdpSocket::bind((any, port))).unwrap().unwrap();
        let (server, client) = (open(&victim, 7000), open(&attacker, 53));
        server.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        client.send_to(b"answer", (victim.ips[0], 7000)).unwrap();
        assert!(server.recv_from(&mut [0; 64]).is_err());
        // Once the victim has asked, the answer is welcome.
        server.send_to(b"question", (attacker.ips[0], 53)).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        client.recv_from(&mut [0; 64]).unwrap();
        server.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        client.send_to(b"answer", (victim.ips[0], 7000)).unwrap();
        server.recv_from(&mut [0; 64]).unwrap();
    });
}
