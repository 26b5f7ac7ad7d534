//! The main job on a real guest: what comes out of `vmtax run`, and what can be done with it.

use crate::common::{
    Place, Signal, binary, copy, files_below, json, kernel, shared_recording, skipped, terminal,
    trials,
};
use serde_json::Value;
use std::fs;
use std::io::Read;
use std::path::PathBuf;
use vmtax_model::{Metric, WorkloadName};

const ROUNDS: u64 = 6;

/// One run of everything, small, that the tests here check from all sides.
struct Run {
    /// Report that `--json` printed.
    report: Value,
    recording: PathBuf,
}

fn shared_run() -> Run {
    let folder = shared_recording("run", binary(), |folder| {
        let place = Place::new();
        let options = "cpu.time=0.1 cpu.max-prime=1500 threads.threads=4 threads.time=0.1 mutex.locks=50 \
            mutex.loops=100 memory.total-size=4M fileio.total-size=2M fileio.num=4 fileio.time=0.1 \
            syscalls.time=0.003 disk.time=0.1";
        let run = place
            .run(options)
            .words("--quick --machine native,tcg --rounds 6 --json")
            .start(200);
        fs::write(folder.join("report.json"), run.outcome().exits(0).stdout).unwrap();
        copy(&place.recording(), &folder.join("recording"));
    });
    let report = json(&fs::read_to_string(folder.join("report.json")).unwrap());
    Run {
        report,
        recording: folder.join("recording"),
    }
}

/// Returns the number of workloads of a run that names none.
fn workloads() -> usize {
    WorkloadName::usual().count()
}

/// The metrics of those.
fn metrics() -> impl Iterator<Item = Metric> {
    Metric::ALL
        .iter()
        .copied()
        .filter(|m| WorkloadName::usual().any(|w| w == m.workload()))
}

impl Run {
    /// A copy of the recording: nothing but its files survives.
    fn copied(&self, place: &Place) -> PathBuf {
        let folder = place.path("runs/copy");
        copy(&self.recording, &folder);
        folder
    }

    fn column<'a>(&'a self, metric: Metric, machine: &str) -> &'a Value {
        let rows = self.report["findings"]["rows"].as_array().unwrap();
        let row = rows
            .iter()
            .find(|row| row["metric"] == metric.id())
            .unwrap_or_else(|| panic!("no row of {metric}"));
        let columns = row["machines"].as_array().unwrap();
        columns
            .iter()
            .find(|c| c["machine"] == machine)
            .unwrap_or_else(|| panic!("no {machine} for {metric}"))
    }

    fn median(&self, metric: Metric, machine: &str) -> f64 {
        self.column(metric, machine)["spread"]["median"]
            .as_f64()
            .unwrap_or_else(|| panic!("no {metric} on {machine}"))
    }
}

#[test]
fn every_metric_has_figures_on_both_machines_and_an_overhead_with_an_interval() {
    let run = shared_run();
    for metric in metrics() {
        for machine in ["native", "tcg"] {
            let spread = &run.column(metric, machine)["spread"];
            assert_eq!(spread["n"], ROUNDS, "{metric} on {machine}: {spread}");
            assert!(run.median(metric, machine) > 0.0, "{metric} on {machine}");
        }
        assert!(
            run.column(metric, "native")["overhead"].is_null(),
            "{metric}: native pays no overhead"
        );
        let ratio = &run.column(metric, "tcg")["overhead"]["ratio"];
        let figure = |value: &Value| {
            value
                .as_f64()
                .unwrap_or_else(|| panic!("{metric}: {ratio}"))
        };
        let [low, median, high] = [
            &ratio["interval"]["low"],
            &ratio["median"],
            &ratio["interval"]["high"],
        ]
        .map(figure);
        assert!(
            0.0 < low && low <= median && median <= high && high.is_finite(),
            "{metric}: {ratio}"
        );
        assert!(
            figure(&ratio["interval"]["coverage"]) >= 0.95,
            "{metric}: {ratio}"
        );
    }
}

