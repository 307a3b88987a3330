//! A whole control plane from one seed: nothing but tests, in `tests/it`.
//!
//! The real API server with its registry on a store in memory, two replicas of the controllers and of the scheduler that
//! compete for their leases, and hollow nodes run on one thread in tokio's paused clock, with `clock`'s numbers from a seed.
//! Between them and the server stands a transport that delays, loses, repeats and fails what passes. Whatever happens, the
//! end state must be that of a run in which nothing went wrong, and what must never be stored is looked for in every commit.
//!
//! Begin reading at `tests/it/main.rs` (which seeds run), then `world.rs` (what runs), `script.rs` (what users do),
//! `link.rs` (what goes wrong) and `invariants.rs` (what must hold). Nothing depends on this crate.
