//! Which version of Kubernetes this server is compatible with, and what it was built from.

use api::Value;
use serde_json::json;

/// The version of the API this server implements.
pub const GIT_VERSION: &str = "v1.36.4";

/// What this server is and what it is compatible with.
pub struct Build {
    pub major: &'static str,
    pub minor: &'static str,
    pub version: String,
    pub tree: &'static str,
    pub date: &'static str,
    pub compiler: &'static str,
    pub platform: String,
}

pub fn build() -> Build {
    Build {
        major: "1",
        minor: "36",
        version: format!("{GIT_VERSION}+karve{}", env!("CARGO_PKG_VERSION")),
        tree: "clean",
        date: "1970-01-01T00:00:00Z",
        compiler: "rustc",
        platform: format!("linux/{}", architecture()),
    }
}

/// What `/version` answers.
pub fn version_info() -> Value {
    let build = build();
    json!({
        "major": build.major, "minor": build.minor, "emulationMajor": build.major, "emulationMinor": build.minor,
        "minCompatibilityMajor": "1", "minCompatibilityMinor": "35", "gitVersion": build.version,
        "gitCommit": "", "gitTreeState": build.tree, "buildDate": build.date, "goVersion": "",
        "compiler": build.compiler, "platform": build.platform,
    })
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