#[test]
fn translation_is_found_slower_than_the_cpu_itself() {
    let run = shared_run();
    // Medians: with totals this small, on a loaded machine, an interval may well hold "no difference".
    for metric in [
        Metric::CpuEvents,
        Metric::SyscallGetpid,
        Metric::SyscallFork,
        Metric::DiskMedian,
    ] {
        let overhead = &run.column(metric, "tcg")["overhead"];
        assert!(
            overhead["ratio"]["median"].as_f64().unwrap() > 1.1,
            "{metric}: {overhead}"
        );
        assert_ne!(overhead["verdict"], "faster", "{metric}: {overhead}");
    }
    let (native, guest) = (
        run.median(Metric::DiskMedian, "native"),
        run.median(Metric::DiskMedian, "tcg"),
    );
    assert!(
        guest > native,
        "disk: {guest} ns in the guest, {native} ns natively"
    );
    let costs = |metric: &Metric| run.column(*metric, "tcg")["overhead"]["verdict"] == "slower";
    assert!(
        metrics().filter(costs).count() > metrics().count() / 2,
        "most overheads are lost in the noise"
    );
}

#[test]
fn rounds_interleave_the_machines_and_every_trial_is_there() {
    let run = shared_run();
    let trials = trials(&run.report);
    assert_eq!(trials.len() as u64, ROUNDS * 2 * workloads() as u64);
    for (number, trial) in trials.iter().enumerate() {
        assert_eq!(trial["number"], number);
        assert_eq!(trial["round"], number / (2 * workloads()));
        assert_eq!(trial["outcome"], "done", "{trial}");
    }
    let first = |round: usize| &trials[round * 2 * workloads()]["machine"];
    assert!(
        (1..ROUNDS as usize).any(|round| first(round) != first(0)),
        "always {} first",
        first(0)
    );
}

#[test]
fn options_took_effect_as_asked_and_defaults_are_stated() {
    let run = shared_run();
    for trial in trials(&run.report)
        .iter()
        .filter(|t| t["workload"]["name"] == "cpu")
    {
        let options = &trial["result"]["workload"]["options"];
        assert_eq!(options["max-prime"], "1500");
        assert_eq!(options["threads"], "1");
        let total = trial["result"]["total_s"].as_f64().unwrap();
        assert!(
            (0.09..5.0).contains(&total),
            "asked for 0.1 s, took {total}"
        );
    }
    for trial in trials(&run.report)
        .iter()
        .filter(|t| t["workload"]["name"] == "threads")
    {
        assert_eq!(trial["result"]["fairness"]["threads"], 4);
    }
}

#[test]
fn each_machine_tells_its_own_kernel() {
    let run = shared_run();
    let host = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    for trial in trials(&run.report) {
        let release = trial["result"]["kernel"]["release"].as_str().unwrap();
        let expected = if trial["machine"] == "tcg" {
            kernel().release.as_str()
        } else {
            host.trim()
        };
        assert_eq!(release, expected);
    }
}

#[test]
fn latencies_are_distributions_that_fit_their_figures() {
    let run = shared_run();
    let mut seen = 0;
    for trial in trials(&run.report)
        .iter()
        .filter(|t| t["workload"]["name"] == "disk")
    {
        let result = &trial["result"];
        let summary = &result["operations"][0]["summary"];
        let [min, p50, p99, max, count] = ["min_ns", "p50_ns", "p99_ns", "max_ns", "count"]
            .map(|name| summary[name].as_f64().unwrap());
        assert!(
            0.0 < min && min <= p50 && p50 <= p99 && p99 <= max,
            "{summary}"
        );
        let rate = result["measures"]
            .as_array()
            .unwrap()
            .iter()
            .find(|m| m["metric"] == Metric::DiskRate.id());
        let reads = rate.unwrap()["value"].as_f64().unwrap() * result["total_s"].as_f64().unwrap();
        assert!(
            (reads / count - 1.0).abs() < 0.02,
            "{reads} reads by the rate, {count} timed"
        );
        seen += 1;
    }
    assert_eq!(seen, ROUNDS * 2);
}

