//! The terminal report: fits the width, says what it must, obeys nothing that a guest sends.

#![allow(clippy::unwrap_used)]

mod common;

use common::{findings, recording, trial_mut};
use vmtax_model::{Advice, Findings, Interval, Machine, Metric, Outcome, Readiness, Remedy, Warning, WorkloadName};
use vmtax_report::{Style, doctor, overhead, plain_json, sysbench};

const ALL: &[Machine] = common::THREE;
const WITH_TCG: &[Machine] = &[Machine::NATIVE, Machine::TCG];

fn plain(width: usize) -> Style {
    Style { width, color: false }
}

/// Columns of a line without its colours.
fn columns(line: &str) -> usize {
    let mut visible = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once('\u{1b}') {
        visible.push_str(before);
        rest = after.split_once('m').unwrap().1;
    }
    textwrap::core::display_width(&format!("{visible}{rest}"))
}

fn assert_within(text: &str, width: usize) {
    for line in text.lines() {
        assert!(columns(line) <= width, "{} columns of {width}: {line}", columns(line));
        assert!(!line.ends_with(' '), "trailing space: {line:?}");
    }
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    for machines in [ALL, WITH_TCG, &ALL[..1], &ALL[1..]] {
        for rounds in [1, 3, 6] {
            let r = recording(machines, rounds);
            let f = findings(&r);
            let report = overhead::report(&r, &f);
            for width in [40, 60, 72, 80, 100, 120, 140, 200] {
                for color in [false, true] {
                    assert_within(&report.terminal(Style { width, color }, false), width);
                }
            }
        }
    }
}

#[test]
fn the_table_answers_with_medians_overheads_and_intervals() {
    let r = recording(WITH_TCG, 6);
    let f = findings(&r);
    let text = overhead::report(&r, &f).terminal(plain(80), false);
    for row in &f.rows {
        assert!(text.lines().any(|l| l.trim_start().starts_with(row.metric.label())), "{}\n{text}", row.metric);
    }
    for w in common::workloads() {
        assert!(text.lines().any(|l| l == w.as_str()), "{w}\n{text}");
    }
    let line = text.lines().find(|l| l.contains("cpu event rate")).unwrap();
    assert!(line.contains("k/s") && line.contains('×') && line.contains('–'), "{line}");
    assert!(text.contains("n = 6 rounds") && text.contains("Spread"), "{text}");
    assert!(text.contains("ENOSYS: futex"), "{text}");
    assert!(overhead::report(&r, &f).terminal(plain(200), false).contains("slower"));
}

#[test]
fn the_largest_overhead_of_the_answer_is_the_upper_end_of_its_range() {
    let r = recording(WITH_TCG, 6);
    let mut f = findings(&r);
    // The second has the larger median, and the lower end of its interval below that of the first.
    let intervals = [(5000.0, 4000.0, 6000.0), (6000.0, 2000.0, 9000.0)];
    for (row, (median, low, high)) in f.rows.iter_mut().zip(intervals) {
        let overhead = row.machines.iter_mut().find_map(|column| column.overhead.as_mut()).unwrap();
        overhead.ratio.median = median;
        overhead.ratio.interval = Some(Interval { low, high, coverage: 0.96 });
    }
    let largest = f.rows[1].metric.label();
    let answer = overhead::report(&r, &f).answer;
    assert!(answer.contains(&format!("; largest overhead: {largest}: ×6000 (95\u{a0}% CI ")), "{answer}");
}

#[test]
fn a_metric_without_a_ratio_says_why() {
    let r = recording(&[Machine::NATIVE, Machine::KVM], 6);
    let mut f = findings(&r);
    let text = |f: &Findings| overhead::report(&r, f).terminal(plain(200), false);
    assert!(!text(&f).contains("No ratio"));
    for column in &mut f.rows[0].machines {
        column.overhead = None;
        column.spread.as_mut().unwrap().values[0] = 0.0;
    }
    let said = format!("No ratio, because a round's value is 0: {}.", f.rows[0].metric.label());
    assert!(text(&f).contains(&said), "{}", text(&f));
}

#[test]
fn no_difference_is_never_a_winner() {
    let r = recording(&[Machine::NATIVE, Machine::KVM], 6);
    let mut f = findings(&r);
    f.rows.retain(|row| row.metric == Metric::SyscallClockVdso);
    let narrow = overhead::report(&r, &f).terminal(plain(80), false);
    assert!(narrow.contains("(×"), "{narrow}");
    assert!(narrow.split_whitespace().collect::<Vec<_>>().join(" ").contains("inconclusive"), "{narrow}");
    let wide = overhead::report(&r, &f).terminal(plain(140), false);
    assert!(wide.contains("inconclusive") && !wide.contains("faster"), "{wide}");
    let coloured = overhead::report(&r, &f).terminal(Style { width: 140, color: true }, false);
    let line = coloured.lines().find(|l| l.trim_start().starts_with("clock_gettime")).unwrap();
    let winner = ["31m", "32m", "33m"].iter().any(|colour| line.contains(colour));
    assert!(line.contains("\u{1b}[90m(×") && !winner, "{line:?}");
}

#[test]
fn below_six_rounds_there_is_no_interval_and_it_says_so() {
    let r = recording(ALL, 3);
    let text = overhead::report(&r, &findings(&r)).terminal(plain(140), false);
    assert!(!text.lines().nth(2).unwrap().contains("95 %"), "{text}");
    assert!(text.contains("n = 3 rounds (preliminary)") && text.matches("too few").count() == 0, "{text}");
    assert!(text.contains('×'), "{text}");
}

