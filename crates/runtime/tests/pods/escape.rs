//! Known ways out of a container, each named after where it was first seen, and what comes of trying them here.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use cri::v1;

use crate::bed::{Bed, able, security, volume};

/// Descriptor numbers that a supervisor or its children could have something open at.
const NUMBERS: std::ops::Range<u32> = 3..40;

/// The built-in image with a command of its own, which attacks from inside.
fn attack(config: &mut v1::ContainerConfig, command: &[&str]) {
    config.image = Some(v1::ImageSpec {
        image: runtime::BUILTIN_IMAGE.into(),
        ..Default::default()
    });
    config.command = command.iter().map(|word| (*word).to_owned()).collect();
}

/// Runs an attack to its end and answers what it printed.
async fn result_of(
    bed: &Bed,
    sandbox: &str,
    command: &[&str],
    change: impl FnOnce(&mut v1::ContainerConfig),
) -> String {
    let (log, _) = bed
        .run_to_end(sandbox, "", |config| {
            attack(config, command);
            change(config);
        })
        .await;
    log.lines()
        .map(|line| format!("{}\n", line.splitn(3, ' ').nth(2).unwrap()))
        .collect()
}

/// Why a container cannot be created or started.
async fn refusal(bed: &Bed, sandbox: &str, change: impl FnOnce(&mut v1::ContainerConfig)) -> String {
    let mut config = bed.container_config("echo runs; cat");
    change(&mut config);
    let container = match bed.create(sandbox, config).await {
        Ok(container) => container,
        Err(error) => return error.message,
    };
    bed.start(&container)
        .await
        .expect_err("the container was started")
        .message
}

#[tokio::test]
async fn processes_have_their_standard_streams_and_nothing_else() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let sandbox = bed.sandbox().await;
    // The shell's own descriptors are those it has while it lists them: the directory.
    let list = "cd /proc/self/fd; for fd in *; do [ -e $fd ] && echo $fd; done";
    let (log, _) = bed.run_to_end(&sandbox, list, |_| {}).await;
    assert_eq!(log, "stdout F 0\nstdout F 1\nstdout F 2\n");
    let container = bed.run(&sandbox, "exec sleep 1000").await;
    assert_eq!(bed.exec(&container, list).await.stdout, b"0\n1\n2\n");
    bed.finish().await;
}

/// A long way to the program: the process that looks for it can be caught while it does.
fn long_path() -> v1::KeyValue {
    v1::KeyValue {
        key: "PATH".into(),
        value: format!("{}/", "/nowhere:".repeat(12_000)).into_bytes(),
    }
}

#[tokio::test]
async fn cve_2016_9962_a_process_that_is_on_its_way_in_cannot_be_traced() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let sandbox = bed.sandbox().await;
    let container = bed
        .run_with(&sandbox, "", |config| {
            attack(config, &["/karve", "attack-newcomers"]);
            config.envs = vec![long_path()];
        })
        .await;
    while bed.status(&container).await.state() == v1::ContainerState::ContainerRunning {
        // It ends together with the container that it was sent into.
        let _ = bed.try_exec(&container, &["karve", "unknown"]).await;
    }
    let denied = "permission denied";
    let expected = format!(
        "stdout F watching\nstdout F descriptors: {denied}\nstdout F root: {denied}\nstdout F memory: {denied}\nstdout F trace: {denied}\n"
    );
    assert_eq!(bed.log(), expected);
    bed.finish().await;
}

