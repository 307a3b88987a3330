//! The few system calls that neither std nor rustix wraps. All of the crate's `unsafe` lives here.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

pub use libc::pid_t;

fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Which side of [`clone_process`] the caller is on.
pub enum Cloned {
    Child,
    Parent { pid: pid_t, pidfd: OwnedFd },
}

/// Forks into new namespaces, and on cgroup v2 into a cgroup.
///
/// # Safety
/// The process must have a single thread: the child goes on with a copy of its memory and locks.
pub unsafe fn clone_process(namespaces: u64, into_cgroup: Option<BorrowedFd<'_>>) -> io::Result<Cloned> {
    /// The kernel's `struct clone_args`, version 2.
    #[repr(C)]
    #[derive(Default)]
    struct CloneArgs {
        flags: u64,
        pidfd: u64,
        child_tid: u64,
        parent_tid: u64,
        exit_signal: u64,
        stack: u64,
        stack_size: u64,
        tls: u64,
        set_tid: u64,
        set_tid_size: u64,
        cgroup: u64,
    }
    const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

    let mut pidfd: RawFd = -1;
    let mut args = CloneArgs {
        flags: namespaces | libc::CLONE_PIDFD as u64,
        pidfd: &raw mut pidfd as u64,
        exit_signal: libc::SIGCHLD as u64,
        ..Default::default()
    };
    if let Some(cgroup) = into_cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = cgroup.as_raw_fd() as u64;
    }
    // SAFETY: the arguments live across the call; without CLONE_VM the child has its own copy of the stack.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<CloneArgs>()) };
    match check(pid)? {
        0 => Ok(Cloned::Child),
        // SAFETY: the kernel has just opened it for us.
        pid => Ok(Cloned::Parent {
            pid: pid as pid_t,
            pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) },
        }),
    }
}

/// Enters the given kinds of namespaces of the process behind a pidfd.
pub fn setns(pidfd: BorrowedFd<'_>, kinds: libc::c_int) -> io::Result<()> {
    // SAFETY: takes only integers.
    check(unsafe { libc::setns(pidfd.as_raw_fd(), kinds) }.into()).map(drop)
}

pub fn unshare(kinds: libc::c_int) -> io::Result<()> {
    // SAFETY: takes only integers; callers are single-threaded.
    check(unsafe { libc::unshare(kinds) }.into()).map(drop)
}

/// Starts a process that does nothing in a new user namespace, and ends with the thread that started it.
pub fn hold_user_namespace() -> io::Result<(pid_t, OwnedFd)> {
    // SAFETY: the supervisor has a single thread, and the child makes only system calls that touch no memory.
    unsafe {
        match clone_process(libc::CLONE_NEWUSER as u64, None)? {
            Cloned::Parent { pid, pidfd } => Ok((pid, pidfd)),
            Cloned::Child => {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
                loop {
                    libc::pause();
                }
            }
        }
    }
}

/// Waits for the end of a child. That someone else collected it is as good.
pub fn wait_for_end(pid: pid_t) {
    // SAFETY: nothing is written when there is no place for the status.
    while unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) } < 0
        && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
    {}
}

/// Sets the user and group that this process touches files as.
pub fn set_file_system_ids(uid: u32, gid: u32) -> io::Result<()> {
    // SAFETY: takes only integers. Neither call tells whether it succeeded; asking for an invalid id answers the current.
    let (uid_now, gid_now) = unsafe {
        libc::syscall(libc::SYS_setfsgid, gid);
        libc::syscall(libc::SYS_setfsuid, uid);
        (
            libc::syscall(libc::SYS_setfsuid, u32::MAX),
            libc::syscall(libc::SYS_setfsgid, u32::MAX),
        )
    };
    match (uid_now, gid_now) == (uid.into(), gid.into()) {
        true => Ok(()),
        false => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

/// What [`mount_setattr`] changes of a mount or tree of mounts.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct MountAttributes {
    pub set: u64,
    pub clear: u64,
    pub propagation: u64,
    pub userns_fd: u64,
}

pub const MOUNT_ATTR_IDMAP: u64 = 0x10_0000;
pub const MOUNT_ATTR_RDONLY: u64 = 0x1;
pub const MOUNT_ATTR_NOSUID: u64 = 0x2;
pub const MOUNT_ATTR_NODEV: u64 = 0x4;
pub const MOUNT_ATTR_NOEXEC: u64 = 0x8;

pub fn mount_setattr(mount: BorrowedFd<'_>, recursive: bool, attributes: &MountAttributes) -> io::Result<()> {
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is a terminated string and the structure lives across the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            std::ptr::from_ref(attributes),
            size_of::<MountAttributes>(),
        )
    };
    check(result).map(drop)
}

