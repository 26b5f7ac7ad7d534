//! A check against a baseline: for a terminal, and for the tools of pipelines.

use crate::engine::{Cell, Notice, Report, Section, Table, Tone, figures, words};
use crate::number::{percent, ratio, value};
use crate::text::{only_if, plain};
use crate::view;
use crate::view::verdict::{self, Pair, interval};
use vmtax_findings::{CheckFindings, CheckedRow, Verdict};

/// Makes the report of a check: metrics with their thresholds, passed or worse.
pub fn report(findings: &CheckFindings) -> Report<'static> {
    let outcome_of = |row: &&CheckedRow| match row.comparison.verdict {
        Verdict::Slower => Cell::strong("worse").tone(Tone::Bad),
        Verdict::TooFewRounds => Cell::from("too few rounds").tone(Tone::Soft),
        _ => Cell::from("passed"),
    };
    let sides = ["then", "now"].map(|name| figures(name).spare(3));
    let ci = figures(format!("{} CI", percent(coverage(findings))));
    let table = Table::of("Metrics and their thresholds", &findings.rows)
        .column(words("metric").cut(24, 14), |row| {
            format!("{} on {}", row.metric, row.place)
        })
        .columns(sides, |row| {
            [row.then, row.now].map(|median| value(row.metric.unit(), median))
        })
        .column(figures("slowdown"), |row| pair(row).text())
        .column(ci.spare(2), |row| interval(&row.comparison.ratio))
        .column(figures("threshold"), |row| most(row))
        .column(figures("rounds").spare(1), |row| {
            format!("{}, {}", row.rounds.0, row.rounds.1)
        })
        .column(words("result"), outcome_of)
        .done()
        .notes(notes(findings));
    let confidence = percent(findings.confidence);
    Report {
        study: "check",
        title: format!("{} checked against {}", findings.now, findings.baseline),
        basis: vec![format!(
            "worse: exceeds its threshold at {confidence} confidence"
        )],
        answer: outcome(findings),
        notices: vec![Notice::warnings(view::in_words(&findings.warnings))],
        sections: vec![Section::new("", [table])],
        ..Report::default()
    }
}

/// Returns the coverage, 0 to 1, of the two-sided interval whose lower side has the requested confidence.
fn coverage(findings: &CheckFindings) -> f64 {
    2.0 * findings.confidence - 1.0
}

fn pair(row: &CheckedRow) -> Pair {
    Pair {
        cost: row.comparison.ratio.median,
        base: row.then,
        other: row.now,
        better: Some(row.metric.better()),
    }
}

/// Returns the meaning of the columns and marks.
fn notes(findings: &CheckFindings) -> Vec<String> {
    let opposed = |row: &CheckedRow| pair(row).is_opposed();
    let meaning = "Then and now: medians of the rounds. Slowdown: the median of the ratios (paired) of each round now to each \
                   round then; for a rate, then to now. Worse: the whole interval is above the threshold.";
    let opposed = verdict::opposed_note(findings.rows.iter().any(opposed));
    [meaning.to_owned()].into_iter().chain(opposed).collect()
}

/// JUnit's XML: a test case for each metric.
pub fn junit(findings: &CheckFindings) -> String {
    let [failures, skipped] = [Verdict::Slower, Verdict::TooFewRounds]
        .map(|verdict| with_verdict(findings, verdict).count());
    let count = findings.rows.len();
    let mut out = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  <testsuite name=\"vmtax\" tests=\"{count}\" failures=\"{failures}\" skipped=\"{skipped}\" errors=\"0\">\n"
    );
    for row in &findings.rows {
        let (place, metric) = (xml(&row.place), xml(row.metric.id()));
        out += &format!("    <testcase classname=\"{place}\" name=\"{metric}\"");
        let said = xml(&sentence(row, findings));
        out += &match row.comparison.verdict {
            Verdict::Slower => format!(">\n      <failure message=\"{said}\"/>\n    </testcase>\n"),
            Verdict::TooFewRounds => {
                format!(">\n      <skipped message=\"{said}\"/>\n    </testcase>\n")
            }
            _ => "/>\n".to_owned(),
        };
    }
    out + "  </testsuite>\n</testsuites>\n"
}

/// Commands by which GitHub's workflows annotate: an error for each metric that is worse.
pub fn github(findings: &CheckFindings) -> String {
    let mut out = String::new();
    for row in with_verdict(findings, Verdict::Slower) {
        // https://docs.github.com/actions: what would end the line or the property is written as a percent code.
        let escaped = |text: &str| plain(text).replace('%', "%25");
        let title = escaped(&format!("{} on {}", row.metric, row.place))
            .replace(':', "%3A")
            .replace(',', "%2C");
        let said = escaped(&sentence(row, findings));
        out += &format!("::error title={title}::{said}\n");
    }
    out
}