#[tokio::test]
async fn cve_2019_5736_the_hosts_program_cannot_be_overwritten() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let sandbox = bed.sandbox().await;
    let sealed = "open: read-only filesystem or storage medium\nreopen: read-only filesystem or storage medium\n";
    let plain = result_of(&bed, &sandbox, &["/proc/self/exe", "attack-exe"], |_| {}).await;
    assert!(plain.starts_with(sealed), "{plain}");
    let admin = result_of(&bed, &sandbox, &["/proc/self/exe", "attack-exe"], |config| {
        security(config).capabilities = Some(v1::Capability {
            add_capabilities: vec!["ALL".into()],
            ..Default::default()
        });
    });
    let admin = admin.await;
    assert!(admin.starts_with(sealed), "{admin}");
    assert!(
        admin.ends_with("open remounted: read-only filesystem or storage medium\n"),
        "{admin}"
    );
    // The same by way of a script's interpreter.
    let scripts = bed.dir.path().join("scripts");
    fs::create_dir(&scripts).unwrap();
    fs::write(scripts.join("run"), "#!/proc/self/exe attack-exe\n").unwrap();
    fs::set_permissions(scripts.join("run"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let script = result_of(&bed, &sandbox, &["/scripts/run"], |config| {
        config.mounts = vec![volume(&scripts, "/scripts")];
    });
    let script = script.await;
    assert!(script.starts_with(sealed), "{script}");
    bed.finish().await;
}

#[tokio::test]
async fn cve_2019_16884_nothing_is_mounted_over_proc() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let sandbox = bed.sandbox().await;
    let data = bed.dir.path().join("data");
    fs::create_dir_all(data.join("self/attr")).unwrap();
    fs::write(data.join("uptime"), "42\n").unwrap();
    bed.import("test/links:1", |layer| {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_size(0);
        layer.append_link(&mut header, "attributes", "/proc/self/attr").unwrap();
    })
    .await;
    for target in [
        "/proc",
        "/proc/self/attr",
        "/proc/sys",
        "/proc/1",
        "/attributes",
        "/proc/../proc/irq",
    ] {
        let why = refusal(&bed, &sandbox, |config| {
            config.image.as_mut().unwrap().image = "test/links:1".into();
            config.mounts = vec![volume(&data, target)];
        });
        let why = why.await;
        assert!(
            why.ends_with("cannot be mounted because it is inside /proc"),
            "{target}: {why}"
        );
    }
    // What lxcfs and its like replace can be replaced.
    let (log, _) = bed
        .run_to_end(&sandbox, "cat /proc/uptime", |config| {
            config.mounts = vec![volume(&data.join("uptime"), "/proc/uptime")];
        })
        .await;
    assert_eq!(log, "stdout F 42\n");
    bed.finish().await;
}

#[tokio::test]
async fn cve_2019_19921_an_image_cannot_move_proc() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let sandbox = bed.sandbox().await;
    for name in ["proc", "sys"] {
        bed.import("test/moved:1", |layer| {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(tar::EntryType::Symlink);
            header.set_size(0);
            layer.append_link(&mut header, name, "/volume/elsewhere").unwrap();
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(tar::EntryType::Directory);
            header.set_mode(0o755);
            header.set_size(0);
            layer
                .append_data(&mut header, "volume/elsewhere", std::io::empty())
                .unwrap();
        })
        .await;
        let why = refusal(&bed, &sandbox, |config| {
            config.image.as_mut().unwrap().image = "test/moved:1".into()
        })
        .await;
        assert!(why.contains(&format!("mounting /{name}")), "{why}");
    }
    bed.finish().await;
}

/// The place of a volume is exchanged for a link while it is being mounted: what is made stays in the container.
#[tokio::test(flavor = "multi_thread")]
async fn cve_2021_30465_a_link_that_appears_while_mounting_leads_nowhere() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let sandbox = bed.sandbox().await;
    let (shared, outside) = (bed.dir.path().join("shared"), bed.dir.path().join("outside"));
    for dir in [&shared, &outside, &shared.join("place"), &bed.dir.path().join("data")] {
        fs::create_dir(dir).unwrap();
    }
    let up = "../".repeat(40);
    symlink(format!("{up}{}", outside.display()), shared.join("link")).unwrap();
    let over = AtomicBool::new(false);
    let exchange = || {
        let flags = rustix::fs::RenameFlags::EXCHANGE;
        while !over.load(Ordering::Relaxed) {
            rustix::fs::renameat_with(
                rustix::fs::CWD,
                shared.join("place"),
                rustix::fs::CWD,
                shared.join("link"),
                flags,
            )
            .unwrap();
        }
    };
    tokio::task::block_in_place(|| {
        std::thread::scope(|scope| {
            scope.spawn(exchange);
            tokio::runtime::Handle::current().block_on(async {
                for number in 0..20 {
                    let mut config = bed.container_config("true");
                    let target = format!("/shared/place/data{number}");
                    config.mounts = vec![
                        volume(&shared, "/shared"),
                        volume(&bed.dir.path().join("data"), &target),
                    ];
                    let container = bed.create(&sandbox, config).await.unwrap();
                    // Either it is mounted inside the root, or the lookup is refused.
                    if bed.start(&container).await.is_ok() {
                        bed.ended(&container).await;
                    }
                }
            });
            over.store(true, Ordering::Relaxed);
        });
    });
    let made: Vec<_> = fs::read_dir(&outside)
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    assert!(made.is_empty(), "made outside of the container: {made:?}");
    bed.finish().await;
}