/// A descriptor that becomes readable when one of the signals is pending; the signals are blocked.
pub fn signalfd(signals: &[libc::c_int]) -> io::Result<OwnedFd> {
    let set = signal_set(signals);
    // SAFETY: the set is initialised; the descriptor is new.
    unsafe {
        check(libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()).into())?;
        let fd = check(libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK).into())?;
        Ok(OwnedFd::from_raw_fd(fd as RawFd))
    }
}

pub fn ignore_signals(signals: &[libc::c_int]) {
    for signal in signals {
        // SAFETY: ignoring needs no handler. It fails only for KILL and STOP.
        unsafe { libc::signal(*signal, libc::SIG_IGN) };
    }
}

/// Gives a process about to exec the signal state every program expects: nothing blocked, nothing ignored.
pub fn reset_signals() {
    let none = signal_set(&[]);
    // SAFETY: the set is initialised, and the default action needs no handler.
    unsafe {
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        for signal in 1..=libc::SIGRTMAX() {
            libc::signal(signal, libc::SIG_DFL);
        }
    }
}

/// Waits for one of the signals, which must be blocked.
pub fn wait_for_signal(signals: &[libc::c_int]) -> io::Result<libc::c_int> {
    let set = signal_set(signals);
    // SAFETY: the set is initialised.
    let signal = unsafe { libc::sigwaitinfo(&raw const set, std::ptr::null_mut()) };
    check(signal.into()).map(|signal| signal as libc::c_int)
}

fn signal_set(signals: &[libc::c_int]) -> libc::sigset_t {
    // SAFETY: sigemptyset initialises the set before anything is added to it.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in signals {
            libc::sigaddset(&raw mut set, *signal);
        }
        set
    }
}

/// A child that has ended, if there is one: its pid, and the exit code or 128 plus the signal's number.
pub fn reap_any() -> Option<(pid_t, i32)> {
    let mut status = 0;
    // SAFETY: the status is a local.
    let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
    let code = if libc::WIFSIGNALED(status) {
        128 + libc::WTERMSIG(status)
    } else {
        libc::WEXITSTATUS(status)
    };
    (pid > 0).then_some((pid, code))
}

pub fn set_groups(groups: &[u32]) -> io::Result<()> {
    // SAFETY: the pointer and length are those of a slice. The raw call changes this thread only, which is the only one.
    check(unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) }).map(drop)
}

pub fn set_gid(gid: u32) -> io::Result<()> {
    // SAFETY: takes only integers.
    check(unsafe { libc::syscall(libc::SYS_setresgid, gid, gid, gid) }).map(drop)
}

pub fn set_uid(uid: u32) -> io::Result<()> {
    // SAFETY: takes only integers.
    check(unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) }).map(drop)
}

/// The kernel's capability sets of this thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CapabilitySets {
    pub effective: u64,
    pub permitted: u64,
    pub inheritable: u64,
}

#[repr(C)]
#[derive(Default, Clone, Copy)]
struct CapHeader {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Default, Clone, Copy)]
struct CapData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

const CAPABILITY_VERSION_3: u32 = 0x2008_0522;

