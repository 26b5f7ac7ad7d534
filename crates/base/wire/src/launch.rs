//! A command to be run as it is: everything that its process has from the one that asks.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// A text of the system, which need not be UTF-8. In JSON each byte is the character of its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bytes(pub OsString);

impl<T: AsRef<OsStr>> From<T> for Bytes {
    fn from(text: T) -> Self {
        Bytes(text.as_ref().to_owned())
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let bytes = self.0.as_bytes().iter();
        s.serialize_str(&bytes.map(|b| char::from(*b)).collect::<String>())
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        let bytes: Result<Vec<u8>, _> = text.chars().map(|c| u8::try_from(u32::from(c))).collect();
        bytes
            .map(|b| Bytes(OsString::from_vec(b)))
            .map_err(|_| D::Error::custom("a character that is no byte"))
    }
}

/// A command with its surroundings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// Program and arguments.
    pub words: Vec<Bytes>,
    /// The working directory.
    pub directory: Bytes,
    /// Name and value of each variable.
    pub environment: Vec<(Bytes, Bytes)>,
    /// User ID of the process.
    pub user: u32,
    /// Group ID of the process.
    pub group: u32,
    /// Supplementary group IDs.
    pub groups: Vec<u32>,
    /// The bits that its files' modes do not get.
    pub umask: u32,
    /// Limits by the kernel's number for the resource: soft and hard, `u64::MAX` for none.
    pub limits: Vec<(u32, u64, u64)>,
    /// True if the command has a standard input.
    pub stdin: bool,
    /// The size of the terminal that it gets instead of three streams.
    pub terminal: Option<Size>,
    /// True if processes that the command leaves running stay, for the command that comes next.
    #[serde(default)]
    pub stays: bool,
    /// Seconds after which it is ended.
    pub timeout_s: u32,
}

/// Of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// From top to bottom.
    pub rows: u16,
    /// From left to right.
    pub columns: u16,
}

/// A stream of the command's: the name of its pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    /// To it; an empty piece is its end.
    Stdin,
    /// Standard output of the command.
    Stdout,
    /// Standard error of the command.
    Stderr,
}

impl Stream {
    /// The name of its pieces.
    pub const fn as_str(self) -> &'static str {
        match self {
            Stream::Stdin => "stdin",
            Stream::Stdout => "stdout",
            Stream::Stderr => "stderr",
        }
    }
}

/// The largest piece of a stream, bytes: what a pipe holds.
pub const STREAM_PIECE: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_come_through(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let text = Bytes(OsString::from_vec(bytes));
            let json = serde_json::to_string(&text).unwrap();
            prop_assert_eq!(serde_json::from_str::<Bytes>(&json).unwrap(), text);
        }
    }

    #[test]
    fn a_character_that_is_no_byte_is_refused() {
        assert!(serde_json::from_str::<Bytes>("\"\u{20ac}\"").is_err());
    }
}