#[test]
fn the_html_is_there_and_needs_nothing_else() {
    let html = fs::read_to_string(shared_run().recording.join("report.html")).unwrap();
    assert!(html.starts_with("<!DOCTYPE html>") && html.trim_end().ends_with("</html>"));
    for outside in [
        "src=\"http",
        "src=\"/",
        "<link",
        "@import",
        "url(http",
        "<iframe",
    ] {
        assert!(!html.contains(outside), "{outside}");
    }
    for metric in metrics() {
        assert!(html.contains(metric.label()), "{metric}");
    }
    assert!(html.contains("<svg"));
}

#[test]
fn the_files_alone_give_the_same_report_again() {
    let run = shared_run();
    let place = Place::new();
    let folder = run.copied(&place);
    fs::remove_file(folder.join("report.html")).unwrap();
    let again = json(&place.vmtax("report --json").arg(&folder).succeeds().stdout);
    for part in ["manifest", "plan", "host", "findings", "trials", "damaged"] {
        assert!(again[part] == run.report[part], "{part} is another one");
    }
    place.vmtax("report").arg(&folder).succeeds();
    assert!(
        !folder.join("report.html").exists(),
        "a report that is printed writes no file: a recording may be read-only"
    );
    let page = place.path("page.html");
    place.vmtax("report -o").arg(&page).arg(&folder).succeeds();
    let html = fs::read(page).unwrap();
    assert!(html.len() > 10_000, "{} bytes", html.len());
    place
        .vmtax("report --details")
        .arg(&folder)
        .succeeds()
        .shows("events per second");
}

#[test]
fn the_list_names_it() {
    let run = shared_run();
    let place = Place::new();
    let folder = run.copied(&place);
    let line = place
        .vmtax("list")
        .succeeds()
        .shows("overhead quick · native, tcg · ");
    assert!(
        line.stdout.contains("runs/copy") && !line.stdout.contains("unfinished"),
        "{line}"
    );
    let listed = json(
        &place
            .vmtax("list --json --dir")
            .arg(folder.parent().unwrap())
            .succeeds()
            .stdout,
    );
    assert_eq!(listed.as_array().unwrap().len(), 1);
}

#[test]
fn the_table_fits_the_terminal() {
    let run = shared_run();
    let place = Place::new();
    let folder = run.copied(&place);
    for columns in [80, 132] {
        let (mut ours, theirs) = terminal(columns);
        let run = place
            .vmtax("report")
            .arg(&folder)
            .env("NO_COLOR", "1")
            .stdout(theirs)
            .start(30);
        // A terminal holds only so much unread. Its end is an error (EIO) to the reader.
        let mut text = Vec::new();
        let _ = ours.read_to_end(&mut text);
        run.outcome().exits(0);
        let text = String::from_utf8(text).unwrap();
        assert!(
            text.contains("fork+exec+wait") && text.contains("95 %"),
            "{text}"
        );
        for line in text.lines().filter(|line| !line.starts_with("Report: ")) {
            assert!(
                line.trim_end().chars().count() <= usize::from(columns),
                "over {columns}: {line}"
            );
        }
    }
}

#[test]
fn a_plan_that_was_printed_runs_again_and_means_the_same() {
    let place = Place::new();
    let words = "cpu syscalls cpu.time=0.05 syscalls.only=getpid syscalls.time=0.01 --machine native --rounds 2 \
        --seed 5 --memory 256";
    let plan = place.vmtax("run --dry-run").words(words).succeeds().stdout;
    assert!(!place.runs().exists(), "a dry run left a recording");
    place.put("plan.toml", &plan);
    assert_eq!(
        place.vmtax("run plan.toml --dry-run").succeeds().stdout,
        plan
    );
    // Into ./runs, as without --dir.
    let report = json(&place.vmtax("run ./plan.toml --json").succeeds().stdout);
    assert_eq!(report["plan"]["rounds"], 2);
    assert_eq!(trials(&report).len(), 4);
    assert_eq!(
        fs::read_to_string(place.recording().join("plan.toml")).unwrap(),
        plan
    );
}

