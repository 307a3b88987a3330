//! Exec, attach and port forwarding.

use std::time::Duration;

use cri::{Code, Runtime, StreamTarget, Streams, TerminalSize, v1};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::bed::{Bed, able, wait_for};

fn native(target: StreamTarget) -> Streams {
    match target {
        StreamTarget::Native(streams) => streams,
        StreamTarget::Url(url) => panic!("expected native streams, not {url}"),
    }
}

fn exec(container: &str, script: &str) -> v1::ExecRequest {
    v1::ExecRequest {
        container_id: container.to_owned(),
        cmd: vec!["sh".into(), "-c".into(), script.into()],
        stdin: true,
        stdout: true,
        stderr: true,
        tty: false,
    }
}

#[tokio::test]
async fn exec_sync_gives_output_and_exit_code() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let sandbox = bed.sandbox().await;
    let container = bed.run(&sandbox, "exec sleep 1000").await;
    let response = bed.exec(&container, "echo out; echo err >&2; exit 9").await;
    assert_eq!(
        (response.stdout, response.stderr, response.exit_code),
        (b"out\n".to_vec(), b"err\n".to_vec(), 9)
    );

    let request = v1::ExecSyncRequest {
        container_id: container.clone(),
        cmd: vec!["sh".into(), "-c".into(), "sleep 1234".into()],
        timeout: 1,
    };
    let error = bed.exec_sync(request).await.unwrap_err();
    assert_eq!(error.code, Code::DeadlineExceeded);
    // The command does not survive the caller's patience.
    for _ in 0..100 {
        let left = bed.exec(&container, "cat /proc/[0-9]*/cmdline").await.stdout;
        if !String::from_utf8_lossy(&left).contains("1234") {
            return bed.finish().await;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the command that timed out is still running");
}

#[tokio::test]
async fn exec_streams_in_both_directions() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let sandbox = bed.sandbox().await;
    let container = bed.run(&sandbox, "exec sleep 1000").await;
    let streams = native(
        bed.open_exec(exec(&container, "cat; echo done >&2; exit 2"))
            .await
            .unwrap(),
    );
    let (mut stdin, mut stdout, mut stderr) =
        (streams.stdin.unwrap(), streams.stdout.unwrap(), streams.stderr.unwrap());
    let payload = vec![b'x'; 1 << 20];
    let write = async {
        stdin.write_all(&payload).await.unwrap();
        drop(stdin);
    };
    let (mut output, mut errors) = (Vec::new(), String::new());
    let (_, _, _, status) = tokio::join!(
        write,
        stdout.read_to_end(&mut output),
        stderr.read_to_string(&mut errors),
        streams.exit
    );
    assert_eq!(output.len(), payload.len());
    assert_eq!(errors, "done\n");
    assert_eq!(status.unwrap().exit_code, 2);
    bed.finish().await;
}

#[tokio::test]
async fn exec_with_a_terminal_has_one_of_the_given_size() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let sandbox = bed.sandbox().await;
    let container = bed.run(&sandbox, "exec sleep 1000").await;
    let request = v1::ExecRequest {
        tty: true,
        stderr: false,
        ..exec(&container, "read line; stty size; echo got $line")
    };
    let streams = native(bed.open_exec(request).await.unwrap());
    let (mut stdin, mut stdout) = (streams.stdin.unwrap(), streams.stdout.unwrap());
    let exit = tokio::spawn(streams.exit);
    streams
        .resize
        .send(TerminalSize { columns: 123, rows: 45 })
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    stdin.write_all(b"hello\n").await.unwrap();
    let mut output = String::new();
    stdout.read_to_string(&mut output).await.unwrap();
    assert_eq!(output, "hello\r\n45 123\r\ngot hello\r\n");
    assert_eq!(exit.await.unwrap().unwrap().exit_code, 0);
    bed.finish().await;
}

#[tokio::test]
async fn those_attached_see_what_the_log_gets_and_may_write() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let sandbox = bed.sandbox().await;
    let container = bed
        .run_with(
            &sandbox,
            "while read line; do echo heard $line; done; echo end",
            |config| {
                config.stdin = true;
                config.stdin_once = true;
            },
        )
        .await;
    let request = v1::AttachRequest {
        container_id: container.clone(),
        stdin: true,
        stdout: true,
        stderr: true,
        tty: false,
    };
    let streams = native(bed.open_attach(request).await.unwrap());
    let (mut stdin, mut stdout) = (streams.stdin.unwrap(), streams.stdout.unwrap());
    let exit = tokio::spawn(streams.exit);
    stdin.write_all(b"one\ntwo\n").await.unwrap();
    drop(stdin);
    let mut output = String::new();
    stdout.read_to_string(&mut output).await.unwrap();
    assert_eq!(output, "heard one\nheard two\nend\n");
    assert_eq!(exit.await.unwrap().unwrap().exit_code, 0);
    assert_eq!(bed.log(), "stdout F heard one\nstdout F heard two\nstdout F end\n");
    bed.finish().await;
}

#[tokio::test]
async fn a_container_may_have_a_terminal_itself() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let sandbox = bed.sandbox().await;
    let (log, _) = bed
        .run_to_end(&sandbox, "[ -t 0 ] && [ -t 1 ] && echo yes $TERM", |config| {
            config.tty = true
        })
        .await;
    assert_eq!(log, "stdout F yes xterm\r\n");
    bed.finish().await;
}

#[tokio::test]
async fn a_port_of_the_pod_is_reached_from_inside() {
    if !able() {
        return;
    }
    let bed = Bed::new().await;
    let sandbox = bed.sandbox().await;
    bed.run_with(&sandbox, "", |config| {
        config.image = Some(v1::ImageSpec {
            image: runtime::BUILTIN_IMAGE.into(),
            ..Default::default()
        });
        config.command.clear();
        config.args = vec!["serve".into()];
    })
    .await;
    wait_for("the server", || bed.log() == "stdout F listening\n").await;
    let cri::PortTarget::Native(mut stream) = bed.open_port_forward(&sandbox, 8080).await.unwrap() else {
        panic!("expected a native stream");
    };
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, "pong\n");
    assert!(bed.open_port_forward(&sandbox, 8081).await.is_err());
    bed.finish().await;
}
