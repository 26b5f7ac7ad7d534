//! The kinds of requests, as virtio disks and QEMU's accounts number them.

use vmtax_model::RequestKind;

/// Only of a legacy device: a request before which all others must be done.
const BARRIER: u64 = 0x8000_0000;

/// Returns the kind of a request by the type in its header (virtio 1.2, 5.2.6).
pub(crate) fn kind_of_header(kind: u64) -> RequestKind {
    match kind & !BARRIER {
        0 => RequestKind::Read,
        1 => RequestKind::Write,
        4 => RequestKind::Flush,
        11 => RequestKind::Discard,
        _ => RequestKind::Other,
    }
}

/// The kind that a device model accounts for, by QEMU's `BlockAcctType`. Kinds behind a flush have other numbers since 8.1.
pub(crate) fn kind_of_account(kind: u64) -> RequestKind {
    match kind {
        1 => RequestKind::Read,
        2 => RequestKind::Write,
        3 => RequestKind::Flush,
        _ => RequestKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_of_the_kind_that_its_number_says() {
        use RequestKind::{Discard, Flush, Other, Read, Write};
        assert_eq!(
            [0, 1, BARRIER | 1, 4, 8, 11, 13].map(kind_of_header),
            [Read, Write, Write, Flush, Other, Discard, Other]
        );
        assert_eq!(
            [0, 1, 2, 3, 4].map(kind_of_account),
            [Other, Read, Write, Flush, Other]
        );
    }
}
