//! Images as an attacker makes them: every name, digest, link and length is a choice.

use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

/// The image of attacking pods.
pub const ATTACKER: &str = "hostile.test/attacker:1";

const BLOCK: usize = 512;

/// `sha256:…` of some bytes.
pub fn digest_of(bytes: &[u8]) -> String {
    let hex: String = digest(&SHA256, bytes)
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("sha256:{hex}")
}

/// A tar that is written by the entry.
#[derive(Clone, Default)]
pub struct Tar {
    bytes: Vec<u8>,
}

impl Tar {
    pub fn directory(self, path: &str, mode: u32) -> Self {
        self.entry(b'5', path, "", mode, &[])
    }

    pub fn file(self, path: &str, mode: u32, content: &[u8]) -> Self {
        self.entry(b'0', path, "", mode, content)
    }

    pub fn symlink(self, path: &str, target: &str) -> Self {
        self.entry(b'2', path, target, 0o777, &[])
    }

    pub fn hard_link(self, path: &str, target: &str) -> Self {
        self.entry(b'1', path, target, 0o644, &[])
    }

    /// An entry of any kind.
    pub fn entry(mut self, kind: u8, path: &str, link: &str, mode: u32, content: &[u8]) -> Self {
        self.bytes.extend(header(kind, path, link, mode, content.len() as u64));
        self.bytes.extend_from_slice(content);
        self.pad();
        self
    }

    /// The head of an entry whose content is up to the caller.
    pub fn head_only(mut self, kind: u8, path: &str, length: u64) -> Self {
        self.bytes.extend(header(kind, path, "", 0o644, length));
        self
    }

    fn pad(&mut self) {
        let length = self.bytes.len().next_multiple_of(BLOCK);
        self.bytes.resize(length, 0);
    }

    pub fn finish(mut self) -> Vec<u8> {
        self.bytes.resize(self.bytes.len() + 2 * BLOCK, 0);
        self.bytes
    }

    /// Without the end that a reader waits for.
    pub fn unfinished(self) -> Vec<u8> {
        self.bytes
    }
}

fn header(kind: u8, path: &str, link: &str, mode: u32, length: u64) -> [u8; BLOCK] {
    let mut header = [0; BLOCK];
    let mut put = |at: usize, text: &[u8]| header[at..at + text.len()].copy_from_slice(text);
    put(0, &path.as_bytes()[..path.len().min(100)]);
    put(100, format!("{mode:07o}\0").as_bytes());
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    match length < 1 << 33 {
        true => put(124, format!("{length:011o}\0").as_bytes()),
        false => {
            put(124, &[0x80, 0, 0, 0]);
            put(128, &length.to_be_bytes());
        }
    }
    put(136, b"00000000000\0");
    put(148, b"        ");
    put(156, &[kind]);
    put(157, &link.as_bytes()[..link.len().min(100)]);
    put(257, b"ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}

/// An image: true or false as it may be.
#[derive(Clone)]
pub struct Image {
    pub name: String,
    /// Each layer's bytes, compressed or not.
    pub layers: Vec<Vec<u8>>,
    /// What the configuration says that the layers unpack to.
    pub diff_ids: Vec<String>,
    /// The `config` of the configuration: User, Entrypoint, WorkingDir, …
    pub config: Value,
}

impl Image {
    /// One whose layers are what it says.
    pub fn honest(name: &str, layers: Vec<Vec<u8>>) -> Self {
        let diff_ids = layers.iter().map(|layer| digest_of(layer)).collect();
        Self {
            name: name.to_owned(),
            layers,
            diff_ids,
            config: json!({"Entrypoint": ["/hostile", "inside"]}),
        }
    }

    pub fn with_config(mut self, field: &str, value: Value) -> Self {
        self.config[field] = value;
        self
    }

    pub fn configuration(&self) -> Vec<u8> {
        let configuration = json!({
            "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
            "os": "linux",
            "config": self.config,
            "rootfs": {"type": "layers", "diff_ids": self.diff_ids},
            "history": [],
        });
        configuration.to_string().into_bytes()
    }

    /// As a registry serves it.
    pub fn manifest(&self) -> Vec<u8> {
        let descriptor =
            |kind: &str, bytes: &[u8]| json!({"mediaType": kind, "digest": digest_of(bytes), "size": bytes.len()});
        let layers: Vec<Value> = self
            .layers
            .iter()
            .map(|layer| match layer.starts_with(&[0x1f, 0x8b]) {
                true => descriptor("application/vnd.oci.image.layer.v1.tar+gzip", layer),
                false => descriptor("application/vnd.oci.image.layer.v1.tar", layer),
            })
            .collect();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": descriptor("application/vnd.oci.image.config.v1+json", &self.configuration()),
            "layers": layers,
        });
        manifest.to_string().into_bytes()
    }
}

/// Images as `docker save` writes them; a layer that several have is there once.
pub fn archive(images: &[Image]) -> Vec<u8> {
    let mut tar = Tar::default();
    let mut written: Vec<&[u8]> = Vec::new();
    let mut manifests = Vec::new();
    for (number, image) in images.iter().enumerate() {
        let config = format!("config-{number}.json");
        tar = tar.file(&config, 0o644, &image.configuration());
        let mut names = Vec::new();
        for layer in &image.layers {
            let known = written.iter().position(|known| known == layer);
            let place = known.unwrap_or(written.len());
            let name = format!("layer-{place}.tar");
            if known.is_none() {
                tar = tar.file(&name, 0o644, layer);
                written.push(layer);
            }
            names.push(name);
        }
        manifests.push(json!({"Config": config, "RepoTags": [image.name], "Layers": names}));
    }
    tar.file("manifest.json", 0o644, Value::Array(manifests).to_string().as_bytes())
        .finish()
}

pub const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";

/// What every attacking container begins with: this program and the few files a system has.
pub fn base_layer() -> anyhow::Result<Vec<u8>> {
    let program = std::fs::read("/proc/self/exe")?;
    let tar = Tar::default()
        .directory("etc", 0o755)
        .file("etc/passwd", 0o644, b"root:x:0:0::/:/\nnobody:x:65534:65534::/:/\n")
        .file("etc/group", 0o644, b"root:x:0:\nnogroup:x:65534:\n")
        .directory("tmp", 0o1777)
        .file("hostile", 0o755, &program);
    Ok(tar.finish())
}

/// Gzip, for layers that are small until somebody unpacks them.
pub fn gzip(parts: impl IntoIterator<Item = Vec<u8>>) -> anyhow::Result<Vec<u8>> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    for part in parts {
        encoder.write_all(&part)?;
    }
    Ok(encoder.finish()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_has_its_sum_and_its_length() {
        let tar = Tar::default().file("a", 0o644, b"xyz").finish();
        assert_eq!(tar.len(), 4 * BLOCK);
        let sum = u32::from_str_radix(std::str::from_utf8(&tar[148..154]).unwrap(), 8).unwrap();
        let mut head = tar[..BLOCK].to_vec();
        head[148..156].fill(b' ');
        assert_eq!(sum, head.iter().map(|byte| u32::from(*byte)).sum::<u32>());
        assert_eq!(&tar[124..136], b"00000000003\0");
    }

    #[test]
    fn an_honest_image_says_what_its_layers_are() {
        let image = Image::honest("x", vec![b"layer".to_vec()]);
        assert_eq!(image.diff_ids, [digest_of(b"layer")]);
        assert!(
            String::from_utf8(image.configuration())
                .unwrap()
                .contains(&digest_of(b"layer"))
        );
    }
}
