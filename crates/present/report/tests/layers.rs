//! The reports of layers: they fit, close their sums, name a winner only where there is one, and obey nothing.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::assert_balanced;
use common::layers::{layers_recording, plain, varied};
use vmtax_model::{
    CalibratedCost, Corrected, Estimate, EventKind, Interval, LayerFindings, Machine, Missing, State, Summary,
};
use vmtax_report::{Style, json, layers};

fn style(width: usize) -> Style {
    Style { width, color: false }
}

fn terminal(findings: &LayerFindings, width: usize) -> String {
    layers::report(&layers_recording(findings.rounds_planned), findings)
        .terminal(style(width), false)
        .replace('\u{a0}', " ")
}

fn columns(line: &str) -> usize {
    let mut visible = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once('\u{1b}') {
        visible.push_str(before);
        rest = after.split_once('m').unwrap().1;
    }
    textwrap::core::display_width(&format!("{visible}{rest}"))
}

/// The figures at the end of the line that begins with `name`, in the table of rows.
fn figures(text: &str, name: &str) -> Vec<f64> {
    let line = text.lines().find(|l| l.contains(name)).unwrap_or_else(|| panic!("{name} is not in\n{text}"));
    let number = |w: &str| w.replace('−', "-").parse().ok();
    let after = &line[line.find(name).unwrap() + name.len()..];
    after.split_whitespace().filter_map(number).collect()
}

#[test]
fn no_line_is_wider_than_the_terminal_and_none_ends_in_blanks() {
    for findings in [plain(6), varied(6), varied(2)] {
        for width in [40, 60, 72, 80, 100, 130, 200] {
            for color in [false, true] {
                let text = layers::report(&layers_recording(6), &findings).terminal(Style { width, color }, false);
                assert_eq!(color, text.contains('\u{1b}'));
                for line in text.lines() {
                    assert!(columns(line) <= width, "{} columns of {width}: {line}", columns(line));
                    assert!(color || !line.ends_with(' '), "trailing blank: {line:?}");
                }
            }
        }
        for line in layers::report(&layers_recording(6), &findings).terminal(style(80), true).lines() {
            assert!(columns(line) <= 80, "{line}");
        }
    }
}

#[test]
fn the_sums_that_are_shown_close() {
    let findings = plain(6);
    let text = terminal(&findings, 130);
    let table = text.split("Layers side by side").next().unwrap();
    let is_row = |l: &&str| l.chars().last().is_some_and(|c| c.is_ascii_digit() || "▏▎▍▌▋▊▉█".contains(c));
    let mut lines = table.lines().skip_while(|l| !l.contains("ends at")).skip(2).filter(is_row);
    let (mut mean, mut percent) = (0.0, 0.0);
    for line in lines.by_ref().take_while(|l| !l.contains("total, traced")) {
        let line = line.trim_end_matches(|c: char| !c.is_ascii_digit());
        let words: Vec<f64> = line.split_whitespace().rev().take(2).map(|w| w.parse().unwrap()).collect();
        percent += words[0];
        mean += words[1];
    }
    let total = figures(table, "total, traced");
    assert!((total[1] - findings.columns[0].traced.mean_ns / 1e3).abs() < 0.06, "{total:?}");
    // Each of the 24 lines is rounded to a tenth.
    assert!((mean - total[1]).abs() < 1.2, "{mean} is not {total:?}");
    assert!((percent - 100.0).abs() < 1.2, "{percent}");
    assert!(figures(table, "control, untraced")[1] < total[1]);
}

#[test]
fn the_answer_stands_first_with_floor_and_bare_host() {
    let text = terminal(&plain(6), 100);
    let answer = text.lines().take_while(|l| !l.starts_with("Time of a request")).collect::<Vec<_>>().join(" ");
    assert!(
        answer.starts_with("A request takes 22") && answer.contains("in the Linux guest on tcg (median, untraced), "),
        "{answer}"
    );
    assert!(answer.contains(" times native (28.0 µs). Of the mean latency with tracing ("), "{answer}");
    assert!(
        answer.contains(". Largest layers: "),
        "one partition by state, the layers in a sentence of their own: {answer}"
    );
    // No tail, and none is named.
    assert!(!answer.contains("slowest"), "{answer}");
    let mut f = plain(6);
    f.columns[0].tail[0].slowest_ns = 50.0 * f.columns[0].traced.mean_ns;
    assert!(terminal(&f, 300).contains("(the slowest 1 % of requests take 5"), "{}", terminal(&f, 300));
    let both = {
        let mut f = plain(6);
        f.columns.push(common::layers::column(Machine::MICRO_TCG, "", 6, 30.0));
        layers::report(&layers_recording(6), &f).html()
    };
    assert!(both.contains("micro-guest on kvm") && both.contains("micro-guest on tcg"), "{both}");
}

