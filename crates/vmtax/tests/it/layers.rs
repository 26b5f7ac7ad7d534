//! Requests followed through the layers, and exits by kind, on real guests; and the host around them: other disks, missing rights,
//! other people's traces, and a sudden end.

use crate::common::{
    Place, Signal, fake_qemu, files_below, is_root, json, kernel, layers_plan, not_joined, number,
    qemu, traces_of, tracing, wrapped_qemu,
};
use serde_json::Value;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;

fn column<'a>(report: &'a Value, machine: &str) -> &'a Value {
    let columns = report["findings"]["columns"].as_array().unwrap();
    columns
        .iter()
        .find(|c| c["machine"] == machine)
        .unwrap_or_else(|| panic!("no column {machine}"))
}

/// Each nanosecond is in one row or unexplained, and each request is followed or counted.
fn closes(column: &Value, operations: u64) {
    let rows = column["rows"].as_array().unwrap();
    let sum: f64 = rows.iter().map(|row| number(&row["time"]["mean_ns"])).sum();
    let (traced, unexplained) = (
        number(&column["traced"]["mean_ns"]),
        number(&column["unexplained_ns"]),
    );
    // The workload's own mean is of a histogram of three digits.
    assert!(
        (sum + unexplained - traced).abs() < 0.002 * traced,
        "{sum} + {unexplained} of {traced}"
    );
    let matched = &column["matched"];
    assert_eq!(matched["operations"], operations);
    assert_eq!(
        matched["joined"].as_u64().unwrap() + not_joined(matched),
        operations,
        "{matched}"
    );
    assert!(
        number(&matched["joined"]) >= 0.99 * operations as f64,
        "{matched}"
    );
    assert_eq!(column["clock"]["violations"], 0);
}

/// The cost of the events was calibrated on these sides and comes off the rows, whose sum is the corrected total.
pub fn is_corrected(column: &Value, sides: &[&str]) {
    let corrected = &column["corrected"];
    let costs = corrected["costs"]
        .as_array()
        .unwrap_or_else(|| panic!("not calibrated: {column:#}"));
    for side in ["guest", "host"] {
        let of_side: Vec<&Value> = costs.iter().filter(|cost| cost["side"] == side).collect();
        assert_eq!(
            !of_side.is_empty(),
            sides.contains(&side),
            "{side}: {costs:?}"
        );
        let measured = |kind: &str| {
            of_side
                .iter()
                .any(|cost| cost["kind"] == kind && number(&cost["repetitions"]) > 2.0)
        };
        assert!(
            of_side.is_empty() || ["call", "schedule", "tracepoint"].into_iter().all(measured),
            "{side}: {of_side:?}"
        );
    }
    let rows = column["rows"].as_array().unwrap();
    for row in rows {
        let (mean, less) = (
            number(&row["time"]["mean_ns"]),
            number(&row["corrected_ns"]),
        );
        assert!((0.0..=mean + 0.01).contains(&(less + 0.005)), "{row}");
    }
    let sum: f64 = rows.iter().map(|row| number(&row["corrected_ns"])).sum();
    let (total, unexplained) = (
        number(&corrected["total"]["mean_ns"]),
        number(&corrected["unexplained_ns"]),
    );
    assert!(
        (sum + unexplained - total).abs() < 0.001 * total,
        "{sum} + {unexplained} of {total}"
    );
    assert!(total <= number(&column["traced"]["mean_ns"]));
    // A request passes a dozen checkpoints on the host alone.
    assert!(
        number(&corrected["events"]) > 10.0,
        "{}",
        corrected["events"]
    );
}

