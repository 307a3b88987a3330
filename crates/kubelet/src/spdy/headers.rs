//! Header blocks: name-value pairs, compressed with a dictionary that both sides know, in one stream per direction.

use std::io;
use std::sync::LazyLock;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

pub type Headers = Vec<(String, String)>;

/// A header block of this size is not what Kubernetes sends.
const MAX_BLOCK_BYTES: usize = 64 * 1024;

/// SPDY/3's dictionary: these words with their lengths, then [`TAIL`].
const WORDS: &str = "options head post put delete trace accept accept-charset accept-encoding accept-language \
accept-ranges age allow authorization cache-control connection content-base content-encoding content-language \
content-length content-location content-md5 content-range content-type date etag expect expires from host if-match \
if-modified-since if-none-match if-range if-unmodified-since last-modified location max-forwards pragma \
proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade \
user-agent vary via warning www-authenticate method get status 200_OK version HTTP/1.1 url public set-cookie \
keep-alive origin";
const TAIL: &str = "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505\
203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden\
404 Not Found500 Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept \
Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,\
application/xml,application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8\
charset=iso-8859-1,utf-,*,enq=0.";

static DICTIONARY: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut dictionary = Vec::new();
    for word in WORDS.split(' ') {
        dictionary.extend((word.len() as u32).to_be_bytes());
        dictionary.extend(word.replace('_', " ").as_bytes());
    }
    dictionary.extend(TAIL.as_bytes());
    dictionary
});

pub struct Encoder(Compress);

impl Encoder {
    pub fn new() -> io::Result<Encoder> {
        let mut compress = Compress::new(Compression::default(), true);
        compress.set_dictionary(&DICTIONARY).map_err(io::Error::other)?;
        Ok(Encoder(compress))
    }

    pub fn encode(&mut self, headers: &Headers) -> io::Result<Vec<u8>> {
        let mut plain = Vec::new();
        plain.extend((headers.len() as u32).to_be_bytes());
        for text in headers.iter().flat_map(|(name, value)| [name, value]) {
            plain.extend((text.len() as u32).to_be_bytes());
            plain.extend(text.as_bytes());
        }
        let mut block = Vec::with_capacity(plain.len() + 64);
        let mut rest = plain.as_slice();
        loop {
            let before = self.0.total_in();
            block.reserve(256);
            self.0
                .compress_vec(rest, &mut block, FlushCompress::Sync)
                .map_err(io::Error::other)?;
            rest = &rest[(self.0.total_in() - before) as usize..];
            // With room to spare, everything has been flushed.
            if rest.is_empty() && block.len() < block.capacity() {
                return Ok(block);
            }
        }
    }
}

pub struct Decoder(Decompress);

impl Decoder {
    pub fn new() -> Decoder {
        Decoder(Decompress::new(true))
    }

    pub fn decode(&mut self, block: &[u8]) -> io::Result<Headers> {
        let plain = self.inflate(block)?;
        let mut rest = plain.as_slice();
        let count = take_length(&mut rest)?;
        let mut headers = Headers::new();
        for _ in 0..count {
            headers.push((take_text(&mut rest)?, take_text(&mut rest)?));
        }
        Ok(headers)
    }

    fn inflate(&mut self, block: &[u8]) -> io::Result<Vec<u8>> {
        let mut plain = Vec::new();
        let mut rest = block;
        loop {
            plain.reserve(1024);
            let (before_in, before_out) = (self.0.total_in(), self.0.total_out());
            let result = self.0.decompress_vec(rest, &mut plain, FlushDecompress::Sync);
            rest = &rest[(self.0.total_in() - before_in) as usize..];
            match result {
                Err(error) if error.needs_dictionary().is_some() => {
                    self.0.set_dictionary(&DICTIONARY).map_err(io::Error::other)?;
                    continue;
                }
                Err(error) => return Err(io::Error::other(error)),
                Ok(Status::StreamEnd) => return Ok(plain),
                Ok(_) => {}
            }
            if plain.len() > MAX_BLOCK_BYTES {
                return Err(malformed("a header block is too long"));
            }
            if rest.is_empty() && self.0.total_out() == before_out || rest.is_empty() && plain.len() < plain.capacity()
            {
                return Ok(plain);
            }
        }
    }
}

fn take_length(rest: &mut &[u8]) -> io::Result<usize> {
    let (length, tail) = rest
        .split_first_chunk::<4>()
        .ok_or_else(|| malformed("a header block is cut short"))?;
    *rest = tail;
    Ok(u32::from_be_bytes(*length) as usize)
}

fn take_text(rest: &mut &[u8]) -> io::Result<String> {
    let length = take_length(rest)?;
    let (text, tail) = rest
        .split_at_checked(length)
        .ok_or_else(|| malformed("a header block is cut short"))?;
    *rest = tail;
    Ok(String::from_utf8_lossy(text).into_owned())
}

pub fn malformed(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dictionary_is_the_protocols() {
        let (a, b) = DICTIONARY.iter().fold((1u32, 0u32), |(a, b), byte| {
            let a = (a + u32::from(*byte)) % 65521;
            (a, (b + a) % 65521)
        });
        assert_eq!((DICTIONARY.len(), (b << 16) | a), (1423, 0xe3c6_a7c2));
    }

    #[test]
    fn headers_survive_one_stream_of_blocks() {
        let (mut encoder, mut decoder) = (Encoder::new().unwrap(), Decoder::new());
        for id in 0..50 {
            let headers: Headers = vec![
                ("streamtype".to_owned(), "data".to_owned()),
                ("port".to_owned(), "x".repeat(id * 40)),
            ];
            let block = encoder.encode(&headers).unwrap();
            assert_eq!(decoder.decode(&block).unwrap(), headers);
        }
    }
}
