//! A file that `perf record` wrote, against what `perf script` prints of it.

use crate::common::{Printer, data};
use vmtax_trace::{Entry, Perf};

/// `sleep  7302 [000] 15556.933053500:  sched:sched_switch: …`, cut into thread, CPU, time and the rest.
fn printed(line: &str) -> (i32, u32, u64, String) {
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
    let mut expected = text.lines().map(printed);
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
