//! Measures how long it takes to import an image of a hundred megabytes.
//!
//! Needs root. Run it as `cargo run --release -p runtime --example import -- [TIMES]`; it is its own unpacker. With
//! TMPDIR on a tmpfs it tells what the work takes without the disk.

use std::io::{Seek, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use network::{Cidr, NetworkError, PodAddresses, PodNetwork, SandboxNetwork};
use runtime::Options;

const LAYERS: usize = 5;
const FILES: usize = 1000;
const FILE_BYTES: usize = 20_000;

fn main() {
    let mut args = std::env::args().skip(1);
    match args.next().as_deref() {
        Some(runtime::supervisor::SUBCOMMAND) => drop(runtime::supervisor::main(args)),
        Some(runtime::unpacker::SUBCOMMAND) => drop(runtime::unpacker::main()),
        times => {
            let times = times.and_then(|times| times.parse().ok()).unwrap_or(5);
            let threads = tokio::runtime::Builder::new_multi_thread()
                .enable_all()
                .build()
                .unwrap();
            threads.block_on(measure(times));
        }
    }
}

async fn measure(times: usize) {
    for (name, compressed) in [("plain", false), ("gzip", true)] {
        let bytes = archive(compressed);
        println!("{name}: {} MB archive", bytes.len() / 1_000_000);
        let mut taken = Vec::new();
        for _ in 0..times {
            let dir = tempfile::tempdir().unwrap();
            let runtime = open(dir.path()).await;
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&bytes).unwrap();
            file.sync_all().unwrap();
            file.rewind().unwrap();
            let began = Instant::now();
            runtime.import_images(file).await.unwrap();
            taken.push(began.elapsed());
        }
        taken.sort_unstable();
        println!(
            "{name}: p50 {:.0?} min {:.0?} max {:.0?}",
            taken[times / 2],
            taken[0],
            taken[times - 1]
        );
    }
}

async fn open(dir: &Path) -> Arc<runtime::Embedded> {
    let options = Options {
        root_dir: dir.join("root"),
        state_dir: dir.join("state"),
        cgroup_parent: "/karve-import".into(),
        supervisor_exe: std::env::current_exe().unwrap(),
        network: Arc::new(NoNetwork),
        mirrors: Vec::new(),
    };
    runtime::open(options).await.unwrap()
}

/// An archive as docker save writes it. Half of every file compresses well, half does not.
fn archive(compressed: bool) -> Vec<u8> {
    let mut state = 1_u64;
    let mut files = Vec::new();
    let mut diff_ids = Vec::new();
    for layer in 0..LAYERS {
        let mut tar = tar::Builder::new(Vec::new());
        for file in 0..FILES {
            let contents: Vec<u8> = (0..FILE_BYTES)
                .map(|at| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    if at % 64 < 32 { b'a' } else { (state >> 33) as u8 }
                })
                .collect();
            add(
                &mut tar,
                &format!("usr/lib/layer{layer}/{}/file{file}", file % 50),
                &contents,
            );
        }
        let tar = tar.into_inner().unwrap();
        diff_ids.push(format!("\"sha256:{}\"", hex(&tar)));
        files.push(if compressed { gzip(&tar) } else { tar });
    }
    let config = format!(r#"{{"config":{{}},"rootfs":{{"diff_ids":[{}]}}}}"#, diff_ids.join(","));
    let names: Vec<_> = (0..LAYERS).map(|layer| format!("{layer}.tar")).collect();
    let manifest = format!(r#"[{{"Config":"c.json","RepoTags":["big:1"],"Layers":{names:?}}}]"#);
    let mut tar = tar::Builder::new(Vec::new());
    for (name, bytes) in names.iter().zip(&files) {
        add(&mut tar, name, bytes);
    }
    add(&mut tar, "c.json", config.as_bytes());
    add(&mut tar, "manifest.json", manifest.as_bytes());
    tar.into_inner().unwrap()
}

fn add(tar: &mut tar::Builder<Vec<u8>>, name: &str, bytes: &[u8]) {
    let mut header = tar::Header::new_gnu();
    header.set_size(bytes.len() as u64);
    header.set_mode(0o644);
    tar.append_data(&mut header, name, bytes).unwrap();
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn hex(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

struct NoNetwork;

#[async_trait]
impl PodNetwork for NoNetwork {
    async fn setup(&self, _: &SandboxNetwork) -> Result<PodAddresses, NetworkError> {
        unreachable!("images need no network")
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
