//! The terminal report: fits the width, obeys nothing that a guest sends.

use crate::common::{self, findings, recording, trial_mut};
use vmtax_findings::Findings;
use vmtax_model::{Interval, Machine, Metric, Outcome, Remedy, Warning, WorkloadName};
use vmtax_report::{Style, doctor, overhead, plain_json, sysbench};

const ALL: &[Machine] = common::THREE;
const WITH_TCG: &[Machine] = &[Machine::NATIVE, Machine::TCG];

fn plain(width: usize) -> Style {
    Style {
        width,
        color: false,
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
fn the_largest_overhead_of_the_answer_is_the_upper_end_of_its_range() {
    let r = recording(WITH_TCG, 6);
    let mut f = findings(&r);
    // The second has the larger median, and the lower end of its interval below that of the first.
    let intervals = [(5000.0, 4000.0, 6000.0), (6000.0, 2000.0, 9000.0)];
    for (row, (median, low, high)) in f.rows.iter_mut().zip(intervals) {
        let overhead = row
            .machines
            .iter_mut()
            .find_map(|column| column.overhead.as_mut())
            .unwrap();
        overhead.ratio.median = median;
        overhead.ratio.interval = Some(Interval {
            low,
            high,
            coverage: 0.96,
        });
    }
    let largest = f.rows[1].metric.label();
    let answer = overhead::report(&r, &f).answer;
    assert!(
        answer.contains(&format!(
            "; largest overhead: {largest}: ×6000 (95\u{a0}% CI "
        )),
        "{answer}"
    );
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
    let said = format!(
        "No ratio, because a round's value is 0: {}.",
        f.rows[0].metric.label()
    );
    assert!(text(&f).contains(&said), "{}", text(&f));
}

#[test]
fn no_difference_is_never_a_winner() {
    let r = recording(&[Machine::NATIVE, Machine::KVM], 6);
    let mut f = findings(&r);
    f.rows.retain(|row| row.metric == Metric::SyscallClockVdso);
    let narrow = overhead::report(&r, &f).terminal(plain(80), false);
    assert!(narrow.contains("(×"), "{narrow}");
    assert!(
        narrow
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
            .contains("inconclusive"),
        "{narrow}"
    );
    let wide = overhead::report(&r, &f).terminal(plain(140), false);
    assert!(
        wide.contains("inconclusive") && !wide.contains("faster"),
        "{wide}"
    );
    let coloured = overhead::report(&r, &f).terminal(
        Style {
            width: 140,
            color: true,
        },
        false,
    );
    let line = coloured
        .lines()
        .find(|l| l.trim_start().starts_with("clock_gettime"))
        .unwrap();
    let winner = ["31m", "32m", "33m"]
        .iter()
        .any(|colour| line.contains(colour));
    assert!(line.contains("\u{1b}[90m(×") && !winner, "{line:?}");
}

#[test]
fn colour_only_when_asked_for() {
    let r = recording(ALL, 6);
    let f = findings(&r);
    assert!(
        !overhead::report(&r, &f)
            .terminal(plain(80), false)
            .contains('\u{1b}')
    );
    assert!(
        overhead::report(&r, &f)
            .terminal(
                Style {
                    width: 80,
                    color: true
                },
                false
            )
            .contains("\u{1b}[")
    );
}

#[test]
fn hostile_strings_obey_the_terminal_and_not_the_other_way_round() {
    let hostile = format!(
        "\u{1b}[2J\u{1b}]0;title\u{7}\r\u{9b}31m\u{202e}{}",
        "very-long-".repeat(60)
    );
    let mut r = recording(WITH_TCG, 6);
    r.plan.name = hostile.clone();
    r.manifest.started = hostile.clone();
    r.host.cpu.model = hostile.clone();
    r.damaged.push(hostile.clone());
    trial_mut(&mut r, 0, Machine::TCG, WorkloadName::Cpu).outcome = Outcome::Failed {
        error: hostile.clone(),
    };
    let mut f = findings(&r);
    f.rows[0].machines[1].unsupported = Some(hostile.clone());
    f.rows[0].machines[1].spread = None;
    f.warnings.push(Warning::PartialBoot {
        machine: Machine::KVM,
        complaint: hostile.clone(),
    });
    f.advice.push(vmtax_findings::Advice {
        finding: hostile.clone(),
        ..Default::default()
    });
    for check in &mut r.host.checks {
        check.subject = hostile.clone();
        check.found = hostile.clone();
        check.why = hostile.clone();
        check.remedies = vec![Remedy::instruction(hostile.clone())];
    }
    let harmless = |text: &str| {
        assert!(
            !text
                .chars()
                .any(|c| (c.is_control() && c != '\n') || c == '\u{202e}'),
            "{text:?}"
        );
    };
    for width in [40, 80, 140] {
        let texts = [
            overhead::report(&r, &f).terminal(plain(width), false),
            doctor(&r.host).terminal(plain(width), false),
        ];
        for text in texts {
            harmless(&text);
            assert_within(&text, width);
        }
    }
    harmless(&sysbench(&r, None));
}

#[test]
fn sysbench_figures_of_one_trial_are_those_of_all() {
    let mut r = recording(WITH_TCG, 6);
    assert!(sysbench(&r, None).starts_with(&sysbench(&r, Some(0))));
    assert_eq!(sysbench(&r, Some(9999)), "");
    r.trials.clear();
    assert_eq!(sysbench(&r, None), "");
}

#[test]
fn doctor_fits_and_its_json_reads_back() {
    let host = common::host();
    for width in [40, 80, 160] {
        assert_within(&doctor(&host).terminal(plain(width), false), width);
    }
    assert!(
        doctor(&host)
            .terminal(
                Style {
                    width: 80,
                    color: true
                },
                false
            )
            .contains("\u{1b}[31mmissing")
    );
    let json: vmtax_model::HostFacts = serde_json::from_str(&plain_json(&host).unwrap()).unwrap();
    assert_eq!(json, host);
}

/// No line is wider, without its colours, and none of plain text ends in blanks.
pub fn assert_within(text: &str, width: usize) {
    for line in text.lines() {
        // Each colour ends in "m".
        let visible: String = format!("m{line}")
            .split('\u{1b}')
            .map(|part| part.split_once('m').unwrap().1)
            .collect();
        let columns = textwrap::core::display_width(&visible);
        assert!(columns <= width, "{columns} columns of {width}: {line}");
        assert!(!line.ends_with(' '), "trailing blank: {line:?}");
    }
}
