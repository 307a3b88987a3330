//! A containerd of the tests' own, started by `interop/containerd.sh`, one for each test that asks.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use cri::Runtime;

pub struct Containerd {
    directory: tempfile::TempDir,
    pub socket: String,
}

impl Containerd {
    /// None, and a loud word why, where there can be no containerd.
    pub fn start(subnet: &str) -> Option<Containerd> {
        if let Some(why) = missing() {
            assert!(std::env::var_os("KARVE_REQUIRE_ALL").is_none(), "{why}");
            eprintln!("SKIPPED: {why}");
            return None;
        }
        let directory = tempfile::Builder::new()
            .prefix("kv")
            .tempdir_in("/tmp")
            .expect("a directory");
        let output = Command::new(script())
            .arg("start")
            .arg(directory.path().join("c"))
            .args(["pause", "busybox", "agnhost"].map(archive))
            .env("POD_SUBNET", subnet)
            .output()
            .expect("interop/containerd.sh runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let socket = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        Some(Containerd { directory, socket })
    }

    pub fn root(&self) -> &Path {
        self.directory.path()
    }

    pub async fn connect(&self) -> Arc<dyn Runtime> {
        cri::connect(&format!("unix://{}", self.socket))
            .await
            .expect("containerd answers")
    }
}

impl Containerd {
    /// Stops containerd and everything it runs. May be called again.
    pub fn stop(&self) {
        let stopped = Command::new(script())
            .arg("stop")
            .arg(self.directory.path().join("c"))
            .status();
        if !stopped.is_ok_and(|status| status.success()) {
            eprintln!("containerd in {} could not be stopped", self.directory.path().display());
        }
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        self.stop();
    }
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../interop/containerd.sh")
}

fn archive(name: &str) -> PathBuf {
    let cache = std::env::var_os("KARVE_CACHE").map(PathBuf::from);
    let home = PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
    let images = cache.unwrap_or_else(|| home.join(".cache/karve")).join("images");
    let versions = std::fs::read_dir(&images).into_iter().flatten().flatten();
    let found = versions
        .map(|version| version.path().join(format!("{name}.tar")))
        .find(|path| path.exists());
    found.unwrap_or_else(|| images.join(format!("{name}.tar")))
}

fn missing() -> Option<String> {
    let installed = |program: &str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|directory| directory.join(program).exists())
    };
    if !rustix::process::geteuid().is_root() {
        return Some("the tests against containerd need root".to_owned());
    }
    if let Some(program) = ["containerd", "runc"].into_iter().find(|program| !installed(program)) {
        return Some(format!(
            "the tests against containerd need {program}; install it with your package manager"
        ));
    }
    let images = ["pause", "busybox", "agnhost"].map(archive);
    let absent = images.iter().find(|path| !path.exists())?;
    Some(format!(
        "the tests against containerd need {}: run interop/images.sh",
        absent.display()
    ))
}
