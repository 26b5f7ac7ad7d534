//! Compressed sections and pages of version 7.

use crate::file::{self, wrong};
use flate2::read::ZlibDecoder;
use ruzstd::decoding::StreamingDecoder;
use std::io::{self, Cursor, Read};

/// Compression method of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Codec {
    Zlib,
    Zstd,
}

/// The longest block, compressed or not, bytes. trace-cmd's chunks have a few pages; the names of all functions, which
/// nobody reads here, have 10 MiB.
const MAX_BLOCK: u64 = 64 << 20;
/// Begins each frame of zstd; the first trace-cmd with zstd leaves it out.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

impl Codec {
    /// The codec of a name; `None` for none.
    pub fn named(name: &str) -> io::Result<Option<Codec>> {
        match name {
            "none" => Ok(None),
            "zlib" => Ok(Some(Codec::Zlib)),
            "zstd" => Ok(Some(Codec::Zstd)),
            other => Err(wrong(&format!(
                "unknown compression {other:?}; zstd and zlib are supported"
            ))),
        }
    }

    /// Reads a block: its compressed and its own length, 32 bits each, then the bytes.
    pub fn block(self, from: &mut impl Read) -> io::Result<Vec<u8>> {
        let compressed = u64::from(file::u32(from)?);
        let length = u64::from(file::u32(from)?);
        if length > MAX_BLOCK {
            return Err(wrong(&format!("invalid block length {length}")));
        }
        let compressed = file::exactly(from, compressed)?;
        let mut block = Vec::new();
        // One byte more shows a block that is longer than it says.
        match self {
            Codec::Zlib => ZlibDecoder::new(compressed.as_slice())
                .take(length + 1)
                .read_to_end(&mut block),
            Codec::Zstd => {
                let magic: &[u8] = if compressed.starts_with(&ZSTD_MAGIC) {
                    &[]
                } else {
                    &ZSTD_MAGIC
                };
                let framed = magic.chain(compressed.as_slice());
                let decoder = StreamingDecoder::new(framed).map_err(|e| wrong(&e.to_string()))?;
                decoder.take(length + 1).read_to_end(&mut block)
            }
        }
        .map_err(|e| wrong(&format!("damaged compressed block ({e})")))?;
        if block.len() as u64 == length {
            Ok(block)
        } else {
            Err(wrong("compressed block of another length"))
        }
    }
}

/// The pages of a CPU in compressed chunks: how many, 32 bits, then a block each.
pub(super) struct Chunks<R> {
    from: R,
    codec: Codec,
    /// Chunks to come; `None` before their number is read.
    left: Option<u32>,
    chunk: Cursor<Vec<u8>>,
}

impl<R: Read> Chunks<R> {
    pub fn new(from: R, codec: Codec) -> Chunks<R> {
        Chunks {
            from,
            codec,
            left: None,
            chunk: Cursor::default(),
        }
    }
}

impl<R: Read> Read for Chunks<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.chunk.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            let left = match self.left {
                None => file::u32(&mut self.from)?,
                Some(left) => left,
            };
            self.left = Some(left);
            if left == 0 {
                return Ok(0);
            }
            self.left = Some(left - 1);
            self.chunk = Cursor::new(self.codec.block(&mut self.from)?);
        }
    }
}
