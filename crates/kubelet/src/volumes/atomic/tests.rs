use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fs::{CWD, Mode, RenameFlags, mknodat, renameat_with};
use tokio::time::Instant;

use super::*;
use crate::testing::{EndOnDrop, in_mount_namespace};
use crate::volumes::mounts;

fn payload(files: &[(&str, &str)]) -> Payload {
    let file = |content: &str| File {
        content: content.as_bytes().to_vec(),
        mode: 0o640,
        uid: None,
    };
    files
        .iter()
        .map(|(path, content)| (path.to_string(), file(content)))
        .collect()
}

fn listing(target: &Path) -> String {
    let mut names: Vec<String> = fs::read_dir(target)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let name = entry.file_name().to_string_lossy().into_owned();
            match fs::read_link(entry.path()) {
                Ok(link) => format!("{name} -> {}", link.display()),
                Err(_) => name,
            }
        })
        .collect();
    names.sort();
    names.join("\n")
}

/// A volume, and beside it files of the host.
struct Bed {
    dir: tempfile::TempDir,
    volume: Dir,
}

impl Bed {
    fn new() -> Bed {
        let dir = tempfile::tempdir().unwrap();
        for name in ["volume", "host", "host/inner"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        fs::write(dir.path().join("host/inner/file"), "of the host").unwrap();
        let volume = Dir::open(&dir.path().join("volume")).unwrap();
        Bed { dir, volume }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join("volume").join(name)
    }

    fn host(&self) -> std::path::PathBuf {
        self.dir.path().join("host")
    }

    fn write(&self, files: &[(&str, &str)], stamp: &str) -> bool {
        write(&self.volume, &payload(files), None, stamp).unwrap()
    }

    /// The volume is as a writer leaves it, and the host's files are as they were.
    fn check(&self, content: &str) {
        assert_eq!(fs::read_to_string(self.path("a")).unwrap(), content);
        let data = fs::read_link(self.path("..data")).unwrap().display().to_string();
        let expected = format!("..data -> {data}\n{data}\na -> ..data/a");
        assert_eq!(listing(&self.path("")), expected);
        assert_eq!(
            fs::read_to_string(self.host().join("inner/file")).unwrap(),
            "of the host"
        );
        assert_eq!(listing(&self.host()), "inner");
    }
}

#[test]
fn a_change_replaces_everything_by_one_rename() {
    let bed = Bed::new();
    assert!(bed.write(&[("a", "1"), ("sub/b", "2")], "t1"));
    assert_eq!(
        listing(&bed.path("")),
        "..data -> ..t1\n..t1\na -> ..data/a\nsub -> ..data/sub"
    );
    assert_eq!(fs::read_to_string(bed.path("sub/b")).unwrap(), "2");
    assert_eq!(fs::metadata(bed.path("a")).unwrap().mode() & 0o777, 0o640);

    assert!(!bed.write(&[("a", "1"), ("sub/b", "2")], "t2"), "nothing changed");
    assert!(bed.write(&[("a", "3")], "t3"));
    assert_eq!(listing(&bed.path("")), "..data -> ..t3\n..t3\na -> ..data/a");
    bed.check("3");
    assert!(bed.write(&[("a", "4")], "t3"), "also within one moment");
    bed.check("4");
}

#[test]
fn groups_and_owners_get_what_they_may_read() {
    let bed = Bed::new();
    let mut files = payload(&[("sub/token", "x")]);
    files.get_mut("sub/token").unwrap().uid = Some(1000);
    if !rustix::process::geteuid().is_root() {
        assert!(std::env::var_os("KARVE_REQUIRE_ALL").is_none(), "this test needs root");
        return eprintln!("SKIPPED: this test needs root");
    }
    assert!(write(&bed.volume, &files, Some(2000), "t1").unwrap());
    let (file, directory) = (bed.path("..data/sub/token"), bed.path("..data/sub"));
    let facts = |path: &Path| {
        let found = fs::metadata(path).unwrap();
        (found.uid(), found.gid(), found.mode() & 0o7777)
    };
    assert_eq!(
        (facts(&file), facts(&directory)),
        ((1000, 2000, 0o640), (0, 2000, 0o2775))
    );
    assert!(
        !write(&bed.volume, &files, Some(2000), "t2").unwrap(),
        "nothing changed"
    );
}

#[test]
fn paths_stay_inside() {
    let bed = Bed::new();
    for path in ["../x", "/x", "a/../../x", "..data", ""] {
        assert!(
            write(&bed.volume, &payload(&[(path, "")]), None, "t").is_err(),
            "{path}"
        );
    }
}

/// What a pod with a writable volume could leave there, and what must not come of it.
#[test]
fn a_hostile_volume_is_repaired_and_the_host_is_left_alone() {
    type Attack = fn(&Bed);
    let attacks: &[(&str, Attack)] = &[
        ("..data leads to a directory of the host", |bed| {
            fs::remove_file(bed.path("..data")).unwrap();
            symlink(bed.host(), bed.path("..data")).unwrap();
        }),
        ("..data leads out by dots", |bed| {
            fs::remove_file(bed.path("..data")).unwrap();
            symlink("../host", bed.path("..data")).unwrap();
        }),
        ("..data leads to a link that leads out", |bed| {
            fs::remove_file(bed.path("..data")).unwrap();
            symlink(bed.host(), bed.path("..evil")).unwrap();
            symlink("..evil", bed.path("..data")).unwrap();
        }),
        ("..data leads to the volume's parent", |bed| {
            fs::remove_file(bed.path("..data")).unwrap();
            symlink("..", bed.path("..data")).unwrap();
        }),
        ("..data is a directory", |bed| {
            fs::remove_file(bed.path("..data")).unwrap();
            fs::create_dir_all(bed.path("..data/deep/er")).unwrap();
            symlink(bed.host(), bed.path("..data/deep/link")).unwrap();
        }),
        ("..data is a FIFO", |bed| {
            fs::remove_file(bed.path("..data")).unwrap();
            mkfifo(&bed.path("..data"));
        }),
        ("the next link is a directory with links", |bed| {
            fs::create_dir(bed.path("..data_tmp")).unwrap();
            symlink(bed.host(), bed.path("..data_tmp/link")).unwrap();
        }),
        ("the next directory is there already", |bed| {
            symlink(bed.host(), bed.path("..t2")).unwrap();
        }),
        ("a file is a link to the host's", |bed| {
            fs::remove_file(bed.path("..t1/a")).unwrap();
            symlink(bed.host().join("inner/file"), bed.path("..t1/a")).unwrap();
        }),
        ("a file is a FIFO", |bed| {
            fs::remove_file(bed.path("..t1/a")).unwrap();
            mkfifo(&bed.path("..t1/a"));
        }),
        ("a visible name is a link to the host's", |bed| {
            fs::remove_file(bed.path("a")).unwrap();
            symlink(bed.host().join("inner/file"), bed.path("a")).unwrap();
        }),
        ("a visible name is a directory", |bed| {
            fs::remove_file(bed.path("a")).unwrap();
            fs::create_dir(bed.path("a")).unwrap();
            symlink(bed.host(), bed.path("a/link")).unwrap();
        }),
        ("a name is shown that is none", |bed| {
            symlink(bed.host(), bed.path("b")).unwrap();
        }),
        ("a directory too many, and without end", |bed| {
            let mut at = Dir::open(&bed.path("..t1")).unwrap();
            for _ in 0..500 {
                at = at.make_child(OsStr::new("d"), 0o755).unwrap();
            }
        }),
    ];
    for (name, attack) in attacks {
        for content in ["1", "2"] {
            let bed = Bed::new();
            assert!(bed.write(&[("a", "1")], "t1"));
            attack(&bed);
            println!("{name}, then {content}");
            // The same content again must not be believed to be there, and a change must not go wrong. Beside a link
            // that is in nobody's way there may be nothing to do.
            bed.write(&[("a", content)], "t2");
            bed.write(&[("a", "3")], "t3");
            bed.check("3");
        }
    }
}

#[test]
fn data_is_only_what_a_writer_made() {
    let bed = Bed::new();
    assert!(bed.write(&[("a", "1")], "t1"));
    fs::create_dir(bed.path("..x")).unwrap();
    fs::rename(bed.path("..t1"), bed.path("..x/y")).unwrap();
    fs::remove_file(bed.path("..data")).unwrap();
    symlink("..x/y", bed.path("..data")).unwrap();
    assert!(bed.write(&[("a", "1")], "t2"), "it has the content, but not the form");
    bed.check("1");
}

fn mkfifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o666), 0).unwrap();
}