#[test]
fn requests_are_followed_beside_their_control_the_bare_host_and_the_floor() {
    kernel();
    let place = Place::new();
    let run = place
        .vmtax("layers count=200 --rounds 1 --machine tcg,micro-tcg --json --dir")
        .arg(place.runs());
    let report = json(&run.start(180).outcome().exits(0).stdout);
    for machine in ["tcg", "micro-tcg"] {
        let column = column(&report, machine);
        assert!(
            number(&column["control"]["p50_ns"]) > 0.0,
            "{machine} has no control"
        );
        if is_root() {
            closes(column, 400);
            is_corrected(
                column,
                if machine == "tcg" {
                    &["guest", "host"]
                } else {
                    &["host"]
                },
            );
        }
    }
    assert!(number(&report["findings"]["host"]["p50_ns"]) > 0.0);
    if is_root() {
        let layers: Vec<&Value> = column(&report, "tcg")["rows"]
            .as_array()
            .unwrap()
            .iter()
            .map(|r| &r["layer"])
            .collect();
        for layer in ["guest-kernel", "notify", "qemu", "device", "interrupt"] {
            assert!(
                layers.iter().any(|l| *l == layer),
                "no {layer} among {layers:?}"
            );
        }
    }
    let text = place
        .vmtax("report")
        .arg(place.recording())
        .succeeds()
        .stdout;
    assert!(
        text.contains("unexplained") && text.contains("Layers side by side"),
        "{text}"
    );
    assert!(!is_root() || text.contains("total, corrected"), "{text}");
    let (perfetto, parquet) = (place.path("trace.pftrace"), place.path("requests.parquet"));
    place
        .vmtax("export")
        .arg(place.recording())
        .arg("--perfetto")
        .arg(&perfetto)
        .arg("--parquet")
        .arg(&parquet)
        .succeeds();
    assert!(
        std::fs::read(&parquet).unwrap().starts_with(b"PAR1")
            && perfetto.metadata().unwrap().len() > 1000
    );
    // The dataset's table is the same file, in its place; here nothing is compared, as no figure is native.
    let export = |says: &str| {
        let export = place
            .vmtax("export --dataset")
            .arg(place.path("dataset"))
            .arg("--requests")
            .arg(place.recording());
        export.succeeds().says(says);
    };
    export("4 files written, 0 unchanged");
    let files = files_below(&place.path("dataset"));
    let requests = files
        .iter()
        .find(|file| file.starts_with(place.path("dataset/requests")))
        .unwrap();
    assert_eq!(
        std::fs::read(requests).unwrap(),
        std::fs::read(&parquet).unwrap()
    );
    export("0 files written, 4 unchanged");
}

#[test]
fn each_kind_of_exit_has_its_cost() {
    let place = Place::new();
    let run = place
        .vmtax("exits --machine micro-tcg --count 200 --rounds 1 --json --dir")
        .arg(place.runs());
    let report = json(&run.succeeds().stdout);
    let machine = &report["machines"][0];
    let kinds = machine["kinds"].as_array().unwrap();
    assert_eq!(kinds.len(), 13, "{kinds:?}");
    for kind in kinds.iter().chain([&machine["stamp"]]) {
        let [min, p50, p99, max] =
            ["min_ns", "p50_ns", "p99_ns", "max_ns"].map(|f| number(&kind[f]));
        assert!(
            min <= p50 && p50 <= p99 && p99 <= max && max > 0.0,
            "{kind}"
        );
    }
}

#[test]
fn what_cannot_be_followed_is_said() {
    let place = Place::new();
    let says = |words: &str, what: &str| {
        let said = place
            .vmtax(words)
            .start(60)
            .outcome()
            .exits(2)
            .stderr
            .clone();
        assert!(said.contains(what), "{words}: {said}");
    };
    says("layers --vary aio", "KEY=VALUE,VALUE");
    says("layers nonsense", "unknown workload 'nonsense'");
    says(
        "layers depth=8 --machine micro-tcg --dry-run-not",
        "--dry-run",
    );
    says("run exits", "micro-guest");
    says("export /nowhere", "--perfetto");
}

/// Long enough to be disturbed.
const MANY: u64 = 200_000;

