//! The ground truth: a known delay, planted in one layer of a real guest's way to its disk, is found there and nowhere
//! else.

use crate::common::{DELAY_MS, LIMIT_MS, Place, binary, json, planting_qemu, shared_recording};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;

const DELAY: f64 = DELAY_MS as f64 * 1e6;
/// Requests a second that QEMU lets through: a twentieth of a second each.
const LIMIT: &str = "20";
const ROUNDS: u64 = 1;
const REQUESTS: u64 = 40;

/// Planted delays, by the name of the variant, with the disk's settings.
const PLANTS: [(&str, &str); 10] = [
    ("nothing", "aio = 'threads'"),
    (
        "throttled",
        "aio = 'threads', 'throttling.iops-total' = LIMIT",
    ),
    ("slow-disk", "driver = 'null-co', latency-ns = DELAY"),
    ("before", "aio = 'threads', x-planted = 'before'"),
    ("after", "aio = 'threads', x-planted = 'after'"),
    ("kick", "aio = 'threads', x-planted = 'kick'"),
    ("interrupt", "aio = 'threads', x-planted = 'interrupt'"),
    ("starve", "aio = 'threads', x-planted = 'starve'"),
    ("guest-limit", "aio = 'threads', x-planted = 'guest-limit'"),
    ("guest-hog", "aio = 'threads', x-planted = 'guest-hog'"),
];

/// A run with all of them: what `--json` printed. A test that is run again, since other load of the host may strike the same
/// requests as a plant, has a new one.
fn measured() -> Value {
    let attempt = std::env::var("NEXTEST_ATTEMPT").unwrap_or_default();
    let folder = shared_recording(&format!("planted{attempt}"), binary(), |folder| {
        let place = Place::new();
        let (qemu, _hog) = planting_qemu(&place);
        let mut plan = format!(
            "rounds = {ROUNDS}\nmachines = ['tcg']\nprobes = ['layers']\n[guest]\nqemu = '{}'\n[[workload]]\n\
             name = 'disk'\noptions = {{ count = {REQUESTS}, time = 0 }}\n",
            qemu.display()
        );
        for (name, set) in PLANTS {
            let set = set
                .replace("LIMIT", &format!("'{LIMIT}'"))
                .replace("DELAY", &format!("'{DELAY}'"));
            plan += &format!("[[variant]]\nname = '{name}'\nset = {{ {set} }}\n");
        }
        let plan = place.put("plan.toml", plan);
        let run = place
            .vmtax("layers --json --dir")
            .arg(place.runs())
            .arg(plan);
        fs::write(
            folder.join("report.json"),
            run.start(400).outcome().exits(0).stdout,
        )
        .unwrap();
    });
    json(&fs::read_to_string(folder.join("report.json")).unwrap())
}

/// Fails with what `is_found` says of the run.
fn found(is_found: impl Fn(&Value) -> Result<(), String>) {
    is_found(&measured()).unwrap_or_else(|why| panic!("{why}"));
}

/// Of what a row's time is told: the median is not moved by a few requests that other load of the host struck; the mean
/// adds up where a delay strikes now in this row, now in that.
const MEASURES: [&str; 2] = ["p50_ns", "mean_ns"];

/// A variant's time by `layer/state`, ns.
fn times(report: &Value, variant: &str, measure: &str) -> BTreeMap<String, f64> {
    let columns = report["findings"]["columns"].as_array().unwrap();
    let column = columns
        .iter()
        .find(|c| c["variant"] == variant)
        .unwrap_or_else(|| panic!("no column {variant}"));
    let matched = &column["matched"];
    assert_eq!(
        matched["operations"],
        ROUNDS * REQUESTS,
        "{variant}: {matched}"
    );
    assert!(
        matched["joined"].as_u64() >= Some(ROUNDS * REQUESTS * 9 / 10),
        "{variant}: {matched}"
    );
    let mut times = BTreeMap::from([(
        "unexplained".to_owned(),
        column["unexplained_ns"].as_f64().unwrap(),
    )]);
    for row in column["rows"].as_array().unwrap() {
        let key = format!(
            "{}/{}",
            row["layer"].as_str().unwrap(),
            row["state"].as_str().unwrap()
        );
        *times.entry(key).or_default() += row["time"][measure].as_f64().unwrap();
    }
    times
}

/// Returns the median duration of an operation, ns.
fn total(report: &Value, variant: &str) -> f64 {
    let columns = report["findings"]["columns"].as_array().unwrap();
    let column = columns.iter().find(|c| c["variant"] == variant).unwrap();
    column["traced"]["p50_ns"].as_f64().unwrap()
}

