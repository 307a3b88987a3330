//! Sandboxes and containers from start to end.

use std::time::{Duration, Instant};

use cri::{Code, Runtime, v1};
use futures_util::StreamExt;

use crate::bed::{Bed, able, wait_for};

#[tokio::test]
async fn a_container_runs_writes_its_log_and_ends() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let sandbox = bed.sandbox().await;
    let (log, status) = bed
        .run_to_end(
            &sandbox,
            "echo one; echo two >&2; sleep 0.05; printf three; exit 3",
            |_| {},
        )
        .await;
    assert_eq!(log, "stdout F one\nstderr F two\nstdout P three\n");
    assert_eq!((status.exit_code, status.reason.as_str()), (3, "Error"));
    assert!(status.started_at > 0 && status.finished_at > status.started_at);
    assert!(status.created_at <= status.started_at);
    assert_eq!(status.log_path, bed.log_path().display().to_string());
    bed.finish().await;
}

#[tokio::test]
async fn a_sandbox_is_ready_with_its_address_until_it_is_stopped() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let sandbox = bed.sandbox().await;
    let request = || v1::PodSandboxStatusRequest {
        pod_sandbox_id: sandbox.clone(),
        verbose: false,
    };
    let status = bed.pod_sandbox_status(request()).await.unwrap().status.unwrap();
    assert_eq!(status.state(), v1::PodSandboxState::SandboxReady);
    assert_eq!(status.network.unwrap().ip, "10.9.8.7");

    let container = bed.run(&sandbox, "sleep 1000").await;
    let stop = || v1::StopPodSandboxRequest {
        pod_sandbox_id: sandbox.clone(),
    };
    bed.stop_pod_sandbox(stop()).await.unwrap();
    bed.stop_pod_sandbox(stop()).await.unwrap();
    let status = bed.pod_sandbox_status(request()).await.unwrap().status.unwrap();
    assert_eq!(status.state(), v1::PodSandboxState::SandboxNotready);
    assert_eq!(bed.ended(&container).await.exit_code, 137);
    let config = bed.container_config("true");
    assert_eq!(
        bed.create(&sandbox, config).await.unwrap_err().code,
        Code::FailedPrecondition
    );
    bed.finish().await;
}

#[tokio::test]
async fn containers_of_a_pod_share_network_names_and_memory_but_not_processes() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let sandbox = bed.sandbox().await;
    let one = bed.run(&sandbox, "echo shared > /dev/shm/file; exec sleep 1000").await;
    let two = bed.run(&sandbox, "exec sleep 1000").await;
    let namespaces = "for n in net ipc uts pid mnt; do ls -l /proc/self/ns/$n | cat; done";
    let (first, second) = (
        bed.exec(&one, namespaces).await.stdout,
        bed.exec(&two, namespaces).await.stdout,
    );
    let ids = |text: &[u8]| -> Vec<String> {
        String::from_utf8_lossy(text)
            .lines()
            .map(|line| line.rsplit(' ').next().unwrap().to_owned())
            .collect()
    };
    let same: Vec<_> = ids(&first).into_iter().zip(ids(&second)).map(|(a, b)| a == b).collect();
    assert_eq!(same, [true, true, true, false, false]);
    assert_eq!(
        bed.exec(&two, "cat /dev/shm/file; cat /etc/hostname; cat /proc/1/comm")
            .await
            .stdout,
        b"shared\npod\nsleep\n"
    );
    bed.finish().await;
}

#[tokio::test]
async fn a_pod_may_share_its_processes() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let shared = || v1::NamespaceOption {
        pid: v1::NamespaceMode::Pod.into(),
        ..Default::default()
    };
    let sandbox = bed
        .sandbox_with(|config| {
            config
                .linux
                .as_mut()
                .unwrap()
                .security_context
                .as_mut()
                .unwrap()
                .namespace_options = Some(shared());
        })
        .await;
    let share = |config: &mut v1::ContainerConfig| {
        config
            .linux
            .as_mut()
            .unwrap()
            .security_context
            .as_mut()
            .unwrap()
            .namespace_options = Some(shared());
    };
    let one = bed.run_with(&sandbox, "sleep 1000 & exec sleep 1000", share).await;
    let two = bed.run_with(&sandbox, "exec sleep 2000", share).await;
    let seen = bed
        .exec(
            &two,
            "cat /proc/1/comm; cat /proc/[0-9]*/cmdline | grep -o sleep | wc -l || true",
        )
        .await;
    assert!(String::from_utf8_lossy(&seen.stdout).starts_with("pause\n"));
    // Ending a container ends all of its processes, and no other's.
    stop(&bed, &one, 0).await;
    assert_eq!(bed.ended(&one).await.exit_code, 137);
    assert_eq!(bed.status(&two).await.state(), v1::ContainerState::ContainerRunning);
    bed.finish().await;
}