#[test]
fn a_disk_that_is_not_virtio_is_refused() {
    kernel();
    let place = Place::new();
    let body = format!(
        "for word; do shift; case $word in virtio-blk-pci,id=disk-device,*) word=nvme${{word#virtio-blk-pci}} ;; esac; \
         set -- \"$@\" \"$word\"; done\nexec {} \"$@\"",
        qemu().display()
    );
    let plan = layers_plan(
        &place,
        10,
        &format!("[guest]\nqemu = '{}'", fake_qemu(&place, &body).display()),
    );
    let run = place.vmtax("layers --dir").arg(place.runs()).arg(plan);
    run.fails(&["the guest has no disk to observe"]);
}

#[test]
fn without_rights_the_guest_and_qemus_own_log_tell_and_what_is_missing_is_named() {
    let place = Place::new();
    let kernel = kernel().copy(&place, &[]);
    let run = place
        .vmtax_as_ordinary_user("layers count=60 --rounds 1 --machine tcg --json --dir")
        .arg(place.runs());
    let report = json(
        &run.words(&kernel.options())
            .env("HOME", place.path("home"))
            .succeeds()
            .stdout,
    );
    let column = &report["findings"]["columns"][0];
    let missing = column["missing"].as_array().unwrap();
    let named = missing
        .iter()
        .find(|m| m["what"] == "KVM, QEMU and the host's kernel")
        .expect("nothing is missing");
    assert!(
        named["fix"].as_str().unwrap().contains("as root"),
        "{named}"
    );
    let rows = column["rows"].as_array().unwrap();
    for layer in ["guest-kernel", "notify", "interrupt"] {
        assert!(
            rows.iter().any(|r| r["layer"] == layer),
            "no {layer} in {rows:?}"
        );
    }
    // Between QEMU's pop and its push, of which its log tells, lies all that the host's kernel did.
    assert!(
        rows.iter()
            .any(|r| r["from"] == "qemu-pop" && r["to"] == "qemu-push"),
        "{rows:?}"
    );
    let [joined, operations] =
        ["joined", "operations"].map(|f| column["matched"][f].as_u64().unwrap());
    // On a busy machine a line of the log may be stamped late: such requests are rejected, and counted.
    let rejected = not_joined(&column["matched"]);
    assert!(
        operations == 120 && joined + rejected == operations && joined * 2 >= operations,
        "{}",
        column["matched"]
    );
}

#[test]
fn a_guest_without_tracing_leaves_qemus_layers_and_is_named() {
    kernel();
    let place = Place::new();
    // A tracefs that is there already, but none: the guest's kernel has no place of that name to mount it on.
    let qemu = wrapped_qemu(
        &place,
        "-append 'console=ttyS0 panic=-1 no_timer_check cryptomgr.notests quiet lockdown=confidentiality'",
    );
    let plan = layers_plan(&place, 60, &format!("[guest]\nqemu = '{}'", qemu.display()));
    let run = place
        .vmtax("layers --json --dir")
        .arg(place.runs())
        .arg(plan);
    let report = json(&run.succeeds().stdout);
    let column = &report["findings"]["columns"][0];
    let missing = column["missing"].as_array().unwrap();
    let named = missing
        .iter()
        .find(|m| m["what"] == "the guest's kernel")
        .expect("nothing is missing");
    assert!(
        named["fix"].as_str().unwrap().contains("vmtax get kernel"),
        "{named}"
    );
    let matched = &column["matched"];
    // A late stamp in QEMU's log, which is all that an ordinary user has, rejects a request.
    let joined = matched["joined"].as_u64().unwrap();
    assert!(
        joined >= if is_root() { 60 } else { 30 } && joined + not_joined(matched) == 60,
        "{matched}"
    );
    let rows = column["rows"].as_array().unwrap();
    assert!(
        rows.iter().all(|r| r["layer"] != "guest-kernel"),
        "{rows:?}"
    );
    assert!(
        !is_root() || rows.iter().any(|r| r["layer"] == "device"),
        "{rows:?}"
    );
}

