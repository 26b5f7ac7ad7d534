//! Where the guest's physical memory lies in its VMM's process. The kernel does not show it: the known layouts are
//! tried, and the one that makes sense of what the guest wrote is right.

use super::memory::Range;

/// Beginning of the guest's memory above the devices that have addresses of 32 bits.
const HIGH: u64 = 4 << 30;
/// Sizes of the part below them, bytes: QEMU's q35 with more or less than 2.75 GiB, its pc, likewise, Firecracker and others with 3.25 GiB.
const LOW_SIZES: [u64; 5] = [
    0x8000_0000,
    0xb000_0000,
    0xc000_0000,
    0xe000_0000,
    0xd000_0000,
];
/// More mappings are not taken for the guest's memory.
const MAX_MAPPINGS: usize = 8;

/// A way in which the guest's physical memory may lie in mappings of its VMM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout(Vec<Part>);

/// Guest memory that is one range of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    guest: u64,
    host: Range,
}

impl Layout {
    /// The layouts that these mappings of the guest's memory may have: one of them with all of it, cut in two or not, or one with the
    /// memory below 4 GiB and one with that above.
    pub fn candidates(mappings: &[Range]) -> Vec<Layout> {
        let mappings = &mappings[..mappings.len().min(MAX_MAPPINGS)];
        let whole = |mapping: &Range| (mapping.length <= HIGH).then(|| Layout(vec![low(*mapping)]));
        let cut = |mapping: &Range| {
            let sizes = LOW_SIZES.into_iter();
            let sizes = sizes.filter(|size| *size < mapping.length);
            let layout = |size: u64| {
                let below = Range {
                    length: size,
                    ..*mapping
                };
                let above = Range {
                    start: mapping.start.saturating_add(size),
                    length: mapping.length - size,
                };
                Layout(vec![low(below), high(above)])
            };
            sizes.map(layout).collect::<Vec<_>>()
        };
        let pairs = mappings.iter().flat_map(|below| {
            let others = mappings.iter().filter(move |above| *above != below);
            let is_below = below.length < HIGH;
            others
                .filter(move |_| is_below)
                .map(move |above| Layout(vec![low(*below), high(*above)]))
        });
        let one = mappings.iter().filter_map(whole);
        one.chain(mappings.iter().flat_map(cut))
            .chain(pairs)
            .collect()
    }

    /// The address in the process of bytes that the guest has at an address; `None` where they are not all in one part of its memory.
    pub fn host(&self, guest: u64, length: u64) -> Option<u64> {
        self.0.iter().find_map(|part| {
            let host = part
                .host
                .start
                .checked_add(guest.checked_sub(part.guest)?)?;
            part.host.has(host, length).then_some(host)
        })
    }
}

fn low(host: Range) -> Part {
    Part { guest: 0, host }
}

fn high(host: Range) -> Part {
    Part { guest: HIGH, host }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn memory_above_4_gib_follows_that_below_the_devices() {
        let mapping = Range {
            start: 0x7f00_0000_0000,
            length: 4 * GIB,
        };
        let hosts = |guest: u64| -> Vec<Option<u64>> {
            let layouts = Layout::candidates(&[mapping]);
            layouts
                .iter()
                .map(|layout| layout.host(guest, 16))
                .collect()
        };
        assert!(
            hosts(GIB)
                .iter()
                .all(|host| *host == Some(mapping.start + GIB))
        );
        let q35 = mapping.start + 2 * GIB + 0x1000;
        let above = hosts(4 * GIB + 0x1000);
        assert!(
            above.contains(&Some(q35)) && above.contains(&None),
            "{above:?}"
        );
        assert!(hosts(8 * GIB).iter().all(Option::is_none));
        assert!(hosts(u64::MAX - 8).iter().all(Option::is_none));
    }

    #[test]
    fn two_mappings_are_below_and_above() {
        let below = Range {
            start: 0x1000,
            length: 3 * GIB,
        };
        let above = Range {
            start: 0x10_0000_0000,
            length: GIB,
        };
        let layouts = Layout::candidates(&[below, above]);
        let both = layouts.iter().find(|layout| {
            layout.host(0, 1) == Some(below.start) && layout.host(4 * GIB, 1) == Some(above.start)
        });
        let both = both.unwrap();
        assert_eq!(both.host(3 * GIB - 8, 16), None, "it ends there");
    }

    proptest! {
        #[test]
        fn an_address_is_in_a_mapping_or_nowhere(guest in any::<u64>(), length in any::<u64>(), sizes in proptest::collection::vec((any::<u64>(), any::<u64>()), 0..10)) {
            let mappings: Vec<Range> = sizes.into_iter().map(|(start, length)| Range { start, length }).collect();
            for layout in Layout::candidates(&mappings) {
                if let Some(host) = layout.host(guest, length) {
                    prop_assert!(mappings.iter().any(|mapping| mapping.has(host, length)));
                }
            }
        }
    }
}
