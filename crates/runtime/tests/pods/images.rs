//! Images that are out for harm, unpacked by a real process of their own.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cri::v1;
use rustix::fs::{Mode, OFlags};

use crate::bed::{Archive, Bed, able, busybox_layer, wait_for};

/// What an import or pull could leave beside images.
fn on_its_way(bed_dir: &Path) -> Vec<PathBuf> {
    let work = bed_dir.join("root/images/work");
    fs::read_dir(work)
        .unwrap()
        .flatten()
        .map(|entry| entry.path())
        .collect()
}

fn layers(bed_dir: &Path) -> Vec<PathBuf> {
    let layers = bed_dir.join("root/images/layers");
    let mut found: Vec<_> = fs::read_dir(layers)
        .unwrap()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}

/// An import that waits for the rest of its archive, and the process that reads it.
struct Waiting {
    pid: i32,
    /// Closing it ends the archive.
    _writer: File,
}

impl Waiting {
    /// Begins an import from a pipe with the first bytes of an archive.
    async fn begin(import: impl FnOnce(File)) -> Self {
        let (reader, writer): (OwnedFd, OwnedFd) = rustix::pipe::pipe().unwrap();
        let inode = rustix::fs::fstat(&reader).unwrap().st_ino;
        import(reader.into());
        let mut writer = File::from(writer);
        writer.write_all(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3]).unwrap();
        let mut pid = None;
        for _ in 0..500 {
            pid = unpacker_of(inode);
            if pid.is_some() {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        Self {
            pid: pid.expect("an unpacker reads the archive"),
            _writer: writer,
        }
    }
}

/// The unpacker that has a pipe open to read from.
fn unpacker_of(inode: u64) -> Option<i32> {
    let mut processes = fs::read_dir("/proc").unwrap().flatten();
    processes.find_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let seccomp = status(pid, "Seccomp")? == "2";
        let name = fs::read_to_string(entry.path().join("comm")).ok()?;
        let mut fds = fs::read_dir(entry.path().join("fd")).ok()?.flatten();
        let reads = fds.any(|fd| fs::metadata(fd.path()).is_ok_and(|metadata| metadata.ino() == inode));
        (name == "karve-unpack\n" && seccomp && reads).then_some(pid)
    })
}

fn status(pid: i32, field: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{field}:")))?;
    Some(line.trim().to_owned())
}

fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

#[tokio::test]
async fn an_unpacker_has_nothing_but_what_it_was_given() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let runtime = bed.shared();
    let mut importing = None;
    let waiting = Waiting::begin(|archive| {
        importing = Some(tokio::spawn(async move { runtime.import_images(archive).await }));
    })
    .await;
    let pid = waiting.pid;
    let field = |name: &str| status(pid, name).unwrap();
    // CHOWN, DAC_OVERRIDE, FOWNER, FSETID, MKNOD and SETFCAP.
    let kept = "000000008800001b";
    assert_eq!((field("CapEff").as_str(), field("CapPrm").as_str()), (kept, kept));
    assert_eq!(
        (field("CapBnd").as_str(), field("CapInh").as_str()),
        ("0000000000000000", "0000000000000000")
    );
    assert_eq!((field("NoNewPrivs").as_str(), field("Seccomp").as_str()), ("1", "2"));
    for kind in ["net", "mnt", "ipc", "uts"] {
        let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/{kind}")).unwrap();
        assert_ne!(namespace(&pid.to_string()), namespace("self"), "{kind}");
    }
    assert_eq!(
        fs::read_dir(format!("/proc/{pid}/root")).unwrap().count(),
        0,
        "its root is empty"
    );
    assert_eq!(fs::read_to_string(format!("/proc/{pid}/environ")).unwrap(), "");
    assert_eq!(
        fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap().trim(),
        "1000"
    );
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    for limit in ["Max cpu time", "Max address space", "Max file size", "Max open files"] {
        let line = limits.lines().find(|line| line.starts_with(limit)).unwrap();
        assert!(!line.contains("unlimited"), "{line}");
    }
    // The connection, twice, its standard error, the archive and the directory; the rest leads nowhere.
    let fds = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let targets: Vec<_> = fds.map(|fd| fs::read_link(fd.path()).unwrap()).collect();
    assert!(targets.len() <= 7, "{targets:?}");
    drop(waiting);
    assert!(importing.unwrap().await.unwrap().is_err());
    wait_for("the unpacker to go", || status(pid, "Name").is_none()).await;
    assert_eq!(on_its_way(bed.dir.path()), Vec::<PathBuf>::new());
    bed.finish().await;
}

