//! The reports of layers, of exits, of growth, and of a case: they fit, close their sums, name a winner only where
//! there is one, and obey nothing.

use crate::common::layers::{corrected, layers_recording, plain, varied};
use crate::common::studies::{command, exits as exit_findings, grown, reproduced};
use crate::formats::assert_balanced;
use crate::terminal::assert_within;
use vmtax_findings::{
    Estimate, ExitFindings, GrowthFindings, LayerFindings, MissingStep, ReproductionFindings,
};
use vmtax_model::{Interval, Machine, Missing, Outcome};
use vmtax_report::{Style, exec, exits, findings_json, growth, json, layers, reproduction};

fn style(width: usize) -> Style {
    Style {
        width,
        color: false,
    }
}

fn terminal(findings: &LayerFindings, width: usize) -> String {
    layers::report(&layers_recording(findings.rounds_planned), findings)
        .terminal(style(width), false)
        .replace('\u{a0}', " ")
}

/// The figures at the end of the line that begins with `name`, in the table of rows.
fn figures(text: &str, name: &str) -> Vec<f64> {
    let line = text
        .lines()
        .find(|l| l.contains(name))
        .unwrap_or_else(|| panic!("{name} is not in\n{text}"));
    let number = |w: &str| w.replace('−', "-").parse().ok();
    let after = &line[line.find(name).unwrap() + name.len()..];
    after.split_whitespace().filter_map(number).collect()
}

#[test]
fn no_line_is_wider_than_the_terminal_and_none_ends_in_blanks() {
    for findings in [plain(6), varied(6), varied(2)] {
        for width in [40, 60, 72, 80, 100, 130, 200] {
            for color in [false, true] {
                let text = layers::report(&layers_recording(6), &findings)
                    .terminal(Style { width, color }, false);
                assert_eq!(color, text.contains('\u{1b}'));
                assert_within(&text, width);
            }
        }
        let details = layers::report(&layers_recording(6), &findings).terminal(style(80), true);
        assert_within(&details.replace("\n  \n", "\n\n"), 80); // of the plan
    }
}

#[test]
fn the_sums_that_are_shown_close() {
    let findings = plain(6);
    let text = terminal(&findings, 130);
    let table = text.split("Layers side by side").next().unwrap();
    let is_row = |l: &&str| {
        l.chars()
            .last()
            .is_some_and(|c| c.is_ascii_digit() || "▏▎▍▌▋▊▉█".contains(c))
    };
    let mut lines = table
        .lines()
        .skip_while(|l| !l.contains("ends at"))
        .skip(2)
        .filter(is_row);
    let (mut mean, mut percent) = (0.0, 0.0);
    for line in lines.by_ref().take_while(|l| !l.contains("total, traced")) {
        let line = line.trim_end_matches(|c: char| !c.is_ascii_digit());
        let words: Vec<f64> = line
            .split_whitespace()
            .rev()
            .take(2)
            .map(|w| w.parse().unwrap())
            .collect();
        percent += words[0];
        mean += words[1];
    }
    let total = figures(table, "total, traced");
    assert!(
        (total[1] - findings.columns[0].traced.mean_ns / 1e3).abs() < 0.06,
        "{total:?}"
    );
    // Each of the 24 lines is rounded to a tenth.
    assert!((mean - total[1]).abs() < 1.2, "{mean} is not {total:?}");
    assert!((percent - 100.0).abs() < 1.2, "{percent}");
    assert!(figures(table, "control, untraced")[1] < total[1]);
}

#[test]
fn html_is_well_formed_self_contained_and_draws_everything() {
    for findings in [plain(6), varied(6), varied(2)] {
        let page = layers::report(&layers_recording(6), &findings).html();
        assert!(assert_balanced(&page) > 500);
        for outside in [
            "http://", "https://", "<script", "<link", "<img", "@import", "src=",
        ] {
            assert!(!page.contains(outside), "{outside}");
        }
        // Patterns are named inside the page; nothing else may be.
        assert_eq!(page.matches("url(").count(), page.matches("url(#").count());
        assert!(
            !page.contains("NaN") && !page.contains("inf%"),
            "a coordinate is no number"
        );
        let spans: usize = findings
            .columns
            .iter()
            .flat_map(|c| &c.waterfalls)
            .map(|w| w.spans.len())
            .sum();
        assert_eq!(page.matches("row stretch").count(), spans);
        assert_eq!(
            page.matches("States and layers of ").count(),
            2 * findings.columns.len()
        );
        assert_eq!(
            page.matches("class=\"shade-6\"").count(),
            findings.columns.len()
        );
        assert!(page.contains("vmtax report runs/20261120T140211Z-layers"));
    }
}

#[test]
fn json_holds_the_findings_and_reads_back() {
    let f = varied(6);
    let text = json(&layers_recording(6), &f).unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        serde_json::from_value::<LayerFindings>(value["findings"].clone()).unwrap(),
        f
    );
    assert_eq!(value["findings"]["columns"][3]["machine"], "micro-kvm");
    assert_eq!(value["plan"]["name"], "layers");
}

