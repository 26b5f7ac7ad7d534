//! Recorded traces against what the kernel itself printed of them, and against its counts; files that trace-cmd made
//! from the recording in `data/host`, of which the same events must come out; a file of `perf record` against what
//! `perf script` prints of it.

use crate::{Printer, data};
use std::path::Path;
use vmtax_model::testing::skipped;
use vmtax_trace::{Counts, Dat, Entry, Event, EventId, Events, Folder, Formats, Perf, QemuEvents};

/// `bash-123   [000] d..2. 35057: sched_switch: …`, cut into thread, CPU, time and the rest.
fn printed(line: &str) -> (i32, u32, u64, String) {
    let (before, after) = line.split_once(" [").expect("a CPU");
    let pid = before
        .trim_end()
        .rsplit_once('-')
        .expect("a thread")
        .1
        .parse()
        .expect("a number");
    let (cpu, after) = after.split_once("] ").expect("a CPU");
    let (_flags, after) = after.split_once(' ').expect("flags");
    let (ticks, event) = after.trim_start().split_once(": ").expect("a time");
    (
        pid,
        cpu.parse().expect("a number"),
        ticks.parse().expect("a number"),
        event.to_owned(),
    )
}

#[test]
fn the_decoder_agrees_with_the_kernel() {
    let folder = Folder::open(&data("host")).unwrap();
    assert_eq!(folder.clock(), "x86-tsc");
    let text = std::fs::read_to_string(data("host/text")).unwrap();
    let expected: Vec<_> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(printed)
        .collect();
    assert!(
        expected.len() > 700,
        "the recording has {} events",
        expected.len()
    );

    let printer = Printer {
        formats: folder.formats(),
    };
    let mut events = folder.events().unwrap();
    let mut got = Vec::new();
    while let Some(entry) = events.next().unwrap() {
        let Entry::Event(event) = entry else {
            panic!("{entry:?}")
        };
        let name = &folder.formats().get(event.id).unwrap().name;
        got.push((
            event.pid,
            event.cpu,
            event.ticks,
            format!("{name}: {}", printer.arguments(event.id, event.data)),
        ));
    }
    for (n, (ours, kernels)) in got.iter().zip(&expected).enumerate() {
        assert_eq!(ours, kernels, "event {n}");
    }
    assert_eq!(got.len(), expected.len());
    let counts = events.counts();
    assert_eq!(
        (
            counts.events,
            counts.losses + counts.damaged_pages + counts.unknown
        ),
        (expected.len() as u64, 0)
    );
    let kept: u64 = folder
        .stats()
        .iter()
        .map(|cpu| cpu.overrun + cpu.dropped)
        .sum();
    assert_eq!((folder.stats().len(), kept), (2, 0));
}

#[test]
fn losses_are_as_many_as_the_kernel_counted() {
    let folder = Folder::open(&data("lost")).unwrap();
    let mut events = folder.events().unwrap();
    let mut lost = [0, 0];
    let mut last = [0, 0];
    while let Some(entry) = events.next().unwrap() {
        match entry {
            Entry::Lost(gap) => {
                assert!(gap.ticks >= last[gap.input as usize]);
                lost[gap.input as usize] += gap.events.expect("the kernel had room for the number");
            }
            Entry::Event(event) => last[event.input as usize] = event.ticks,
        }
    }
    let overrun: Vec<u64> = folder.stats().iter().map(|cpu| cpu.overrun).collect();
    assert_eq!(lost.as_slice(), overrun);
    assert!(overrun.iter().all(|&n| n > 1000), "{overrun:?}");
    assert_eq!(events.counts().lost, lost.iter().sum::<u64>());
}