#[test]
fn what_is_mounted_in_a_volume_is_not_removed() {
    in_mount_namespace(|dir| {
        let (volume, host) = (dir.join("volume"), dir.join("host"));
        for path in [&volume, &host] {
            fs::create_dir(path).unwrap();
        }
        fs::write(host.join("file"), "of the host").unwrap();
        let open = Dir::open(&volume).unwrap();
        write(&open, &payload(&[("a", "1")]), None, "t1").unwrap();
        fs::create_dir(volume.join("..t1/m")).unwrap();
        let bind = || mounts::bind(Dir::open(&host).unwrap(), Dir::open(&volume.join("..t1/m")).unwrap());
        bind().unwrap();
        // The switch is made; only what is mounted keeps the old directory.
        assert!(write(&open, &payload(&[("a", "2")]), None, "t2").is_err());
        assert_eq!(fs::read_to_string(volume.join("a")).unwrap(), "2");
        assert_eq!(fs::read_to_string(host.join("file")).unwrap(), "of the host");
        mounts::unmount_from(dir, &volume).unwrap();
        assert!(write(&open, &payload(&[("a", "3")]), None, "t3").unwrap());
        assert_eq!(listing(&volume), "..data -> ..t3\n..t3\na -> ..data/a");
        assert_eq!(fs::read_to_string(host.join("file")).unwrap(), "of the host");
    });
}