/// The rows with a verdict: slower is worse by more than it may be.
fn with_verdict(findings: &CheckFindings, verdict: Verdict) -> impl Iterator<Item = &CheckedRow> {
    let rows = findings.rows.iter();
    rows.filter(move |row| row.comparison.verdict == verdict)
}

fn outcome(findings: &CheckFindings) -> String {
    let worse: Vec<&CheckedRow> = with_verdict(findings, Verdict::Slower).collect();
    let unsaid = with_verdict(findings, Verdict::TooFewRounds).count();
    let unsaid = only_if(unsaid > 0, format!(" {unsaid} not tested: too few rounds."));
    let rows = findings.rows.len();
    match worse.as_slice() {
        [] if findings.tested_nothing() => format!(
            "None of {rows} metrics could be tested: too few rounds. Measure both with more --rounds."
        ),
        [] => {
            format!("None of {rows} metrics is worse by more than its threshold.{unsaid}")
        }
        [one] => format!("Worse: {}.{unsaid}", sentence(one, findings)),
        all => {
            let worse = all.len();
            format!("{worse} of {rows} metrics are worse by more than their thresholds.{unsaid}")
        }
    }
}

fn sentence(row: &CheckedRow, findings: &CheckFindings) -> String {
    format!(
        "{} on {} has a slowdown of {} (median of paired ratios, {} CI {}; {} instead of {}; {} and {} rounds); the threshold is {}",
        row.metric,
        row.place,
        ratio(row.comparison.ratio.median),
        percent(coverage(findings)),
        interval(&row.comparison.ratio),
        value(row.metric.unit(), row.now),
        value(row.metric.unit(), row.then),
        row.rounds.0,
        row.rounds.1,
        most(row)
    )
}

fn most(row: &CheckedRow) -> String {
    ratio(1.0 + row.threshold)
}

fn xml(text: &str) -> String {
    plain(text)
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmtax_findings::{Comparison, Estimate};
    use vmtax_model::{Interval, Metric};

    fn findings(place: &str) -> CheckFindings {
        let row = |metric, median: f64, verdict| CheckedRow {
            place: place.to_owned(),
            metric,
            then: 100.0,
            now: 100.0 / median,
            comparison: Comparison {
                ratio: Estimate {
                    median,
                    interval: Some(Interval {
                        low: median - 0.1,
                        high: median + 0.1,
                        coverage: 0.9,
                    }),
                },
                difference: None,
                rounds: 6,
                p: None,
                verdict,
            },
            rounds: (6, 8),
            threshold: 0.05,
        };
        CheckFindings {
            schema: 1,
            baseline: "old".to_owned(),
            now: "new".to_owned(),
            confidence: 0.95,
            rows: vec![
                row(Metric::CpuEvents, 1.3, Verdict::Slower),
                row(Metric::MutexTime, 1.0, Verdict::Inconclusive),
            ],
            warnings: Vec::new(),
        }
    }

    #[test]
    fn names_cannot_break_out() {
        let hostile = "tcg, a\"<b>|&\n::error::x%,";
        let xml = junit(&findings(hostile));
        assert!(
            xml.contains("tests=\"2\" failures=\"1\"")
                && xml.contains("a&quot;&lt;b&gt;|&amp; ::error::x%,"),
            "{xml}"
        );
        let markdown = report(&findings(hostile)).markdown();
        assert!(markdown.contains("a\"&lt;b>\\|&"), "{markdown}");
        let rows = markdown.lines().filter(|l| l.starts_with("| ")).count();
        assert_eq!(rows, 4, "{markdown}");
        let annotations = github(&findings(hostile));
        assert_eq!(annotations.lines().count(), 1, "{annotations}");
        assert!(
            annotations.starts_with("::error title=cpu.events on tcg%2C a"),
            "{annotations}"
        );
        assert!(
            annotations.contains("%25%2C::cpu.events on"),
            "{annotations}"
        );
    }

    #[test]
    fn no_line_is_too_wide() {
        for width in [80, 100] {
            let text = report(&findings("tcg")).terminal(
                crate::Style {
                    width,
                    color: false,
                },
                false,
            );
            assert!(
                text.lines().all(|l| crate::text::columns(l) <= width),
                "{text}"
            );
            assert!(text.contains("worse") && text.contains("×1.300"), "{text}");
        }
    }
}
