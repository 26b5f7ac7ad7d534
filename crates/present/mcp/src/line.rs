//! Lines of bounded length.

use std::io::{self, BufRead, Read};

/// Bytes of a line at most, without its end. A call of a tool has some hundred.
pub const MAX_LINE: usize = 1 << 20;

/// Input of a client, up to the end of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// A line, without its end.
    Whole(Vec<u8>),
    /// A line of more than [`MAX_LINE`] bytes, which was skipped.
    TooLong,
    /// The end of the input: the client went away.
    End,
}

/// Reads the next line, of which no more than [`MAX_LINE`] bytes are in memory. The last one may lack its end.
///
/// # Errors
/// Errors of the reader.
pub fn read_line(from: &mut impl BufRead) -> io::Result<Line> {
    let mut line = Vec::new();
    let limit = MAX_LINE as u64 + 1;
    from.by_ref().take(limit).read_until(b'\n', &mut line)?;
    match line.last() {
        None => Ok(Line::End),
        Some(b'\n') => {
            line.pop();
            Ok(Line::Whole(line))
        }
        Some(_) if line.len() > MAX_LINE => {
            drop(line);
            from.skip_until(b'\n')?;
            Ok(Line::TooLong)
        }
        Some(_) => Ok(Line::Whole(line)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::{BufReader, Cursor};

    fn lines(input: &[u8], buffer: usize) -> Vec<Line> {
        let mut reader = BufReader::with_capacity(buffer, Cursor::new(input));
        let mut lines = Vec::new();
        loop {
            match read_line(&mut reader).unwrap() {
                Line::End => return lines,
                line => lines.push(line),
            }
        }
    }

    #[test]
    fn a_line_that_is_too_long_is_skipped_and_the_next_is_read() {
        let exact = vec![b'x'; MAX_LINE];
        let longer = vec![b'y'; MAX_LINE * 3];
        let input = [&longer[..], b"\n", &exact, b"\nlast"].concat();
        let expected = [
            Line::TooLong,
            Line::Whole(exact),
            Line::Whole(b"last".to_vec()),
        ];
        assert_eq!(lines(&input, 4096), expected);
        assert_eq!(
            lines(&longer, 4096),
            [Line::TooLong],
            "an end without a line's end"
        );
    }

    proptest! {
        #[test]
        fn lines_do_not_depend_on_how_they_arrive(
            input in proptest::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..200),
            buffer in 1usize..20,
        ) {
            let read = lines(&input, buffer);
            let mut whole: Vec<&[u8]> = input.split(|byte| *byte == b'\n').collect();
            // After the last end of a line there is no line.
            if whole.last().is_some_and(|last| last.is_empty()) {
                whole.pop();
            }
            let whole = whole.into_iter().map(|line| Line::Whole(line.to_vec()));
            prop_assert_eq!(read, whole.collect::<Vec<_>>());
        }
    }
}