pub fn capabilities() -> io::Result<CapabilitySets> {
    let mut header = CapHeader {
        version: CAPABILITY_VERSION_3,
        pid: 0,
    };
    let mut data = [CapData::default(); 2];
    // SAFETY: version 3 writes exactly two structures.
    check(unsafe { libc::syscall(libc::SYS_capget, &raw mut header, data.as_mut_ptr()) })?;
    let join = |part: fn(&CapData) -> u32| u64::from(part(&data[0])) | u64::from(part(&data[1])) << 32;
    Ok(CapabilitySets {
        effective: join(|d| d.effective),
        permitted: join(|d| d.permitted),
        inheritable: join(|d| d.inheritable),
    })
}

pub fn set_capabilities(sets: CapabilitySets) -> io::Result<()> {
    let mut header = CapHeader {
        version: CAPABILITY_VERSION_3,
        pid: 0,
    };
    let half = |shift: u32| CapData {
        effective: (sets.effective >> shift) as u32,
        permitted: (sets.permitted >> shift) as u32,
        inheritable: (sets.inheritable >> shift) as u32,
    };
    let data = [half(0), half(32)];
    // SAFETY: version 3 reads exactly two structures.
    check(unsafe { libc::syscall(libc::SYS_capset, &raw mut header, data.as_ptr()) }).map(drop)
}

pub fn drop_from_bounding_set(capability: u32) -> io::Result<()> {
    prctl(libc::PR_CAPBSET_DROP, u64::from(capability), 0)
}

pub fn raise_ambient(capability: u32) -> io::Result<()> {
    prctl(
        libc::PR_CAP_AMBIENT,
        libc::PR_CAP_AMBIENT_RAISE as u64,
        u64::from(capability),
    )
}

pub fn keep_capabilities(keep: bool) -> io::Result<()> {
    prctl(libc::PR_SET_KEEPCAPS, u64::from(keep), 0)
}

pub fn set_no_new_privileges() -> io::Result<()> {
    prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0)
}

/// Keeps other processes, even of the same user, from tracing this one or opening its `/proc` files.
pub fn set_not_dumpable() -> io::Result<()> {
    prctl(libc::PR_SET_DUMPABLE, 0, 0)
}

/// Lets the kernel give this process huge pages again, which the supervisor does without.
pub fn allow_huge_pages() -> io::Result<()> {
    prctl(libc::PR_SET_THP_DISABLE, 0, 0)
}

/// Has the kernel kill this process when the thread that started it ends.
pub fn end_with_parent() -> io::Result<()> {
    prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as u64, 0)
}

/// Makes this process the parent of its descendants' orphans.
pub fn set_subreaper() -> io::Result<()> {
    prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0)
}

pub fn set_name(name: &CStr) -> io::Result<()> {
    prctl(libc::PR_SET_NAME, name.as_ptr() as u64, 0)
}

fn prctl(option: libc::c_int, second: u64, third: u64) -> io::Result<()> {
    // SAFETY: every option used here takes integers, or a terminated string that outlives the call.
    check(unsafe { libc::prctl(option, second, third, 0, 0) }.into()).map(drop)
}

pub fn load_seccomp_filter(code: &[libc::sock_filter], flags: u32) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: code.len() as u16,
        filter: code.as_ptr().cast_mut(),
    };
    let mode = libc::SECCOMP_SET_MODE_FILTER;
    // SAFETY: the kernel copies the program, which outlives the call, and does not change it.
    check(unsafe { libc::syscall(libc::SYS_seccomp, mode, flags, &raw const program) }).map(drop)
}

/// Replaces this process. Returns only when that failed.
pub fn exec(program: &CStr, args: &[CString], env: &[CString]) -> io::Error {
    let pointers = |strings: &[CString]| -> Vec<*const libc::c_char> {
        strings.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (args, env) = (pointers(args), pointers(env));
    // SAFETY: both arrays end with a null pointer and outlive the call.
    unsafe { libc::execve(program.as_ptr(), args.as_ptr(), env.as_ptr()) };
    io::Error::last_os_error()
}

/// Ends this process without running anything of what it inherited from its parent.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: never returns.
    unsafe { libc::_exit(code) }
}

