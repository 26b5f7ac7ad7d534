//! Counters of a block device.

use crate::host_disk;
use rustix::time::{ClockId, clock_getres};
use std::fs;
use vmtax_model::BlockDevice;

/// The counters of a block device by its number, as the kernel's block events print it; `None` where there is none.
pub fn block_device(number: u64) -> Option<BlockDevice> {
    let folder = fs::canonicalize(host_disk::folder(number)).ok()?;
    let (requests, total_ms) = stat(&fs::read_to_string(folder.join("stat")).ok()?)?;
    let tick_ns = if host_disk::is_bio_based(&folder) {
        tick_ns()
    } else {
        0
    };
    Some(BlockDevice {
        name: folder.file_name()?.to_str()?.to_owned(),
        requests,
        total_ms,
        tick_ns,
    })
}

/// Returns the length of a tick of the kernel's clock.
fn tick_ns() -> u64 {
    let tick = clock_getres(ClockId::MonotonicCoarse);
    (tick.tv_sec as u64)
        .saturating_mul(1_000_000_000)
        .saturating_add(tick.tv_nsec as u64)
}

/// Completed requests and the sum of their times, ms: reads, writes, since 4.18 discards, since 5.5 flushes, each with count,
/// merges, sectors, time; behind the first two three fields of the queue.
fn stat(text: &str) -> Option<(u64, u64)> {
    let fields: Vec<u64> = text
        .split_ascii_whitespace()
        .map(str::parse)
        .collect::<Result<_, _>>()
        .ok()?;
    let field_at = |at: usize| fields.get(at).copied().unwrap_or(0);
    (fields.len() >= 11).then(|| {
        let kinds = [(0, 3), (4, 7), (11, 14), (15, 16)];
        kinds
            .into_iter()
            .fold((0u64, 0u64), |(count, ms), (at, time)| {
                (
                    count.saturating_add(field_at(at)),
                    ms.saturating_add(field_at(time)),
                )
            })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn requests_of_all_kinds_are_summed() {
        let old = "100 5 800 40 50 5 400 60 0 90 100\n";
        assert_eq!(stat(old), Some((150, 100)));
        let new = "100 5 800 40 50 5 400 60 0 90 100 10 0 80 7 3 2\n";
        assert_eq!(stat(new), Some((163, 109)));
        assert_eq!(
            (stat("1 2 3"), stat("x"), block_device(u64::MAX)),
            (None, None, None)
        );
    }

    #[test]
    fn a_tick_is_of_a_frequency_that_linux_can_have() {
        assert!(
            (1_000_000..=10_000_000).contains(&tick_ns()),
            "{}",
            tick_ns()
        );
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "[0-9 \n-]{0,200}") {
            let _ = stat(&text);
        }
    }
}