#[test]
fn hostile_strings_stay_text_on_both() {
    let hostile = "<script>alert(1)</script>\"'><img src=x>\u{1b}[2J\u{9b}31m\u{202e}\r\n&amp;"
        .to_owned()
        + &"long".repeat(200);
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
    c.missing.push(Missing {
        what: hostile.clone(),
        why: hostile.clone(),
        fix: hostile.clone(),
    });
    f.differences[0].variant = hostile.clone();
    f.method = hostile.clone();
    f.advice.push(vmtax_findings::Advice {
        finding: hostile.clone(),
        ..Default::default()
    });
    let mut r = layers_recording(6);
    r.plan.name = hostile;
    let texts = [40, 80, 140].map(|w| {
        layers::report(&r, &f).terminal(style(w), false)
            + &layers::report(&r, &f).terminal(style(w), true)
    });
    for text in texts {
        assert!(
            !text
                .chars()
                .any(|c| (c.is_control() && c != '\n') || c == '\u{202e}'),
            "{text:?}"
        );
    }
    let page = layers::report(&r, &f).html();
    assert_balanced(&page);
    assert!(!page.contains("<script") && !page.contains("<img"));
    assert!(
        !page
            .chars()
            .any(|c| (c.is_control() && c != '\n') || c == '\u{202e}')
    );
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
    for (column, bad) in f
        .columns
        .iter_mut()
        .zip([f64::NAN, f64::INFINITY, 0.0, -1.0])
    {
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
        column.heat = vmtax_findings::HeatMap::default();
    }
    assert_balanced(&layers::report(&layers_recording(6), &f).html());
    terminal(&f, 80);
    f.columns.clear();
    assert!(terminal(&f, 80).contains("No request was matched"));
    assert!(
        layers::report(&layers_recording(6), &f)
            .html()
            .contains("No request was matched")
    );
}

#[test]
fn a_corrected_table_closes_and_says_whether_it_agrees() {
    let ratio = |low, high| {
        Some(Estimate {
            median: 1.01,
            interval: Some(Interval {
                low,
                high,
                coverage: 0.97,
            }),
        })
    };
    let findings = corrected(ratio(0.97, 1.03));
    for width in [80, 100, 130] {
        let text = terminal(&findings, width);
        assert_within(&text, width);
        let figures = |name| figures(&text, name);
        let (traced, whole) = (figures("total, traced"), figures("total, corrected"));
        assert!(
            (traced[2] - traced[1] * 0.9).abs() < 0.11 && whole == [201.0, traced[2]],
            "{traced:?} {whole:?}"
        );
    }
    let said = |ratio| {
        let text = terminal(&corrected(ratio), 200);
        text.lines()
            .find(|line| line.contains("Corrected for tracing"))
            .unwrap()
            .to_owned()
    };
    assert!(said(ratio(0.97, 1.03)).contains(
        "+1.0 % against the control of the same round (median, 95 % CI −3.0 to +3.0 %): they agree"
    ));
    assert!(said(ratio(0.9, 1.1)).contains("the noise is too large to tell"));
    assert!(said(ratio(1.005, 1.03)).contains("do not agree, tracing costs more"));
    assert!(said(ratio(0.9, 0.99)).contains("do not agree, tracing costs less"));
    assert!(
        said(Some(Estimate {
            median: 1.01,
            interval: None
        }))
        .contains("inconclusive, too few rounds")
    );
    assert!(
        json(&layers_recording(6), &findings)
            .unwrap()
            .contains("\"corrected_ns\"")
    );
}

#[test]
fn no_line_of_exits_is_wider_than_the_terminal() {
    for width in [40, 60, 80, 120] {
        for color in [false, true] {
            let text = exits::report(&exit_findings()).terminal(Style { width, color }, false);
            assert_within(&text, width);
            assert_eq!(color, text.contains('\u{1b}'));
        }
    }
}

#[test]
fn json_and_html_hold_all_and_obey_nothing() {
    let mut f = exit_findings();
    assert_eq!(
        serde_json::from_str::<ExitFindings>(&findings_json(&f).unwrap()).unwrap(),
        f
    );
    let page = exits::report(&f).html();
    assert_balanced(&page);
    let kinds: usize = f.machines.iter().map(|m| m.kinds.len() + 1).sum();
    assert_eq!(page.matches("class=\"to-p99\"").count(), kinds);
    assert!(!page.contains("NaN") && !page.contains("http:"));
    let hostile = "<script>x</script>\u{1b}[2J\u{202e}\n\"".to_owned();
    f.machines[0].kinds[0].label = hostile.clone();
    f.machines[0].qemu = hostile.clone();
    f.kvm = hostile;
    f.machines[0].kinds[1].time.p50_ns = f64::NAN;
    let page = exits::report(&f).html();
    assert_balanced(&page);
    assert!(!page.contains("<script") && !page.contains("NaN%"));
    let text = exits::report(&f).terminal(
        Style {
            width: 80,
            color: false,
        },
        false,
    );
    assert!(
        !text
            .chars()
            .any(|c| (c.is_control() && c != '\n') || c == '\u{202e}'),
        "{text:?}"
    );
}

