//! What must hold for any bytes from the network or a disk: nobody panics, waits for ever or eats the memory.
//!
//! Start with [`TARGETS`], the table of all readers with something they can read to begin with. The same functions are
//! run by `tests/seeded.rs` on a few thousand mutated inputs, by this crate's program for as long as one likes, and by
//! libFuzzer (`fuzz/`), which is guided by what the inputs reach.
//!
//! This crate may use every other one; nothing may use it.

mod disk;
pub mod mutate;
mod objects;
mod text;
pub mod watch;
mod wire;

/// A reader and what it is fed.
pub struct Target {
    pub name: &'static str,
    /// Panics if something is wrong.
    pub run: fn(&[u8]),
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// How many inputs a quick test takes; fewer where each is slow.
    pub quick: usize,
}

const fn target(name: &'static str, run: fn(&[u8]), seeds: fn() -> Vec<Vec<u8>>) -> Target {
    Target {
        name,
        run,
        seeds,
        quick: 2000,
    }
}

const fn slow_target(name: &'static str, run: fn(&[u8]), seeds: fn() -> Vec<Vec<u8>>) -> Target {
    Target {
        name,
        run,
        seeds,
        quick: 500,
    }
}

/// Sorted by name.
pub const TARGETS: &[Target] = &[
    target("apply", objects::apply, objects::pairs),
    slow_target("archive", disk::archive, disk::archives),
    target("cel", cel::fuzzing::expression, cel::fuzzing::seeds),
    target("certificate", wire::certificate, wire::certificates),
    target("cri", wire::cri, wire::cri_messages),
    slow_target("custom", objects::custom, objects::definitions),
    target("dns", dns::fuzzing::message, dns::fuzzing::seeds),
    target("json", objects::json, objects::documents),
    target("json_patch", objects::json_patch, objects::json_patches),
    target("kinds", objects::kinds, objects::pairs),
    slow_target("layer", disk::layer, disk::layers),
    target("leaves", text::leaves, text::leaf_texts),
    target("page", apiserver::fuzzing::page, wire::pages),
    target("protobuf", objects::protobuf, objects::messages),
    target("registry", runtime::fuzzing::registry, runtime::fuzzing::registry_seeds),
    target("request", apiserver::fuzzing::request, wire::requests),
    target("selectors", text::selectors, text::selector_texts),
    target("spdy", kubelet::fuzzing::spdy, kubelet::fuzzing::spdy_seeds),
    target(
        "store",
        store::embedded::fuzzing::read_back,
        store::embedded::fuzzing::seeds,
    ),
    target("strategic_merge", objects::strategic_merge, objects::pairs),
    target(
        "supervisor",
        runtime::fuzzing::messages,
        runtime::fuzzing::message_seeds,
    ),
    target(
        "websocket",
        kubelet::fuzzing::websocket,
        kubelet::fuzzing::websocket_seeds,
    ),
    target("yaml", objects::yaml, objects::yaml_documents),
];

/// Runs the target of this name; for libFuzzer's programs, which have one each.
pub fn run(name: &str, data: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name);
    (target.expect("libFuzzer's programs have the names of targets").run)(data);
}
