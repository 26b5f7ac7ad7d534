//! Frames: from bytes to messages and back.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The version of the protocol; both sides are the same binary, so they must agree.
pub const PROTOCOL: u8 = 2;
/// The largest payload, bytes. The most talkative workload takes some hundred KiB.
pub const MAX_PAYLOAD: usize = 2 << 20;
/// The largest piece of a file, bytes.
pub const MAX_PIECE: usize = 1 << 20;
const MAGIC: &[u8; 4] = b"VMTX";
/// Magic, version, kind, length, checksum.
const HEADER: usize = MAGIC.len() + 1 + 1 + 4 + 4;
const LENGTH: usize = 6;
const CHECKSUM: usize = 10;
/// Kinds of frames.
const MESSAGE: u8 = 0;
const PIECE: u8 = 1;

/// Errors of frames that are sent or received.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The other side speaks another version.
    #[error(
        "the agent speaks protocol {0}, this vmtax {PROTOCOL}: the guest holds another vmtax; restart it"
    )]
    Version(u8),
    /// A length out of bounds.
    #[error(
        "a message of {0} bytes was announced, {MAX_PAYLOAD} is the limit: the stream is damaged or hostile"
    )]
    Oversized(usize),
    /// Bytes were changed or mixed in on the way.
    #[error("a message of {0} bytes arrived damaged (checksum): the stream is damaged or hostile")]
    Checksum(usize),
    /// Not a message of this protocol.
    #[error("corrupt message: {0}")]
    Malformed(String),
    /// A message too large to send.
    #[error(
        "a message of {0} bytes cannot be sent, {MAX_PAYLOAD} is the limit: run fewer workloads at once"
    )]
    TooLarge(usize),
}

/// Content of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame<M> {
    /// A message of the protocol.
    Message(M),
    /// A piece of a file, to be appended to what came before under that name.
    Piece {
        /// The file's name, as [`piece`] was given it: not believed.
        name: String,
        /// Bytes of the piece.
        bytes: Vec<u8>,
    },
}

/// One message as a frame.
///
/// # Errors
/// [`WireError::TooLarge`], or [`WireError::Malformed`] for what JSON cannot hold.
pub fn encode<M: Serialize>(message: &M) -> Result<Vec<u8>, WireError> {
    let payload = serde_json::to_vec(message).map_err(|e| WireError::Malformed(e.to_string()))?;
    frame(MESSAGE, &payload)
}

/// A piece of a file as a frame: traces are too large for JSON. The name takes at most 255 bytes, the bytes at most
/// [`MAX_PIECE`].
///
/// # Errors
/// [`WireError::TooLarge`].
pub fn piece(name: &str, bytes: &[u8]) -> Result<Vec<u8>, WireError> {
    let length = u8::try_from(name.len()).map_err(|_| WireError::TooLarge(name.len()))?;
    let mut payload = Vec::with_capacity(1 + name.len() + bytes.len());
    payload.push(length);
    payload.extend_from_slice(name.as_bytes());
    payload.extend_from_slice(bytes);
    frame(PIECE, &payload)
}

fn frame(kind: u8, payload: &[u8]) -> Result<Vec<u8>, WireError> {
    if payload.len() > MAX_PAYLOAD {
        return Err(WireError::TooLarge(payload.len()));
    }
    let mut frame = Vec::with_capacity(HEADER + payload.len());
    frame.extend_from_slice(MAGIC);
    frame.extend_from_slice(&[PROTOCOL, kind]);
    frame.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    frame.extend_from_slice(&checksum(kind, payload).to_le_bytes());
    frame.extend_from_slice(payload);
    Ok(frame)
}

/// Of the kind too: a message must not turn into a piece on the way.
fn checksum(kind: u8, payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&[kind]);
    hasher.update(payload);
    hasher.finalize()
}

/// Decodes a frame's payload.
fn open<M: DeserializeOwned>(kind: u8, payload: &[u8]) -> Result<Frame<M>, WireError> {
    let malformed = |why: String| WireError::Malformed(why);
    match kind {
        MESSAGE => serde_json::from_slice(payload)
            .map(Frame::Message)
            .map_err(|e| malformed(e.to_string())),
        PIECE => {
            let cut = || malformed("a piece of a file is cut off".to_owned());
            let (&length, rest) = payload.split_first().ok_or_else(cut)?;
            let (name, bytes) = rest.split_at_checked(usize::from(length)).ok_or_else(cut)?;
            let name = std::str::from_utf8(name).map_err(|e| malformed(e.to_string()))?;
            Ok(Frame::Piece {
                name: name.to_owned(),
                bytes: bytes.to_vec(),
            })
        }
        other => Err(malformed(format!("a frame of kind {other}"))),
    }
}

/// Takes bytes as they come, gives messages. Holds at most one frame and what came with it.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    /// Where what is not decoded begins. Moving the rest for each bad frame would let a guest full of them take minutes.
    start: usize,
}

impl Decoder {
    /// An empty decoder.
    pub fn new() -> Self {
        Decoder::default()
    }

    /// Adds bytes. Call [`Decoder::frame`] until it gives `None` before adding more.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.start);
        self.start = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The next frame, `None` when more bytes are needed. After an error, decoding goes on behind the bad header.
    ///
    /// # Errors
    /// [`WireError`] for a frame that is not one.
    pub fn frame<M: DeserializeOwned>(&mut self) -> Option<Result<Frame<M>, WireError>> {
        self.skip_noise();
        let frame = &self.buffer[self.start..];
        if frame.len() < HEADER {
            return None;
        }
        let (version, kind) = (frame[4], frame[5]);
        if version != PROTOCOL {
            return Some(Err(self.reject(WireError::Version(version))));
        }
        let length = word(frame, LENGTH) as usize;
        if length > MAX_PAYLOAD {
            return Some(Err(self.reject(WireError::Oversized(length))));
        }
        let payload = frame.get(HEADER..HEADER + length)?;
        if checksum(kind, payload) != word(frame, CHECKSUM) {
            return Some(Err(self.reject(WireError::Checksum(length))));
        }
        let opened = open(kind, payload);
        self.start += HEADER + length;
        Some(opened)
    }

