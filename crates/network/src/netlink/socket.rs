//! Carrying netlink messages to the kernel and its answers back.

use std::fs::File;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

use super::reader::u32_at;
use super::{Attributes, Error, HEADER, Message, Writer, messages};

/// A network namespace, kept alive by this handle.
#[derive(Debug)]
pub struct Namespace(File);

impl Namespace {
    pub fn open(path: &Path) -> io::Result<Namespace> {
        File::open(path).map(Namespace)
    }

    /// Makes a new namespace, which lives as long as this handle and what is in it.
    pub fn create() -> io::Result<Namespace> {
        let maker = std::thread::Builder::new().name("netns".to_owned()).spawn(|| {
            // SAFETY: unshare takes no pointers; it changes only this thread, which ends after.
            match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
                0 => File::open("/proc/thread-self/ns/net").map(Namespace),
                _ => Err(io::Error::last_os_error()),
            }
        })?;
        joined(maker.join())
    }

    /// A path that opens this namespace for as long as the handle lives, for this process only.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }

    /// Runs `work` inside the namespace, on a thread of its own that ends with it: the calling thread, which an async
    /// runtime may own, never changes its namespace.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        std::thread::scope(|scope| {
            let worker = std::thread::Builder::new()
                .name("netns".to_owned())
                .spawn_scoped(scope, || {
                    // SAFETY: setns only takes a descriptor that is open for the length of the call.
                    match unsafe { libc::setns(self.0.as_raw_fd(), libc::CLONE_NEWNET) } {
                        0 => Ok(work()),
                        _ => Err(io::Error::last_os_error()),
                    }
                })?;
            joined(worker.join())
        })
    }
}

