//! Where functions begin, named or not: the sorted table of `.eh_frame_hdr`, which stripping leaves.

/// `DW_EH_PE_datarel | DW_EH_PE_sdata4`, the only form that linkers write the table in.
const TABLE_FORM: u8 = 0x3b;

/// The forms that linkers write: the frames' address is relative to where it is, the count is a number.
const FORMS: [u8; 4] = [1, 0x1b, 0x03, TABLE_FORM];

/// Returns true if `.eh_frame_hdr`, linked to `base`, is a table that unwinding can trust: each row's frame lies
/// behind the frames' begin. Gimli subtracts one from the other unchecked.
pub(super) fn is_table(header: &[u8], base: u64) -> bool {
    let word = |at: usize| Some(i32::from_le_bytes(header.get(at..at + 4)?.try_into().ok()?));
    let Some((frames, rows)) = word(4)
        .zip(header.get(12..))
        .filter(|_| header.starts_with(&FORMS))
    else {
        return false;
    };
    let frames = base.wrapping_add(4).wrapping_add_signed(frames.into());
    let frame = |row: &[u8]| {
        base.wrapping_add_signed(i32::from_le_bytes([row[4], row[5], row[6], row[7]]).into())
    };
    rows.chunks_exact(8).all(|row| frame(row) >= frames)
}

/// Where the functions of a program begin, as linked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ranges(Vec<u64>);

impl Ranges {
    /// Reads `.eh_frame_hdr`, linked to `base`; empty where it is of another form.
    pub fn read(header: &[u8], base: u64) -> Ranges {
        Ranges::table(header, base).unwrap_or_default()
    }

    fn table(header: &[u8], base: u64) -> Option<Ranges> {
        let [1, frame_form, count_form, TABLE_FORM, ..] = *header else {
            return None;
        };
        // The pointer to .eh_frame is passed over; it and the count are of four bytes.
        (matches!(frame_form & 0xf, 0x3 | 0xb) && matches!(count_form & 0xf, 0x3 | 0xb))
            .then_some(())?;
        let word = |at: usize| Some(i32::from_le_bytes(header.get(at..at + 4)?.try_into().ok()?));
        let count = usize::try_from(word(8)?).ok()?;
        let rows = header.get(12..)?.chunks_exact(8).take(count);
        let start = |row: &[u8]| {
            base.wrapping_add_signed(i32::from_le_bytes([row[0], row[1], row[2], row[3]]).into())
        };
        let mut starts: Vec<u64> = rows.map(start).collect();
        starts.sort_unstable(); // it is, unless it is damaged
        Some(Ranges(starts))
    }

    /// The function that `address` lies in, or after.
    pub fn start_of(&self, address: u64) -> Option<u64> {
        let after = self.0.partition_point(|&start| start <= address);
        after.checked_sub(1).map(|at| self.0[at])
    }

    /// Returns the number of functions.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if no function is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_function_around_an_address() {
        let mut header = vec![1, 0x1b, 0x03, 0x3b];
        for word in [0i32, 2, -16, 0, 32, 0] {
            header.extend(word.to_le_bytes());
        }
        let ranges = Ranges::read(&header, 0x1000);
        assert_eq!(ranges.len(), 2);
        assert_eq!(
            [0xfef, 0xff0, 0x101f, 0x1020, 0x2000].map(|a| ranges.start_of(a)),
            [None, Some(0xff0), Some(0xff0), Some(0x1020), Some(0x1020)]
        );
    }

    proptest! {
        #[test]
        fn nothing_breaks_it(bytes: Vec<u8>, base: u64, at: u64) {
            Ranges::read(&bytes, base).start_of(at);
            let mut header = vec![1, 0x1b, 0x03, 0x3b];
            header.extend(bytes);
            Ranges::read(&header, base).start_of(at);
        }
    }
}