/// A thread swaps what is in the volume for links to the host while the volume is written and removed.
#[test]
fn links_that_change_places_cost_the_host_nothing() {
    let bed = Bed::new();
    let links: Vec<_> = (0..3).map(|number| bed.path(&format!("..link{number}"))).collect();
    let over = AtomicBool::new(false);
    let mut rounds = 0;
    std::thread::scope(|scope| {
        let (bed, over, links) = (&bed, &over, &links);
        scope.spawn(move || {
            let mut round = 0_usize;
            while !over.load(Ordering::Relaxed) {
                round += 1;
                let link = &links[round % links.len()];
                let _ = symlink(bed.host(), link);
                // A pod can do so only within its volume.
                let data = fs::read_link(bed.path("..data")).unwrap_or_default();
                let data = data.file_name().map(std::path::PathBuf::from).unwrap_or_default();
                for name in [
                    Path::new("..data"),
                    Path::new("a"),
                    Path::new("..data_tmp"),
                    &data,
                    &data.join("a"),
                ] {
                    let _ = renameat_with(CWD, link, CWD, bed.path("").join(name), RenameFlags::EXCHANGE);
                }
            }
        });
        let _end = EndOnDrop(over);
        let begun = Instant::now();
        // A busy machine takes longer for as many rounds.
        while begun.elapsed() < Duration::from_secs(2) || (rounds <= 50 && begun.elapsed() < Duration::from_secs(120)) {
            rounds += 1;
            // It may fail, for somebody is in its way; it must not reach outside.
            let _ = write(
                &bed.volume,
                &payload(&[("a", &rounds.to_string())]),
                None,
                &format!("t{rounds}"),
            );
            if rounds % 5 == 0 {
                for (name, _) in bed.volume.entries().unwrap() {
                    let _ = bed.volume.remove(&name);
                }
            }
            assert_eq!(
                fs::read_to_string(bed.host().join("inner/file")).unwrap(),
                "of the host"
            );
        }
    });
    assert!(rounds > 50, "{rounds} rounds");
    bed.write(&[("a", "last")], "last");
    bed.check("last");
}