    /// Goes on to the first place where a frame can begin.
    fn skip_noise(&mut self) {
        let begins = (self.start..self.buffer.len()).find(|&i| {
            let rest = &self.buffer[i..];
            let known = rest.len().min(MAGIC.len());
            rest[..known] == MAGIC[..known]
        });
        self.start = begins.unwrap_or(self.buffer.len());
    }

    /// Skips the magic of a bad frame, so that the search goes on behind it.
    fn reject(&mut self, error: WireError) -> WireError {
        self.start += MAGIC.len();
        error
    }
}

fn word(frame: &[u8], at: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&frame[at..at + 4]);
    u32::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(decoder: &mut Decoder) -> Vec<Result<String, WireError>> {
        let text = |frame| match frame {
            Frame::Message(text) => text,
            Frame::Piece { name, .. } => panic!("{name}"),
        };
        std::iter::from_fn(|| decoder.frame())
            .map(|frame| frame.map(text))
            .collect()
    }

    proptest! {
        #[test]
        fn messages_survive_any_cut_and_any_noise(
            texts in proptest::collection::vec(".{0,40}", 1..5),
            noise in "[^V]{0,30}",
            cut in 1usize..50,
        ) {
            let mut stream = Vec::new();
            for text in &texts {
                stream.extend_from_slice(noise.as_bytes());
                stream.extend_from_slice(&encode(text).unwrap());
            }
            let (mut decoder, mut got) = (Decoder::new(), Vec::new());
            for piece in stream.chunks(cut) {
                decoder.push(piece);
                got.extend(all(&mut decoder));
            }
            prop_assert_eq!(got, texts.into_iter().map(Ok).collect::<Vec<_>>());
        }

        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..400), at in 0usize..400) {
            let mut stream = bytes;
            let at = at.min(stream.len());
            stream.splice(at..at, MAGIC.iter().copied());
            let mut decoder = Decoder::new();
            decoder.push(&stream);
            all(&mut decoder);
        }

        #[test]
        fn a_flipped_bit_never_gives_another_message(at in 0usize..60, bit in 0u8..8) {
            let mut frame = encode(&"the quick brown fox jumps over the lazy dog").unwrap();
            let at = at.min(frame.len() - 1);
            frame[at] ^= 1 << bit;
            let mut decoder = Decoder::new();
            decoder.push(&frame);
            while let Some(frame) = decoder.frame::<String>() {
                prop_assert!(frame.is_err(), "{frame:?}");
            }
        }
    }

    #[test]
    fn an_oversized_frame_is_refused_before_it_is_kept_and_the_next_one_is_read() {
        let mut stream = b"VMTX\x02\0\xff\xff\xff\xff\0\0\0\0".to_vec();
        stream.extend_from_slice(&encode(&"next").unwrap());
        let mut decoder = Decoder::new();
        decoder.push(&stream);
        assert_eq!(
            all(&mut decoder),
            [
                Err(WireError::Oversized(0xffff_ffff)),
                Ok("next".to_owned())
            ]
        );
    }

    #[test]
    fn bad_frames_by_the_hundred_thousand_take_no_time_that_grows_with_the_buffer() {
        let mut stream = b"VMTX\x02\0\0\0\x40\0\x01\x02\x03\x04".to_vec(); // announces 4 MiB
        stream.resize(stream.len() + (4 << 20) - 4, 0);
        for (i, byte) in stream.iter_mut().enumerate().skip(14) {
            *byte = b"VMTX\x03"[i % 5];
        }
        stream.extend_from_slice(b"VMTX");
        let mut decoder = Decoder::new();
        decoder.push(&stream);
        let began = std::time::Instant::now();
        assert!(all(&mut decoder).len() > 800_000);
        assert!(
            began.elapsed() < std::time::Duration::from_secs(10),
            "{:?}",
            began.elapsed()
        );
    }

    #[test]
    fn pieces_of_files_stand_between_messages() {
        let mut stream = piece("bound.cpu0.raw", b"pages").unwrap();
        stream.extend_from_slice(&encode(&"next").unwrap());
        let mut decoder = Decoder::new();
        decoder.push(&stream);
        let whole = Frame::Piece {
            name: "bound.cpu0.raw".to_owned(),
            bytes: b"pages".to_vec(),
        };
        assert_eq!(decoder.frame::<String>(), Some(Ok(whole)));
        assert_eq!(all(&mut decoder), [Ok("next".to_owned())]);
        assert!(
            piece(&"x".repeat(256), b"").is_err() && piece("x", &vec![0; MAX_PAYLOAD]).is_err()
        );
        for bad in [&b""[..], b"\x09short", b"\x01\xff"] {
            decoder.push(&frame(PIECE, bad).unwrap());
            assert!(matches!(
                decoder.frame::<String>(),
                Some(Err(WireError::Malformed(_)))
            ));
        }
        decoder.push(&frame(7, b"").unwrap());
        assert!(matches!(
            decoder.frame::<String>(),
            Some(Err(WireError::Malformed(_)))
        ));
    }

    #[test]
    fn another_version_is_named() {
        let mut frame = encode(&"x").unwrap();
        frame[4] = 9;
        let mut decoder = Decoder::new();
        decoder.push(&frame);
        assert_eq!(all(&mut decoder), [Err(WireError::Version(9))]);
    }
}
