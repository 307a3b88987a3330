//! The machine's mounts, as far as they concern the kubelet's directory.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount_bind, mount_change};

use crate::beneath::{self, Dir};

/// Mounts can lie on top of each other, and only the topmost can be reached; the next look finds the one below it.
const MAX_LOOKS: usize = 64;

/// One line of the mount table.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mount {
    id: u64,
    point: PathBuf,
    is_shared: bool,
}

/// Makes a directory's mounts be seen by all who see the directory: a mount namespace made from ours, and the next kubelet.
///
/// Where the machine's root is not a shared mount, upstream's kubelet mounts its directory over itself when it starts,
/// and would then neither see nor be able to remove what was mounted below it before. So that is done first here too.
pub fn share(directory: &Path) -> io::Result<()> {
    let mounts = table()?;
    let around = mounts.iter().filter(|mount| directory.starts_with(&mount.point));
    // Of mounts at one point the last one is on top.
    let around = around.max_by_key(|mount| mount.point.components().count());
    if around.is_some_and(|mount| mount.is_shared) {
        return Ok(());
    }
    if mounts.iter().any(|mount| is_below(&mount.point, directory)) {
        tracing::warn!(
            path = %directory.display(),
            "the kubelet's directory is not shared, because pods of an earlier kubelet have mounts in it; restart the machine, or \
             delete those pods and restart the kubelet"
        );
        return Ok(());
    }
    mount_bind(directory, directory)?;
    let shared = MountPropagationFlags::SHARED | MountPropagationFlags::REC;
    Ok(mount_change(directory, shared)?)
}

/// Mounts an empty file system in memory. It is not swapped out where the kernel can be told so.
pub fn mount_memory(directory: &Dir, flags: MountFlags, options: &str) -> io::Result<()> {
    let mount = |options: String| {
        let options = std::ffi::CString::new(options)?;
        let path = beneath::path_of(directory.as_fd());
        io::Result::Ok(rustix::mount::mount("tmpfs", path, "tmpfs", flags, options.as_c_str())?)
    };
    let joined = match options {
        "" => "noswap".to_owned(),
        options => format!("{options},noswap"),
    };
    match mount(joined) {
        // Kernels before 6.4 do not know the option.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => mount(options.to_owned()),
        other => other,
    }
}

/// Binds what one descriptor is open on to what the other is open on.
pub fn bind(source: impl AsFd, target: impl AsFd) -> io::Result<()> {
    Ok(mount_bind(
        beneath::path_of(source.as_fd()),
        beneath::path_of(target.as_fd()),
    )?)
}

/// How something is mounted: what the kernel knows of every mount, and the rest for the file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    pub flags: MountFlags,
    pub data: Vec<String>,
}

impl MountOptions {
    pub fn parse(options: &[String], read_only: bool) -> MountOptions {
        let mut parsed = MountOptions {
            flags: MountFlags::empty(),
            data: Vec::new(),
        };
        for option in options.iter().flat_map(|option| option.split(',')) {
            match option {
                "ro" => parsed.flags |= MountFlags::RDONLY,
                "noexec" => parsed.flags |= MountFlags::NOEXEC,
                "nosuid" => parsed.flags |= MountFlags::NOSUID,
                "nodev" => parsed.flags |= MountFlags::NODEV,
                "noatime" => parsed.flags |= MountFlags::NOATIME,
                "nodiratime" => parsed.flags |= MountFlags::NODIRATIME,
                "relatime" => parsed.flags |= MountFlags::RELATIME,
                "" | "rw" | "bind" | "defaults" => {}
                other => parsed.data.push(other.to_owned()),
            }
        }
        if read_only {
            parsed.flags |= MountFlags::RDONLY;
        }
        parsed
    }
}

/// Mounts the file system on a device.
pub fn mount_device(device: impl AsFd, target: impl AsFd, kind: &str, options: &MountOptions) -> io::Result<()> {
    let data = std::ffi::CString::new(options.data.join(","))?;
    let (device, target) = (beneath::path_of(device.as_fd()), beneath::path_of(target.as_fd()));
    Ok(rustix::mount::mount(
        device,
        target,
        kind,
        options.flags,
        data.as_c_str(),
    )?)
}

