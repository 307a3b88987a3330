//! Every target on a few thousand inputs that depend on nothing but the seed here: none may panic, take long, or hold
//! much memory. Threads of tests have the same small stacks as those of servers, so that a recursion without a bound is
//! found too. `cargo xtask fuzz` looks longer.

use std::panic::{AssertUnwindSafe, catch_unwind};

use fuzzing::mutate::{Random, input, nests};
use fuzzing::watch::{self, Counting};
use fuzzing::{TARGETS, Target};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const SEED: u64 = 36;

fn check(names: &[&str]) {
    for target in TARGETS.iter().filter(|target| names.contains(&target.name)) {
        let (seeds, mut random) = ((target.seeds)(), Random::new(SEED));
        assert!(!seeds.is_empty(), "{} has something to begin with", target.name);
        seeds.iter().for_each(|seed| try_one(target, seed));
        nests().for_each(|nest| try_one(target, &nest));
        (0..target.quick).for_each(|_| try_one(target, &input(&seeds, &mut random)));
    }
}

fn try_one(target: &Target, data: &[u8]) {
    if catch_unwind(AssertUnwindSafe(|| watch::run(target, data))).is_err() {
        let shown = String::from_utf8_lossy(&data[..data.len().min(4000)]);
        panic!("{} of {} bytes fails on {shown:?}", target.name, data.len());
    }
}

/// Which test runs which targets; together all of them.
const GROUPS: &[&[&str]] = &[OBJECTS, CHANGES, RULES, TEXTS, CONNECTIONS, FILES];
const OBJECTS: &[&str] = &["json", "protobuf", "yaml"];
const CHANGES: &[&str] = &["apply", "json_patch", "strategic_merge"];
const RULES: &[&str] = &["custom", "kinds"];
const TEXTS: &[&str] = &["cel", "leaves", "selectors"];
const CONNECTIONS: &[&str] = &[
    "certificate",
    "cri",
    "dns",
    "page",
    "registry",
    "request",
    "spdy",
    "supervisor",
    "websocket",
];
const FILES: &[&str] = &["archive", "layer", "store"];

#[test]
fn no_target_is_forgotten() {
    let mut grouped: Vec<&str> = GROUPS.concat();
    grouped.sort_unstable();
    let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    assert_eq!(grouped, names);
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz_targets");
    let mut programs: Vec<String> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap().replace(".rs", ""))
        .collect();
    programs.sort_unstable();
    assert_eq!(programs, names, "libFuzzer has a program for each");
}

#[test]
fn objects_of_any_bytes() {
    check(OBJECTS);
}

#[test]
fn changes_of_any_bytes() {
    check(CHANGES);
}

#[test]
fn rules_on_any_object() {
    check(RULES);
}

#[test]
fn any_text() {
    check(TEXTS);
}

#[test]
fn connections_with_anybody() {
    check(CONNECTIONS);
}

#[test]
fn files_with_anything_in_them() {
    check(FILES);
}
