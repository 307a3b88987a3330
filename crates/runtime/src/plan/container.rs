//! A container.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cri::v1::{
    self, ContainerConfig, LinuxContainerSecurityContext, MountPropagation, NamespaceMode, PodSandboxConfig,
};

use super::confinement::{self, HostAppArmor};
use super::sandbox::{HOSTNAME, RESOLV_CONF};
use super::user_namespace::is_id_mapped;
use super::{PlanError, limits, unsupported, users};
use crate::cgroup;
use crate::image::RunConfig;
use crate::spec::{Cgroup, ContainerSpec, Device, Mount, PidNamespace, PodFile, Process, Propagation, Root};

const DEFAULT_PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Everything a container is made from.
pub struct ContainerInput<'a> {
    pub id: &'a str,
    pub config: &'a ContainerConfig,
    pub sandbox: &'a PodSandboxConfig,
    /// The container's own directory.
    pub dir: &'a Path,
    pub layers_dir: PathBuf,
    /// Topmost first.
    pub layers: Vec<String>,
    pub image: &'a RunConfig,
    /// The image's `/etc/passwd` and `/etc/group`; empty where it has none.
    pub passwd: &'a str,
    pub group: &'a str,
    /// The layers of every image that is mounted as a volume, topmost first, by the name it is asked for.
    pub volume_images: &'a BTreeMap<String, Vec<String>>,
    /// The contents of the seccomp profile that the container asks for by its file; empty where it does not.
    pub seccomp_profile: &'a [u8],
    /// The kernel's version.
    pub kernel: (u32, u32),
    pub apparmor: HostAppArmor,
    /// Whether the kernel enforces SELinux labels, which this runtime does not set.
    pub selinux_enabled: bool,
    /// The pod's cgroup.
    pub cgroup_parent: &'a Path,
}

/// The container a kubelet asks for.
pub fn container(input: &ContainerInput<'_>) -> Result<ContainerSpec, PlanError> {
    let config = input.config;
    refuse_unsupported(config)?;
    let linux = config.linux.clone().unwrap_or_default();
    let security = linux.security_context.unwrap_or_default();
    confinement::check_selinux(input.selinux_enabled, &security)?;
    let resources = linux.resources.unwrap_or_default();
    let mounts = mounts(input)?;
    let log_path = Path::new(&input.sandbox.log_directory).join(&config.log_path);
    Ok(ContainerSpec {
        id: input.id.to_owned(),
        root: Root {
            layers_dir: input.layers_dir.clone(),
            layers: input.layers.clone(),
            dir: input.dir.to_owned(),
            readonly: security.readonly_rootfs,
        },
        process: process(input, &security, resources.oom_score_adj)?,
        pid: pid_namespace(&security),
        pod_files: pod_files(&mounts, security.readonly_rootfs),
        mounts,
        devices: config.devices.iter().map(device).collect::<Result<_, _>>()?,
        masked_paths: if security.privileged {
            Vec::new()
        } else {
            security.masked_paths.clone()
        },
        readonly_paths: if security.privileged {
            Vec::new()
        } else {
            security.readonly_paths.clone()
        },
        privileged: security.privileged,
        cgroup: Cgroup {
            path: input.cgroup_parent.join(input.id),
            limits: limits(&resources)?,
        },
        log_path: (!config.log_path.is_empty()).then_some(log_path),
        log_max_bytes: log_max_bytes(config),
        exit_path: input.dir.join("exit.json"),
        stdin: config.stdin,
        stdin_once: config.stdin_once,
    })
}

fn log_max_bytes(config: &v1::ContainerConfig) -> Option<u64> {
    let said = config.annotations.get(cri::LOG_MAX_BYTES)?;
    said.parse().ok().filter(|bytes| *bytes > 0)
}

/// A further process in a container: its command, with everything else as the first process has it.
pub fn exec(container: &ContainerSpec, command: &[String], tty: bool) -> Result<Process, PlanError> {
    if command.is_empty() {
        return Err(PlanError::Invalid("no command specified".to_owned()));
    }
    let mut env = container.process.env.clone();
    if tty {
        add_default(&mut env, "TERM=xterm");
    }
    Ok(Process {
        args: command.to_vec(),
        tty,
        env,
        ..container.process.clone()
    })
}

/// The signal that asks a container to end, by number.
pub fn stop_signal(config: &ContainerConfig, image: &RunConfig) -> i32 {
    let asked = config.stop_signal();
    let name = match asked {
        v1::Signal::RuntimeDefault => image.stop_signal.as_str(),
        _ => asked.as_str_name(),
    };
    signal_number(name).unwrap_or(libc::SIGTERM)
}

