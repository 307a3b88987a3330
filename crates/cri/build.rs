//! Compiles the CRI's messages, client and server from `proto/`, without needing protoc.

const ENTRY: &str = "proto/runtime.proto";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = protox::compile([ENTRY], ["proto"])?;
    tonic_prost_build::configure()
        .btree_map(".")
        // Credentials must not reach a log by way of `{:?}`; lib.rs writes its own.
        .skip_debug(["runtime.v1.AuthConfig"])
        .emit_rerun_if_changed(false)
        .compile_fds(files)?;
    Ok(())
}
