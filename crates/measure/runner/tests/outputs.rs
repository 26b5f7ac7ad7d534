//! Real output of the tools, and the figures that are read from it.

// Helpers fail by panic too.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use vmtax_model::{Better, Printed, Unit};
use vmtax_runner::tool_output::figures;

fn output(name: &str) -> String {
    std::fs::read_to_string(format!(
        "{}/tests/outputs/{name}",
        env!("CARGO_MANIFEST_DIR")
    ))
    .unwrap()
}

/// The value of a figure, which has to be there in this unit.
fn value(all: &[Printed], of: &str, name: &str, unit: Unit) -> f64 {
    let found = all.iter().find(|p| p.of == of && p.name == name);
    let found = found.unwrap_or_else(|| panic!("no {of}: {name} in {all:#?}"));
    assert_eq!(found.unit, unit, "{found:?}");
    let rate = matches!(unit, Unit::PerSecond | Unit::MebibytesPerSecond);
    assert_eq!(
        found.better,
        Some(if rate { Better::Higher } else { Better::Lower }),
        "{found:?}"
    );
    found.value
}

fn close(got: f64, expected: f64) {
    assert!((got / expected - 1.0).abs() < 1e-9, "{got} {expected}");
}

const RATE: Unit = Unit::PerSecond;
const TIME: Unit = Unit::Seconds;
const BANDWIDTH: Unit = Unit::MebibytesPerSecond;

#[test]
fn sysbench_1_0() {
    let all = figures(&output("sysbench-cpu.txt"));
    assert!(value(&all, "sysbench cpu", "events", RATE) > 100.0);
    assert!(value(&all, "sysbench cpu", "latency, p95", TIME) < 0.1);
    let all = figures(&output("sysbench-memory.txt"));
    close(
        value(&all, "sysbench memory", "transferred", BANDWIDTH),
        3822.07,
    );
    close(
        value(&all, "sysbench memory", "operations", RATE),
        3_913_802.47,
    );
    let all = figures(&output("sysbench-fileio.txt"));
    close(value(&all, "sysbench fileio", "reads", RATE), 3771.91);
    close(value(&all, "sysbench fileio", "fsyncs", RATE), 254.41);
    close(value(&all, "sysbench fileio", "written", BANDWIDTH), 39.29);
    close(
        value(&all, "sysbench fileio", "latency, maximum", TIME),
        0.01355,
    );
    // Neither says which test it is: threads counts events, mutex is a time.
    let both = format!(
        "{}{}",
        output("sysbench-threads.txt"),
        output("sysbench-mutex.txt")
    );
    let all = figures(&both);
    close(value(&all, "sysbench", "events", RATE), 2361.0 / 1.0002);
    close(value(&all, "sysbench", "total time", TIME), 0.0119);
    close(value(&all, "sysbench", "latency, mean (2)", TIME), 0.00276);
}

#[test]
fn sysbench_1_1() {
    let all = figures(&output("sysbench-1.1.txt"));
    close(value(&all, "sysbench fileio", "reads", RATE), 3000.5);
    close(value(&all, "sysbench fileio", "read", BANDWIDTH), 46.88);
    close(value(&all, "sysbench fileio", "fsyncs", RATE), 6400.0);
    close(value(&all, "sysbench cpu", "events", RATE), 114.0161);
}

#[test]
fn fio_and_hyperfine_among_other_text() {
    let text = format!(
        "{{ no JSON\nfio: a warning\n{}\n{{\n{}\n",
        output("fio.json"),
        output("hyperfine.json")
    );
    let all = figures(&text);
    close(value(&all, "fio probe", "reads", RATE), 6655.344655);
    close(
        value(&all, "fio probe", "read rate", BANDWIDTH),
        26_621.0 / 1024.0,
    );
    close(
        value(&all, "fio probe", "read latency, mean", TIME),
        109_237.532_423e-9,
    );
    close(
        value(&all, "fio probe", "read latency, p99", TIME),
        387_072e-9,
    );
    assert!(!all.iter().any(|p| p.name.starts_with("trim")), "{all:#?}");
    close(
        value(&all, "hyperfine true", "mean", TIME),
        0.0023599040000000003,
    );
    close(value(&all, "hyperfine true", "median", TIME), 0.001000763);
}