async fn stop(bed: &Bed, container: &str, timeout: i64) -> Duration {
    let began = Instant::now();
    let request = v1::StopContainerRequest {
        container_id: container.to_owned(),
        timeout,
    };
    bed.stop_container(request).await.unwrap();
    began.elapsed()
}

#[tokio::test]
async fn stopping_asks_first_and_kills_when_the_time_is_over() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let sandbox = bed.sandbox().await;
    let polite = bed
        .run(
            &sandbox,
            "trap 'exit 7' TERM; echo ready; while true; do sleep 0.01; done",
        )
        .await;
    // The first process of a namespace does not get signals it has not asked for yet.
    wait_for("the trap", || bed.log() == "stdout F ready\n").await;
    assert!(stop(&bed, &polite, 10).await < Duration::from_secs(5));
    assert_eq!(bed.ended(&polite).await.exit_code, 7);

    let stubborn = bed.run(&sandbox, "trap '' TERM; while true; do sleep 0.01; done").await;
    let took = stop(&bed, &stubborn, 1).await;
    assert!(
        took >= Duration::from_secs(1) && took < Duration::from_secs(5),
        "{took:?}"
    );
    assert_eq!(bed.ended(&stubborn).await.exit_code, 137);
    bed.finish().await;
}

#[tokio::test]
async fn a_program_that_is_not_there_fails_the_start() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let sandbox = bed.sandbox().await;
    let mut config = bed.container_config("");
    config.command = vec!["nope".into()];
    let container = bed.create(&sandbox, config).await.unwrap();
    let error = bed.start(&container).await.unwrap_err();
    assert_eq!(
        error.message,
        r#"unable to start container process: exec: "nope": executable file not found in $PATH"#
    );
    let status = bed.ended(&container).await;
    assert_eq!((status.exit_code, status.reason.as_str()), (128, "StartError"));
    assert_eq!(bed.start(&container).await.unwrap_err().code, Code::FailedPrecondition);
    bed.finish().await;
}

#[tokio::test]
async fn events_tell_of_each_step_at_once() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let sandbox = bed.sandbox().await;
    let mut events = bed.events().await.unwrap();
    let container = bed.run(&sandbox, "exit 4").await;
    let mut kinds = Vec::new();
    while kinds.len() < 3 {
        let event = tokio::time::timeout(Duration::from_secs(5), events.next())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        assert_eq!(event.container_id, container);
        kinds.push(event.container_event_type());
        if event.container_event_type() == v1::ContainerEventType::ContainerStoppedEvent {
            assert_eq!(event.containers_statuses[0].exit_code, 4);
        }
    }
    kinds.sort_unstable_by_key(|kind| *kind as i32);
    use v1::ContainerEventType as Kind;
    assert_eq!(
        kinds,
        [
            Kind::ContainerCreatedEvent,
            Kind::ContainerStartedEvent,
            Kind::ContainerStoppedEvent
        ]
    );
    bed.finish().await;
}

#[tokio::test]
async fn lists_are_filtered_by_id_state_and_labels() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let sandbox = bed.sandbox().await;
    let running = bed.run(&sandbox, "exec sleep 1000").await;
    let done = bed.run(&sandbox, "true").await;
    bed.ended(&done).await;
    let list = async |filter: v1::ContainerFilter| -> Vec<String> {
        let request = v1::ListContainersRequest { filter: Some(filter) };
        bed.list_containers(request)
            .await
            .unwrap()
            .containers
            .into_iter()
            .map(|c| c.id)
            .collect()
    };
    let state = Some(v1::ContainerStateValue {
        state: v1::ContainerState::ContainerRunning.into(),
    });
    assert_eq!(
        list(v1::ContainerFilter {
            state,
            ..Default::default()
        })
        .await,
        [running]
    );
    assert_eq!(
        list(v1::ContainerFilter {
            id: done[..12].into(),
            ..Default::default()
        })
        .await,
        [done]
    );
    let label_selector = [("app".to_owned(), "other".to_owned())].into();
    assert!(
        list(v1::ContainerFilter {
            label_selector,
            ..Default::default()
        })
        .await
        .is_empty()
    );
    bed.finish().await;
}

#[tokio::test]
async fn the_log_can_be_rotated_under_a_running_container() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let sandbox = bed.sandbox().await;
    let container = bed.run(&sandbox, "echo before; cat /dev/shm/go 2>/dev/null; while [ ! -e /dev/shm/go ]; do sleep 0.01; done; echo after; exec sleep 1000").await;
    wait_for("the first line", || bed.log() == "stdout F before\n").await;
    let rotated = bed.log_path().with_extension("1");
    std::fs::rename(bed.log_path(), &rotated).unwrap();
    let request = v1::ReopenContainerLogRequest {
        container_id: container.clone(),
    };
    bed.reopen_container_log(request).await.unwrap();
    bed.exec(&container, "touch /dev/shm/go").await;
    wait_for("the second line", || bed.log() == "stdout F after\n").await;
    bed.finish().await;
}

