//! A network namespace for the cluster and its attackers, with one node's address and a way to nowhere.

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};

use anyhow::{Context, Result, ensure};
use rustix::net::{AddressFamily, SocketType, socket};
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// The node's link to others.
const UPLINK: &str = "uplink";

/// The node's address.
pub const NODE: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
const MASK: Ipv4Addr = Ipv4Addr::new(255, 255, 255, 0);
/// Makes a bridge of this name.
const SIOCBRADDBR: libc::c_ulong = 0x89a0;

/// Moves this process, which must have one thread yet, into a network of its own.
pub fn enter_own() -> Result<()> {
    ensure!(
        fs::read_dir("/proc/self/task")?.count() == 1,
        "threads were started before the network was made"
    );
    // SAFETY: there is one thread, and only its network changes.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.context("cannot make a network namespace; run as root")?;
    let control = Control::open()?;
    control.up("lo")?;
    control.add_bridge(UPLINK)?;
    control.set_address(UPLINK, NODE, MASK)?;
    control.up(UPLINK)?;
    // Without a default route no packet reaches the rules that turn a Service's address into a pod's.
    control.add_default_route(UPLINK)
}

struct Control(OwnedFd);

impl Control {
    fn open() -> Result<Self> {
        Ok(Self(socket(AddressFamily::INET, SocketType::DGRAM, None)?))
    }

    fn add_bridge(&self, name: &str) -> Result<()> {
        let request = request(name);
        self.call(SIOCBRADDBR, request.ifr_name.as_ptr().cast(), "make a bridge")
    }

    fn up(&self, name: &str) -> Result<()> {
        let mut request = request(name);
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        self.call(libc::SIOCSIFFLAGS, (&raw const request).cast(), "bring a link up")
    }

    fn set_address(&self, name: &str, address: Ipv4Addr, mask: Ipv4Addr) -> Result<()> {
        let mut request = request(name);
        request.ifr_ifru.ifru_addr = socket_address(address);
        self.call(libc::SIOCSIFADDR, (&raw const request).cast(), "set an address")?;
        request.ifr_ifru.ifru_addr = socket_address(mask);
        self.call(libc::SIOCSIFNETMASK, (&raw const request).cast(), "set a mask")
    }

    fn add_default_route(&self, name: &str) -> Result<()> {
        let device = std::ffi::CString::new(name)?;
        // SAFETY: all fields of the request are numbers and pointers, for which zeros are good values.
        let mut route: libc::rtentry = unsafe { std::mem::zeroed() };
        route.rt_dst = socket_address(Ipv4Addr::UNSPECIFIED);
        route.rt_gateway = socket_address(Ipv4Addr::UNSPECIFIED);
        route.rt_genmask = socket_address(Ipv4Addr::UNSPECIFIED);
        route.rt_flags = libc::RTF_UP;
        route.rt_dev = device.as_ptr().cast_mut();
        self.call(libc::SIOCADDRT, (&raw const route).cast(), "add a route")
    }

    fn call(&self, number: libc::c_ulong, argument: *const libc::c_void, what: &str) -> Result<()> {
        // SAFETY: the argument lives until the kernel has read it.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), number as _, argument) };
        match result {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()).with_context(|| format!("cannot {what}")),
        }
    }
}

fn request(name: &str) -> libc::ifreq {
    // SAFETY: all fields of the request are numbers, for which zeros are good values.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request
}

fn socket_address(address: Ipv4Addr) -> libc::sockaddr {
    let inner = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: 0,
        sin_addr: libc::in_addr {
            s_addr: u32::from(address).to_be(),
        },
        sin_zero: [0; 8],
    };
    // SAFETY: both have the same size, and any bytes are a valid value of it.
    unsafe { std::mem::transmute(inner) }
}
