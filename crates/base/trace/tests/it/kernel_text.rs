//! Recorded traces against what the kernel itself printed of them, and against its counts.

use crate::common::{Printer, data};
use vmtax_trace::{Entry, Folder};

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
    says("give the folder of a trace");
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