#[test]
fn where_no_request_was_followed_the_answer_says_so_and_what_to_do() {
    let mut f = plain(6);
    f.columns.truncate(1);
    let matched = &mut f.columns[0].matched;
    (matched.operations, matched.joined, matched.lost_events) = (2000, 0, 0);
    matched.rejected = vec![("no packet of it in the guest's network stack".into(), 2000)];
    f.columns[0].traced = Summary { n: 0, mean_ns: 0.0, p50_ns: 0.0, ..f.columns[0].traced };
    f.columns[0].rows.clear();
    let answer = |f: &LayerFindings| {
        let text = terminal(f, 300);
        text.lines().take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
    };
    let said = answer(&f);
    assert!(said.starts_with("A request takes 22") && said.contains("(median, untraced)"), "{said}");
    let none = "None of 2,000 traced requests in the Linux guest on tcg could be followed: 2,000 (no packet of it in the \
                guest's network stack). `vmtax doctor` names what this host's tracing lacks.";
    assert!(said.contains(none) && !said.contains("Of the mean"), "{said}");
    f.columns[0].control = None;
    f.columns[0].matched.lost_events = 7;
    let said = answer(&f);
    assert!(said.starts_with("None of 2,000") && said.contains("Events were lost: trace fewer"), "{said}");
}

#[test]
fn variants_have_a_column_each_and_a_winner_only_where_there_is_one() {
    let text = terminal(&varied(6), 100);
    for variant in ["aio=threads", "aio=native", "aio=io_uring", "micro-kvm"] {
        assert!(text.contains(variant), "{variant}\n{text}");
    }
    assert!(text.contains("aio=io_uring is faster than aio=threads by 4.0 to 9.0 %"), "{text}");
    assert!(text.contains("aio=native compared with aio=threads: inconclusive"), "{text}");
    let few = terminal(&varied(2), 100);
    assert!(few.contains("too few rounds") && !few.contains("is faster"), "{few}");
    // The answer begins with which variant is fastest, and says of which one the rest is.
    assert!(text.starts_with("aio=io_uring is faster than aio=threads by 4.0 to 9.0 %"), "{text}");
    assert!(few.starts_with("None of 2 variants is shown to be faster than aio=threads. A request takes"), "{few}");
    assert!(few.contains("aio=threads (median, untraced)"), "{few}");
    let side_by_side = text.split("Layers side by side").nth(1).unwrap();
    assert_eq!(figures(side_by_side, "device"), [49.8, 49.0, 32.9, 24.0]);
    assert_eq!(figures(side_by_side, "total, traced").len(), 4);
}

#[test]
fn what_it_rests_on_is_said() {
    let text = terminal(&plain(6), 200);
    let said = [
        "9,994 of 10,000 traced requests (6 rounds) were matched in every layer (99.94 %)",
        "not: 4 (events were lost while it was in flight), 2 (missing event: virtqueue pop)",
        "17 events lost",
        "Clock error: ±180.0 ns between guest and host (timestamps exchanged through shared memory)",
        "Tracing overhead: +4.1 % (median of the rounds' ratios, not the ratio of the medians above; 95 % CI +3.0 to +5.2 %)",
        "→ ioeventfd / MMIO exit †",
        "† shorter than the clock error",
        "run-queue wait (guest)",
        "KVM's entries and exits (tcg): the guest runs under TCG. → use",
    ];
    for s in said {
        assert!(text.contains(s), "{s}\n{text}");
    }
    let mut f = plain(6);
    f.columns[0].control = None;
    f.columns[0].observer = None;
    (f.columns[0].matched.operations, f.columns[0].matched.joined) = (100_000, 99_999);
    f.columns[0].clock.drift_ns = 900.0;
    f.columns[0].clock.violations = 1;
    let text = terminal(&f, 200);
    assert!(text.contains("there is no untraced run of the same") && text.contains("99.99 %"), "{text}");
    assert!(text.contains("drift of 900 ns more") && text.contains("1 request violated causality"), "{text}");
}

#[test]
fn rows_that_no_request_has_are_left_out_and_states_have_words() {
    let mut f = plain(6);
    f.columns[0].rows.iter_mut().filter(|r| r.state == State::Lock).for_each(|r| r.count = 0);
    let text = terminal(&f, 100);
    assert!(!text.contains("waiting for a lock"), "{text}");
    assert!(terminal(&plain(6), 100).contains("waiting for a lock"));
    assert!(terminal(&plain(6), 60).contains("→ virtqueue pop (waiting for a lock)"));
}

