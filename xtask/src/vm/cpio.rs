//! Writing the archive that the kernel unpacks as its initial file system.

use std::fmt::Write as _;

const DIRECTORY: u32 = 0o040755;
const PROGRAM: u32 = 0o100755;
const FILE: u32 = 0o100644;

/// An archive in the form "newc".
#[derive(Default)]
pub struct Cpio {
    bytes: Vec<u8>,
    entries: u32,
}

impl Cpio {
    pub fn directory(&mut self, path: &str) {
        self.entry(path, DIRECTORY, &[]);
    }

    pub fn program(&mut self, path: &str, content: &[u8]) {
        self.entry(path, PROGRAM, content);
    }

    pub fn file(&mut self, path: &str, content: &[u8]) {
        self.entry(path, FILE, content);
    }

    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let length = u32::try_from(content.len()).unwrap_or(u32::MAX);
        let name_length = u32::try_from(path.len() + 1).unwrap_or(u32::MAX);
        let mut head = String::from("070701");
        let fields = [self.entries, mode, 0, 0, 1, 0, length, 0, 0, 0, 0, name_length, 0];
        for field in fields {
            let _ = write!(head, "{field:08x}");
        }
        self.bytes.extend_from_slice(head.as_bytes());
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        let length = self.bytes.len().next_multiple_of(4);
        self.bytes.resize(length, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_begin_at_multiples_of_four() {
        let mut cpio = Cpio::default();
        cpio.directory("dev");
        cpio.program("init", b"\x7fELF?");
        let bytes = cpio.finish();
        let starts: Vec<usize> = bytes
            .windows(6)
            .enumerate()
            .filter(|(_, window)| window == b"070701")
            .map(|(start, _)| start)
            .collect();
        assert_eq!(starts.len(), 3);
        assert!(starts.iter().all(|start| start % 4 == 0), "{starts:?}");
        assert_eq!(bytes.len() % 4, 0);
    }
}