/// Makes `fd` available as descriptor `number`, across exec.
pub fn dup_to(fd: impl AsFd, number: RawFd) -> io::Result<()> {
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: both are plain descriptors.
    let result = unsafe {
        // dup2 onto itself would leave close-on-exec set.
        if fd == number {
            libc::fcntl(fd, libc::F_SETFD, 0)
        } else {
            libc::dup2(fd, number)
        }
    };
    check(result.into()).map(drop)
}

/// Closes every descriptor.
pub fn close_all() -> io::Result<()> {
    close_range(0, u32::MAX)
}

/// Closes every descriptor above the standard streams but those in `keep`.
pub fn close_all_but(keep: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut keep: Vec<u32> = keep.iter().map(|fd| fd.as_raw_fd() as u32).collect();
    keep.sort_unstable();
    let mut first = 3;
    for kept in keep.into_iter().filter(|kept| *kept >= 3) {
        if kept > first {
            close_range(first, kept - 1)?;
        }
        first = kept + 1;
    }
    close_range(first, u32::MAX)
}

fn close_range(first: u32, last: u32) -> io::Result<()> {
    // SAFETY: used only by children, which never return to the code that owned what is closed here.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) }).map(drop)
}

/// The working directory as the kernel names it, which for one outside of this process's root is no path.
pub fn working_directory() -> io::Result<Vec<u8>> {
    let mut buffer = vec![0_u8; libc::PATH_MAX as usize];
    // SAFETY: the kernel writes no more than the buffer's length.
    let length = check(unsafe { libc::syscall(libc::SYS_getcwd, buffer.as_mut_ptr(), buffer.len()) })?;
    buffer.truncate((length as usize).saturating_sub(1));
    Ok(buffer)
}

/// Gives this process a session keyring that it shares with nobody. A kernel without keyrings has none to share.
pub fn new_session_keyring() -> io::Result<()> {
    let join = libc::KEYCTL_JOIN_SESSION_KEYRING;
    // SAFETY: a null name asks for an anonymous keyring.
    match check(unsafe { libc::syscall(libc::SYS_keyctl, join, std::ptr::null::<libc::c_char>()) }) {
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => Ok(()),
        result => result.map(drop),
    }
}

/// Brings a network interface of this network namespace up.
pub fn raise_interface(socket: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    // SAFETY: an interface request is plain data, all zero is valid, and it outlives both calls.
    unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        for (place, byte) in request.ifr_name[..libc::IFNAMSIZ - 1].iter_mut().zip(name.bytes()) {
            *place = byte as libc::c_char;
        }
        check(libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS, &raw mut request).into())?;
        request.ifr_ifru.ifru_flags |= libc::IFF_UP as libc::c_short;
        check(libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request).into())?;
    }
    Ok(())
}

/// Waits for a descriptor with the asynchronous runtime.
pub fn register(file: std::fs::File) -> io::Result<tokio::io::unix::AsyncFd<std::fs::File>> {
    // SAFETY: a file owns its descriptor, always names the same one, and closes it only when it is dropped.
    Ok(unsafe { tokio::io::unix::AsyncFd::register(file)? })
}

/// Makes the terminal on standard input the controlling one of this session.
pub fn take_controlling_terminal() -> io::Result<()> {
    // SAFETY: takes only integers.
    check(unsafe { libc::ioctl(0, libc::TIOCSCTTY, 0) }.into()).map(drop)
}

pub fn set_terminal_size(terminal: BorrowedFd<'_>, columns: u16, rows: u16) -> io::Result<()> {
    let size = libc::winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: the structure outlives the call.
    check(unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) }.into()).map(drop)
}

/// Unlocks a pseudo-terminal's slave side and opens it, without going through any path.
pub fn open_slave(master: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let unlocked: libc::c_int = 0;
    // SAFETY: the integer outlives the call; the descriptor is new.
    unsafe {
        check(libc::ioctl(master.as_raw_fd(), libc::TIOCSPTLCK, &raw const unlocked).into())?;
        let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
        let slave = check(libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER, flags).into())?;
        Ok(OwnedFd::from_raw_fd(slave as RawFd))
    }
}

