//! The terminal report: fits the width, obeys nothing that a guest sends. The engine: tables give way until they fit,
//! and no text is a mark of Markdown.

use crate::common::{self, findings, recording, trial_mut};
use vmtax_findings::Findings;
use vmtax_model::{Interval, Machine, Metric, Outcome, Remedy, Warning, WorkloadName};
use vmtax_report::{
    Block, Cell, Notice, Report, Section, Style, Table, doctor, figures, overhead, plain_json,
    sysbench, words,
};

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
            "; largest overhead ×6000 ({largest}, 95\u{a0}% CI "
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
    let colored = overhead::report(&r, &f).terminal(
        Style {
            width: 140,
            color: true,
        },
        false,
    );
    let line = colored
        .lines()
        .find(|l| l.trim_start().starts_with("clock_gettime"))
        .unwrap();
    let winner = ["31m", "32m", "33m"]
        .iter()
        .any(|color| line.contains(color));
    assert!(line.contains("\u{1b}[90m(×") && !winner, "{line:?}");
}

#[test]
fn color_only_when_asked_for() {
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

/// No line is wider, without its colors, and none of plain text ends in blanks.
pub fn assert_within(text: &str, width: usize) {
    for line in text.lines() {
        // Each color ends in "m".
        let visible: String = format!("m{line}")
            .split('\u{1b}')
            .map(|part| part.split_once('m').unwrap().1)
            .collect();
        let columns = textwrap::core::display_width(&visible);
        assert!(columns <= width, "{columns} columns of {width}: {line}");
        assert!(!line.ends_with(' '), "trailing blank: {line:?}");
    }
}

fn report_with(table: Table) -> Report<'static> {
    Report {
        title: "A report".into(),
        sections: vec![Section::new("", vec![Block::Table(table)])],
        ..Report::default()
    }
}

fn text(report: &Report, width: usize) -> String {
    let text = report.terminal(
        Style {
            width,
            color: false,
        },
        false,
    );
    assert_within(&text, width);
    text
}

fn table() -> Table {
    let columns = vec![
        words("name").broken(14, 8),
        figures("median"),
        figures("interval").shorten(1).spare(3),
        figures("spread").spare(2),
    ];
    let interval = Cell::from("10.00 to 12.00 µs").short("±9 %");
    let row = vec![
        "a name of some length".into(),
        "11.00 µs".into(),
        interval,
        Cell::from("±1.2 %"),
    ];
    Table::new("A table", columns).rows([row])
}

#[test]
fn columns_shorten_and_leave_step_by_step() {
    let report = report_with(table());
    let wide = text(&report, 80);
    assert!(
        wide.contains("10.00 to 12.00 µs") && wide.contains("±1.2 %") && wide.contains("length  "),
        "{wide}"
    );
    let narrower = text(&report, 42);
    assert!(
        narrower.contains("±9 %") && narrower.contains("±1.2 %"),
        "{narrower}"
    );
    // All that is left, though the name is broken.
    let narrow = text(&report, 40);
    assert!(
        narrow.contains("11.00 µs") && narrow.contains("a name"),
        "{narrow}"
    );
}

#[test]
fn a_table_names_the_columns_that_left_with_their_figures() {
    let table_with_interval = |interval: &str| {
        let mut table = table().naming_left_out();
        table.rows.clear();
        report_with(table.rows([vec!["a name of some length", "11.00 µs", interval, "–"]]))
    };
    assert!(
        text(&table_with_interval("10.00 to 12.00 µs"), 40)
            .ends_with("\nColumns omitted (40 characters wide):\n  interval.\n")
    );
    let unknown = [table_with_interval("–"), report_with(table())];
    assert!(
        unknown
            .iter()
            .all(|report| !text(report, 40).contains("omitted")),
        "no figure is left out, or none is named"
    );
    assert!(!text(&table_with_interval("10.00 to 12.00 µs"), 80).contains("omitted"));
}

#[test]
fn columns_that_do_not_fit_follow_below_under_the_same_names() {
    let columns = (0..12).map(|i| figures(format!("column {i}")));
    let columns = [words("row")].into_iter().chain(columns).collect();
    let cells = ["x".to_owned()]
        .into_iter()
        .chain((0..12).map(|i| format!("figure {i}")))
        .collect();
    let report = report_with(
        Table {
            parts: true,
            ..Table::new("A table", columns)
        }
        .rows([cells]),
    );
    let shown = text(&report, 40);
    assert!(
        (0..12).all(|i| shown.contains(&format!("figure {i}"))),
        "{shown}"
    );
    assert!(
        shown.lines().filter(|l| l.starts_with("row ")).count() > 2,
        "{shown}"
    );
}

#[test]
fn rows_beyond_the_most_are_counted() {
    let rows = (0..30).map(|i| vec![format!("row {i}")]);
    let report = report_with(
        Table::new("A table", vec![words("name")])
            .rows(rows)
            .most(20),
    );
    assert!(
        text(&report, 80).ends_with("row 19\nand 10 more\n"),
        "{}",
        text(&report, 80)
    );
    assert!(
        report
            .terminal(
                Style {
                    width: 80,
                    color: false
                },
                true
            )
            .contains("row 29")
    );
}

#[test]
fn the_answer_comes_first_in_every_format() {
    let mut report = report_with(table());
    report.answer = "It costs ×2.".into();
    report.basis = vec!["n = 6 rounds".into()];
    report.next = vec!["vmtax layers".into()];
    report.notices = vec![Notice::warnings(vec!["a warning".into()])];
    report.method = vec!["a method".into()];
    let page = report.html();
    for text in [
        text(&report, 80),
        report.markdown_details(),
        page.split_once("<body>").unwrap().1.to_owned(),
    ] {
        let order = [
            "It costs ×2.",
            "n = 6 rounds",
            "vmtax layers",
            "11.00 µs",
            "a warning",
            "a method",
        ];
        let places: Vec<usize> = order.iter().map(|part| text.find(part).unwrap()).collect();
        assert!(places.is_sorted(), "{places:?}\n{text}");
        assert_eq!(text.matches("A report").count(), 1, "{text}");
    }
    assert!(
        text(&report, 80)
            .starts_with("It costs ×2.\nA report · n = 6 rounds\nNext: vmtax layers\n")
    );
    assert!(
        text(&report_with(table()), 80).starts_with("A report\n\n"),
        "without an answer the title comes first"
    );
}

#[test]
fn markdown_has_the_tables_and_obeys_nothing() {
    let hostile = "<script>|*x*\u{1b}[2J\n# title".to_owned();
    let mut table = table();
    table.row(vec![hostile.clone()]);
    let mut report = report_with(table);
    report.answer = hostile.clone();
    report.notices = vec![Notice::warnings(vec![format!("{hostile}\n```\nrm")])];
    let markdown = report.markdown_details();
    for markdown in [&report.markdown(), &markdown] {
        assert!(
            !markdown.contains("<script") && !markdown.contains('\u{1b}'),
            "{markdown}"
        );
        assert!(
            markdown.contains("| a name of some length | 11.00 µs | 10.00 to 12.00 µs | ±1.2 % |"),
            "{markdown}"
        );
        let rows: Vec<&str> = markdown.lines().filter(|l| l.starts_with('|')).collect();
        let columns = |l: &str| l.replace("\\|", "").matches('|').count();
        assert!(rows.iter().all(|l| columns(l) == 5), "{rows:?}");
    }
    assert!(
        markdown.contains("````text"),
        "a fence that its lines do not end: {markdown}"
    );
}