#[tokio::test]
async fn cve_2022_29162_no_capability_is_inheritable() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let sandbox = bed.sandbox().await;
    let show = "while read name value; do [ $name = CapInh: ] && echo $value; done < /proc/self/status";
    for user in [0, 1000] {
        let (log, _) = bed
            .run_to_end(&sandbox, show, |config| {
                security(config).run_as_user = Some(v1::Int64Value { value: user });
            })
            .await;
        assert_eq!(log, "stdout F 0000000000000000\n");
    }
    let container = bed.run(&sandbox, "exec sleep 1000").await;
    assert_eq!(bed.exec(&container, show).await.stdout, b"0000000000000000\n");
    bed.finish().await;
}

#[tokio::test]
async fn cve_2024_21626_no_path_leads_through_a_descriptor_of_the_supervisor() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let sandbox = bed.sandbox().await;
    let data = bed.dir.path().join("data");
    fs::create_dir(&data).unwrap();
    let link = data.join("link");
    let container = bed
        .run_with(&sandbox, "exec sleep 1000", |config| {
            config.mounts = vec![volume(&data, "/data")];
            config.working_dir = "/data/link".into();
        })
        .await;
    fs::remove_dir(&link).unwrap();
    for number in NUMBERS {
        symlink(format!("/proc/self/fd/{number}"), &link).unwrap();
        // By the working directory and by the command, of a further process and of the first.
        for command in [
            &["/bin/busybox", "ls", "-la", ".."][..],
            &["/data/link/../../../../../bin/sh", "-c", "ls"][..],
        ] {
            let ran = bed.try_exec(&container, command).await;
            assert!(ran.is_err(), "descriptor {number}: {ran:?}");
        }
        refusal(&bed, &sandbox, |config| {
            config.mounts = vec![volume(&data, "/data")];
            config.working_dir = "/data/link".into();
        })
        .await;
        refusal(&bed, &sandbox, |config| {
            config.command = vec![
                format!("/proc/self/fd/{number}/../../../bin/sh"),
                "-c".into(),
                "ls".into(),
            ];
        })
        .await;
        fs::remove_file(&link).unwrap();
    }
    bed.finish().await;
}

#[tokio::test]
async fn cve_2025_31133_masked_files_are_empty_whatever_dev_null_is() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let sandbox = bed.sandbox().await;
    let dev = bed.dir.path().join("dev");
    fs::create_dir(&dev).unwrap();
    symlink("/proc/version", dev.join("null")).unwrap();
    let (log, _) = bed
        .run_to_end(
            &sandbox,
            "cat /proc/cpuinfo; cat /proc/version | busybox head -c5",
            |config| {
                config.mounts = vec![volume(&dev, "/dev")];
                security(config).masked_paths = vec!["/proc/cpuinfo".into()];
            },
        )
        .await;
    assert_eq!(log, "stdout P Linux\n");
    bed.finish().await;
}

#[tokio::test]
async fn cve_2025_52565_a_terminal_is_opened_from_a_devpts_alone() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let sandbox = bed.sandbox().await;
    let terminals = bed.dir.path().join("terminals");
    fs::create_dir(&terminals).unwrap();
    type Make = fn(&Path);
    let fakes: [(&str, Make); 3] = [
        ("a link", |place| {
            symlink("/proc/sys/kernel/core_pattern", place).unwrap()
        }),
        ("a file", |place| fs::write(place, "kept").unwrap()),
        ("a pipe", |place| {
            rustix::fs::mknodat(rustix::fs::CWD, place, rustix::fs::FileType::Fifo, 0o666.into(), 0).unwrap();
        }),
    ];
    for (what, make) in fakes {
        let place = terminals.join("ptmx");
        make(&place);
        let why = refusal(&bed, &sandbox, |config| {
            config.mounts = vec![volume(&terminals, "/dev/pts")];
            config.tty = true;
        });
        let why = why.await;
        assert!(why.contains("opening a terminal"), "{what}: {why}");
        fs::remove_file(&place).unwrap();
    }
    bed.finish().await;
}
