//! Block requests from QEMU's log backend, where the host's kernel may not be traced: when the device popped a
//! request and when it pushed it back. Its stamps are whole microseconds of the time of day.

use crate::LayersError;
use crate::events::{Event, HostEvent, Mark, SECTOR};
use std::io::Read;
use std::path::Path;
use vmtax_model::{DISK, EventKind, Moment};
use vmtax_trace::{Entry, Formats, QemuEvents};

/// Resolution of its timestamps, ns.
pub(crate) const RESOLUTION_NS: f64 = 1000.0;

/// The events of a log, in order of time, at host ticks by the moments known on both clocks.
///
/// # Errors
/// [`LayersError::Trace`] when the file cannot be read.
pub(crate) fn read(
    log: impl Read,
    path: &Path,
    moments: &[Moment],
) -> Result<Vec<Event<HostEvent>>, LayersError> {
    let [first, .., last] = moments else {
        return Ok(Vec::new());
    };
    let qemu = QemuEvents::block_requests();
    let mut log = qemu.log_from(log, path);
    let mut events = Vec::new();
    while let Some(entry) = log.next()? {
        let Entry::Event(event) = entry else { continue };
        let what = what(qemu.formats(), &event);
        let at = ticks(event.ticks, first, last);
        events.extend(what.map(|what| Event {
            at,
            cpu: 0,
            tid: event.pid,
            interrupt: false,
            kind: EventKind::Tracepoint,
            what,
        }));
    }
    // Threads write as they come; their stamps may be a line apart.
    events.sort_by_key(|e| e.at);
    Ok(events)
}

fn what(formats: &Formats, event: &vmtax_trace::Event<'_>) -> Option<HostEvent> {
    let name = formats.get(event.id)?.name.as_str();
    let info = DISK
        .iter()
        .find(|info| info.sources.iter().any(|source| source.gives("qemu", name)))?;
    let number = |field: &str| formats.field(event.id, field)?.unsigned(event.data);
    let mark = Mark {
        address: number("req"),
        offset: number("offset").or_else(|| number("sector")?.checked_mul(SECTOR)),
        bytes: number("size").unwrap_or(1),
        queue: number("vq"),
        ..Mark::default()
    };
    Some(HostEvent::Passes(info.checkpoint, mark))
}

/// The host's ticks at a time of day, on the line through two moments.
fn ticks(ns: u64, first: &Moment, last: &Moment) -> u64 {
    let took = (i128::from(last.realtime_ns) - i128::from(first.realtime_ns)).max(1);
    let ticked = i128::from(last.ticks) - i128::from(first.ticks);
    let since = i128::from(ns) - i128::from(first.realtime_ns);
    let at = i128::from(first.ticks) + since.saturating_mul(ticked) / took;
    u64::try_from(at.max(0)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use vmtax_model::Checkpoint;

    /// The events of a text whose stamps are as many ticks as nanoseconds.
    fn events(text: &str) -> Vec<(i32, u64, HostEvent)> {
        let moments = [0, 1 << 62].map(|at| Moment {
            ticks: at,
            realtime_ns: at,
        });
        let events = read(text.as_bytes(), "log".as_ref(), &moments).unwrap();
        events.into_iter().map(|e| (e.tid, e.at, e.what)).collect()
    }

    #[test]
    fn lines_as_qemu_writes_them() {
        let lines = "4711@1700000000.000123:virtio_blk_handle_read vdev 0x55d0 req 0x7f20 sector 64 nsectors 8\n\
            4711@1700000000.000150:virtio_blk_submit_multireq vdev 0x55d0 mrb 0x7f00 start 0 num_reqs 1 offset 32768 size 4096 is_write 0\n\
            4711@1700000000.000200:virtio_blk_req_complete vdev 0x55d0 req 0x7f20 status 0\n\
            4711@1700000000.000201:virtio_notify_irqfd vdev 0x55d0 vq 0x55e1\n";
        let element = |offset| Mark {
            address: Some(0x7f20),
            offset,
            bytes: 1,
            ..Mark::default()
        };
        let expected = [
            (123, Checkpoint::QemuPop, element(Some(32768))),
            (150, Checkpoint::QemuSubmit, Mark::range(32768, 4096)),
            (200, Checkpoint::QemuPush, element(None)),
            (
                201,
                Checkpoint::QemuNotify,
                Mark {
                    queue: Some(0x55e1),
                    bytes: 1,
                    ..Mark::default()
                },
            ),
        ];
        let expected = expected.map(|(us, c, mark)| {
            (
                4711,
                1_700_000_000_000_000_000 + us * 1000,
                HostEvent::Passes(c, mark),
            )
        });
        assert_eq!(events(lines), expected);
        for other in [
            "",
            "qemu: warning: x",
            "1@2.3:virtio_notify_irqfd vdev 0x1 vq 0x2",
            "1@2.000003:else",
            "@.:",
        ] {
            assert_eq!(events(other), [], "{other}");
        }
    }

    #[test]
    fn times_of_day_become_ticks() {
        let moment = |ticks, realtime_ns| Moment { ticks, realtime_ns };
        let (a, b) = (moment(1000, 5_000_000), moment(3000, 6_000_000));
        assert_eq!(
            [4_500_000, 5_000_000, 5_500_000, 6_500_000].map(|ns| ticks(ns, &a, &b)),
            [0, 1000, 2000, 4000]
        );
        assert_eq!(ticks(7, &a, &a), 1000);
        assert_eq!(
            ticks(u64::MAX, &moment(0, 0), &moment(u64::MAX, 1)),
            u64::MAX
        );
    }

    proptest! {
        #[test]
        fn any_line_is_survived(text in "\\PC*", tid in any::<i64>(), ns in any::<u64>(), hex in any::<u64>()) {
            let moments = [0, 1 << 62].map(|at| Moment { ticks: at, realtime_ns: at });
            let _ = read(text.as_bytes(), "log".as_ref(), &moments);
            let _ = read(format!("{tid}@{ns}.{ns:06}:virtio_blk_handle_read vdev 0x1 req {hex:#x} sector {hex} {text}").as_bytes(), "log".as_ref(), &moments);
        }
    }
}
