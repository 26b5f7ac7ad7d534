//! The beginning and the end of a command's output, bounded, to read metrics from.

use std::collections::VecDeque;

/// The size of each, bytes.
const MAX_PART: usize = 256 << 10;

/// The captured output of one stream.
#[derive(Debug, Default)]
pub struct Capture {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    left_out: bool,
}

impl Capture {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let (first, rest) = bytes.split_at(bytes.len().min(MAX_PART - self.head.len()));
        self.head.extend_from_slice(first);
        self.tail.extend(rest);
        let over = self.tail.len().saturating_sub(MAX_PART);
        if over > 0 {
            self.tail.drain(..over);
            self.left_out = true;
        }
    }

    /// Returns true if bytes in the middle are missing.
    pub fn is_cut(&self) -> bool {
        self.left_out
    }

    /// The beginning and the end; where the middle is missing they are on lines of their own.
    pub fn text(&self) -> String {
        let mut all = self.head.clone();
        if self.left_out {
            all.push(b'\n');
        }
        all.extend(&self.tail);
        String::from_utf8_lossy(&all).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginning_and_end_are_kept_and_no_more() {
        let mut capture = Capture::default();
        for piece in [&b"first\n"[..], b"second\n"] {
            capture.push(piece);
        }
        assert_eq!(
            (capture.text().as_str(), capture.is_cut()),
            ("first\nsecond\n", false)
        );
        for i in 0..40_000 {
            capture.push(format!("line {i} of many\n").as_bytes());
        }
        let text = capture.text();
        assert!(text.starts_with("first\n") && text.ends_with("line 39999 of many\n"));
        assert!(
            capture.is_cut() && text.len() == 2 * MAX_PART + 1,
            "{}",
            text.len()
        );
        // One piece that is longer than both parts.
        let mut capture = Capture::default();
        capture.push(&vec![b'x'; 3 * MAX_PART]);
        assert_eq!(
            (capture.text().len(), capture.is_cut()),
            (2 * MAX_PART + 1, true)
        );
    }
}