/// Another kernel gives other numbers and lengths: nothing is decoded with the wrong format.
#[test]
fn formats_of_another_kernel_are_counted() {
    let copy = tempfile::tempdir().unwrap();
    let put = |name: &str, bytes: &[u8]| std::fs::write(copy.path().join(name), bytes).unwrap();
    std::fs::create_dir(copy.path().join("formats")).unwrap();
    for name in ["header_page", "clock", "bound.cpu0.raw"] {
        put(name, &std::fs::read(data("host").join(name)).unwrap());
    }
    let text = std::fs::read_to_string(data("host/formats/raw_syscalls.sys_enter")).unwrap();
    put(
        "formats/raw_syscalls.sys_enter",
        text.replace("args[6];\toffset:16;", "args[6];\toffset:32;")
            .as_bytes(),
    );

    let folder = Folder::open(copy.path()).unwrap();
    assert!(folder.stats().is_empty());
    let mut events = folder.events().unwrap();
    assert_eq!(events.next().unwrap(), None);
    let counts = events.counts();
    assert!(counts.short > 50 && counts.unknown > 50, "{counts:?}");
}

#[test]
fn inputs_are_in_the_order_of_cpus() {
    let copy = tempfile::tempdir().unwrap();
    let put = |name: &str, bytes: &[u8]| std::fs::write(copy.path().join(name), bytes).unwrap();
    std::fs::create_dir(copy.path().join("formats")).unwrap();
    for name in ["header_page", "clock"] {
        put(name, &std::fs::read(data("host").join(name)).unwrap());
    }
    for name in [
        "free.cpu0.raw",
        "bound.cpu10.raw",
        "bound.cpu2.raw",
        "bound.cpux.raw",
        ".cpu1.raw",
        "other.raw",
    ] {
        put(name, b"");
    }
    let folder = Folder::open(copy.path()).unwrap();
    let inputs: Vec<_> = folder
        .inputs()
        .iter()
        .map(|raw| (raw.instance.as_str(), raw.cpu))
        .collect();
    assert_eq!(inputs, [("bound", 2), ("bound", 10), ("free", 0)]);
    assert_eq!(folder.events().unwrap().next().unwrap(), None);
}

