//! What happens to pods when Karve, or a supervisor, ends before them.

use std::path::Path;

use cri::{Runtime, v1};

use crate::bed::{Bed, able, processes_of, wait_for};

#[tokio::test]
async fn pods_outlive_the_runtime_that_started_them() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let sandbox = bed.sandbox().await;
    let running = bed.run(&sandbox, "echo up; exec sleep 1000").await;
    let leaving = bed
        .run(&sandbox, "while [ ! -e /dev/shm/go ]; do sleep 0.01; done; exit 5")
        .await;
    let before = bed.status(&running).await;
    bed.exec(&running, "(sleep 0.3; touch /dev/shm/go) >/dev/null 2>&1 &")
        .await;
    let bed = bed.reopen().await;
    // The one that ended meanwhile, or does now, has kept its exit code.
    assert_eq!(bed.ended(&leaving).await.exit_code, 5);
    assert_eq!(bed.status(&running).await, before);
    assert_eq!(bed.exec(&running, "echo hello").await.stdout, b"hello\n");
    bed.finish().await;
}

#[tokio::test]
async fn a_container_can_be_created_before_and_started_after() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let sandbox = bed.sandbox().await;
    let container = bed.create(&sandbox, bed.container_config("exit 6")).await.unwrap();
    let bed = bed.reopen().await;
    assert_eq!(
        bed.status(&container).await.state(),
        v1::ContainerState::ContainerCreated
    );
    bed.start(&container).await.unwrap();
    assert_eq!(bed.ended(&container).await.exit_code, 6);
    bed.finish().await;
}

#[tokio::test]
async fn a_killed_supervisor_takes_its_pod_along() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let sandbox = bed.sandbox().await;
    let container = bed.run(&sandbox, "trap '' TERM; while true; do sleep 0.01; done").await;
    kill_supervisor(bed.dir.path());
    let status = bed.ended(&container).await;
    assert_eq!((status.exit_code, status.reason.as_str()), (255, "Error"));
    let request = v1::PodSandboxStatusRequest {
        pod_sandbox_id: sandbox,
        verbose: false,
    };
    let status = bed.pod_sandbox_status(request).await.unwrap().status.unwrap();
    assert_eq!(status.state(), v1::PodSandboxState::SandboxNotready);
    bed.finish().await;
}

#[tokio::test]
async fn what_died_while_the_runtime_was_away_is_found_ended() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let sandbox = bed.sandbox().await;
    let container = bed.run(&sandbox, "exec sleep 1000").await;
    let bed = bed.reopen_after(kill_supervisor).await;
    assert_eq!(bed.ended(&container).await.exit_code, 255);
    bed.finish().await;
}

/// Kills the pod's supervisor, and only it.
fn kill_supervisor(dir: &Path) {
    for pid in processes_of(&dir.display().to_string()) {
        let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        if comm == "karve-pod\n" {
            let pid = rustix::process::Pid::from_raw(pid).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        }
    }
}

#[tokio::test]
async fn killing_the_pause_process_ends_the_pod() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let sandbox = bed.sandbox().await;
    let container = bed.run(&sandbox, "exec sleep 1000").await;
    let pid: i32 = std::fs::read_to_string(bed.dir.path().join("state/sandboxes").join(&sandbox).join("pause"))
        .unwrap()
        .parse()
        .unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    assert_eq!(bed.ended(&container).await.exit_code, 137);
    let dir = bed.dir.path().display().to_string();
    wait_for("the supervisor to go", || processes_of(&dir).is_empty()).await;
    bed.finish().await;
}