/// An instruction of the programs that version 2 of cgroups asks about devices.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BpfInstruction {
    pub code: u8,
    /// The register that is written or compared in the lower half, the other in the upper.
    pub registers: u8,
    pub offset: i16,
    pub immediate: i32,
}

impl BpfInstruction {
    const JUMP_UNLESS_EQUAL: u8 = 0x55;
    const JUMP_UNLESS_SAME: u8 = 0x5D;

    const fn new(code: u8, to: u8, from: u8, offset: i16, immediate: i32) -> Self {
        Self {
            code,
            registers: to | from << 4,
            offset,
            immediate,
        }
    }

    /// Loads 32 bits from `offset` bytes after where a register points to.
    pub const fn load_word(to: u8, pointer: u8, offset: i16) -> Self {
        Self::new(0x61, to, pointer, offset, 0)
    }

    pub const fn copy(to: u8, from: u8) -> Self {
        Self::new(0xBF, to, from, 0, 0)
    }

    pub const fn set(to: u8, value: i32) -> Self {
        Self::new(0xB7, to, 0, 0, value)
    }

    pub const fn and(to: u8, mask: i32) -> Self {
        Self::new(0x57, to, 0, 0, mask)
    }

    pub const fn shift_right(to: u8, bits: i32) -> Self {
        Self::new(0x77, to, 0, 0, bits)
    }

    pub const fn jump_unless_equal(register: u8, value: i32) -> Self {
        Self::new(Self::JUMP_UNLESS_EQUAL, register, 0, 0, value)
    }

    pub const fn jump_unless_same(register: u8, other: u8) -> Self {
        Self::new(Self::JUMP_UNLESS_SAME, register, other, 0, 0)
    }

    pub const fn exit() -> Self {
        Self::new(0x95, 0, 0, 0, 0)
    }

    pub const fn is_jump(&self) -> bool {
        matches!(self.code, Self::JUMP_UNLESS_EQUAL | Self::JUMP_UNLESS_SAME)
    }
}

/// Loads a program that decides about devices.
pub fn load_device_program(code: &[BpfInstruction]) -> io::Result<OwnedFd> {
    /// The part of the kernel's `union bpf_attr` that loading needs; the rest is zero.
    #[repr(C)]
    #[derive(Default)]
    struct LoadAttributes {
        kind: u32,
        length: u32,
        code: u64,
        license: u64,
        unused: [u64; 8],
    }
    const BPF_PROG_LOAD: libc::c_int = 5;
    const BPF_PROG_TYPE_CGROUP_DEVICE: u32 = 15;
    let attributes = LoadAttributes {
        kind: BPF_PROG_TYPE_CGROUP_DEVICE,
        length: code.len() as u32,
        code: code.as_ptr() as u64,
        license: c"Apache-2.0".as_ptr() as u64,
        ..Default::default()
    };
    // SAFETY: everything the attributes point to outlives the call; the descriptor is new.
    unsafe {
        let fd = check(libc::syscall(
            libc::SYS_bpf,
            BPF_PROG_LOAD,
            &raw const attributes,
            size_of::<LoadAttributes>(),
        ))?;
        Ok(OwnedFd::from_raw_fd(fd as RawFd))
    }
}

/// Has a program decide about the devices of a cgroup, beside those of the cgroups above it.
pub fn attach_device_program(cgroup: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    const BPF_PROG_ATTACH: libc::c_int = 8;
    const BPF_CGROUP_DEVICE: u32 = 6;
    const BPF_F_ALLOW_MULTI: u32 = 2;
    let attributes = [
        cgroup.as_raw_fd() as u32,
        program.as_raw_fd() as u32,
        BPF_CGROUP_DEVICE,
        BPF_F_ALLOW_MULTI,
    ];
    // SAFETY: the attributes outlive the call.
    check(unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_PROG_ATTACH,
            &raw const attributes,
            size_of_val(&attributes),
        )
    })
    .map(drop)
}