#[tokio::test]
async fn a_crash_of_an_unpacker_is_the_failure_of_one_import() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let runtime = bed.shared();
    let before = layers(bed.dir.path());
    let mut importing = None;
    let waiting = Waiting::begin(|archive| {
        importing = Some(tokio::spawn(async move { runtime.import_images(archive).await }));
    })
    .await;
    kill(waiting.pid);
    let error = importing.unwrap().await.unwrap().unwrap_err().to_string();
    assert!(
        error.contains("the unpacker process ended unexpectedly: it was killed"),
        "{error}"
    );
    assert_eq!(on_its_way(bed.dir.path()), Vec::<PathBuf>::new());
    assert_eq!(layers(bed.dir.path()), before);
    let another = |tar: &mut tar::Builder<Vec<u8>>| {
        let mut header = tar::Header::new_gnu();
        header.set_size(0);
        header.set_mode(0o644);
        tar.append_data(&mut header, "another", std::io::empty()).unwrap();
    };
    bed.import("test/next:1", another).await;
    bed.finish().await;
}

#[tokio::test]
async fn a_killed_runtime_leaves_nothing_of_an_import() {
    if !able() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (reader, writer): (OwnedFd, OwnedFd) = rustix::pipe::pipe().unwrap();
    let inode = rustix::fs::fstat(&reader).unwrap().st_ino;
    let mut karve = Command::new(env!("CARGO_BIN_EXE_runtime-testbed"))
        .arg("import")
        .arg(dir.path())
        .stdin(reader)
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    // A file of an archive that has come only in part.
    let mut writer = File::from(writer);
    let mut header = tar::Header::new_gnu();
    header.set_path("big").unwrap();
    header.set_size(64 << 20);
    header.set_cksum();
    writer.write_all(header.as_bytes()).unwrap();
    writer.write_all(&vec![7; 4 << 20]).unwrap();
    let spooled = || fs::read_dir(dir.path().join("root/images/work")).is_ok_and(|work| work.count() > 0);
    wait_for("the archive to be spooled", spooled).await;
    let unpacker = unpacker_of(inode).expect("an unpacker reads the archive");
    karve.kill().unwrap();
    karve.wait().unwrap();
    wait_for("the unpacker to end with it", || status(unpacker, "Name").is_none()).await;
    assert!(spooled(), "a kill leaves what was written");
    drop(writer);
    let mut karve = Command::new(env!("CARGO_BIN_EXE_runtime-testbed"))
        .arg("import")
        .arg(dir.path())
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    karve.wait().unwrap();
    assert!(!spooled(), "the next start removes it");
}

