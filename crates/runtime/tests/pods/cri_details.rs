//! What the CRI asks for beyond running pods: names, image references, figures and details.

use cri::{Runtime, v1};
use futures_util::StreamExt;
use std::time::{Duration, Instant};

use crate::bed::{Archive, Bed, IMAGE, able, busybox_layer};

#[tokio::test]
async fn a_name_is_had_once() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let config = bed.sandbox_config();
    let run = |bed: &Bed, config: &v1::PodSandboxConfig| {
        let request = v1::RunPodSandboxRequest {
            config: Some(config.clone()),
            runtime_handler: String::new(),
        };
        let runtime = bed.shared();
        async move {
            runtime
                .run_pod_sandbox(request)
                .await
                .map(|answer| answer.pod_sandbox_id)
        }
    };
    let sandbox = run(&bed, &config).await.unwrap();
    let attempt = config.metadata.as_ref().unwrap().attempt;
    let refused = format!(
        "failed to reserve sandbox name \"pod_default_u-1_{attempt}\": name \"pod_default_u-1_{attempt}\" is reserved for \
         {sandbox:?}"
    );
    assert_eq!(run(&bed, &config).await.unwrap_err().to_string(), refused);
    let container_config = bed.container_config("exec sleep 1000");
    let container = bed.create(&sandbox, container_config.clone()).await.unwrap();
    let error = bed.create(&sandbox, container_config.clone()).await.unwrap_err();
    assert!(
        error.message.ends_with(&format!("is reserved for {container:?}")),
        "{error}"
    );
    // A runtime that starts anew knows it still.
    let bed = bed.reopen().await;
    assert_eq!(run(&bed, &config).await.unwrap_err().to_string(), refused);
    let error = bed.create(&sandbox, container_config.clone()).await.unwrap_err();
    assert!(
        error.message.ends_with(&format!("is reserved for {container:?}")),
        "{error}"
    );
    // What is removed, or was never made, has no name.
    let request = v1::RemoveContainerRequest {
        container_id: container,
    };
    bed.remove_container(request).await.unwrap();
    bed.create(&sandbox, container_config).await.unwrap();
    bed.remove(&sandbox).await;
    let mut failing = config.clone();
    failing.linux.as_mut().unwrap().sysctls = [("net.ipv4.no_such_setting".to_owned(), "1".to_owned())].into();
    run(&bed, &failing).await.unwrap_err();
    run(&bed, &config).await.unwrap();
    bed.finish().await;
}

/// Whoever lists at intervals would find out a minute later.
#[tokio::test]
async fn the_end_of_a_sandbox_is_told_before_that_of_its_containers() {
    if !able() {
        return;
    }
    for process in ["pause", "supervisor"] {
        let bed = Bed::new().await;
        let sandbox = bed.sandbox().await;
        let container = bed.run(&sandbox, "exec sleep 1000").await;
        let mut events = bed.events().await.unwrap();
        let begun = Instant::now();
        bed.kill(&sandbox, process);
        for id in [&sandbox, &container] {
            let event = tokio::time::timeout(Duration::from_secs(30), events.next()).await;
            let event = event.unwrap().unwrap().unwrap();
            assert_eq!((&event.container_id, process), (id, process));
            assert_eq!(
                event.container_event_type(),
                v1::ContainerEventType::ContainerStoppedEvent
            );
            let state = event.pod_sandbox_status.unwrap().state();
            assert_eq!(state, v1::PodSandboxState::SandboxNotready);
        }
        println!("the end of the {process} process was told after {:?}", begun.elapsed());
        bed.finish().await;
    }
}

async fn image(bed: &Bed, name: &str) -> Option<v1::Image> {
    let request = v1::ImageStatusRequest {
        image: Some(v1::ImageSpec {
            image: name.to_owned(),
            ..Default::default()
        }),
        verbose: true,
    };
    bed.image_status(request).await.unwrap().image
}

#[tokio::test]
async fn an_image_is_found_by_the_beginning_of_its_id() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let known = image(&bed, IMAGE).await.unwrap();
    let digits = known.id.trim_start_matches("sha256:");
    for name in [&digits[..12], &known.id[..20], digits, &known.id] {
        assert_eq!(image(&bed, name).await.unwrap().id, known.id, "{name}");
    }
    assert_eq!(known.spec.unwrap().image, known.id);
    for name in ["0000000000000000", "zzzz", "sha256:"] {
        assert_eq!(image(&bed, name).await, None, "{name}");
    }
    bed.finish().await;
}

#[tokio::test]
async fn an_import_answers_the_name_it_gave() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    // The same image under a name that is sorted after the one it has.
    let archive = Archive {
        name: "test/later:2",
        layers: vec![busybox_layer(|_| {})],
        diff_ids: None,
    };
    assert_eq!(bed.try_import(&archive).await.unwrap(), ["docker.io/test/later:2"]);
    let found = image(&bed, "test/later:2").await.unwrap();
    assert_eq!(found.repo_tags, ["docker.io/test/busybox:1", "docker.io/test/later:2"]);
    bed.finish().await;
}

#[tokio::test]
async fn figures_and_details_are_told() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let sandbox = bed
        .sandbox_with(|config| config.linux.as_mut().unwrap().cgroup_parent.clear())
        .await;
    let container = bed.run(&sandbox, "exec sleep 1000").await;
    // A pod without a cgroup of its own uses what its containers do, and not what all such pods do.
    let request = v1::PodSandboxStatsRequest {
        pod_sandbox_id: sandbox.clone(),
    };
    let stats = bed
        .pod_sandbox_stats(request)
        .await
        .unwrap()
        .stats
        .unwrap()
        .linux
        .unwrap();
    assert_eq!(stats.containers.len(), 1);
    assert!(stats.cpu.unwrap().usage_core_nano_seconds.is_some());
    let metrics = bed.list_pod_sandbox_metrics(v1::ListPodSandboxMetricsRequest {}).await;
    let metrics = metrics.unwrap().pod_metrics;
    assert_eq!(metrics[0].pod_sandbox_id, sandbox);
    assert_eq!(metrics[0].container_metrics[0].container_id, container);
    assert!(!metrics[0].container_metrics[0].metrics.is_empty());
    let request = v1::ContainerStatusRequest {
        container_id: container.clone(),
        verbose: true,
    };
    let info = bed.container_status(request).await.unwrap().info;
    let info: serde_json::Value = serde_json::from_str(&info["info"]).unwrap();
    // The shell may not have become its command yet.
    let begun = std::time::Instant::now();
    let comm = || std::fs::read_to_string(format!("/proc/{}/comm", info["pid"])).unwrap();
    while comm() != "sleep\n" {
        assert!(begun.elapsed().as_secs() < 60, "process {} is {}", info["pid"], comm());
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let usage = bed.image_fs_info(v1::ImageFsInfoRequest {}).await.unwrap();
    assert!(usage.image_filesystems[0].inodes_used.unwrap().value > 10);
    bed.finish().await;
}