#[test]
fn details_hold_every_table() {
    let f = varied(6);
    let text = layers::report(&layers_recording(6), &f).terminal(style(100), true);
    let holds = [
        "Bare host",
        "Nested: from each layer's entry to its exit",
        "QEMU AIO",
        "The path of a request",
        "System calls of QEMU's main loop",
        "ppoll_post",
        "System calls of QEMU's vCPU 0",
        "of these, lock waits",
        "The slowest 1 %",
        "Rows side by side",
        "Rows are means",
    ];
    for s in holds {
        assert!(text.contains(s), "{s}\n{text}");
    }
    assert_eq!(text.matches("Nested: from each layer's entry").count(), f.columns.len());
    // Mean, standard deviation, smallest, largest, all.
    let line = text.lines().find(|l| l.starts_with("io_submit  ")).unwrap();
    for figure in ["10,000", "16.10 µs", "11.27 µs", "4.83 µs", "644 µs", "161.0 ms"] {
        assert!(line.contains(figure), "{line}");
    }
}

#[test]
fn html_is_well_formed_self_contained_and_draws_everything() {
    for findings in [plain(6), varied(6), varied(2)] {
        let page = layers::report(&layers_recording(6), &findings).html();
        assert!(assert_balanced(&page) > 500);
        for outside in ["http://", "https://", "<script", "<link", "<img", "@import", "src="] {
            assert!(!page.contains(outside), "{outside}");
        }
        // Patterns are named inside the page; nothing else may be.
        assert_eq!(page.matches("url(").count(), page.matches("url(#").count());
        assert!(!page.contains("NaN") && !page.contains("inf%"), "a coordinate is no number");
        let spans: usize = findings.columns.iter().flat_map(|c| &c.waterfalls).map(|w| w.spans.len()).sum();
        assert_eq!(page.matches("row stretch").count(), spans);
        assert_eq!(page.matches("States and layers of ").count(), 2 * findings.columns.len());
        assert_eq!(page.matches("class=\"shade-6\"").count(), findings.columns.len());
        assert!(page.contains("vmtax report runs/20261120T140211Z-layers"));
    }
}

#[test]
fn json_holds_the_findings_and_reads_back() {
    let f = varied(6);
    let text = json(&layers_recording(6), &f).unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(serde_json::from_value::<LayerFindings>(value["findings"].clone()).unwrap(), f);
    assert_eq!(value["findings"]["columns"][3]["machine"], "micro-kvm");
    assert_eq!(value["plan"]["name"], "layers");
}

#[test]
fn hostile_strings_stay_text_on_both() {
    let hostile =
        "<script>alert(1)</script>\"'><img src=x>\u{1b}[2J\u{9b}31m\u{202e}\r\n&amp;".to_owned() + &"long".repeat(200);
    let mut f = varied(6);
    let c = &mut f.columns[0];
    c.variant = hostile.clone();
    c.rows[0].label = hostile.clone();
    c.nested[0].label = hostile.clone();
    c.lifecycle[0].thread = hostile.clone();
    c.calls[0].calls[0].name = hostile.clone();
    c.calls[0].role = vmtax_model::Role::Iothread(hostile.clone());
    c.tail[0].label = hostile.clone();
    c.clock.source = hostile.clone();
    c.matched.rejected[0].0 = hostile.clone();
    c.waterfalls[0].which = hostile.clone();
    c.waterfalls[0].spans[0].thread = hostile.clone();
    c.missing.push(Missing { what: hostile.clone(), why: hostile.clone(), fix: hostile.clone() });
    f.differences[0].variant = hostile.clone();
    f.method = hostile.clone();
    f.advice.push(vmtax_model::Advice { finding: hostile.clone(), ..Default::default() });
    let mut r = layers_recording(6);
    r.plan.name = hostile;
    let texts = [40, 80, 140]
        .map(|w| layers::report(&r, &f).terminal(style(w), false) + &layers::report(&r, &f).terminal(style(w), true));
    for text in texts {
        assert!(!text.chars().any(|c| (c.is_control() && c != '\n') || c == '\u{202e}'), "{text:?}");
    }
    let page = layers::report(&r, &f).html();
    assert_balanced(&page);
    assert!(!page.contains("<script") && !page.contains("<img"));
    assert!(!page.chars().any(|c| (c.is_control() && c != '\n') || c == '\u{202e}'));
}

