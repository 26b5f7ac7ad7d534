//! Decodes the `rwbs` flags of block events: what a request asks for.

use vmtax_model::RequestKind;

/// Returns the kind of a request by the kernel's flags (`blk_fill_rwbs`): an F before other letters asks for a flush
/// before the request.
pub(crate) fn kind(rwbs: &[u8], bytes: u64) -> RequestKind {
    let letter = rwbs.iter().take(2).find(|l| **l != b'F' || bytes == 0);
    match letter {
        Some(b'R') => RequestKind::Read,
        Some(b'W') => RequestKind::Write,
        Some(b'D') => RequestKind::Discard,
        Some(b'F') => RequestKind::Flush,
        _ => RequestKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_of_the_kind_that_its_flags_say() {
        let kind_of = |rwbs: &str, bytes| kind(rwbs.as_bytes(), bytes);
        assert_eq!(
            (kind_of("R", 4096), kind_of("RA", 8192), kind_of("RM\0", 1)),
            (RequestKind::Read, RequestKind::Read, RequestKind::Read)
        );
        assert_eq!(
            (kind_of("WS", 4096), kind_of("FWFS", 4096)),
            (RequestKind::Write, RequestKind::Write)
        );
        assert_eq!(
            (kind_of("FF", 0), kind_of("F", 0), kind_of("D", 4096)),
            (RequestKind::Flush, RequestKind::Flush, RequestKind::Discard)
        );
        assert_eq!(
            (kind_of("N", 0), kind_of("", 0), kind_of("", 4096)),
            (RequestKind::Other, RequestKind::Other, RequestKind::Other)
        );
    }
}