/// A trace of somebody else's: an instance that listens to a probe. Removed at the end.
struct Others {
    instance: PathBuf,
    group: String,
}

impl Others {
    fn begin() -> Others {
        let group = format!("another_{}", std::process::id());
        let instance = tracing().join("instances").join(&group);
        fs::create_dir(&instance).unwrap();
        let others = Others { instance, group };
        // In QEMU, too: where ours are, and never hit before the guest is up.
        others.define(&format!(
            "p:{}/probe {}:0x1000",
            others.group,
            qemu().canonicalize().unwrap().display()
        ));
        fs::write(
            others
                .instance
                .join(format!("events/{}/probe/enable", others.group)),
            "1",
        )
        .unwrap();
        fs::write(others.instance.join("trace_marker"), "somebody else's").unwrap();
        others
    }

    fn define(&self, line: &str) {
        let mut list = OpenOptions::new()
            .append(true)
            .open(tracing().join("uprobe_events"))
            .unwrap();
        let _ = list.write_all(line.as_bytes());
    }

    fn state(&self) -> [String; 5] {
        let read = |file: &str| fs::read_to_string(self.instance.join(file)).unwrap();
        let events = read("set_event");
        // Not from the list of all: a line is missing there while another test removes its probes.
        let own = read(&format!("events/{}/probe/format", self.group));
        let marks = read("trace")
            .lines()
            .filter(|line| line.contains("somebody else's"))
            .count();
        [
            events,
            own,
            read("tracing_on"),
            read("trace_clock"),
            marks.to_string(),
        ]
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.instance);
        self.define(&format!("-:{}/probe", self.group));
    }
}

#[test]
#[ignore = "needs root"]
fn traces_go_with_an_interrupt_and_with_the_next_run_and_others_stay() {
    kernel();
    let others = Others::begin();
    let before = others.state();
    assert!(
        before[0].contains("probe") && before[1].contains("name: probe") && before[4] == "1",
        "{before:?}"
    );
    for signal in [Signal::INT, Signal::KILL] {
        let place = Place::new();
        let plan = layers_plan(&place, MANY, "");
        let mut run = place
            .vmtax("layers --dir")
            .arg(place.runs())
            .arg(plan)
            .start(60);
        let pid = *place.started.borrow().last().unwrap();
        run.until("a trace", |_| (traces_of(pid).len() > 2).then_some(()));
        // The workload is under way once QEMU is busy with it; a moment after its probes are there.
        std::thread::sleep(std::time::Duration::from_millis(500));
        run.signal(signal);
        let outcome = run.outcome();
        if signal == Signal::INT {
            outcome.exits(130).says("interrupted");
            assert_eq!(traces_of(pid), [""; 0]);
        } else {
            assert!(!traces_of(pid).is_empty(), "nothing to sweep");
            place.nothing_is_left();
            let next = Place::new();
            next.run("cpu cpu.time=0.05 --machine native --rounds 1")
                .succeeds();
            assert_eq!(traces_of(pid), [""; 0]);
        }
        assert_eq!(others.state(), before);
    }
}

#[test]
fn nothing_observed_is_said() {
    let place = Place::new();
    let plan = layers_plan(&place, MANY, "timeout-s = 1");
    kernel();
    let outcome = place
        .vmtax("layers --dir")
        .arg(place.runs())
        .arg(plan)
        .outcome()
        .exits(2);
    let said: Vec<&str> = outcome.stderr.lines().collect();
    assert!(
        outcome.stderr.contains("had no result after 1 s") && outcome.stderr.contains("--timeout"),
        "{said:?}"
    );
    let listed: Value = json(&place.vmtax("list --json").succeeds().stdout);
    assert_eq!(listed.as_array().unwrap().len(), 1);
}