#[test]
fn bonnie() {
    let all = figures(&output("bonnie.csv"));
    close(
        value(&all, "Bonnie++", "block write", BANDWIDTH),
        205_435.0 / 1024.0,
    );
    close(
        value(&all, "Bonnie++", "rewrite", BANDWIDTH),
        981_554.0 / 1024.0,
    );
    close(value(&all, "Bonnie++", "creates, in order", RATE), 20_151.0);
    // What was too fast has no figure, and what was not done neither.
    assert_eq!(all.len(), 3, "{all:#?}");
    let whole = "1.97,1.97,host,1,1300000000,300M,,100,99,2000,20,3000,30,400,99,5000,50,600.5,60,16,,,,,701,7,802,8,903,9,\
                 1004,10,1105,11,1206,12,1us,2us,3us,4us,5us,6us,7us,8us,9us,10us,11us,12us";
    let all = figures(whole);
    close(
        value(&all, "Bonnie++", "block write", BANDWIDTH),
        2000.0 / 1024.0,
    );
    close(value(&all, "Bonnie++", "random seeks", RATE), 600.5);
    close(value(&all, "Bonnie++", "creates, in order", RATE), 701.0);
    close(value(&all, "Bonnie++", "deletes, at random", RATE), 1206.0);
}

#[test]
fn pgbench_perf_and_stress_ng() {
    let all = figures(&output("pgbench.txt"));
    close(value(&all, "pgbench", "transactions", RATE), 209.983831);
    close(value(&all, "pgbench", "latency, mean", TIME), 0.004762);
    let all = figures(&output("perf.txt"));
    close(
        value(&all, "perf bench sched/pipe", "an operation", TIME),
        6.760850e-6,
    );
    close(
        value(&all, "perf bench sched/pipe", "operations", RATE),
        147_910.0,
    );
    close(
        value(&all, "perf bench mem/memcpy", "moved", BANDWIDTH),
        22.194602 * 1024.0,
    );
    close(
        value(&all, "perf bench mem/memcpy", "moved (4)", BANDWIDTH),
        27.126736 * 1024.0,
    );
    close(
        value(&all, "perf bench futex/hash", "operations", RATE),
        1_496_576.0,
    );
    let all = figures(&output("stress-ng.yaml"));
    close(
        value(&all, "stress-ng", "cpu, by wall time", RATE),
        566.516416,
    );
    close(
        value(&all, "stress-ng", "matrix, by CPU time", RATE),
        4807.268237,
    );
}

#[test]
fn other_text_has_no_figures() {
    for text in [
        "",
        "hello\n",
        "{\"results\": [1, 2]}\n",
        "total time: 3s\nevents per second: 4\n",
        "sysbench 0.4.12: old\n    total time: 1s\n",
    ] {
        assert_eq!(figures(text), [], "{text}");
    }
}

#[test]
fn a_text_of_nothing_but_beginnings_takes_no_time() {
    let nested = "{\"jobs\":[\n".repeat(100_000);
    // Of this thread alone: other load does not count.
    let spent = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime).tv_sec;
    let before = spent();
    assert_eq!(figures(&nested), []);
    let many = "{\"command\":\"x\",\"mean\":1},\n".repeat(20_000);
    assert_eq!(figures(&format!("{{\"results\":[\n{many}")), []);
    assert_eq!(
        figures(&format!(
            "{{\"results\":[\n{many}{{\"command\":\"x\",\"mean\":1}}]}}"
        ))
        .len(),
        200
    );
    assert!(spent() - before < 5, "{} s", spent() - before);
}

proptest! {
    #[test]
    fn any_output_is_survived(
        pieces in proptest::collection::vec((0_usize..10, any::<prop::sample::Index>(), "\\PC{0,20}"), 0..8)
    ) {
        const ALL: [&str; 10] = ["sysbench-cpu.txt", "sysbench-1.1.txt", "sysbench-memory.txt", "sysbench-fileio.txt", "fio.json",
            "hyperfine.json", "bonnie.csv", "pgbench.txt", "perf.txt", "stress-ng.yaml"];
        let mut text = String::new();
        for (which, cut, noise) in pieces {
            let whole = output(ALL[which]);
            let lines: Vec<&str> = whole.lines().collect();
            text += &lines[..=cut.index(lines.len())].join("\n");
            text += &noise;
        }
        let all = figures(&text);
        for (i, figure) in all.iter().enumerate() {
            prop_assert!(figure.value.is_finite() && figure.name.chars().count() <= 50 && figure.of.chars().count() <= 40);
            prop_assert!(!figure.name.chars().any(char::is_control));
            prop_assert!(!all[..i].iter().any(|other| other.is_like(figure)));
        }
    }
}