/// Returns the growth of a variant's times over those without a delay, by `layer/state`, ns.
fn grown(report: &Value, variant: &str, measure: &str) -> BTreeMap<String, f64> {
    let mut grown = times(report, variant, measure);
    for (key, ns) in times(report, "nothing", measure) {
        *grown.entry(key).or_default() -= ns;
    }
    grown
}

/// A variant adds `delay` ns within a tenth where `place` is, which is a layer, a state, or both, and not more than a
/// tenth of it anywhere else.
fn lies(report: &Value, variant: &str, place: &str, delay: f64) -> Result<(), String> {
    let tenth = delay / 10.0;
    // A limit lets one request through in so long: what its own way takes of that, it does not wait. On a busy machine that
    // is a third.
    let short = if variant.ends_with("limit") || variant == "throttled" {
        delay * 0.35
    } else {
        tenth
    };
    let tries = MEASURES.map(|measure| {
        let grown = grown(report, variant, measure);
        let is_there = |key: &str| key == place || key.split('/').any(|part| part == place);
        let there: f64 = grown
            .iter()
            .filter(|(key, _)| is_there(key))
            .map(|(_, ns)| ns)
            .sum();
        let found = (delay - short..=delay + tenth).contains(&there)
            && grown
                .iter()
                .all(|(key, ns)| is_there(key) || ns.abs() <= tenth);
        (
            found,
            format!("{measure}: {there:.0} in {place} of {grown:#.0?}"),
        )
    });
    if tries.iter().any(|(found, _)| *found) {
        return Ok(());
    }
    Err(format!(
        "{delay:.0} ns as {variant}\n{}\n{}",
        tries[0].1, tries[1].1
    ))
}

/// Checks the delay that a rate limit adds: a request takes as long as the limit allows, however long it took before.
fn waits_for(report: &Value, variant: &str, place: &str, period: f64) -> Result<(), String> {
    let (plain, limited) = (total(report, "nothing"), total(report, variant));
    if (limited - period).abs() > period / 10.0 {
        return Err(format!("{variant}: {limited} ns, not {period}"));
    }
    lies(report, variant, place, period - plain)
}

#[test]
#[ignore = "needs root"]
fn qemus_throttling_is_found_in_qemu() {
    found(|run| {
        waits_for(
            run,
            "throttled",
            "qemu/waiting",
            1e9 / LIMIT.parse::<f64>().unwrap(),
        )
    });
}

#[test]
#[ignore = "needs root"]
fn a_slow_back_end_is_found_below_qemus_block_layer() {
    found(|run| lies(run, "slow-disk", "host-kernel/waiting", DELAY));
}

#[test]
#[ignore = "needs root"]
fn a_worker_that_sleeps_before_its_system_call_is_found_in_qemu() {
    found(|run| lies(run, "before", "qemu/waiting", DELAY));
}

#[test]
#[ignore = "needs root"]
fn a_worker_that_is_late_to_tell_is_found_between_the_disk_and_the_event_loop() {
    found(|run| lies(run, "after", "host-kernel/waiting", DELAY));
}

#[test]
#[ignore = "needs root"]
fn a_late_notification_is_found_between_guest_and_event_loop() {
    // In which state is chance: the event loop may wake for a timer, and then waits for QEMU's lock.
    found(|run| lies(run, "kick", "notify", DELAY));
}

#[test]
#[ignore = "needs root"]
fn a_late_interrupt_is_found_on_its_way_to_the_guest() {
    found(|run| lies(run, "interrupt", "interrupt", DELAY));
}

#[test]
#[ignore = "needs root"]
fn an_event_loop_without_a_cpu_is_runnable_and_nothing_else() {
    found(|run| lies(run, "starve", "runnable", DELAY));
}

#[test]
#[ignore = "needs root"]
fn a_limit_of_the_guests_block_layer_is_found_in_the_guests_kernel() {
    found(|run| {
        waits_for(
            run,
            "guest-limit",
            "guest-kernel/waiting",
            LIMIT_MS as f64 * 1e6,
        )
    });
}

#[test]
#[ignore = "needs root"]
fn a_task_that_takes_the_guests_cpu_is_found_as_such() {
    let delay = LIMIT_MS as f64 * 1e6;
    found(|run| {
        lies(run, "guest-hog", "guest-kernel", delay)?;
        // While the hog waits for the host, for a CPU or for QEMU's lock, the workload's task waits for that too; and
        // an interrupt whose work is left to a task of the kernel's waits as long, and the workload's task for it.
        let grown = grown(run, "guest-hog", "mean_ns");
        let runnable = grown
            .get("guest-kernel/guest-runnable")
            .copied()
            .unwrap_or_default();
        if runnable > delay / 5.0 {
            Ok(())
        } else {
            Err(format!("{grown:#.0?}"))
        }
    });
}
