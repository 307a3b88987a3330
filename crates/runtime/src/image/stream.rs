//! Reading a blob: undoing its compression within bounds, and digesting both forms on the way.

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Read};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use super::digest::{Digest, Digesting};
use super::limits::{MAX_RATIO, MAX_ZSTD_WINDOW_BYTES, RATIO_FREE_BYTES};

const BUFFER_BYTES: usize = 128 << 10;

const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// What a blob turned out to be.
#[derive(Debug, PartialEq, Eq)]
pub struct Digests {
    /// Of the blob as it is stored, where it was asked for.
    pub blob: Option<Digest>,
    /// Of what is in it, without compression.
    pub content: Digest,
}

/// Reads a blob to its end: `read` has the contents, and what it leaves is read after it. No more than `max_bytes`
/// may come out of it, nor out of proportion to what it is stored as.
pub fn read<T, E: From<io::Error>>(
    blob: impl Read,
    max_bytes: u64,
    digest_blob: bool,
    read: impl FnOnce(&mut dyn Read) -> Result<T, E>,
) -> Result<(T, Digests), E> {
    let stored = Cell::new(0);
    let counted = Counted {
        inner: blob,
        count: &stored,
    };
    if !digest_blob {
        let mut counted = counted;
        let (value, content) = read_content(&mut counted, &stored, max_bytes, read)?;
        return Ok((value, Digests { blob: None, content }));
    }
    let mut digesting = Digesting::new(counted);
    let (value, content) = read_content(&mut digesting, &stored, max_bytes, read)?;
    let blob = Some(digesting.finish());
    Ok((value, Digests { blob, content }))
}

fn read_content<T, E: From<io::Error>>(
    stored: &mut dyn Read,
    stored_bytes: &Cell<u64>,
    max_bytes: u64,
    read: impl FnOnce(&mut dyn Read) -> Result<T, E>,
) -> Result<(T, Digest), E> {
    let mut stored = BufReader::with_capacity(BUFFER_BYTES, stored);
    let limited = Limited {
        inner: decompressed(&mut stored)?,
        produced: 0,
        max_bytes,
        stored_bytes,
    };
    let mut digesting = Digesting::new(limited);
    let mut content = BufReader::with_capacity(BUFFER_BYTES, &mut digesting);
    let value = read(&mut content)?;
    io::copy(&mut content, &mut io::sink())?;
    let digest = digesting.finish();
    // A compressed form may end before its file does; its digest is that of all of it.
    io::copy(&mut stored, &mut io::sink())?;
    Ok((value, digest))
}

/// Undoes the compression that a stream's first bytes announce, if any.
fn decompressed<'a>(stream: &'a mut (impl BufRead + 'a)) -> io::Result<Box<dyn Read + 'a>> {
    let magic = stream.fill_buf()?;
    if magic.starts_with(GZIP) {
        return Ok(Box::new(flate2::bufread::MultiGzDecoder::new(stream)));
    }
    if magic.starts_with(ZSTD) {
        return Ok(Box::new(ZstdFrames::new(stream)));
    }
    Ok(Box::new(stream))
}

struct Counted<'a, R> {
    inner: R,
    count: &'a Cell<u64>,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        self.count.set(self.count.get() + length as u64);
        Ok(length)
    }
}

/// Ends a stream that grows too large, or far larger than what it is made from.
struct Limited<'a, R> {
    inner: R,
    produced: u64,
    max_bytes: u64,
    stored_bytes: &'a Cell<u64>,
}

impl<R: Read> Read for Limited<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        self.produced += length as u64;
        if self.produced > self.max_bytes {
            return Err(io::Error::other(format!(
                "it unpacks to more than {} bytes",
                self.max_bytes
            )));
        }
        if self.produced > RATIO_FREE_BYTES && self.produced / MAX_RATIO > self.stored_bytes.get() {
            return Err(io::Error::other(format!(
                "it unpacks to more than {MAX_RATIO} times its size"
            )));
        }
        Ok(length)
    }
}

/// Zstandard frames one after the other, as some builders write them so that parts can be fetched alone.
struct ZstdFrames<R> {
    source: R,
    decoder: FrameDecoder,
    in_frame: bool,
}

