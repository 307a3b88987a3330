//! Tests that are run once more with cgroup v2 alone, on machines that mount version 1: in a mount namespace where
//! version 1 is not to be seen. There are no controllers there, so only tests that set no limits can be.

use std::fs;
use std::process::Command;

use crate::bed::able;

/// The name under which each run of a test knows that it is the second.
const SECOND_RUN: &str = "KARVE_TEST_UNIFIED";

const SCRIPT: &str = r#"
for mount in $V1; do umount -l "$mount" || exit 1; done
exec "$0" --exact "$1" --nocapture
"#;

fn run_again(test: &str) {
    if !able() || std::env::var_os(SECOND_RUN).is_some() {
        return;
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let of_kind = |kind: &str| -> Vec<&str> {
        let lines = mounts.lines().filter(|line| line.contains(kind));
        lines.map(|line| line.split(' ').nth(4).unwrap()).collect()
    };
    let legacy = of_kind(" - cgroup ");
    if legacy.is_empty() {
        // The first run was on version 2.
        return;
    }
    if of_kind(" - cgroup2 ").is_empty() {
        eprintln!("SKIPPED: no cgroup v2 is mounted");
        return;
    }
    let output = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", SCRIPT])
        .arg(std::env::current_exe().unwrap())
        .arg(test)
        .env("V1", legacy.join(" "))
        .env(SECOND_RUN, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn containers_run() {
    run_again("lifecycle::a_container_runs_writes_its_log_and_ends");
}

#[test]
fn processes_have_their_standard_streams_and_nothing_else() {
    run_again("escape::processes_have_their_standard_streams_and_nothing_else");
}

#[test]
fn cve_2024_21626() {
    run_again("escape::cve_2024_21626_no_path_leads_through_a_descriptor_of_the_supervisor");
}

#[test]
fn a_container_that_may_mount_opens_no_device_by_a_node_it_made() {
    run_again("devices::a_container_that_may_mount_opens_no_device_by_a_node_it_made");
}

#[test]
fn a_privileged_container_opens_everything() {
    run_again("devices::a_privileged_container_opens_everything");
}

#[test]
fn a_device_is_given_with_the_rights_it_is_given_with() {
    run_again("devices::a_device_is_given_with_the_rights_it_is_given_with");
}
