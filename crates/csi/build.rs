//! Compiles the messages and services of CSI and of plugin registration from `proto/`, without needing protoc.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = protox::compile(["proto/node.proto", "proto/registration.proto"], ["proto"])?;
    tonic_prost_build::configure()
        .btree_map(".")
        // Secrets must not reach a log by way of `{:?}`; lib.rs writes its own.
        .skip_debug([
            "csi.v1.NodeStageVolumeRequest",
            "csi.v1.NodePublishVolumeRequest",
            "csi.v1.NodeExpandVolumeRequest",
        ])
        .emit_rerun_if_changed(false)
        .compile_fds(files)?;
    Ok(())
}
