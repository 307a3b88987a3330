//! Frames that no honest network stack would send.

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use serde_json::{Value, json};

use super::{Outcome, check, number};

const LINK: &str = "eth0";
const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const BROADCAST: [u8; 6] = [0xff; 6];

/// Our address on the link, as text.
pub fn link_address(_arguments: &[String]) -> Outcome {
    Ok(json!(
        fs::read_to_string(format!("/sys/class/net/{LINK}/address"))?.trim()
    ))
}

/// `raw-datagram TO-LINK FROM TO PORT TEXT`: a datagram with any source and any destination, to a link's address (or
/// `gateway`, or `broadcast`).
pub fn raw_datagram(arguments: &[String]) -> Outcome {
    let to_link = link_of(&arguments[0])?;
    let (from, to) = (address(&arguments[1])?, address(&arguments[2])?);
    let datagram = datagram(number(&arguments[3])?, arguments[4].as_bytes());
    let packet = [ipv4_header(from, to, datagram.len()).to_vec(), datagram].concat();
    send(to_link, IPV4, &packet)
}

/// `claim ADDRESS TIMES`: tells everybody that an address is ours.
pub fn claim(arguments: &[String]) -> Outcome {
    let claimed = address(&arguments[0])?;
    let own = own_link()?;
    for _ in 0..number::<u32>(&arguments[1])? {
        // Both an answer that nobody asked for and a question that tells the same.
        for operation in [2u8, 1] {
            let mut packet = vec![0, 1, 8, 0, 6, 4, 0, operation];
            packet.extend(own);
            packet.extend(claimed.octets());
            packet.extend(if operation == 2 { BROADCAST } else { [0; 6] });
            packet.extend(claimed.octets());
            send(BROADCAST, ARP, &packet)?;
        }
    }
    Ok(Value::Null)
}

fn datagram(port: u16, text: &[u8]) -> Vec<u8> {
    let mut bytes = 40_000u16.to_be_bytes().to_vec();
    bytes.extend(port.to_be_bytes());
    bytes.extend((8 + text.len() as u16).to_be_bytes());
    // Without a sum, which IPv4 allows.
    bytes.extend([0, 0]);
    bytes.extend_from_slice(text);
    bytes
}

fn ipv4_header(from: Ipv4Addr, to: Ipv4Addr, length: usize) -> [u8; 20] {
    let mut header = [0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, 17, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    header[2..4].copy_from_slice(&((20 + length) as u16).to_be_bytes());
    header[12..16].copy_from_slice(&from.octets());
    header[16..20].copy_from_slice(&to.octets());
    let sum: u32 = header
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    header
}

fn send(to: [u8; 6], protocol: u16, payload: &[u8]) -> Outcome {
    let mut frame = to.to_vec();
    frame.extend(own_link()?);
    frame.extend(protocol.to_be_bytes());
    frame.extend_from_slice(payload);
    // SAFETY: it makes a descriptor, which is owned from then on.
    let socket = unsafe {
        let number = check(i64::from(libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0)))?;
        OwnedFd::from_raw_fd(number as i32)
    };
    // SAFETY: all fields are numbers, for which zeros are good values.
    let mut place: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    place.sll_family = libc::AF_PACKET as u16;
    // SAFETY: the name is a text that ends with a zero.
    place.sll_ifindex = unsafe { libc::if_nametoindex(c"eth0".as_ptr()) } as i32;
    place.sll_halen = 6;
    // SAFETY: frame and place live until the call returns, and their lengths are theirs.
    let sent = unsafe {
        libc::sendto(
            socket.as_raw_fd(),
            frame.as_ptr().cast(),
            frame.len(),
            0,
            (&raw const place).cast(),
            size_of::<libc::sockaddr_ll>() as u32,
        )
    };
    check(sent as i64).map(|count| json!(count))
}

fn own_link() -> io::Result<[u8; 6]> {
    parse_link(fs::read_to_string(format!("/sys/class/net/{LINK}/address"))?.trim())
}

/// The link address that a packet goes to.
fn link_of(text: &str) -> io::Result<[u8; 6]> {
    match text {
        "broadcast" => Ok(BROADCAST),
        "gateway" => gateway(),
        other => parse_link(other),
    }
}

/// That of the default route's other end, which a packet before made known.
fn gateway() -> io::Result<[u8; 6]> {
    let routes = fs::read_to_string("/proc/net/route")?;
    let fields = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let default = routes
        .lines()
        .skip(1)
        .map(fields)
        .find(|route| route.get(1).is_some_and(|to| to == "00000000"));
    let gateway = default.and_then(|route| u32::from_str_radix(route.get(2)?, 16).ok());
    let gateway = Ipv4Addr::from(
        gateway
            .ok_or_else(|| io::Error::other("there is no default route"))?
            .to_le_bytes(),
    );
    // Any packet makes the kernel ask who has it.
    let _ = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?.send_to(b"?", (gateway, 9));
    for _ in 0..200 {
        let table = fs::read_to_string("/proc/net/arp")?;
        let entry = table
            .lines()
            .map(fields)
            .find(|entry| entry.first().is_some_and(|known| *known == gateway.to_string()));
        if let Some(link) = entry
            .as_ref()
            .and_then(|entry| entry.get(3))
            .filter(|link| *link != "00:00:00:00:00:00")
        {
            return parse_link(link);
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    Err(io::Error::other("the gateway does not answer"))
}

fn parse_link(text: &str) -> io::Result<[u8; 6]> {
    let bytes: Option<Vec<u8>> = text.split(':').map(|part| u8::from_str_radix(part, 16).ok()).collect();
    let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
    bytes.ok_or_else(|| io::Error::other(format!("{text:?} is no link address")))
}

fn address(text: &str) -> io::Result<Ipv4Addr> {
    number(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_adds_up_to_nothing() {
        let header = ipv4_header(Ipv4Addr::new(10, 244, 0, 9), Ipv4Addr::LOCALHOST, 12);
        let sum: u32 = header
            .chunks(2)
            .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
            .sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
    }
}