fn joined<T>(outcome: std::thread::Result<io::Result<T>>) -> io::Result<T> {
    outcome.unwrap_or_else(|_| Err(io::Error::other("the thread in the network namespace panicked")))
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A netlink socket. It belongs to the network namespace it was opened in, whichever thread uses it.
///
/// The kernel works on a request while it is being sent, so all calls return after that work without waiting.
#[derive(Debug)]
pub struct Socket(OwnedFd);

impl Socket {
    /// Opens a socket of `protocol` (`NETLINK_…`) in the calling thread's namespace.
    pub fn open(protocol: i32) -> Result<Socket, Error> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: socket takes no pointers.
        let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, protocol) };
        if fd < 0 {
            return Err(Error::last());
        }
        // SAFETY: the descriptor is new and nobody else's.
        let socket = Socket(unsafe { OwnedFd::from_raw_fd(fd) });
        // Kernels before 4.12 lack these; they only add words to errors, so their absence is no failure.
        let _ = socket.set_option(libc::SOL_NETLINK, libc::NETLINK_EXT_ACK, 1);
        let _ = socket.set_option(libc::SOL_NETLINK, libc::NETLINK_CAP_ACK, 1);
        // So that the socket has its port from the beginning.
        socket.bind()?;
        Ok(socket)
    }

    /// Opens a socket of `protocol` in another namespace.
    pub fn open_in(namespace: &Namespace, protocol: i32) -> Result<Socket, Error> {
        namespace.run(|| Socket::open(protocol))?
    }

    /// The number by which messages say that this socket caused them.
    pub fn port_id(&self) -> u32 {
        // SAFETY: an all-zero sockaddr_nl is valid.
        let mut own: libc::sockaddr_nl = unsafe { mem::zeroed() };
        let mut length = mem::size_of_val(&own) as u32;
        // SAFETY: the address is writable for the length given.
        let asked = unsafe { libc::getsockname(self.0.as_raw_fd(), (&raw mut own).cast(), &raw mut length) };
        if asked == 0 { own.nl_pid } else { 0 }
    }

    /// Joins groups of messages that the kernel sends without being asked, with room for that much of them.
    pub(super) fn listen(&self, groups: &[u32], room_bytes: i32) -> Result<(), Error> {
        self.set_option(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, room_bytes)?;
        for &group in groups {
            self.set_option(libc::SOL_NETLINK, libc::NETLINK_ADD_MEMBERSHIP, group as i32)?;
        }
        Ok(())
    }

    fn bind(&self) -> Result<(), Error> {
        // SAFETY: an all-zero sockaddr_nl is valid: it asks for any free port.
        let mut any: libc::sockaddr_nl = unsafe { mem::zeroed() };
        any.nl_family = libc::AF_NETLINK as u16;
        let length = mem::size_of_val(&any) as u32;
        // SAFETY: the address is a live value of the length given.
        let bound = unsafe { libc::bind(self.0.as_raw_fd(), (&raw const any).cast(), length) };
        if bound < 0 { Err(Error::last()) } else { Ok(()) }
    }

    /// Sends one request and waits for its acknowledgement; what the kernel answers before it goes to `each`.
    pub fn call(
        &self,
        kind: u16,
        flags: i32,
        build: impl FnOnce(&mut Writer),
        mut each: impl FnMut(&Message<'_>),
    ) -> Result<(), Error> {
        let mut writer = Writer::new();
        writer.message(kind, flags | libc::NLM_F_REQUEST | libc::NLM_F_ACK, build);
        self.send(writer.bytes())?;
        let mut buffer = vec![0; RECEIVE_BYTES];
        let mut interrupted = false;
        loop {
            let length = self.receive(&mut buffer, 0)?;
            for message in messages(&buffer[..length]) {
                interrupted |= i32::from(message.flags) & libc::NLM_F_DUMP_INTR != 0;
                match i32::from(message.kind) {
                    libc::NLMSG_ERROR | libc::NLMSG_DONE if interrupted => return Err(Error::new(libc::EINTR)),
                    libc::NLMSG_ERROR | libc::NLMSG_DONE => return acknowledgement(&message),
                    _ => each(&message),
                }
            }
        }
    }

    /// All objects of a kind, as `read` takes them from messages. A list that changed while the kernel was giving it
    /// out is asked for again.
    pub fn list<T, I: IntoIterator<Item = T>>(
        &self,
        kind: u16,
        build: impl Fn(&mut Writer),
        read: impl Fn(&Message<'_>) -> I,
    ) -> Result<Vec<T>, Error> {
        for _ in 0..LIST_ATTEMPTS {
            let mut listed = Vec::new();
            let asked = self.call(kind, libc::NLM_F_DUMP, &build, |message| listed.extend(read(message)));
            match asked {
                Err(error) if error.errno == libc::EINTR => {}
                other => return other.map(|()| listed),
            }
        }
        Err(Error::new(libc::EINTR))
    }

    /// Sends messages that are acknowledged only when they fail, as a batch of packet rules is. Gives the sequence
    /// number and the error of each failed message.
    pub fn send_batch(&self, writer: &Writer) -> Result<Vec<(u32, Error)>, Error> {
        let room = i32::try_from(writer.len() + BATCH_OVERHEAD_BYTES).map_err(|_| Error::new(libc::EMSGSIZE))?;
        self.set_option(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, room)?;
        self.send(writer.bytes())?;
        let mut failures = Vec::new();
        let mut buffer = vec![0; RECEIVE_BYTES];
        loop {
            let length = match self.receive(&mut buffer, libc::MSG_DONTWAIT) {
                Ok(length) => length,
                Err(error) if error.errno == libc::EAGAIN => return Ok(failures),
                Err(error) => return Err(error),
            };
            for message in messages(&buffer[..length]) {
                if let (libc::NLMSG_ERROR, Err(error)) = (i32::from(message.kind), acknowledgement(&message)) {
                    failures.push((message.sequence, error));
                }
            }
        }
    }

    fn send(&self, bytes: &[u8]) -> Result<(), Error> {
        // SAFETY: an all-zero sockaddr_nl is valid.
        let mut kernel: libc::sockaddr_nl = unsafe { mem::zeroed() };
        kernel.nl_family = libc::AF_NETLINK as u16;
        // SAFETY: both pointers are to live values of the lengths given.
        let sent = unsafe {
            libc::sendto(
                self.0.as_raw_fd(),
                bytes.as_ptr().cast(),
                bytes.len(),
                0,
                (&raw const kernel).cast(),
                mem::size_of_val(&kernel) as u32,
            )
        };
        if sent < 0 { Err(Error::last()) } else { Ok(()) }
    }

    pub(super) fn receive(&self, buffer: &mut [u8], flags: i32) -> Result<usize, Error> {
        loop {
            // SAFETY: the buffer is writable for the length given.
            let length = unsafe { libc::recv(self.0.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), flags) };
            if length >= 0 {
                return Ok(length as usize);
            }
            let error = Error::last();
            if error.errno != libc::EINTR {
                return Err(error);
            }
        }
    }

    fn set_option(&self, level: i32, name: i32, value: i32) -> Result<(), Error> {
        // SAFETY: the value is a live int of the length given.
        let done = unsafe {
            libc::setsockopt(
                self.0.as_raw_fd(),
                level,
                name,
                (&raw const value).cast(),
                mem::size_of_val(&value) as u32,
            )
        };
        if done < 0 { Err(Error::last()) } else { Ok(()) }
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// A list is asked for this often before it is given up as changing too fast.
const LIST_ATTEMPTS: usize = 16;
/// The kernel fills datagrams of at most this size when it dumps.
const RECEIVE_BYTES: usize = 64 * 1024;
/// What a socket buffer needs beyond a batch's own bytes.
const BATCH_OVERHEAD_BYTES: usize = 64 * 1024;
/// The attribute of an extended acknowledgement that holds its words.
const NLMSGERR_ATTR_MSG: u16 = 1;

/// Reads `NLMSG_ERROR` (an error number, the failed message's header, explanations) or `NLMSG_DONE`.
fn acknowledgement(message: &Message<'_>) -> Result<(), Error> {
    let errno = -(u32_at(message.body, 0).unwrap_or(0) as i32);
    if errno == 0 {
        return Ok(());
    }
    let fixed = if i32::from(message.kind) == libc::NLMSG_ERROR {
        4 + HEADER
    } else {
        4
    };
    let detail = Attributes::after(message, fixed)
        .text(NLMSGERR_ATTR_MSG)
        .unwrap_or_default();
    Err(Error {
        errno,
        detail: detail.to_owned(),
    })
}
