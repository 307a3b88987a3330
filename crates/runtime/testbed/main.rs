//! What the integration tests run as supervisor, and as the built-in image: the part of Karve's binary that this
//! crate needs, and the attacks that a hostile container would make.

mod attacks;

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use network::{Cidr, NetworkError, PodAddresses, PodNetwork, SandboxNetwork};

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    match args.next().as_deref() {
        Some(runtime::supervisor::SUBCOMMAND) => runtime::supervisor::main(args),
        Some(runtime::unpacker::SUBCOMMAND) => runtime::unpacker::main(),
        Some("pause") => loop {
            std::thread::park();
        },
        Some("serve") => serve(),
        Some("attack-exe") => attacks::overwrite_program(),
        Some("attack-newcomers") => attacks::watch_newcomers(),
        Some("import") => import(&args.next().unwrap_or_default()),
        other => {
            eprintln!("the testbed knows no command {other:?}");
            ExitCode::from(2)
        }
    }
}

/// Answers every connection to port 8080 with one line.
fn serve() -> ExitCode {
    use std::io::Write;
    let listener = std::net::TcpListener::bind("127.0.0.1:8080").expect("the port is free in a new pod");
    println!("listening");
    for connection in listener.incoming().flatten() {
        let _ = { connection }.write_all(b"pong\n");
    }
    ExitCode::SUCCESS
}

/// Opens a runtime in a directory and imports the archive on standard input.
fn import(dir: &str) -> ExitCode {
    let dir = Path::new(dir);
    let options = runtime::Options {
        root_dir: dir.join("root"),
        state_dir: dir.join("state"),
        cgroup_parent: "/karve-testbed".into(),
        supervisor_exe: "/proc/self/exe".into(),
        network: Arc::new(NoNetwork),
        mirrors: Vec::new(),
    };
    let threads = tokio::runtime::Runtime::new().expect("threads can be started");
    let archive = std::io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .expect("standard input is open");
    let imported = threads.block_on(async {
        let runtime = runtime::open(options).await.expect("the directory is free");
        runtime.import_images(File::from(archive)).await
    });
    match imported {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

struct NoNetwork;

#[async_trait::async_trait]
impl PodNetwork for NoNetwork {
    async fn setup(&self, _: &SandboxNetwork) -> Result<PodAddresses, NetworkError> {
        unreachable!("importing starts no pod")
    }

    async fn teardown(&self, _: &SandboxNetwork) -> Result<(), NetworkError> {
        Ok(())
    }

    async fn status(&self) -> Result<(), NetworkError> {
        Ok(())
    }

    async fn reconcile(&self, _: &[SandboxNetwork]) -> Result<(), NetworkError> {
        Ok(())
    }

    async fn update_pod_cidrs(&self, _: &[Cidr]) -> Result<(), NetworkError> {
        Ok(())
    }
}
