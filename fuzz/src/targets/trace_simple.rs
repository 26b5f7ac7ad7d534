//! QEMU's own traces, its simple backend's file and its log, from a stranger.

use std::sync::OnceLock;
use vmtax_trace::{Entry, Events, QemuEvents};

const LIST: &str = include_str!("../../../crates/base/trace/tests/data/qemu/trace-events");

static QEMU: OnceLock<QemuEvents> = OnceLock::new();

pub fn run(data: &[u8]) {
    let qemu = QEMU.get_or_init(|| QemuEvents::parse(LIST).expect("a sound list"));
    if let Ok(events) = qemu.simple_from(data, "fuzz".as_ref()) {
        read(qemu, events);
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
    read(
        qemu,
        qemu.simple_from(file.as_slice(), "fuzz".as_ref())
            .expect("a sound head"),
    );

    read(qemu, qemu.log_from(data, "fuzz".as_ref()));
    let line = [b"1@2.000003:bdrv_open_common ".as_slice(), data].concat();
    read(qemu, qemu.log_from(line.as_slice(), "fuzz".as_ref()));
    let _ = QemuEvents::parse(&String::from_utf8_lossy(data));
}

fn read(qemu: &QemuEvents, mut events: Events<'_>) {
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
