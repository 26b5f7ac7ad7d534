//! Traces: of kernels, of perf and trace-cmd, of QEMU, and the packets in them.

use crate::scratch;
use std::sync::OnceLock;
use vmtax_trace::{
    Dat, Entry, Events, Formats, Input, PageLayout, Payload, Perf, QemuEvents, TraceText, payload,
    payload_word,
};

/// Reads every field of every event of a trace as a number and as a text, to the end or the first error.
pub(super) fn read_events(formats: &Formats, mut events: Events<'_>) {
    while let Ok(Some(entry)) = events.next() {
        if let Entry::Event(event) = entry {
            for (_, field) in &formats.get(event.id).expect("a known event").fields {
                let _ = (field.signed(event.data), field.text(event.data));
            }
        }
    }
}

/// A stranger's file of trace-cmd: a trace or an error, in bounded memory.
pub fn trace_dat(data: &[u8]) {
    let trace = match Dat::open(&scratch::file("trace", data)) {
        Ok(trace) => trace,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    if let Ok(events) = trace.events() {
        read_events(trace.formats(), events);
    }
}

/// A stranger's file of perf: a trace or an error, in bounded memory.
pub fn trace_perf(data: &[u8]) {
    let trace = match Perf::open(&scratch::file("trace", data)) {
        Ok(trace) => trace,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    if let Ok(events) = trace.events() {
        read_events(trace.formats(), events);
    }
}

/// A stranger's trace as text: events or an error, in bounded memory.
pub fn trace_text(data: &[u8]) {
    match TraceText::read(data, "fuzz".as_ref()) {
        Ok(text) => read_events(text.formats(), text.events_of(data)),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

const COMMON: &str = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;
";

/// A format file of a kernel that nobody knows: fields that read any record, or an error.
pub fn trace_format(data: &[u8]) {
    let at = data.iter().position(|&b| b == 0).unwrap_or(data.len());
    let (text, record) = data.split_at(at);
    let text = String::from_utf8_lossy(text);
    let _ = PageLayout::parse(&text);
    let reasons = vmtax_trace::ExitReasons::from_tables(&vmtax_trace::symbols(&text));
    assert_eq!(reasons.name(0, 12), "unknown (0xc)");
    let _ = Formats::default().add("fuzz", &text);

    // With the fields that every event has, which a fuzzer would have to guess.
    let mut formats = Formats::default();
    if formats
        .add(
            "fuzz",
            &format!("name: x\nID: 7\nformat:\n{COMMON}\n{text}"),
        )
        .is_err()
    {
        return;
    }
    for (_, format) in formats.iter() {
        for (name, field) in &format.fields {
            assert!(!name.is_empty());
            let _ = (
                field.unsigned(record),
                field.signed(record),
                field.text(record),
                field.bytes(record),
            );
            for index in [0, 1, 7, u32::MAX] {
                let _ = field
                    .element(index)
                    .and_then(|element| element.signed(record));
            }
        }
    }
}

const SWITCH: &str =
    include_str!("../../../crates/base/trace/tests/data/host/formats/sched.sched_switch");

const EXEC: &str =
    include_str!("../../../crates/base/trace/tests/data/host/formats/sched.sched_process_exec");

const HEADER: &str = include_str!("../../../crates/base/trace/tests/data/host/header_page");

static FORMATS: OnceLock<Formats> = OnceLock::new();

/// Raw pages of a ring buffer, from a guest or a stranger's file: events, losses and an end.
pub fn trace_pages(data: &[u8]) {
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

const LIST: &str = include_str!("../../../crates/base/trace/tests/data/qemu/trace-events");

static QEMU: OnceLock<QemuEvents> = OnceLock::new();

/// QEMU's own traces, its simple backend's file and its log, from a stranger.
pub fn trace_simple(data: &[u8]) {
    let qemu = QEMU.get_or_init(|| QemuEvents::parse(LIST).expect("a sound list"));
    if let Ok(events) = qemu.simple_from(data, "fuzz".as_ref()) {
        read_qemu(qemu, events);
    }
    // A fuzzer hardly ever guesses the magic number, or a name.
    let mut file: Vec<u8> = [u64::MAX, 0xf2b1_77cb_0aa4_29b4, 4]
        .into_iter()
        .flat_map(u64::to_le_bytes)
        .collect();
    for (number, name) in [(0_u64, "bdrv_open_common"), (1, "virtio_queue_notify")] {
        file.extend([0, number].into_iter().flat_map(u64::to_le_bytes));
        file.extend((name.len() as u32).to_le_bytes());
        file.extend(name.as_bytes());
    }
    file.extend(data);
    read_qemu(
        qemu,
        qemu.simple_from(file.as_slice(), "fuzz".as_ref())
            .expect("a sound head"),
    );

    read_qemu(qemu, qemu.log_from(data, "fuzz".as_ref()));
    let line = [b"1@2.000003:bdrv_open_common ".as_slice(), data].concat();
    read_qemu(qemu, qemu.log_from(line.as_slice(), "fuzz".as_ref()));
    let _ = QemuEvents::parse(&String::from_utf8_lossy(data));
}

fn read_qemu(qemu: &QemuEvents, mut events: Events<'_>) {
    let (mut given, mut lost) = (0, 0);
    while let Ok(Some(entry)) = events.next() {
        match entry {
            Entry::Lost(_) => lost += 1,
            Entry::Event(event) => {
                given += 1;
                for (name, field) in &qemu.formats().get(event.id).expect("a known event").fields {
                    let text = field.text(event.data);
                    assert!(
                        text.is_some() || field.unsigned(event.data).is_some(),
                        "{name} is neither number nor text"
                    );
                }
            }
        }
    }
    assert_eq!(
        (events.counts().events, events.counts().losses),
        (given, lost)
    );
}

/// The first bytes of a guest's packet, as probes on QEMU's functions record them: behind the length of its first piece and what
/// its second begins with, eight bytes each.
pub fn packet(data: &[u8]) {
    let word = |at: usize| {
        data.get(at..at + 8)
            .and_then(|word| word.try_into().ok())
            .map(u64::from_le_bytes)
    };
    let (piece, next) = (word(0), word(8));
    let head = data.get(16..).unwrap_or_default();
    let found = payload(head);
    if let Some(Payload { at, length }) = found {
        // Two headers of the link and the device, the longest of IPv4 and of TCP.
        assert!(
            (14 + 20 + 8..=12 + 14 + 60 + 60).contains(&at),
            "payload at {at}"
        );
        assert!(length <= usize::from(u16::MAX), "{length} bytes");
    }
    let in_head = found.and_then(|Payload { at, .. }| {
        Some(u64::from_le_bytes(head.get(at..at + 8)?.try_into().ok()?))
    });
    match (payload_word(head, piece, next), found) {
        (Some(_), None) => panic!("a word of a packet without a payload"),
        (Some(word), Some(_)) => assert!(
            Some(word) == in_head || Some(word) == next,
            "a word that is nowhere"
        ),
        _ => {}
    }
    if let Some(word) = payload_word(head, None, None) {
        assert_eq!(Some(word), in_head);
    }
}