/// The bytes at which a log is rotated, in a script that prints many times as much and then says that it is done.
const LOG_MAX_BYTES: u64 = 100_000;
const PRINTS_MUCH: &str = "i=0; while [ $i -lt 30000 ]; do echo 0123456789012345678901234567890123456789; i=$((i+1)); done; \
                           touch /dev/shm/done; exec sleep 1000";

fn rotated_log(config: &mut v1::ContainerConfig) {
    let bytes = LOG_MAX_BYTES.to_string();
    config.annotations.insert(cri::LOG_MAX_BYTES.to_owned(), bytes);
}

#[tokio::test]
async fn a_container_waits_until_its_full_log_is_rotated() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let sandbox = bed.sandbox().await;
    let container = bed.run_with(&sandbox, PRINTS_MUCH, rotated_log).await;
    let size = || std::fs::metadata(bed.log_path()).map_or(0, |found| found.len());
    let mut sizes = Vec::new();
    for number in 0..5 {
        wait_for("a full log", || size() >= LOG_MAX_BYTES).await;
        sizes.push(size());
        std::fs::rename(bed.log_path(), bed.log_path().with_extension(number.to_string())).unwrap();
        let request = v1::ReopenContainerLogRequest {
            container_id: container.clone(),
        };
        bed.reopen_container_log(request).await.unwrap();
    }
    // On a machine that is busy for seconds the container goes on, so not every one of them is held to it.
    assert!(sizes.iter().any(|size| *size < 3 * LOG_MAX_BYTES), "{sizes:?}");
    bed.finish().await;
}

#[tokio::test]
async fn a_container_goes_on_when_nobody_rotates_its_log() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let sandbox = bed.sandbox().await;
    let container = bed.run_with(&sandbox, PRINTS_MUCH, rotated_log).await;
    let mut is_done = false;
    for _ in 0..300 {
        is_done = bed.exec(&container, "test -e /dev/shm/done").await.exit_code == 0;
        if is_done {
            break;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert!(is_done, "the container waits for ever");
    wait_for("all lines", || bed.log().lines().count() == 30_000).await;
    bed.finish().await;
}

#[tokio::test]
async fn the_built_in_image_pauses() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let sandbox = bed.sandbox().await;
    let image = v1::ImageSpec {
        image: runtime::BUILTIN_IMAGE.into(),
        ..Default::default()
    };
    let pull = v1::PullImageRequest {
        image: Some(image.clone()),
        ..Default::default()
    };
    bed.pull_image(pull).await.unwrap();
    let container = bed
        .run_with(&sandbox, "", |config| {
            config.image = Some(image.clone());
            config.command.clear();
        })
        .await;
    assert_eq!(
        bed.status(&container).await.state(),
        v1::ContainerState::ContainerRunning
    );
    let stats = v1::ContainerStatsRequest {
        container_id: container.clone(),
    };
    let stats = bed.container_stats(stats).await.unwrap().stats.unwrap();
    assert!(stats.memory.unwrap().usage_bytes.unwrap().value > 0);
    let remove = v1::RemoveImageRequest { image: Some(image) };
    assert_eq!(
        bed.remove_image(remove).await.unwrap_err().code,
        Code::FailedPrecondition
    );
    bed.finish().await;
}

#[tokio::test]
async fn an_image_whose_registry_is_away_is_not_pulled() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let image = Some(v1::ImageSpec {
        image: "127.0.0.1:1/nginx".into(),
        ..Default::default()
    });
    let request = v1::ImageStatusRequest {
        image: image.clone(),
        verbose: false,
    };
    assert_eq!(bed.image_status(request).await.unwrap().image, None);
    let request = v1::PullImageRequest {
        image,
        ..Default::default()
    };
    let error = bed.pull_image(request).await.unwrap_err();
    assert_eq!(error.code, Code::Unavailable);
    let beginning = "failed to pull and unpack image \"127.0.0.1:1/nginx:latest\": ";
    assert!(error.message.starts_with(beginning), "{error}");
    bed.finish().await;
}

#[tokio::test]
async fn another_kubelet_may_drive_it_over_a_socket() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let path = bed.dir.path().join("cri.sock");
    let server = tokio::spawn(cri::serve(tokio::net::UnixListener::bind(&path).unwrap(), bed.shared()));
    let client = cri::connect(path.to_str().unwrap()).await.unwrap();
    let request = v1::RunPodSandboxRequest {
        config: Some(bed.sandbox_config()),
        runtime_handler: String::new(),
    };
    let sandbox = client.run_pod_sandbox(request).await.unwrap().pod_sandbox_id;
    let container = bed.run(&sandbox, "exec sleep 1000").await;
    let request = v1::ExecSyncRequest {
        container_id: container,
        cmd: vec!["echo".into(), "hello".into()],
        timeout: 5,
    };
    assert_eq!(client.exec_sync(request).await.unwrap().stdout, b"hello\n");
    server.abort();
    let _ = server.await;
    bed.finish().await;
}