#[tokio::test]
async fn the_host_cannot_be_had_by_way_of_digests() {
    if !able() {
        return;
    }
    // Carried out on a running runtime as its inventor did: the second image's lowest layer would be the directory of
    // the cluster's keys.
    let bed = Bed::new().await;
    let before = layers(bed.dir.path());
    let keys = bed.dir.path().join("pki");
    fs::create_dir(&keys).unwrap();
    fs::write(keys.join("ca.key"), "secret").unwrap();
    let trap = bed.dir.path().join("x");
    let mut layer = tar::Builder::new(Vec::new());
    let mut link = tar::Header::new_gnu();
    link.set_entry_type(tar::EntryType::Symlink);
    link.set_size(0);
    layer.append_link(&mut link, "b", &keys).unwrap();
    for (name, kind) in [("b.size", b'0'), ("forbidden", b'V')] {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::new(kind));
        header.set_size(0);
        layer.append_data(&mut header, name, std::io::empty()).unwrap();
    }
    let layer = layer.into_inner().unwrap();
    for diff_id in [trap.display().to_string(), format!("{}.partial/b", trap.display())] {
        let archive = Archive {
            name: "test/evil:1",
            layers: vec![layer.clone()],
            diff_ids: Some(vec![diff_id]),
        };
        let error = bed.try_import(&archive).await.unwrap_err().to_string();
        assert!(error.contains("invalid digest"), "{error}");
    }
    assert!(!trap.exists() && !trap.with_extension("partial").exists());
    assert_eq!(layers(bed.dir.path()), before);
    let sandbox = bed.sandbox().await;
    let mut config = bed.container_config("cat /ca.key");
    config.image = Some(v1::ImageSpec {
        image: "test/evil:1".into(),
        ..Default::default()
    });
    assert!(bed.create(&sandbox, config).await.unwrap_err().is_not_found());
    bed.finish().await;
}

#[tokio::test]
async fn whiteouts_of_an_unpacked_image_hide_what_is_below() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let tar = |files: &[&str]| {
        let mut tar = tar::Builder::new(Vec::new());
        for name in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(0);
            header.set_mode(0o644);
            tar.append_data(&mut header, name, std::io::empty()).unwrap();
        }
        tar.into_inner().unwrap()
    };
    let archive = Archive {
        name: "test/layered:1",
        layers: vec![
            busybox_layer(|_| {}),
            tar(&["srv/a/one", "srv/two", "srv/three"]),
            tar(&["srv/.wh.two", "srv/a/.wh..wh..opq", "srv/a/four"]),
        ],
        diff_ids: None,
    };
    bed.try_import(&archive).await.unwrap();
    let sandbox = bed.sandbox().await;
    let (log, _) = bed
        .run_to_end(&sandbox, "cd /srv && ls -d * a/*", |config| {
            config.image = Some(v1::ImageSpec {
                image: "test/layered:1".into(),
                ..Default::default()
            });
        })
        .await;
    assert_eq!(log, "stdout F a\nstdout F a/four\nstdout F three\n");
    bed.finish().await;
}

#[tokio::test]
async fn a_device_in_an_image_is_not_opened_by_the_runtime() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let add = |tar: &mut tar::Builder<Vec<u8>>| {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Char);
        header.set_size(0);
        header.set_mode(0o666);
        header.set_device_major(511).unwrap();
        header.set_device_minor(255).unwrap();
        tar.append_data(&mut header, "etc/passwd", std::io::empty()).unwrap();
    };
    bed.import("test/device:1", add).await;
    let sandbox = bed.sandbox().await;
    // The accounts are read by the runtime, on the host, where opening a device may do anything.
    let mut config = bed.container_config("true");
    config.image = Some(v1::ImageSpec {
        image: "test/device:1".into(),
        ..Default::default()
    });
    let error = bed.create(&sandbox, config).await.unwrap_err().to_string();
    assert!(error.contains("not a regular file"), "{error}");
    bed.finish().await;
}

#[tokio::test]
async fn a_container_that_digs_without_end_is_removed() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let sandbox = bed.sandbox().await;
    let container = bed.create(&sandbox, bed.container_config("true")).await.unwrap();
    // As a container does with mkdir and chdir: no path is as long as this, nor any stack that followed it down.
    let upper = bed.dir.path().join("root/containers").join(container).join("upper");
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    let mut dir = rustix::fs::open(&upper, flags, Mode::empty()).unwrap();
    for _ in 0..8_000 {
        rustix::fs::mkdirat(&dir, "d", Mode::RWXU).unwrap();
        dir = rustix::fs::openat(&dir, "d", flags, Mode::empty()).unwrap();
    }
    bed.finish().await;
}