#[test]
fn a_folder_without_a_trace_is_an_error() {
    let empty = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| std::fs::write(empty.path().join(name), text).unwrap();
    let says = |expected: &str| {
        let error = Folder::open(empty.path()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    assert!(
        Folder::open(&empty.path().join("absent"))
            .unwrap_err()
            .to_string()
            .contains("failed to read")
    );
    says("give the directory of a trace");
    put("a.cpu0.raw", "");
    says("header_page");
    put("header_page", "nothing");
    says("invalid field line");
    put(
        "header_page",
        &std::fs::read_to_string(data("host/header_page")).unwrap(),
    );
    says("clock");
    put("clock", "x86-tsc\n");
    says("formats");
    std::fs::create_dir(empty.path().join("formats")).unwrap();
    assert_eq!(Folder::open(empty.path()).unwrap().clock(), "x86-tsc");
    put("formats/a.b", "name: b\n");
    says("no ID: line");
}

/// Time, CPU, thread, kind and record.
type Whole = (u64, u32, i32, u16, Vec<u8>);

/// Everything of each event but its input.
fn all(mut events: Events<'_>) -> (Vec<Whole>, Counts) {
    let mut got = Vec::new();
    while let Some(entry) = events.next().unwrap() {
        let Entry::Event(event) = entry else {
            panic!("{entry:?}")
        };
        got.push((
            event.ticks,
            event.cpu,
            event.pid,
            event.id.0,
            event.data.to_vec(),
        ));
    }
    (got, *events.counts())
}

#[test]
fn trace_cmds_files_hold_the_same_events() {
    let folder = Folder::open(&data("host")).unwrap();
    let expected = all(folder.events().unwrap());
    for name in ["dat/v6.dat", "dat/v7zstd.dat"] {
        let dat = Dat::open(&data(name)).unwrap();
        assert_eq!(all(dat.events().unwrap()), expected, "{name}");
        // trace-cmd restore, by which they were made, does not know the clock.
        assert_eq!(dat.clock(), "local");
        let switch = dat.formats().event("sched", "sched_switch").unwrap();
        assert_eq!(
            Some(switch),
            folder.formats().event("sched", "sched_switch")
        );
        assert_eq!(
            dat.formats().field(switch, "prev_state"),
            folder.formats().field(switch, "prev_state")
        );
        assert!(dat.formats().event("ftrace", "function").is_some());
    }
}

/// The first trace-cmd with zstd left the magic number of its frames out.
#[test]
fn zstd_without_its_magic_number() {
    let file = std::fs::read(data("dat/v7zstd.dat")).unwrap();
    let magic = [0x28, 0xb5, 0x2f, 0xfd];
    // Where a frame begins, a part of the head that is not moved: its bytes are taken out, the rest of the block filled up.
    let at = file.windows(4).position(|window| window == magic).unwrap();
    let length = u32::from_le_bytes(*file[at - 8..].first_chunk().unwrap()) as usize;
    let mut changed = file.clone();
    changed[at - 8..at - 4].copy_from_slice(&(length as u32 - 4).to_le_bytes());
    changed.copy_within(at + 4..at + length, at);
    let stored = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(stored.path(), &changed).unwrap();
    let expected = all(Dat::open(&data("dat/v7zstd.dat"))
        .unwrap()
        .events()
        .unwrap());
    assert_eq!(
        all(Dat::open(stored.path()).unwrap().events().unwrap()),
        expected
    );
}

/// `sleep  7302 [000] 15556.933053500:  sched:sched_switch: …`, cut into thread, CPU, time and the rest.
fn printed_by_perf(line: &str) -> (i32, u32, u64, String) {
    let (before, after) = line.split_once(" [").expect("a CPU");
    let pid = before
        .trim_end()
        .rsplit_once(' ')
        .expect("a thread")
        .1
        .parse()
        .expect("a number");
    let (cpu, after) = after.split_once("] ").expect("a CPU");
    let (time, event) = after.split_once(": ").expect("a time");
    let (seconds, nanos) = time.split_once('.').expect("a point");
    let ticks = seconds.parse::<u64>().expect("a number") * 1_000_000_000
        + nanos.parse::<u64>().expect("a number");
    (
        pid,
        cpu.parse().expect("a number"),
        ticks,
        event.trim_start().to_owned(),
    )
}

#[test]
fn the_importer_agrees_with_perf() {
    let perf = Perf::open(&data("perf/perf.data")).unwrap();
    assert_eq!(perf.clock(), "perf");
    let text = std::fs::read_to_string(data("perf/text")).unwrap();
    let mut expected = text.lines().map(printed_by_perf);
    let printer = Printer {
        formats: perf.formats(),
    };
    let mut events = perf.events().unwrap();
    while let Some(entry) = events.next().unwrap() {
        let Entry::Event(event) = entry else {
            panic!("{entry:?}")
        };
        let format = perf.formats().get(event.id).unwrap();
        let arguments = printer.arguments(event.id, event.data);
        let ours = (
            event.pid,
            event.cpu,
            event.ticks,
            format!("{}:{}: {arguments}", format.system, format.name),
        );
        assert_eq!(Some(ours), expected.next());
    }
    assert_eq!(expected.next(), None);
    assert!(events.counts().events > 100);
    assert_eq!(
        events.counts().unknown + events.counts().short + events.counts().losses,
        0
    );
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
    let qemu = QemuEvents::open(&data("qemu/trace-events")).unwrap();
    let mut events = qemu.log(&data("qemu/log")).unwrap();
    let text = std::fs::read_to_string(data("qemu/log")).unwrap();
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
    let qemu = QemuEvents::open(&data("qemu/trace-events")).unwrap();
    let formats = qemu.formats();
    let mut events = qemu.simple(&data("qemu/simple")).unwrap();
    let text = std::fs::read_to_string(data("qemu/simple.text")).unwrap();
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