/// Changes the flags of a bind mount whose root the descriptor is open on.
pub fn remount_bind(file: impl AsFd, flags: MountFlags) -> io::Result<()> {
    let path = beneath::path_of(file.as_fd());
    Ok(rustix::mount::mount_remount(path, MountFlags::BIND | flags, "")?)
}

/// Whether anything is mounted at a path or below it.
pub fn is_anything_mounted_from(path: &Path) -> io::Result<bool> {
    let path = match path.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        found => found?,
    };
    Ok(table()?.iter().any(|mount| mount.point.starts_with(&path)))
}

/// Unmounts the mount whose root the descriptor is open on.
pub fn unmount(file: impl AsFd) -> io::Result<()> {
    Ok(rustix::mount::unmount(
        beneath::path_of(file.as_fd()),
        UnmountFlags::DETACH,
    )?)
}

/// Unmounts what is mounted at a path and everything below it, the innermost first. Nothing outside of it is touched: each
/// mount is found without following links and is unmounted only if it is the one of the table. `path` is below `root`.
pub fn unmount_from(root: &Path, path: &Path) -> io::Result<()> {
    for _ in 0..MAX_LOOKS {
        let mut below: Vec<Mount> = table()?;
        below.retain(|mount| mount.point.starts_with(path));
        below.sort_by_key(|mount| std::cmp::Reverse(mount.point.components().count()));
        let mut unmounted = false;
        for mount in &below {
            unmounted |= unmount_one(root, mount)?;
        }
        if !unmounted {
            return Ok(());
        }
    }
    Err(io::Error::from(io::ErrorKind::ResourceBusy))
}

/// False if the mount cannot be reached: another one lies over it, or it is gone.
fn unmount_one(root: &Path, mount: &Mount) -> io::Result<bool> {
    let Ok(inner) = mount.point.strip_prefix(root) else {
        return Ok(false);
    };
    let found = match Dir::open(root)?.find(inner) {
        Ok(found) if beneath::mount_id(&found)? == mount.id => found,
        _ => return Ok(false),
    };
    let failed = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", mount.point.display()));
    unmount(found).map(|()| true).map_err(failed)
}

fn is_below(point: &Path, directory: &Path) -> bool {
    point != directory && point.starts_with(directory)
}

/// Of this thread, for threads of tests have namespaces of their own.
fn table() -> io::Result<Vec<Mount>> {
    Ok(parse(&fs::read("/proc/thread-self/mountinfo")?))
}

/// Paths are bytes: whoever may mount chooses them.
fn parse(table: &[u8]) -> Vec<Mount> {
    let line = |line: &[u8]| {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let optional = fields.iter().skip(6).take_while(|field| **field != b"-");
        Some(Mount {
            id: std::str::from_utf8(fields.first()?).ok()?.parse().ok()?,
            point: PathBuf::from(OsString::from_vec(unescape(fields.get(4)?))),
            is_shared: optional.into_iter().any(|field| field.starts_with(b"shared:")),
        })
    };
    table.split(|byte| *byte == b'\n').filter_map(line).collect()
}