#[test]
fn the_layer_that_moved_most_is_named_with_both_means() {
    let mut f = varied(6);
    f.columns.remove(1);
    let said = "device 49.8 µs → 32.9 µs, of a request's 247 µs → 230 µs (means, traced)";
    assert_eq!(layers::moved(&f).as_deref(), Some(said));
    f.columns.truncate(1);
    assert_eq!(layers::moved(&f), None, "one column moves nowhere");
}

#[test]
fn figures_that_are_no_numbers_and_columns_without_any_are_survived() {
    let mut f = varied(6);
    for (column, bad) in f.columns.iter_mut().zip([f64::NAN, f64::INFINITY, 0.0, -1.0]) {
        column.traced.mean_ns = bad;
        column.unexplained_ns = bad;
        column.heat.row_factor = bad;
        for row in &mut column.rows {
            row.time.mean_ns = bad;
            row.time.p50_ns = bad;
            row.percent = bad;
        }
        for w in &mut column.waterfalls {
            w.total_ns = bad;
            w.spans.iter_mut().for_each(|s| s.end_ns = bad);
        }
    }
    let page = layers::report(&layers_recording(6), &f).html();
    assert_balanced(&page);
    assert!(!page.contains("NaN%") && !page.contains("inf%"));
    terminal(&f, 80);
    for column in &mut f.columns {
        column.rows.clear();
        column.waterfalls.clear();
        column.heat = vmtax_model::HeatMap::default();
    }
    assert_balanced(&layers::report(&layers_recording(6), &f).html());
    terminal(&f, 80);
    f.columns.clear();
    assert!(terminal(&f, 80).contains("No request was joined"));
    assert!(layers::report(&layers_recording(6), &f).html().contains("No request was joined"));
}

/// Findings whose events' cost is known: a tenth of each row; over the untraced control it is `ratio`.
fn corrected(ratio: Option<Estimate>) -> LayerFindings {
    let mut findings = plain(6);
    let column = &mut findings.columns[0];
    for row in &mut column.rows {
        (row.events, row.corrected_ns) = (Some(1.5), Some(row.time.mean_ns * 0.9));
    }
    let estimate = |median: f64| Estimate { median, interval: None };
    column.corrected = Some(Corrected {
        total: Summary { mean_ns: column.traced.mean_ns * 0.9, p50_ns: 201_000.0, ..column.traced },
        unexplained_ns: column.unexplained_ns * 0.9,
        median: estimate(201_000.0),
        ratio,
        events: 31.0,
        costs: vec![CalibratedCost {
            side: "host".to_owned(),
            kind: EventKind::Uprobe,
            repetitions: 36,
            first_ns: estimate(1_850.0),
            again_ns: estimate(640.0),
        }],
    });
    findings
}

#[test]
fn a_corrected_table_closes_and_says_whether_it_agrees() {
    let ratio = |low, high| Some(Estimate { median: 1.01, interval: Some(Interval { low, high, coverage: 0.97 }) });
    let findings = corrected(ratio(0.97, 1.03));
    for width in [80, 100, 130] {
        let text = terminal(&findings, width);
        assert!(text.contains("corrected") && text.lines().all(|line| columns(line) <= width), "{text}");
        let figures = |name| figures(&text, name);
        let (traced, whole) = (figures("total, traced"), figures("total, corrected"));
        assert!((traced[2] - traced[1] * 0.9).abs() < 0.11 && whole == [201.0, traced[2]], "{traced:?} {whole:?}");
    }
    let said = |ratio| {
        let text = terminal(&corrected(ratio), 200);
        text.lines().find(|line| line.contains("Corrected for tracing")).unwrap().to_owned()
    };
    assert!(
        said(ratio(0.97, 1.03))
            .contains("+1.0 % against the control of the same round (median, 95 % CI −3.0 to +3.0 %): they agree")
    );
    assert!(said(ratio(0.9, 1.1)).contains("the noise is too large to tell"));
    assert!(said(ratio(1.005, 1.03)).contains("do not agree, tracing costs more"));
    assert!(said(ratio(0.9, 0.99)).contains("do not agree, tracing costs less"));
    assert!(said(Some(Estimate { median: 1.01, interval: None })).contains("inconclusive, too few rounds"));
    let details = layers::report(&layers_recording(6), &findings).terminal(style(100), true);
    assert!(details.contains("What recording an event costs") && details.contains("640.0"), "{details}");
    assert!(json(&layers_recording(6), &findings).unwrap().contains("\"corrected_ns\""));
    assert!(!terminal(&plain(6), 130).contains("orrected"), "no calibration, no column");
}
