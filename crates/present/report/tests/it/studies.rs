//! The reports of exits, of growth, and of a case.

use crate::common::studies::{exits as exit_findings, grown, reproduced};
use crate::formats::assert_balanced;
use crate::terminal::assert_within;
use vmtax_findings::{ExitFindings, GrowthFindings, MissingStep, ReproductionFindings};
use vmtax_model::Machine;
use vmtax_report::{Style, exits, findings_json, growth, json, reproduction};

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
