//! A host and its pods, each a network namespace that goes with the test. Other crates' tests include this file.

#![allow(dead_code)]

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::time::Duration;

use network::netlink::Namespace;
use network::{PodNetwork, PortMapping, SandboxNetwork};

/// Runs a test on a host of its own: this thread, and all the threads it starts, are in a new network namespace.
pub fn on_new_host(test: impl FnOnce()) {
    if let Some(why) = hindrance() {
        assert!(std::env::var_os("KARVE_REQUIRE_ALL").is_none(), "{why}");
        eprintln!("SKIPPED: {why}");
        return;
    }
    run("ip", &["link", "set", "lo", "up"]);
    test();
}

/// Moves this thread to a new network namespace, or says why it cannot.
fn hindrance() -> Option<&'static str> {
    // SAFETY: neither call takes pointers.
    if unsafe { libc::geteuid() != 0 || libc::unshare(libc::CLONE_NEWNET) != 0 } {
        return Some("this test needs root, to make network namespaces");
    }
    let installed = |program: &str| Command::new(program).arg("-V").output().is_ok();
    if !installed("ip") || !installed("nft") {
        return Some("this test needs the programs ip and nft, to see what was made");
    }
    None
}

/// Tries until it works. Tests that run beside this one start programs, each of which has all our sockets and locks for
/// a moment, so that what was closed may still be in use.
pub fn eventually<T, E: std::fmt::Display>(attempt: impl Fn() -> Result<T, E>) -> T {
    for _ in 0..500 {
        match attempt() {
            Ok(done) => return done,
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
    attempt().unwrap_or_else(|error| panic!("it never worked: {error}"))
}

pub fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(work)
}

/// Runs a program on the host and gives its output.
pub fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

pub struct Pod {
    pub namespace: Namespace,
    pub sandbox: SandboxNetwork,
    pub ips: Vec<IpAddr>,
}

impl Pod {
    /// A pod that is not connected yet.
    pub fn new(name: &str) -> Pod {
        let namespace = Namespace::create().unwrap();
        let sandbox = SandboxNetwork {
            id: format!("sandbox-of-{name}"),
            netns_path: namespace.path(),
            namespace: "default".to_owned(),
            name: name.to_owned(),
            uid: format!("uid-of-{name}"),
            hostname: name.to_owned(),
            port_mappings: Vec::new(),
        };
        Pod {
            namespace,
            sandbox,
            ips: Vec::new(),
        }
    }

    pub fn with_ports(mut self, ports: &[PortMapping]) -> Pod {
        self.sandbox.port_mappings = ports.to_vec();
        self
    }

    /// Names the namespace so that other programs can open it too.
    pub fn visible_to_programs(mut self) -> Pod {
        self.sandbox.netns_path = self.namespace_path().into();
        self
    }

    fn namespace_path(&self) -> String {
        let pid = std::process::id().to_string();
        self.namespace.path().to_str().unwrap().replace("self", &pid)
    }

    pub async fn connected(mut self, network: &dyn PodNetwork) -> Pod {
        self.ips = network.setup(&self.sandbox).await.unwrap().ips;
        self
    }

    /// Answers every connection with the pod's name and the client's address.
    pub fn serve_tcp(&self, port: u16) {
        let any: IpAddr = "::".parse().unwrap();
        let listener = self.namespace.run(|| TcpListener::bind((any, port))).unwrap().unwrap();
        let name = self.sandbox.name.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let from = stream.peer_addr().map_or(any, |peer| peer.ip().to_canonical());
                let _ = write!(stream, "{name} saw {from}");
            }
        });
    }

    pub fn serve_udp(&self, port: u16) {
        let any: IpAddr = "0.0.0.0".parse().unwrap();
        let socket = self.namespace.run(|| UdpSocket::bind((any, port))).unwrap().unwrap();
        let name = self.sandbox.name.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 64];
            while let Ok((_, from)) = socket.recv_from(&mut buffer) {
                let _ = socket.send_to(format!("{name} saw {}", from.ip()).as_bytes(), from);
            }
        });
    }

    /// What this pod gets from a server.
    pub fn get(&self, ip: IpAddr, port: u16) -> String {
        self.namespace.run(|| get(ip, port)).unwrap()
    }

    pub fn ask_udp(&self, ip: IpAddr, port: u16) -> String {
        self.namespace.run(|| ask_udp(ip, port)).unwrap()
    }

    /// What this machine gets from the loopback of another: it sends there what is for its own, and takes what comes
    /// from one. To be asked once.
    pub fn reach_loopback_through(&self, gateway: &str, port: u16) -> String {
        self.run("sh", &["-c", "echo 1 > /proc/sys/net/ipv4/conf/all/route_localnet"]);
        self.run("ip", &["link", "set", "lo", "down"]);
        let way = ["route", "add", "127.0.0.1", "via", gateway, "dev", "eth0", "table", "7"];
        self.run("ip", &way);
        self.run("ip", &["rule", "add", "priority", "5", "table", "7"]);
        self.run("ip", &["rule", "del", "priority", "0"]);
        self.run("ip", &["rule", "add", "priority", "9", "table", "local"]);
        self.get(IpAddr::from([127, 0, 0, 1]), port)
    }

    pub fn run(&self, program: &str, arguments: &[&str]) -> String {
        self.namespace.run(|| run(program, arguments)).unwrap()
    }
}

/// What the host gets from a server, or why it gets nothing.
pub fn get(ip: IpAddr, port: u16) -> String {
    let mut answer = String::new();
    let asked =
        TcpStream::connect_timeout(&SocketAddr::new(ip, port), Duration::from_secs(2)).and_then(|mut stream| {
            // Who has accepted answers, though it may take a while on a busy machine.
            stream.set_read_timeout(Some(Duration::from_secs(30)))?;
            stream.read_to_string(&mut answer)
        });
    match asked {
        Ok(_) => answer,
        Err(error) => error.kind().to_string(),
    }
}

pub fn ask_udp(ip: IpAddr, port: u16) -> String {
    let any: IpAddr = if ip.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
    let mut buffer = [0; 64];
    let asked = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.set_read_timeout(Some(Duration::from_secs(2)))?;
        socket.connect((ip, port))?;
        socket.send(b"?")?;
        socket.recv(&mut buffer)
    });
    match asked {
        Ok(length) => String::from_utf8_lossy(&buffer[..length]).into_owned(),
        Err(error) => error.kind().to_string(),
    }
}

/// Another machine, at 192.0.2.2 on a wire to the host, which is 192.0.2.1.
pub fn neighbour(name: &str) -> Pod {
    let neighbour = Pod::new(name);
    let namespace = neighbour.namespace_path();
    run("ip", &["link", "add", "wire", "type", "veth", "peer", "name", "eth0"]);
    run("ip", &["address", "add", "192.0.2.1/24", "dev", "wire"]);
    run("ip", &["link", "set", "wire", "up"]);
    run("ip", &["link", "set", "eth0", "netns", &namespace]);
    neighbour.run("ip", &["address", "add", "192.0.2.2/24", "dev", "eth0"]);
    neighbour.run("ip", &["link", "set", "eth0", "up"]);
    neighbour
}

/// Whether the kernel applies packet rules to what bridges carry is an administrator's choice; both must work.
pub fn filter_bridges(filter: bool) {
    let value = if filter { "1" } else { "0" };
    for name in ["iptables", "ip6tables"] {
        let path = format!("/proc/sys/net/bridge/bridge-nf-call-{name}");
        if std::path::Path::new(&path).exists() {
            std::fs::write(path, value).unwrap();
        }
    }
}