#[test]
fn no_line_of_growth_is_wider_than_the_terminal() {
    let (recording, findings) = grown(6);
    for width in [40, 60, 80, 120] {
        let mut report = growth::report(&recording, &findings);
        assert_within(
            &report.terminal(
                Style {
                    width,
                    color: false,
                },
                false,
            ),
            width,
        );
        reproduction::put_first(&mut report, &reproduced(), &recording);
        assert_within(
            &report.terminal(
                Style {
                    width,
                    color: false,
                },
                false,
            ),
            width,
        );
        assert_balanced(&report.html());
    }
}

#[test]
fn the_page_has_a_curve_for_each_column_and_obeys_nothing() {
    let (mut recording, mut findings) = grown(6);
    let page = growth::report(&recording, &findings).html();
    assert_balanced(&page);
    assert_eq!(
        page.matches("class=\"law\"").count(),
        findings.growths.len()
    );
    assert!(
        page.matches("class=\"band\" d=\"M").count() == findings.growths.len(),
        "each band has its points"
    );
    assert!(!page.contains("NaN") && !page.contains("http:"));
    let hostile = "<script>x</script>\u{1b}[2J\u{202e}".to_owned();
    findings.growths[0].variant = hostile.clone();
    findings.option = hostile.clone();
    findings.growths[0].curve[0].ns.median = f64::NAN;
    findings.growths[0].steps[0].rounds[0].ns = -1.0;
    findings.missing = vec![MissingStep {
        machine: Machine::TCG,
        variant: hostile.clone(),
        size: 5,
        reason: hostile.clone(),
    }];
    recording.plan.name = hostile;
    let page = growth::report(&recording, &findings).html();
    assert_balanced(&page);
    assert!(!page.contains("<script") && !page.contains('\u{1b}'));
    let text = growth::report(&recording, &findings).terminal(
        Style {
            width: 80,
            color: false,
        },
        false,
    );
    assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'));
}

#[test]
fn the_json_of_a_reproduction_reads_back() {
    let ((recording, findings), case) = (grown(6), reproduced());
    let document = json(&recording, &findings).unwrap();
    let both: serde_json::Value =
        serde_json::from_str(&reproduction::into_json(&document, &case).unwrap()).unwrap();
    assert_eq!(
        serde_json::from_value::<ReproductionFindings>(both["case"].clone()).unwrap(),
        case
    );
    assert_eq!(
        serde_json::from_value::<GrowthFindings>(both["findings"].clone()).unwrap(),
        findings
    );
}

#[test]
fn the_next_command_leaves_out_a_machine_that_did_not_boot() {
    let (mut recording, _) = command(2);
    let fail = |recording: &mut vmtax_recording::Recording, machine: Machine| {
        let trials = recording.trials.iter_mut();
        for trial in trials.filter(|trial| trial.machine == machine) {
            trial.execution = None;
            trial.outcome = Outcome::Failed {
                error: "/dev/kvm is missing: load kvm_amd".to_owned(),
            };
        }
    };
    let page = |recording: &vmtax_recording::Recording| {
        let found = vmtax_analysis::exec(&recording.plan, &recording.host, &recording.trials);
        let report = exec::report(recording, &found, None);
        (report.answer.replace('\u{a0}', " "), report.next)
    };
    // A copy of each TCG trial stands for one of KVM.
    let copies: Vec<_> = recording
        .trials
        .iter()
        .filter(|trial| trial.machine == Machine::TCG)
        .map(|trial| vmtax_model::TrialRecord {
            machine: Machine::KVM,
            ..trial.clone()
        })
        .collect();
    recording.trials.extend(copies);
    recording.plan.machines = vec![Machine::NATIVE, Machine::KVM, Machine::TCG];
    recording.manifest.command = ["vmtax", "exec", "--machine", "native,kvm,tcg", "--", "make"]
        .map(Into::into)
        .to_vec();
    fail(&mut recording, Machine::KVM);
    let (answer, next) = page(&recording);
    assert!(answer.contains("on tcg"), "{answer}");
    let rounds = vmtax_model::FEWEST_ROUNDS;
    assert_eq!(
        next,
        [format!(
            "vmtax exec --rounds {rounds} --machine native,tcg -- make"
        )]
    );
    fail(&mut recording, Machine::TCG);
    let (answer, next) = page(&recording);
    assert_eq!(
        answer,
        "`make` was not measured on kvm and tcg: /dev/kvm is missing: load kvm_amd."
    );
    assert_eq!(next, ["vmtax doctor"]);
}