impl<R: BufRead> ZstdFrames<R> {
    fn new(source: R) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(MAX_ZSTD_WINDOW_BYTES);
        Self {
            source,
            decoder,
            in_frame: false,
        }
    }

    fn begin_frame(&mut self) -> io::Result<()> {
        match self.decoder.init(&mut self.source) {
            Ok(()) => self.in_frame = true,
            Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                let skipped = io::copy(&mut (&mut self.source).take(length.into()), &mut io::sink())?;
                if skipped < u64::from(length) {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            Err(error) => return Err(io::Error::other(error)),
        }
        Ok(())
    }
}

impl<R: BufRead> Read for ZstdFrames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.in_frame {
                if self.source.fill_buf()?.is_empty() {
                    return Ok(0);
                }
                self.begin_frame()?;
            } else if buffer.is_empty() || self.decoder.can_collect() > 0 {
                return self.decoder.read(buffer);
            } else if self.decoder.is_finished() {
                self.in_frame = false;
            } else {
                let blocks = BlockDecodingStrategy::UptoBlocks(1);
                self.decoder
                    .decode_blocks(&mut self.source, blocks)
                    .map_err(io::Error::other)?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(bytes: &[u8]) -> Vec<u8> {
        ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
    }

    fn content(blob: &[u8], max_bytes: u64) -> io::Result<(Vec<u8>, Digests)> {
        read(blob, max_bytes, true, |content| {
            let mut bytes = Vec::new();
            content.read_to_end(&mut bytes).map(|_| bytes)
        })
    }

    #[test]
    fn every_form_has_the_same_content() {
        let text = b"contents of a layer".repeat(1000);
        let skippable = [&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0], b"abc".as_slice()].concat();
        let two_frames = [zstd(&text[..5000]), skippable, zstd(&text[5000..])].concat();
        let two_members = [gzip(&text[..5000]), gzip(&text[5000..])].concat();
        for blob in [text.clone(), gzip(&text), two_members, zstd(&text), two_frames] {
            let (bytes, digests) = content(&blob, 1 << 20).unwrap();
            assert_eq!(bytes, text);
            assert_eq!(
                (digests.blob, digests.content),
                (Some(Digest::sha256(&blob)), Digest::sha256(&text))
            );
        }
    }

    #[test]
    fn what_the_reader_leaves_is_digested_and_bounded_too() {
        let text = vec![7; 1 << 20];
        let blob = gzip(&text);
        let first = |content: &mut dyn Read| content.read_exact(&mut [0; 10]);
        assert_eq!(
            read(blob.as_slice(), 1 << 20, false, first).unwrap().1.content,
            Digest::sha256(&text)
        );
        let error = read(blob.as_slice(), (1 << 20) - 1, false, first).unwrap_err();
        assert!(error.to_string().contains("unpacks to more than"), "{error}");
    }

    #[test]
    fn a_window_that_would_take_all_memory_is_refused() {
        // A frame header that asks for a window of three terabytes, then an empty last block.
        let blob = [ZSTD, &[0x00, 0xff, 0x01, 0x00, 0x00]].concat();
        assert!(content(&blob, u64::MAX).is_err());
    }

    #[test]
    fn a_bomb_is_stopped_by_its_ratio() {
        let bomb = |stored: u64| {
            let mut limited = Limited {
                inner: io::repeat(0),
                produced: RATIO_FREE_BYTES,
                max_bytes: u64::MAX,
                stored_bytes: &Cell::new(stored),
            };
            limited.read(&mut [0; 4096])
        };
        assert_eq!(bomb(RATIO_FREE_BYTES / 1000).unwrap(), 4096);
        let error = bomb(RATIO_FREE_BYTES / 2000).unwrap_err();
        assert!(error.to_string().contains("times its size"), "{error}");
    }

    #[test]
    fn a_broken_form_is_an_error_and_not_the_end() {
        let text: Vec<u8> = (0..100_000_u32).flat_map(|number| number.to_be_bytes()).collect();
        for blob in [gzip(&text), zstd(&text)] {
            assert!(content(&blob[..blob.len() - 9], 1 << 20).is_err());
        }
    }
}
