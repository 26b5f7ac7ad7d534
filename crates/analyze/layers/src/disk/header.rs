//! The header that a guest's driver puts before a request to a virtio disk.

use vmtax_model::RequestKind;

/// Only of a legacy device: a request before which all others must be done.
const BARRIER: u64 = 0x8000_0000;

/// What a request asks for, by the type in its header (virtio 1.2, 5.2.6).
pub(crate) fn kind_of_header(kind: u64) -> RequestKind {
    match kind & !BARRIER {
        0 => RequestKind::Read,
        1 => RequestKind::Write,
        4 => RequestKind::Flush,
        11 => RequestKind::Discard,
        _ => RequestKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_of_the_kind_that_its_header_says() {
        use RequestKind::{Discard, Flush, Other, Read, Write};
        assert_eq!(
            [0, 1, BARRIER | 1, 4, 8, 11, 13].map(kind_of_header),
            [Read, Write, Write, Flush, Other, Discard, Other]
        );
    }
}
