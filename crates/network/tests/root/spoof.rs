//! Pods that lie about who they are. Every frame is sent by a raw socket, as a pod with NET_RAW or NET_ADMIN could.

use std::io;
use std::net::{IpAddr, TcpListener, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use network::bridge::{self, Bridge, BridgeOptions};
use network::{PodNetwork, SandboxNetwork};

use crate::support::{Pod, block_on, eventually, filter_bridges, neighbour, on_new_host, run};

const GATEWAY: [u8; 4] = [10, 244, 0, 1];
const BROADCAST: [u8; 6] = [0xff; 6];
const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const VLAN: u16 = 0x8100;
const IPV6: u16 = 0x86dd;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;

fn options(dir: &std::path::Path) -> BridgeOptions {
    BridgeOptions {
        pod_cidrs: vec!["10.244.0.0/24".parse().unwrap(), "fd00:244::/64".parse().unwrap()],
        cluster_cidrs: vec!["10.244.0.0/16".parse().unwrap()],
        ..BridgeOptions::new(dir.join("network"))
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A socket of the pod's that sends and sees all frames of its interface.
struct Wire(OwnedFd);

impl Wire {
    fn of(pod: &Pod) -> Wire {
        let opened = pod.namespace.run(|| {
            let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
            let every = i32::from((libc::ETH_P_ALL as u16).to_be());
            // SAFETY: socket takes no pointers, and a descriptor that it gives is nobody else's.
            let fd = unsafe { libc::socket(libc::AF_PACKET, kind, every) };
            assert!(fd >= 0, "{}", io::Error::last_os_error());
            let wire = Wire(unsafe { OwnedFd::from_raw_fd(fd) });
            // SAFETY: the address is a live value of the length given; all zeros but these fields are valid.
            let bound = unsafe {
                let mut address: libc::sockaddr_ll = std::mem::zeroed();
                address.sll_family = libc::AF_PACKET as u16;
                address.sll_protocol = every as u16;
                address.sll_ifindex = libc::if_nametoindex(c"eth0".as_ptr()) as i32;
                libc::bind(fd, (&raw const address).cast(), size_of_val(&address) as u32)
            };
            assert_eq!(bound, 0, "{}", io::Error::last_os_error());
            let patience = libc::timeval { tv_sec: 5, tv_usec: 0 };
            // SAFETY: the value is live and of the length given.
            unsafe {
                libc::setsockopt(
                    fd,
                    libc::SOL_SOCKET,
                    libc::SO_RCVTIMEO,
                    (&raw const patience).cast(),
                    size_of_val(&patience) as u32,
                );
            }
            wire
        });
        opened.unwrap()
    }

    fn send(&self, frame: &[u8]) {
        // SAFETY: the frame is live for the length given.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        assert_eq!(sent, frame.len() as isize, "{}", io::Error::last_os_error());
    }

    /// All frames that come in until that one does.
    fn until(&self, last: &[u8]) -> Vec<Vec<u8>> {
        let mut seen = Vec::new();
        loop {
            let mut frame = vec![0; 2048];
            // SAFETY: the buffer is writable for the length given.
            let length = unsafe { libc::recv(self.0.as_raw_fd(), frame.as_mut_ptr().cast(), frame.len(), 0) };
            assert!(length >= 0, "the last frame never came: {}", io::Error::last_os_error());
            frame.truncate(length as usize);
            if frame == last {
                return seen;
            }
            seen.push(frame);
        }
    }
}

fn mac(ip: [u8; 4]) -> [u8; 6] {
    [0x0a, 0x4b, ip[0], ip[1], ip[2], ip[3]]
}

fn frame(from: [u8; 6], kind: u16, rest: &[u8]) -> Vec<u8> {
    [&BROADCAST[..], &from, &kind.to_be_bytes(), rest].concat()
}

fn arp(from: [u8; 6], reply: bool, sender: ([u8; 6], [u8; 4]), target: [u8; 4]) -> Vec<u8> {
    let kind = [0, 1, 8, 0, 6, 4, 0, 1 + u8::from(reply)];
    let rest = [&kind[..], &sender.0, &sender.1, &BROADCAST, &target].concat();
    frame(from, ARP, &rest)
}

fn ipv4(from: [u8; 6], source: [u8; 4], source_port: u16) -> Vec<u8> {
    let mut header = vec![0x45, 0, 0, 32, 0, 0, 0, 0, 64, UDP, 0, 0];
    header.extend(source);
    header.extend([10, 244, 0, 255]);
    let sum: u32 = header
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    let sum = !((sum >> 16) + (sum & 0xffff)) as u16;
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    let ports = [
        source_port.to_be_bytes(),
        68u16.to_be_bytes(),
        12u16.to_be_bytes(),
        [0, 0],
    ]
    .concat();
    frame(from, IPV4, &[header, ports, vec![0; 4]].concat())
}

fn ipv6(from: [u8; 6], source: &str, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let address = |text: &str| match ip(text) {
        IpAddr::V6(address) => address.octets(),
        IpAddr::V4(_) => panic!("{text}"),
    };
    let [high, low] = (payload.len() as u16).to_be_bytes();
    let header = [0x60, 0, 0, 0, high, low, protocol, 255];
    frame(
        from,
        IPV6,
        &[&header[..], &address(source), &address("ff02::1"), payload].concat(),
    )
}

/// Neighbour discovery's message about an address.
fn discovery(kind: u8, target: &str) -> Vec<u8> {
    let IpAddr::V6(target) = ip(target) else { panic!() };
    [&[kind, 0, 0, 0, 0xa0, 0, 0, 0][..], &target.octets()].concat()
}

fn tagged(frame: &[u8]) -> Vec<u8> {
    [&frame[..12], &VLAN.to_be_bytes(), &[0, 5], &frame[12..]].concat()
}

#[test]
fn no_pod_speaks_as_another() {
    for filter in [true, false] {
        on_new_host(|| check_lies(filter));
    }
}

fn check_lies(filter: bool) {
    filter_bridges(filter);
    let dir = tempfile::tempdir().unwrap();
    let network = bridge::open(options(dir.path())).unwrap();
    block_on(async {
        let (a, b) = (
            Pod::new("a").connected(&network).await,
            Pod::new("b").connected(&network).await,
        );
        let (own, other) = ([10, 244, 0, 2], [10, 244, 0, 3]);
        assert_eq!((a.ips[0], b.ips[0]), (IpAddr::from(own), IpAddr::from(other)));
        let (me, you, link_local) = (mac(own), mac(other), "fe80::84b:aff:fef4:2");
        let nobody = [2, 2, 2, 2, 2, 2];
        let udp = [&547u16.to_be_bytes()[..], &546u16.to_be_bytes(), &[0, 8, 0, 0]].concat();
        let lies = [
            ("ARP: the gateway is here", arp(me, true, (me, GATEWAY), other)),
            ("ARP: your address is mine", arp(me, true, (me, other), other)),
            ("ARP: the gateway is over there", arp(me, true, (nobody, own), other)),
            ("ARP in another's name", arp(you, true, (me, own), other)),
            ("ARP from nobody", arp(me, false, (me, [0; 4]), other)),
            ("ARP behind a tag", tagged(&arp(me, true, (me, GATEWAY), other))),
            ("an address of nobody", ipv4(me, [10, 244, 0, 77], 5000)),
            ("another's address", ipv4(me, other, 5000)),
            ("loopback", ipv4(me, [127, 0, 0, 1], 5000)),
            ("the own address behind a tag", tagged(&ipv4(me, own, 5000))),
            ("another's hardware address", ipv4(you, own, 5000)),
            ("nobody's hardware address", ipv4(nobody, own, 5000)),
            ("an offer by DHCP", ipv4(me, own, 67)),
            ("an offer by DHCPv6", ipv6(me, link_local, UDP, &udp)),
            ("a router", ipv6(me, link_local, ICMPV6, &discovery(134, "::"))),
            (
                "a redirect",
                ipv6(me, link_local, ICMPV6, &discovery(137, "fd00:244::1")),
            ),
            (
                "ND: the gateway is here",
                ipv6(me, "fd00:244::2", ICMPV6, &discovery(136, "fd00:244::1")),
            ),
            (
                "ND: your address is mine",
                ipv6(me, link_local, ICMPV6, &discovery(136, "fd00:244::3")),
            ),
            (
                "ND: is your address free",
                ipv6(me, "::", ICMPV6, &discovery(135, "fd00:244::3")),
            ),
            (
                "another's IPv6 address",
                ipv6(me, "fd00:244::3", ICMPV6, &discovery(135, "fd00:244::1")),
            ),
            (
                "another's address of the link",
                ipv6(me, "fe80::1", ICMPV6, &discovery(135, "fd00:244::1")),
            ),
            ("another protocol", frame(me, 0x88cc, &[0; 46])),
        ];
        let truths = [
            ("ARP", arp(me, false, (me, own), other)),
            ("IPv4", ipv4(me, own, 5000)),
            (
                "ND by the address",
                ipv6(me, "fd00:244::2", ICMPV6, &discovery(135, "fd00:244::1")),
            ),
            (
                "ND by the address of the link",
                ipv6(me, link_local, ICMPV6, &discovery(136, "fd00:244::2")),
            ),
            (
                "ND: is my address free",
                ipv6(me, "::", ICMPV6, &discovery(135, "fd00:244::2")),
            ),
        ];
        let (attacker, victim) = (Wire::of(&a), Wire::of(&b));
        let last = ipv4(me, own, 4242);
        for (what, lie) in &lies {
            attacker.send(lie);
            attacker.send(&last);
            let seen = victim.until(&last);
            assert!(!seen.contains(lie), "{what} came through, filter {filter}");
            // A tag is told apart from the frame on its way.
            let untagged = [&lie[..12], &lie[16..]].concat();
            assert!(!seen.contains(&untagged), "{what} came through without its tag");
        }
        for (what, truth) in &truths {
            attacker.send(truth);
            attacker.send(&last);
            assert!(victim.until(&last).contains(truth), "{what} was lost, filter {filter}");
        }
    });
}

#[test]
fn a_pod_with_another_address_gets_no_answer() {
    on_new_host(|| {
        let dir = tempfile::tempdir().unwrap();
        let network = bridge::open(options(dir.path())).unwrap();
        block_on(async {
            let (a, b) = (
                Pod::new("a").connected(&network).await,
                Pod::new("b").connected(&network).await,
            );
            b.serve_tcp(80);
            let host = UdpSocket::bind("10.244.0.1:9999").unwrap();
            host.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            a.run("ip", &["address", "add", "10.244.0.3/32", "dev", "eth0"]);
            let say = |from: &'static str, text: &'static str| {
                let said = a
                    .namespace
                    .run(move || UdpSocket::bind((from, 0))?.send_to(text.as_bytes(), "10.244.0.1:9999"));
                said.unwrap().unwrap();
            };
            say("10.244.0.3", "I am b");
            say("10.244.0.2", "I am a");
            let mut buffer = [0; 64];
            let (length, from) = host.recv_from(&mut buffer).unwrap();
            assert_eq!((&buffer[..length], from.ip()), (&b"I am a"[..], ip("10.244.0.2")));

            a.run("ip", &["address", "del", "10.244.0.3/32", "dev", "eth0"]);
            a.run("ip", &["link", "set", "eth0", "address", "0a:4b:0a:f4:00:03"]);
            assert_eq!(a.get(b.ips[0], 80), "timed out");
            a.run("ip", &["link", "set", "eth0", "address", "0a:4b:0a:f4:00:02"]);
            assert_eq!(a.get(b.ips[0], 80), "b saw 10.244.0.2");
        });
    });
}

#[test]
fn the_bridge_learns_nothing_from_pods_and_shows_them_nothing_of_others() {
    on_new_host(|| {
        let dir = tempfile::tempdir().unwrap();
        let network = bridge::open(options(dir.path())).unwrap();
        block_on(async {
            let (a, b) = (
                Pod::new("a").connected(&network).await,
                Pod::new("b").connected(&network).await,
            );
            let me = mac([10, 244, 0, 2]);
            let (attacker, victim) = (Wire::of(&a), Wire::of(&b));
            for number in 0..200 {
                attacker.send(&ipv4([2, 2, 2, 2, 2, number], [10, 244, 0, 2], 5000));
            }
            attacker.send(&ipv4(mac([10, 244, 0, 3]), [10, 244, 0, 2], 5000));
            let last = ipv4(me, [10, 244, 0, 2], 4242);
            attacker.send(&last);
            victim.until(&last);
            let known = run("bridge", &["fdb", "show", "br", "karve0"]);
            assert!(!known.contains("02:02:02"), "{known}");
            let of_b = known.lines().filter(|line| line.starts_with("0a:4b:0a:f4:00:03"));
            assert!(
                of_b.clone().count() == 1 && of_b.clone().all(|line| line.contains("static")),
                "{known}"
            );

            // What the host sends to an address that nobody has is nobody's to see.
            run(
                "ip",
                &[
                    "neighbour",
                    "add",
                    "10.244.0.99",
                    "lladdr",
                    "0a:4b:0a:f4:00:63",
                    "dev",
                    "karve0",
                ],
            );
            UdpSocket::bind("10.244.0.1:0")
                .unwrap()
                .send_to(b"secret", "10.244.0.99:53")
                .unwrap();
            attacker.send(&last);
            let seen = victim.until(&last);
            assert!(
                !seen
                    .iter()
                    .any(|frame| frame.windows(6).any(|bytes| bytes == b"secret"))
            );
        });
    });
}

fn set_up_again(sandbox: &SandboxNetwork, dir: &std::path::Path) -> Bridge {
    let network = eventually(|| bridge::open(options(dir)));
    let other = SandboxNetwork {
        id: "sandbox-of-b".to_owned(),
        ..sandbox.clone()
    };
    let live = [sandbox.clone(), other];
    block_on(network.reconcile(&live)).unwrap();
    network
}

#[test]
fn pods_of_an_earlier_version_are_guarded_too_and_stay_connected() {
    on_new_host(|| {
        let dir = tempfile::tempdir().unwrap();
        let network = bridge::open(options(dir.path())).unwrap();
        let (a, b) = block_on(async {
            (
                Pod::new("a").connected(&network).await,
                Pod::new("b").connected(&network).await,
            )
        });
        b.serve_tcp(80);
        drop(network);
        let forget = || run("nft", &["delete", "table", "bridge", "karve0-guard"]);
        // The kernel chose the hardware addresses of pods then.
        a.run("ip", &["link", "set", "eth0", "address", "02:11:22:33:44:55"]);
        forget();
        drop(set_up_again(&a.sandbox, dir.path()));
        assert_eq!(a.get(b.ips[0], 80), "b saw 10.244.0.2");
        let (attacker, victim) = (Wire::of(&a), Wire::of(&b));
        let own = [2, 0x11, 0x22, 0x33, 0x44, 0x55];
        let lie = arp(own, true, (own, GATEWAY), [10, 244, 0, 3]);
        let last = ipv4(own, [10, 244, 0, 2], 4242);
        attacker.send(&lie);
        attacker.send(&last);
        assert!(!victim.until(&last).contains(&lie));
        // A pod that took another's hardware address meanwhile does not get it.
        a.run("ip", &["link", "set", "eth0", "address", "0a:4b:0a:f4:00:03"]);
        forget();
        drop(set_up_again(&a.sandbox, dir.path()));
        let known = run("nft", &["list", "set", "bridge", "karve0-guard", "sources-4"]);
        assert!(!known.contains("0a:4b:0a:f4:00:03 . 10.244.0.2"), "{known}");
        assert!(known.contains("0a:4b:0a:f4:00:02 . 10.244.0.2"), "{known}");
    });
}

#[test]
fn rules_that_somebody_removed_are_made_anew() {
    on_new_host(|| {
        let dir = tempfile::tempdir().unwrap();
        let network = bridge::open(options(dir.path())).unwrap();
        block_on(async {
            let a = Pod::new("a").connected(&network).await;
            let b = Pod::new("b").connected(&network).await;
            b.serve_tcp(80);
            run("nft", &["flush", "ruleset"]);
            network.teardown(&a.sandbox).await.unwrap();
            let c = Pod::new("c").connected(&network).await;
            assert_eq!(c.get(b.ips[0], 80), "b saw 10.244.0.4");
            let (attacker, victim) = (Wire::of(&b), Wire::of(&c));
            let me = mac([10, 244, 0, 3]);
            let lie = arp(me, true, (me, GATEWAY), [10, 244, 0, 4]);
            let last = ipv4(me, [10, 244, 0, 3], 4242);
            attacker.send(&lie);
            attacker.send(&last);
            assert!(!victim.until(&last).contains(&lie), "b was connected before");
        });
    });
}

#[test]
fn neighbours_of_the_node_do_not_reach_its_loopback() {
    on_new_host(|| {
        let dir = tempfile::tempdir().unwrap();
        let network = bridge::open(options(dir.path())).unwrap();
        let outside = neighbour("outside");
        let _loopback = TcpListener::bind("127.0.0.1:7777").unwrap();
        block_on(async {
            let a = Pod::new("a").connected(&network).await;
            for (machine, gateway) in [(&outside, "192.0.2.1"), (&a, "10.244.0.1")] {
                assert_eq!(machine.reach_loopback_through(gateway, 7777), "timed out", "{gateway}");
            }
        });
    });
}

#[test]
fn the_rules_can_be_read_by_people() {
    on_new_host(|| {
        let dir = tempfile::tempdir().unwrap();
        let network = bridge::open(options(dir.path())).unwrap();
        block_on(async {
            let _a = Pod::new("a").connected(&network).await;
            let listed = run("nft", &["list", "set", "bridge", "karve0-guard", "ports"]);
            let name = run("ip", &["-br", "link", "show", "type", "veth"]);
            let name = name.split('@').next().unwrap();
            assert!(listed.contains(&format!("\"{name}\"")), "{listed}");
        });
    });
}