#[test]
fn below_six_rounds_no_interval_is_claimed() {
    let place = Place::new();
    let run = place
        .run("cpu cpu.time=0.05 --machine native,tcg --rounds 2 --json --cpus 2 --memory 512")
        .succeeds();
    let overhead = &json(&run.stdout)["findings"]["rows"][0]["machines"][1]["overhead"];
    assert!(
        overhead["ratio"]["median"].as_f64().unwrap() > 1.0,
        "{overhead}"
    );
    assert!(overhead["ratio"]["interval"].is_null(), "{overhead}");
    assert_eq!(overhead["verdict"], "too-few-rounds");
    // The guest has the CPUs and the memory asked for; over virtio-serial it speaks, and not over its kernel's console.
    let files = files_below(&place.recording().join("turns"));
    let of_guests = |name: &str| -> Vec<_> {
        let named = files.iter().filter(|file| file.ends_with(name));
        named.map(|file| fs::read(file).unwrap()).collect()
    };
    let (commands, logs) = (of_guests("qemu.command"), of_guests("console.log"));
    assert_eq!((commands.len(), logs.len()), (2, 2), "{files:?}");
    for command in commands {
        let command = String::from_utf8(command).unwrap();
        assert!(command.contains("-smp 2 -m 512M"), "{command}");
    }
    for log in logs {
        assert!(!log.windows(4).any(|bytes| bytes == b"VMTX"));
    }
}

#[test]
fn a_native_trial_has_the_guests_cpus_and_memory() {
    const TEST: &str = "threads cpu cpu.time=0.05 threads.time=40 --machine native --rounds 1 --cpus 1 --memory 384";
    let place = Place::new();
    // Workloads run in the order named: the first is under way when its process is there.
    let mut run = place.run(TEST).start(60);
    let agent = run.until("a workload's process", |place| {
        place
            .processes()
            .into_iter()
            .find(|p| p.command.contains("agent run threads") && p.status("Threads") != "1")
    });
    let allowed = agent.status("Cpus_allowed_list");
    assert!(allowed.parse::<u32>().is_ok(), "it may use CPUs {allowed}");
    let groups = place.groups();
    let own_group = fs::read_to_string(format!("/proc/{}/cgroup", agent.pid)).unwrap();
    run.signal(Signal::INT);
    run.outcome().exits(130);
    let group = match groups.as_slice() {
        [group] => group,
        [] => {
            // No right to make one: then the reader is told.
            let report = json(
                &place
                    .vmtax("report --json")
                    .arg(place.recording())
                    .succeeds()
                    .stdout,
            );
            assert!(
                report["trials"][0]["warnings"]
                    .to_string()
                    .contains("no-memory-limit"),
                "{report}"
            );
            return;
        }
        more => panic!("{more:?}"),
    };
    assert!(
        own_group.contains(group.file_name().unwrap().to_str().unwrap()),
        "{own_group}"
    );
}

#[test]
fn memory_beyond_the_limit_is_not_to_be_had_natively() {
    let place = Place::new();
    let plan = "memory memory.block-size=300M memory.total-size=600M --machine native --rounds 1 --memory 128";
    let run = place.run(plan).outcome();
    let report = json(
        &place
            .vmtax("report --json")
            .arg(place.recording())
            .succeeds()
            .stdout,
    );
    let trial = &trials(&report)[0];
    if trial["warnings"].to_string().contains("no-memory-limit") {
        skipped("no right to limit memory here");
        return;
    }
    assert_eq!(trial["outcome"], "failed", "{trial}");
    run.exits(2).says("--memory");
}