#[test]
fn colour_only_when_asked_for() {
    let r = recording(ALL, 6);
    let f = findings(&r);
    assert!(!overhead::report(&r, &f).terminal(plain(80), false).contains('\u{1b}'));
    assert!(overhead::report(&r, &f).terminal(Style { width: 80, color: true }, false).contains("\u{1b}["));
}

#[test]
fn at_most_five_pieces_of_advice_come_first_and_warnings_last() {
    let mut r = recording(WITH_TCG, 6);
    r.manifest.ended = None;
    r.damaged.push("trials/0007: not JSON".into());
    let mut f = findings(&r);
    f.advice = (0..9).map(|i| Advice { finding: format!("advice {i}"), ..Advice::default() }).collect();
    let text = overhead::report(&r, &f).terminal(plain(80), false);
    let at = |s: &str| text.find(s).unwrap_or_else(|| panic!("{s} is not in\n{text}"));
    assert!(at("Advice") < at("advice 4") && at("advice 4") < at("Compared with native"), "{text}");
    assert!(at("Compared with native") < at("Warnings") && at("Warnings") < at("cut off"), "{text}");
    assert!(at("cut off") < at("trials/0007") && at("trials/0007") < at("Method"), "{text}");
    assert!(!text.contains("advice 5"));
}

#[test]
fn hostile_strings_obey_the_terminal_and_not_the_other_way_round() {
    let hostile = format!("\u{1b}[2J\u{1b}]0;title\u{7}\r\u{9b}31m\u{202e}{}", "very-long-".repeat(60));
    let mut r = recording(WITH_TCG, 6);
    r.plan.name = hostile.clone();
    r.manifest.started = hostile.clone();
    r.host.cpu.model = hostile.clone();
    r.damaged.push(hostile.clone());
    trial_mut(&mut r, 0, Machine::TCG, WorkloadName::Cpu).outcome = Outcome::Failed { error: hostile.clone() };
    let mut f = findings(&r);
    f.rows[0].machines[1].unsupported = Some(hostile.clone());
    f.rows[0].machines[1].spread = None;
    f.warnings.push(Warning::PartialBoot { machine: Machine::KVM, complaint: hostile.clone() });
    f.advice.push(vmtax_model::Advice { finding: hostile.clone(), ..Default::default() });
    for check in &mut r.host.checks {
        check.subject = hostile.clone();
        check.found = hostile.clone();
        check.why = hostile.clone();
        check.remedies = vec![Remedy::instruction(hostile.clone())];
    }
    let harmless = |text: &str| {
        assert!(!text.chars().any(|c| (c.is_control() && c != '\n') || c == '\u{202e}'), "{text:?}");
    };
    for width in [40, 80, 140] {
        let texts =
            [overhead::report(&r, &f).terminal(plain(width), false), doctor(&r.host).terminal(plain(width), false)];
        for text in texts {
            harmless(&text);
            assert_within(&text, width);
        }
    }
    harmless(&sysbench(&r, None));
}

#[test]
fn nothing_measured_is_said() {
    let mut r = recording(WITH_TCG, 6);
    r.trials.clear();
    let mut f = findings(&r);
    f.rows.clear();
    assert!(overhead::report(&r, &f).terminal(plain(80), false).contains("No trial gave a value"));
    assert_eq!(sysbench(&r, None), "");
}

#[test]
fn sysbench_figures_for_one_trial_and_for_all() {
    let mut r = recording(WITH_TCG, 6);
    trial_mut(&mut r, 0, Machine::NATIVE, WorkloadName::Mutex).outcome =
        Outcome::Failed { error: "no memory: give the guest more".into() };
    let text = sysbench(&r, Some(0));
    for name in [
        "events per second:",
        "total time:",
        "number of events:",
        "95th",
        "sum, ms",
        "events (avg/stddev)",
        "execution time",
    ] {
        assert!(text.contains(name), "{name}\n{text}");
    }
    assert!(text.contains("376.4580/38.13") && text.contains("10.0144/0.01"), "{text}");
    let all = sysbench(&r, None);
    assert_eq!(all.matches("trial 0").count(), r.trials.len());
    for name in ["fsyncs/s:", "read, MiB/s:", "prepared, MiB/s:", "failed: no memory", "getpid", "unsupported: ENOSYS"]
    {
        assert!(all.contains(name), "{name}");
    }
    assert_eq!(sysbench(&r, Some(9999)), "");
}

#[test]
fn doctor_has_a_line_a_check_and_fixes_what_is_not_ok() {
    let mut host = common::host();
    for width in [40, 80, 160] {
        let text = doctor(&host).terminal(plain(width), false);
        assert_within(&text, width);
        for check in &host.checks {
            assert!(text.lines().any(|l| l.contains(&check.subject)), "{}\n{text}", check.subject);
        }
        assert!(text.contains("→ vmtax get kernel") && text.contains("guest kernel is missing"), "{text}");
        assert!(!text.contains("Times come from the TSC"), "what is ok needs no reason\n{text}");
    }
    assert!(doctor(&host).terminal(Style { width: 80, color: true }, false).contains("\u{1b}[31mmissing"));
    host.checks.iter_mut().for_each(|c| c.state = Readiness::Ok);
    let fine = doctor(&host).terminal(plain(80), false);
    assert!(
        fine.starts_with("This host can measure native") && fine.contains("checks are ok.") && !fine.contains('→'),
        "{fine}"
    );
    let json: vmtax_model::HostFacts = serde_json::from_str(&plain_json(&host).unwrap()).unwrap();
    assert_eq!(json, host);
}
