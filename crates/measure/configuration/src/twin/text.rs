//! Text that people paste, in the encodings that their shells write.

use std::io::{Error, Read, Result};
use vmtax_model::without_secrets;

/// A longer text is no configuration, and no report that anybody pastes; bytes.
const MAX_TEXT: u64 = 4 << 20;

/// Reads a text in UTF-8 or UTF-16, without its secrets.
///
/// # Errors
/// Where it cannot be read, is longer than 4 MiB, or is in another encoding.
pub fn read_text(reader: impl Read) -> Result<String> {
    let mut bytes = Vec::new();
    reader.take(MAX_TEXT + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_TEXT {
        return Err(Error::other(
            "it is longer than 4 MiB: give the part that is of one VM",
        ));
    }
    let text = match bytes.as_slice() {
        // Redirection in PowerShell writes it.
        [0xff, 0xfe, rest @ ..] => utf16(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => utf16(rest, u16::from_be_bytes),
        _ => String::from_utf8(bytes).ok(),
    };
    let text = text.filter(|text| !text.contains('\0')).ok_or_else(|| {
        Error::other(
            "it is text neither in UTF-8 nor in UTF-16: `iconv -f ENCODING -t UTF-8` converts it",
        )
    })?;
    Ok(without_secrets(&text).into_owned())
}

/// Decodes UTF-16; `None` for other bytes.
fn utf16(bytes: &[u8], unit: impl Fn([u8; 2]) -> u16) -> Option<String> {
    let units: Vec<u16> = bytes
        .chunks_exact(2)
        .map(|pair| unit([pair[0], pair[1]]))
        .collect();
    let is_whole = bytes.len() % 2 == 0;
    String::from_utf16(&units).ok().filter(|_| is_whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_encoding_is_read_or_refused() {
        let text = "qemu-kvm -name gr\u{fc}n -m 1G";
        let units = || text.encode_utf16();
        let little: Vec<u8> = [0xff, 0xfe]
            .into_iter()
            .chain(units().flat_map(u16::to_le_bytes))
            .collect();
        let big: Vec<u8> = [0xfe, 0xff]
            .into_iter()
            .chain(units().flat_map(u16::to_be_bytes))
            .collect();
        for bytes in [text.as_bytes(), &little, &big] {
            assert_eq!(read_text(bytes).unwrap(), text);
        }
        let latin1: Vec<u8> = text.chars().map(|c| c as u8).collect();
        for bytes in [
            &latin1[..],
            &little[..little.len() - 1],
            &little[2..],
            b"a\0b",
        ] {
            let why = read_text(bytes).unwrap_err().to_string();
            assert!(why.contains("iconv"), "{why}");
        }
        let why = read_text(std::io::repeat(b'a')).unwrap_err().to_string();
        assert!(why.contains("4 MiB"), "{why}");
        assert!(
            !read_text(&b"qemu -spice password=s3cret"[..])
                .unwrap()
                .contains("s3cret")
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = read_text(&bytes[..]);
        }
    }
}
