//! Raw pages of a ring buffer, from a guest or a stranger's file: events, losses and an end.

use std::sync::OnceLock;
use vmtax_trace::{Entry, Events, Formats, Input, PageLayout};

const SWITCH: &str =
    include_str!("../../../crates/base/trace/tests/data/host/formats/sched.sched_switch");
const EXEC: &str =
    include_str!("../../../crates/base/trace/tests/data/host/formats/sched.sched_process_exec");
const HEADER: &str = include_str!("../../../crates/base/trace/tests/data/host/header_page");

static FORMATS: OnceLock<Formats> = OnceLock::new();

pub fn run(data: &[u8]) {
    let formats = FORMATS.get_or_init(|| {
        let mut formats = Formats::default();
        for text in [SWITCH, EXEC] {
            formats.add("sched", text).expect("a kernel's own text");
        }
        formats
    });
    let Some((kind, bytes)) = data.split_first() else {
        return;
    };
    // Short pages are filled sooner; 32-bit kernels have another header.
    let size = [48, 240, 4080][usize::from(kind & 3) % 3];
    let mut header = HEADER.replace("4080", &size.to_string());
    if kind & 4 != 0 {
        header = header
            .replace("offset:16", "offset:12")
            .replace("commit;\toffset:8;\tsize:8", "commit;\toffset:8;\tsize:4");
    }
    let layout = PageLayout::parse(&header).expect("a page");

    let (first, second) = bytes.split_at(bytes.len() / 2);
    let input = |cpu, pages| Input {
        path: "fuzz".into(),
        cpu,
        layout,
        pages: Box::new(pages),
    };
    let mut events =
        Events::pages(formats, vec![input(0, first), input(1, second)]).expect("memory");
    let (mut given, mut lost, mut last, mut back) = (0, 0, [0; 2], 0);
    while let Some(entry) = events.next().expect("memory") {
        let (input, ticks) = match entry {
            Entry::Lost(gap) => {
                lost += 1;
                (gap.input, gap.ticks)
            }
            Entry::Event(event) => {
                given += 1;
                for (_, field) in &formats.get(event.id).expect("a known event").fields {
                    let _ = (field.signed(event.data), field.text(event.data));
                }
                (event.input, event.ticks)
            }
        };
        back += u64::from(ticks < last[input as usize]);
        last[input as usize] = ticks;
    }
    let counts = events.counts();
    assert_eq!(
        (counts.events, counts.losses, counts.backwards),
        (given, lost, back)
    );
    assert!(
        given + counts.unknown + counts.short <= bytes.len() as u64 / 4,
        "more events than words"
    );
}