fn signal_number(name: &str) -> Option<i32> {
    const NAMES: &[(&str, i32)] = &[
        ("ABRT", libc::SIGABRT),
        ("ALRM", libc::SIGALRM),
        ("BUS", libc::SIGBUS),
        ("CHLD", libc::SIGCHLD),
        ("CLD", libc::SIGCHLD),
        ("CONT", libc::SIGCONT),
        ("FPE", libc::SIGFPE),
        ("HUP", libc::SIGHUP),
        ("ILL", libc::SIGILL),
        ("INT", libc::SIGINT),
        ("IO", libc::SIGIO),
        ("IOT", libc::SIGABRT),
        ("KILL", libc::SIGKILL),
        ("PIPE", libc::SIGPIPE),
        ("POLL", libc::SIGIO),
        ("PROF", libc::SIGPROF),
        ("PWR", libc::SIGPWR),
        ("QUIT", libc::SIGQUIT),
        ("SEGV", libc::SIGSEGV),
        ("STKFLT", libc::SIGSTKFLT),
        ("STOP", libc::SIGSTOP),
        ("SYS", libc::SIGSYS),
        ("TERM", libc::SIGTERM),
        ("TRAP", libc::SIGTRAP),
        ("TSTP", libc::SIGTSTP),
        ("TTIN", libc::SIGTTIN),
        ("TTOU", libc::SIGTTOU),
        ("URG", libc::SIGURG),
        ("USR1", libc::SIGUSR1),
        ("USR2", libc::SIGUSR2),
        ("VTALRM", libc::SIGVTALRM),
        ("WINCH", libc::SIGWINCH),
        ("XCPU", libc::SIGXCPU),
        ("XFSZ", libc::SIGXFSZ),
    ];
    if let Ok(number) = name.parse::<i32>() {
        return (1..=libc::SIGRTMAX()).contains(&number).then_some(number);
    }
    let upper = name.to_ascii_uppercase();
    let bare = upper.strip_prefix("SIG").unwrap_or(&upper);
    // The CRI writes SIGRTMINPLUS3 where images write SIGRTMIN+3.
    let offset = |text: &str| {
        if text.is_empty() {
            Some(0)
        } else {
            text.parse::<i32>().ok()
        }
    };
    if let Some(rest) = bare.strip_prefix("RTMIN") {
        return offset(rest.trim_start_matches("PLUS").trim_start_matches('+')).map(|n| libc::SIGRTMIN() + n);
    }
    if let Some(rest) = bare.strip_prefix("RTMAX") {
        return offset(rest.trim_start_matches("MINUS").trim_start_matches('-')).map(|n| libc::SIGRTMAX() - n);
    }
    NAMES
        .iter()
        .find(|(known, _)| *known == bare)
        .map(|(_, number)| *number)
}

fn refuse_unsupported(config: &ContainerConfig) -> Result<(), PlanError> {
    if !config.cdi_devices.is_empty() {
        return Err(unsupported("CDI devices"));
    }
    Ok(())
}

fn process(
    input: &ContainerInput<'_>,
    security: &LinuxContainerSecurityContext,
    oom_score_adj: i64,
) -> Result<Process, PlanError> {
    let config = input.config;
    let cwd = [&config.working_dir, &input.image.working_dir]
        .into_iter()
        .find(|dir| !dir.is_empty());
    let capabilities = confinement::capabilities(security)?;
    Ok(Process {
        args: arguments(config, input.image)?,
        env: environment(config, input.image, &input.sandbox.hostname),
        cwd: Path::new("/")
            .join(cwd.map_or("/", String::as_str))
            .to_string_lossy()
            .into_owned(),
        user: users::resolve(security, &input.image.user, input.passwd, input.group)?,
        capabilities,
        no_new_privileges: security.no_new_privs,
        seccomp: confinement::seccomp(input, security, capabilities.held)?,
        apparmor: confinement::apparmor(input.apparmor, security)?,
        oom_score_adj: i32::try_from(oom_score_adj).ok(),
        tty: config.tty,
    })
}

/// A command of the pod's replaces the image's entry point and its arguments; arguments alone only the latter.
fn arguments(config: &ContainerConfig, image: &RunConfig) -> Result<Vec<String>, PlanError> {
    let (first, rest) = match (config.command.is_empty(), config.args.is_empty()) {
        (false, _) => (&config.command, &config.args),
        (true, false) => (&image.entrypoint, &config.args),
        (true, true) => (&image.entrypoint, &image.cmd),
    };
    let arguments: Vec<String> = first.iter().chain(rest).cloned().collect();
    if arguments.is_empty() {
        return Err(PlanError::Invalid("no command specified".to_owned()));
    }
    Ok(arguments)
}

/// The image's environment, overridden by the pod's, completed by what programs rely on.
fn environment(config: &ContainerConfig, image: &RunConfig, hostname: &str) -> Vec<String> {
    let mut env: Vec<String> = Vec::new();
    let given = config
        .envs
        .iter()
        .map(|env| format!("{}={}", env.key, String::from_utf8_lossy(&env.value)));
    for entry in image.env.iter().cloned().chain(given) {
        let name = name_of(&entry).to_owned();
        match env.iter_mut().find(|known| name_of(known) == name) {
            Some(known) => *known = entry,
            None => env.push(entry),
        }
    }
    add_default(&mut env, DEFAULT_PATH);
    if !hostname.is_empty() {
        add_default(&mut env, &format!("HOSTNAME={hostname}"));
    }
    if config.tty {
        add_default(&mut env, "TERM=xterm");
    }
    env
}

