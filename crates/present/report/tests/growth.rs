//! The reports of growth, and of a case.

#![allow(clippy::unwrap_used)]

mod common;

use common::{assert_balanced, studies::grown};
use vmtax_model::{
    ClaimRow, ClaimUnit, ClaimVerdict, Estimate, GrowthFindings, Interval, Machine, MissingStep, ReproductionFindings,
};
use vmtax_report::{Style, growth, json, reproduction};

#[test]
fn the_terminal_has_laws_steps_and_a_sentence_that_fit() {
    let (recording, findings) = grown(6);
    for width in [40, 60, 80, 120] {
        let text = growth::report(&recording, &findings).terminal(Style { width, color: false }, false);
        for line in text.lines() {
            let columns = textwrap::core::display_width(line);
            assert!(columns <= width, "{columns} of {width}: {line:?}");
        }
    }
    let text = growth::report(&recording, &findings).terminal(Style { width: 160, color: false }, false);
    let line = text.lines().find(|l| l.starts_with("cpu event rate, mean ") && l.contains(" tcg ")).unwrap();
    assert!(line.contains("O(n)") && line.contains(" to "), "{line}");
    for said in ["grows with threads.threads as O(n)", "one more costs", "n = 6 rounds", "900"] {
        assert!(text.contains(said), "{said}\n{text}");
    }
}

#[test]
fn the_page_has_a_curve_for_each_column_and_obeys_nothing() {
    let (mut recording, mut findings) = grown(6);
    let page = growth::report(&recording, &findings).html();
    assert_balanced(&page);
    assert_eq!(page.matches("class=\"law\"").count(), findings.growths.len());
    assert!(page.matches("class=\"band\" d=\"M").count() == findings.growths.len(), "each band has its points");
    assert!(!page.contains("NaN") && !page.contains("http:"));
    let hostile = "<script>x</script>\u{1b}[2J\u{202e}".to_owned();
    findings.growths[0].variant = hostile.clone();
    findings.option = hostile.clone();
    findings.growths[0].curve[0].ns.median = f64::NAN;
    findings.growths[0].steps[0].rounds[0].ns = -1.0;
    findings.missing =
        vec![MissingStep { machine: Machine::TCG, variant: hostile.clone(), size: 5, reason: hostile.clone() }];
    recording.plan.name = hostile;
    let page = growth::report(&recording, &findings).html();
    assert_balanced(&page);
    assert!(!page.contains("<script") && !page.contains('\u{1b}'));
    let text = growth::report(&recording, &findings).terminal(Style { width: 80, color: false }, false);
    assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'));
}

#[test]
fn a_case_stands_above_the_rest() {
    let (recording, findings) = grown(6);
    let interval = Some(Interval { low: 9.0, high: 12.0, coverage: 0.97 });
    let row = |verdict| ClaimRow {
        what: "ten <times>".into(),
        published: "10".into(),
        measured: Some(Estimate { median: 10.5, interval }),
        unit: ClaimUnit::Ratio,
        verdict,
        why: "why".into(),
        rounds_needed: None,
        metric: None,
    };
    let case = ReproductionFindings {
        schema: 1,
        name: "a-case".into(),
        title: "A title".into(),
        source: "a report".into(),
        claim: "It is so.".into(),
        verdict: ClaimVerdict::NotReproduced,
        rows: vec![row(ClaimVerdict::Reproduced), row(ClaimVerdict::NotReproduced), row(ClaimVerdict::NotTestable)],
    };
    let reported = |case: &ReproductionFindings| {
        let mut report = growth::report(&recording, &findings);
        reproduction::put_first(&mut report, case, &recording);
        report
    };
    let text = reported(&case).terminal(Style { width: 70, color: false }, false);
    assert!(text.starts_with("a-case: of 3 claims 1 reproduced, 1 not reproduced, 1 not testable."), "{text}");
    assert!(text.lines().all(|l| textwrap::core::display_width(l) <= 70), "{text}");
    let page = reported(&case).html();
    assert_balanced(&page);
    assert!(page.contains("ten &lt;times&gt;") && page.find("Claims").unwrap() < page.find("Growth curves").unwrap());
    let document = json(&recording, &findings).unwrap();
    let both: serde_json::Value = serde_json::from_str(&reproduction::into_json(&document, &case).unwrap()).unwrap();
    assert_eq!(serde_json::from_value::<ReproductionFindings>(both["case"].clone()).unwrap(), case);
    assert_eq!(serde_json::from_value::<GrowthFindings>(both["findings"].clone()).unwrap(), findings);
}
