//! Compiles the messages, clients and servers of etcd's API from `proto/`, without needing protoc.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = protox::compile(["proto/etcd.proto"], ["proto"])?;
    tonic_prost_build::configure()
        .emit_rerun_if_changed(false)
        .compile_fds(files)?;
    Ok(())
}
