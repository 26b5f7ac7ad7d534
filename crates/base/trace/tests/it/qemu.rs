//! Traces that a QEMU wrote.

use std::path::{Path, PathBuf};
use vmtax_model::testing::skipped;
use vmtax_trace::{Entry, Event, EventId, Formats, QemuEvents};

fn data(name: &str) -> PathBuf {
    crate::data("qemu").join(name)
}

/// The line that QEMU's log has for an event, written again from its fields.
fn line(formats: &Formats, event: &Event<'_>) -> String {
    let number = |name: &str| {
        formats
            .field(event.id, name)
            .and_then(|f| f.unsigned(event.data))
            .expect("a number")
    };
    let signed = |name: &str| {
        formats
            .field(event.id, name)
            .and_then(|f| f.signed(event.data))
            .expect("a number")
    };
    let text = |name: &str| {
        formats
            .field(event.id, name)
            .and_then(|f| f.text(event.data))
            .expect("a text")
            .into_owned()
    };
    let name = &formats.get(event.id).expect("a known event").name;
    let arguments = match name.as_str() {
        "bdrv_open_common" => format!(
            "bs 0x{:x} filename \"{}\" flags 0x{:x} format_name \"{}\"",
            number("bs"),
            text("filename"),
            number("flags"),
            text("format_name")
        ),
        "pci_cfg_read" => format!(
            "{} {:02x}:{:02x}.{:x} @0x{:x} -> 0x{:x}",
            text("dev"),
            number("bus"),
            number("slot"),
            number("func"),
            number("offs"),
            number("val")
        ),
        "memory_region_ops_write" => format!(
            "cpu {} mr 0x{:x} addr 0x{:x} value 0x{:x} size {} name '{}'",
            signed("cpu_index"),
            number("mr"),
            number("addr"),
            number("value"),
            number("size"),
            text("name")
        ),
        "virtio_queue_notify" => {
            format!(
                "vdev 0x{:x} n {} vq 0x{:x}",
                number("vdev"),
                signed("n"),
                number("vq")
            )
        }
        "virtio_blk_req_complete" => {
            format!(
                "vdev 0x{:x} req 0x{:x} status {}",
                number("vdev"),
                number("req"),
                signed("status")
            )
        }
        "virtio_blk_handle_read" => format!(
            "vdev 0x{:x} req 0x{:x} sector {} nsectors {}",
            number("vdev"),
            number("req"),
            number("sector"),
            number("nsectors")
        ),
        other => panic!("{other} is not in the recording"),
    };
    let micros = event.ticks / 1000;
    format!(
        "{}@{}.{:06}:{name} {arguments}",
        event.pid,
        micros / 1_000_000,
        micros % 1_000_000
    )
}

#[test]
fn every_line_of_a_log_comes_back() {
    let qemu = QemuEvents::open(&data("trace-events")).unwrap();
    let mut events = qemu.log(&data("log")).unwrap();
    let text = std::fs::read_to_string(data("log")).unwrap();
    let mut lines = text.lines();
    while let Some(entry) = events.next().unwrap() {
        let Entry::Event(event) = entry else {
            panic!("{entry:?}")
        };
        assert_eq!(Some(line(qemu.formats(), &event).as_str()), lines.next());
    }
    assert_eq!(lines.next(), None);
    assert!(events.counts().events > 100);
    assert_eq!(
        events.counts().unknown + events.counts().short + events.counts().backwards,
        0
    );
}

#[test]
fn the_list_of_the_qemu_here_is_understood() {
    let path = Path::new("/usr/share/qemu/trace-events-all");
    if !path.exists() {
        skipped(&format!("{} is not there", path.display()));
        return;
    }
    let qemu = QemuEvents::open(path).unwrap();
    assert!(qemu.formats().iter().count() > 1000);
    let pop: Option<EventId> = qemu.formats().event("qemu", "virtio_blk_req_complete");
    assert!(
        pop.and_then(|id| qemu.formats().field(id, "status"))
            .is_some()
    );
}

/// `simple.text` is what QEMU's own scripts/simpletrace.py prints of `simple`.
#[test]
fn a_simple_file_gives_what_qemus_own_script_gives() {
    let qemu = QemuEvents::open(&data("trace-events")).unwrap();
    let formats = qemu.formats();
    let mut events = qemu.simple(&data("simple")).unwrap();
    let text = std::fs::read_to_string(data("simple.text")).unwrap();
    let mut lines = text.lines();
    let mut last = None;
    while let Some(entry) = events.next().unwrap() {
        let Entry::Event(event) = entry else {
            panic!("{entry:?}")
        };
        let format = formats.get(event.id).unwrap();
        let since = (event.ticks - last.unwrap_or(event.ticks)) as f64 / 1000.0;
        last = Some(event.ticks);
        let mut line = format!("{} {since:.3} pid={}", format.name, event.pid);
        for (name, field) in format
            .fields
            .iter()
            .filter(|(name, _)| !name.starts_with("common_"))
        {
            line += &match field.text(event.data) {
                Some(text) => format!(" {name}=b'{text}'"),
                None => format!(" {name}=0x{:x}", field.unsigned(event.data).unwrap()),
            };
        }
        assert_eq!(Some(line.as_str()), lines.next());
    }
    assert_eq!(lines.next(), None);
    assert_eq!(events.counts().events, 24);
    assert_eq!(
        events.counts().unknown + events.counts().short + events.counts().losses,
        0
    );
}
