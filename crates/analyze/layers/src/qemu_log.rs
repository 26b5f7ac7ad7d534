//! What QEMU's own log backend tells of block requests, where the host's kernel may not be traced: when the device took a
//! request and when it gave it back. Its stamps are whole microseconds of the time of day.

use crate::error::LayersError;
use crate::event::{Element, Event, Host};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use vmtax_model::Moment;

/// How much its stamps leave open, nanoseconds.
pub(crate) const RESOLUTION_NS: f64 = 1000.0;
/// No line of QEMU's is longer.
const LONGEST: u64 = 4096;
const SECTOR: u64 = 512;

/// The events of a log, in order of time, at host ticks by the moments known on both clocks.
///
/// # Errors
/// [`LayersError::Read`] when the file cannot be read.
pub(crate) fn read(path: &Path, moments: &[Moment]) -> Result<Vec<Event<Host>>, LayersError> {
    let failed = |source| LayersError::Read { path: path.to_owned(), source };
    let [first, .., last] = moments else { return Ok(Vec::new()) };
    let mut file = BufReader::new(File::open(path).map_err(failed)?);
    let mut events = Vec::new();
    let mut text = Vec::new();
    loop {
        text.clear();
        if file.by_ref().take(LONGEST).read_until(b'\n', &mut text).map_err(failed)? == 0 {
            break;
        }
        let found = std::str::from_utf8(&text).ok().and_then(line);
        events.extend(found.map(|(tid, ns, what)| Event {
            at: ticks(ns, first, last),
            cpu: 0,
            tid,
            interrupt: false,
            what,
        }));
    }
    // Threads write as they come; their stamps may be a line apart.
    events.sort_by_key(|e| e.at);
    Ok(events)
}

/// The host's ticks at a time of day, on the line through two moments.
fn ticks(ns: u64, first: &Moment, last: &Moment) -> u64 {
    let took = (i128::from(last.realtime_ns) - i128::from(first.realtime_ns)).max(1);
    let ticked = i128::from(last.ticks) - i128::from(first.ticks);
    let since = i128::from(ns) - i128::from(first.realtime_ns);
    let at = i128::from(first.ticks) + since.saturating_mul(ticked) / took;
    u64::try_from(at.max(0)).unwrap_or(u64::MAX)
}

/// A line such as `1234@1700000000.123456:virtio_blk_handle_read vdev 0x55d req 0x7f2 sector 64 nsectors 8`: thread, time
/// of day in nanoseconds, event. `None` for any other.
fn line(text: &str) -> Option<(i32, u64, Host)> {
    let (stamp, event) = text.trim_end().split_once(':')?;
    let (tid, time) = stamp.split_once('@')?;
    let (seconds, micros) = time.split_once('.')?;
    let micros = micros.parse::<u64>().ok().filter(|_| micros.len() == 6)?;
    let ns = seconds.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(micros)?.checked_mul(1000)?;
    let mut words = event.split(' ');
    let name = words.next()?;
    let words: Vec<&str> = words.collect();
    let fields: BTreeMap<&str, &str> = words.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
    let hex = |field: &str| u64::from_str_radix(fields.get(field)?.strip_prefix("0x")?, 16).ok();
    let number = |field: &str| fields.get(field)?.parse::<u64>().ok();
    let what = match name {
        "virtio_blk_handle_read" | "virtio_blk_handle_write" => Host::Pop(Element {
            address: Some(hex("req")?),
            offset: Some(number("sector")?.checked_mul(SECTOR)?),
            queue: None,
        }),
        "virtio_blk_submit_multireq" => Host::Submit { offset: number("offset")?, bytes: number("size")? },
        // Right before it goes to the used ring.
        "virtio_blk_req_complete" => Host::Push(Element { address: Some(hex("req")?), offset: None, queue: None }),
        "virtio_notify_irqfd" => Host::Notify { queue: hex("vq")? },
        _ => return None,
    };
    Some((tid.parse().ok()?, ns, what))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_as_qemu_writes_them() {
        let (tid, ns, what) =
            line("4711@1700000000.000123:virtio_blk_handle_read vdev 0x55d0 req 0x7f20 sector 64 nsectors 8\n")
                .unwrap();
        assert_eq!((tid, ns), (4711, 1_700_000_000_000_123_000));
        assert_eq!(what, Host::Pop(Element { address: Some(0x7f20), offset: Some(32768), queue: None }));
        let push = line("4711@1700000000.000200:virtio_blk_req_complete vdev 0x55d0 req 0x7f20 status 0").unwrap();
        assert_eq!(push.2, Host::Push(Element { address: Some(0x7f20), offset: None, queue: None }));
        let notify = line("4711@1700000000.000201:virtio_notify_irqfd vdev 0x55d0 vq 0x55e1").unwrap();
        assert_eq!(notify.2, Host::Notify { queue: 0x55e1 });
        for other in ["", "qemu: warning: x", "1@2.3:virtio_notify_irqfd vdev 0x1 vq 0x2", "1@2.000003:else", "@.:"] {
            assert_eq!(line(other), None, "{other}");
        }
    }

    #[test]
    fn times_of_day_become_ticks() {
        let moment = |ticks, realtime_ns| Moment { ticks, realtime_ns };
        let (a, b) = (moment(1000, 5_000_000), moment(3000, 6_000_000));
        assert_eq!([4_500_000, 5_000_000, 5_500_000, 6_500_000].map(|ns| ticks(ns, &a, &b)), [0, 1000, 2000, 4000]);
        assert_eq!(ticks(7, &a, &a), 1000);
        assert_eq!(ticks(u64::MAX, &moment(0, 0), &moment(u64::MAX, 1)), u64::MAX);
    }

    proptest! {
        #[test]
        fn any_line_is_survived(text in "\\PC*", tid in any::<i64>(), ns in any::<u64>(), hex in any::<u64>()) {
            let _ = line(&text);
            let _ = line(&format!("{tid}@{ns}.{ns:06}:virtio_blk_handle_read vdev 0x1 req {hex:#x} sector {hex} {text}"));
        }
    }
}
