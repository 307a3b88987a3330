//! Keeps the wall clock and the dice in `clock`: nothing else asks the system for the time or for random numbers.
//!
//! The components that the simulation runs do not ask for the time that has passed either, but for tokio's, which a
//! simulation can stop. Tests and examples may ask whom they like.

use std::fs;
use std::path::{Path, PathBuf};

/// What asks the system, and what to use instead.
const ASKS: &[(&str, &str)] = &[
    ("SystemTime::now", "clock::since_epoch"),
    ("UNIX_EPOCH.elapsed", "clock::since_epoch"),
    ("now_utc()", "clock::since_epoch"),
    ("Uuid::new_v", "clock::uid"),
    ("RandomState::new().", "clock::fraction or clock::below"),
    ("SystemRandom::new", "clock::random_bytes"),
    ("getrandom(", "clock::random_bytes"),
];

/// What runs in simulated time.
const SIMULATED: &[&str] = &["apiserver", "client", "controllers", "kubelet", "registry", "scheduler"];

/// Who asks the system all the same, and why.
const MAY_ASK: &[(&str, &str)] = &[
    (
        "api/src/warnings/key_pair.rs",
        "ring blinds what it computes with a key",
    ),
    ("auth/src/authenticate/keys.rs", "signatures"),
    (
        "auth/src/authenticate/service_account.rs",
        "the id of a token must be impossible to foresee",
    ),
    ("clock/src/lib.rs", "here it is asked"),
    (
        "dns/src/forward.rs",
        "the id of a forwarded question must be impossible to foresee",
    ),
    ("karve/src/component/encryption.rs", "keys"),
    ("karve/src/token/bootstrap.rs", "tokens"),
    ("registry/src/encryption/cipher.rs", "keys and nonces"),
    (
        "runtime/src/service/mod.rs",
        "ids of containers, which are paths and must be impossible to foresee",
    ),
];

#[test]
fn nothing_but_the_clock_asks_the_system() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    let mut found = Vec::new();
    let mut unused: Vec<&str> = MAY_ASK.iter().map(|(file, _)| *file).collect();
    for folder in fs::read_dir(&crates).expect("there are crates").flatten() {
        let is_simulated = SIMULATED.iter().any(|name| folder.file_name() == *name);
        for file in sources(&folder.path().join("src")) {
            let shown = file.strip_prefix(&crates).expect("below crates").to_string_lossy();
            let text = fs::read_to_string(&file).expect("a source file is text");
            let code = without_tests(&text);
            let mut asks: Vec<String> = ASKS
                .iter()
                .filter(|(ask, _)| code.contains(ask))
                .map(|(ask, instead)| format!("{shown}: {ask}; use {instead}"))
                .collect();
            if let Some(place) = unused
                .iter()
                .position(|file| *file == shown)
                .filter(|_| !asks.is_empty())
            {
                unused.remove(place);
                asks.clear();
            }
            found.extend(asks);
            if is_simulated && asks_for_std_instant(code) {
                found.push(format!("{shown}: std::time::Instant; use tokio::time::Instant"));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
    assert!(unused.is_empty(), "no longer needed in MAY_ASK: {unused:?}");
}

/// Whether the text names the standard library's `Instant`, alone or in a list.
fn asks_for_std_instant(code: &str) -> bool {
    code.split("std::time::")
        .skip(1)
        .any(|after| match after.strip_prefix('{') {
            Some(list) => {
                let list = list.split('}').next().unwrap_or_default();
                list.split(',').any(|name| name.trim() == "Instant")
            }
            None => after.starts_with("Instant"),
        })
}

/// The file up to its tests, which stand at its end.
fn without_tests(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text)
}

/// The source files below a folder that are not tests.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" {
            found.extend(sources(&path));
        } else if name.ends_with(".rs") && name != "tests.rs" {
            found.push(path);
        }
    }
    found
}

#[test]
fn instants_of_the_standard_library_are_recognised() {
    assert!(asks_for_std_instant("use std::time::{Duration, Instant};"));
    assert!(asks_for_std_instant("let begun = std::time::Instant::now();"));
    assert!(!asks_for_std_instant(
        "use std::time::Duration;\nuse tokio::time::Instant;"
    ));
}