/// The kernel writes blanks, tabs, newlines, backslashes and number signs as three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, after @ ..] = rest {
        let octal = after.get(..3).filter(|_| *first == b'\\');
        let octal = octal.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        rest = match octal {
            Some(byte) => {
                text.push(byte);
                &after[3..]
            }
            None => {
                text.push(*first);
                after
            }
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::in_mount_namespace;

    #[test]
    fn mounts_are_read_from_the_table() {
        let table = b"\
36 35 98:0 / /var/lib/k/pods/u/volumes/a rw shared:7 master:2 - tmpfs tmpfs rw
39 35 98:0 / /var/lib/k/pods/u/volumes/b\\040c\\134040 rw - tmpfs shared:1 rw
40 35 98:0 / /x\xff rw - tmpfs tmpfs rw
";
        let mount = |id, point: &[u8], is_shared| Mount {
            id,
            point: PathBuf::from(OsString::from_vec(point.to_vec())),
            is_shared,
        };
        assert_eq!(
            parse(table),
            [
                mount(36, b"/var/lib/k/pods/u/volumes/a", true),
                mount(39, b"/var/lib/k/pods/u/volumes/b c\\040", false),
                mount(40, b"/x\xff", false),
            ]
        );
    }

    #[test]
    fn only_what_is_below_is_unmounted() {
        in_mount_namespace(|dir| {
            let (root, pod, other) = (dir.join("k"), dir.join("k/pods/u"), dir.join("k/pods/u2"));
            for volume in [pod.join("v"), other.join("v")] {
                fs::create_dir_all(&volume).unwrap();
                mount_memory(&Dir::open(&volume).unwrap(), MountFlags::empty(), "").unwrap();
                // One on top of the other.
                mount_memory(&Dir::open(&volume).unwrap(), MountFlags::empty(), "").unwrap();
                fs::create_dir(volume.join("a b")).unwrap();
                mount_memory(&Dir::open(&volume.join("a b")).unwrap(), MountFlags::empty(), "").unwrap();
            }
            unmount_from(&root, &pod).unwrap();
            let left = |below: &Path| {
                table()
                    .unwrap()
                    .iter()
                    .filter(|mount| mount.point.starts_with(below))
                    .count()
            };
            assert_eq!((left(&pod), left(&other)), (0, 3));
        });
    }

    #[test]
    fn a_link_on_the_way_to_a_mount_is_not_followed() {
        in_mount_namespace(|dir| {
            let (root, pod, outside) = (dir.join("k"), dir.join("k/pods/u"), dir.join("outside"));
            for path in [pod.join("v/sub/m"), outside.join("m")] {
                fs::create_dir_all(&path).unwrap();
                mount_memory(&Dir::open(&path).unwrap(), MountFlags::empty(), "").unwrap();
            }
            // The table still names the path, but it leads elsewhere now.
            fs::rename(pod.join("v/sub"), dir.join("moved")).unwrap();
            std::os::unix::fs::symlink(&outside, pod.join("v/sub")).unwrap();
            let mounts = table().unwrap();
            let stale = mounts
                .iter()
                .find(|mount| mount.point.starts_with(dir.join("moved")))
                .unwrap();
            let lying = Mount {
                point: pod.join("v/sub/m"),
                ..stale.clone()
            };
            assert!(!unmount_one(&root, &lying).unwrap());
            let gone = Mount {
                point: pod.join("v"),
                ..stale.clone()
            };
            assert!(
                !unmount_one(&root, &gone).unwrap(),
                "another mount, or none, is there now"
            );
            assert!(beneath::is_mount_root(Dir::open(&outside.join("m")).unwrap()).unwrap());
        });
    }

    #[test]
    fn a_directory_is_shared_once() {
        in_mount_namespace(|dir| {
            let count = || {
                table()
                    .unwrap()
                    .iter()
                    .filter(|mount| mount.point == dir.join("k"))
                    .count()
            };
            fs::create_dir(dir.join("k")).unwrap();
            share(&dir.join("k")).unwrap();
            share(&dir.join("k")).unwrap();
            assert_eq!(count(), 1);
            assert!(
                table()
                    .unwrap()
                    .iter()
                    .any(|mount| mount.point == dir.join("k") && mount.is_shared)
            );
            let below = Dir::open(&dir.join("k"))
                .unwrap()
                .make_below(Path::new("v"), 0o755)
                .unwrap();
            mount_memory(&below, MountFlags::empty(), "").unwrap();
            let inner = table()
                .unwrap()
                .into_iter()
                .find(|mount| mount.point == dir.join("k/v"));
            assert!(inner.is_some_and(|mount| mount.is_shared));
        });
    }
}
