#!/usr/bin/env bash
# Builds the program of kube-rs/ with the versions of its Cargo.lock, on demand, and prints its path.
# It goes to ${KARVE_CACHE:-$HOME/.cache/karve}/kube-rs, never into the repository.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/kube-rs"

target=${KARVE_CACHE:-$HOME/.cache/karve}/kube-rs
mkdir -p "$target"
# Concurrent callers wait here and then find the work done.
exec 9>"$target/lock"
flock 9
# How Karve itself is built must not make this be built again.
unset RUSTFLAGS CARGO_BUILD_TARGET CARGO_INCREMENTAL
cargo build --quiet --locked --target-dir "$target" >&2
echo "$target/debug/kube-rs"
