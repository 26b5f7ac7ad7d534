//! Numbers and texts of a file's head, each bounded.

use std::io::{self, Read};

/// The longest text that is read: all the formats of a system, or the options of a large machine.
const MAX_TEXT: u64 = 64 << 20;
const MAX_STRING: usize = 4096;

/// The file is damaged or of another kind.
pub(crate) fn wrong(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason.to_owned())
}

pub(crate) fn bytes<const N: usize>(from: &mut (impl Read + ?Sized)) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

pub(crate) fn u16(from: &mut (impl Read + ?Sized)) -> io::Result<u16> {
    bytes(from).map(u16::from_le_bytes)
}

pub(crate) fn u32(from: &mut (impl Read + ?Sized)) -> io::Result<u32> {
    bytes(from).map(u32::from_le_bytes)
}

pub(crate) fn u64(from: &mut (impl Read + ?Sized)) -> io::Result<u64> {
    bytes(from).map(u64::from_le_bytes)
}

/// A text up to its NUL.
pub(crate) fn string(from: &mut (impl Read + ?Sized)) -> io::Result<String> {
    let mut text = Vec::new();
    loop {
        match bytes(from)? {
            [0] => return Ok(String::from_utf8_lossy(&text).into_owned()),
            [_] if text.len() == MAX_STRING => return Err(wrong("unterminated name")),
            [byte] => text.push(byte),
        }
    }
}

/// Exactly `length` bytes; a declared length allocates no memory before the data is read.
pub(crate) fn exactly(from: &mut (impl Read + ?Sized), length: u64) -> io::Result<Vec<u8>> {
    if length > MAX_TEXT {
        return Err(wrong(&format!("invalid text length {length}")));
    }
    let mut data = Vec::new();
    from.take(length).read_to_end(&mut data)?;
    if (data.len() as u64) < length {
        Err(io::ErrorKind::UnexpectedEof.into())
    } else {
        Ok(data)
    }
}

/// A text behind its length in 64 bits.
pub(crate) fn sized(from: &mut (impl Read + ?Sized)) -> io::Result<String> {
    let length = u64(from)?;
    exactly(from, length).map(|text| String::from_utf8_lossy(&text).into_owned())
}

/// Skips `length` bytes.
///
/// # Errors
/// [`io::ErrorKind::UnexpectedEof`] if there are fewer.
pub(crate) fn skip(from: &mut (impl Read + ?Sized), length: u64) -> io::Result<()> {
    let skipped = io::copy(&mut from.take(length), &mut io::sink())?;
    if skipped < length {
        Err(io::ErrorKind::UnexpectedEof.into())
    } else {
        Ok(())
    }
}