fn name_of(entry: &str) -> &str {
    entry.split('=').next().unwrap_or_default()
}

fn add_default(env: &mut Vec<String>, entry: &str) {
    if !env.iter().any(|known| name_of(known) == name_of(entry)) {
        env.push(entry.to_owned());
    }
}

fn pid_namespace(security: &LinuxContainerSecurityContext) -> PidNamespace {
    let options = security.namespace_options.clone().unwrap_or_default();
    match options.pid() {
        NamespaceMode::Pod => PidNamespace::Pod,
        NamespaceMode::Container => PidNamespace::Private,
        NamespaceMode::Node => PidNamespace::Host,
        NamespaceMode::Target => PidNamespace::Target(options.target_id),
    }
}

/// The volumes, parents before what is mounted in them.
fn mounts(input: &ContainerInput<'_>) -> Result<Vec<Mount>, PlanError> {
    let mounts = input.config.mounts.iter().map(|wanted| match &wanted.image {
        Some(image) => image_mount(wanted, &image.image, input),
        None => mount(wanted, input.sandbox),
    });
    let mut mounts = mounts.collect::<Result<Vec<_>, _>>()?;
    mounts.sort_by_key(|mount| mount.target.components().count());
    Ok(mounts)
}

/// The pod's files, where no volume takes their place.
fn pod_files(mounts: &[Mount], readonly: bool) -> Vec<PodFile> {
    let files = [(HOSTNAME, "/etc/hostname"), (RESOLV_CONF, "/etc/resolv.conf")];
    let free = files
        .into_iter()
        .filter(|(_, target)| !mounts.iter().any(|mount| mount.target == Path::new(target)));
    free.map(|(name, target)| PodFile {
        name: name.to_owned(),
        target: target.into(),
        readonly,
    })
    .collect()
}

/// An image's files as a volume, which nobody can write to.
fn image_mount(mount: &v1::Mount, image: &str, input: &ContainerInput<'_>) -> Result<Mount, PlanError> {
    let layers = input.volume_images.get(image).filter(|layers| !layers.is_empty());
    let layers = layers.ok_or_else(|| PlanError::Invalid(format!("image {image:?} has no files to mount")))?;
    check_recursive_read_only(mount)?;
    Ok(Mount {
        source: input.layers_dir.clone(),
        target: Path::new("/").join(&mount.container_path),
        readonly: true,
        recursive_readonly: mount.recursive_read_only,
        propagation: Propagation::Private,
        layers: layers.clone(),
        sub_path: PathBuf::from(&mount.image_sub_path),
        // The layers are those of the container's own root, which have the pod's ids already.
        id_mapped: is_id_mapped(mount, input.sandbox)?,
    })
}

/// A mount that is read-only to its depth must stay so: what the host mounts below it later would not be.
fn check_recursive_read_only(mount: &v1::Mount) -> Result<(), PlanError> {
    if !mount.recursive_read_only {
        return Ok(());
    }
    let refused = |needs: &str| {
        let path = &mount.container_path;
        Err(PlanError::Invalid(format!(
            "recursive read-only mount at {path:?} must {needs}"
        )))
    };
    if !mount.readonly {
        return refused("be read-only");
    }
    if mount.propagation() != MountPropagation::PropagationPrivate {
        return refused("have private propagation");
    }
    Ok(())
}

fn mount(mount: &v1::Mount, sandbox: &PodSandboxConfig) -> Result<Mount, PlanError> {
    check_recursive_read_only(mount)?;
    Ok(Mount {
        source: PathBuf::from(&mount.host_path),
        target: Path::new("/").join(&mount.container_path),
        readonly: mount.readonly,
        recursive_readonly: mount.recursive_read_only,
        propagation: match mount.propagation() {
            MountPropagation::PropagationPrivate => Propagation::Private,
            MountPropagation::PropagationHostToContainer => Propagation::HostToContainer,
            MountPropagation::PropagationBidirectional => Propagation::Bidirectional,
        },
        layers: Vec::new(),
        sub_path: PathBuf::new(),
        id_mapped: is_id_mapped(mount, sandbox)?,
    })
}

/// A device, with the rights that the container is to have on it.
fn device(device: &v1::Device) -> Result<Device, PlanError> {
    if cgroup::Access::parse(&device.permissions).is_none() {
        return Err(PlanError::Invalid(format!(
            "permissions {:?} of device {} are not made of the letters r, w and m",
            device.permissions, device.host_path
        )));
    }
    Ok(Device {
        source: PathBuf::from(&device.host_path),
        target: PathBuf::from(&device.container_path),
        access: device.permissions.clone(),
    })
}

#[cfg(test)]
mod tests;
