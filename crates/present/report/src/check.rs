//! A check against a baseline: for a terminal, and for the tools of pipelines.

use crate::number::{NONE, percent, range, ratio};
use crate::table::{self, right};
use crate::text::{Paint, columns, fit, plain, section, wrapped};
use crate::{ReportError, Style};
use comfy_table::{Cell, Color};
use vmtax_model::{CheckFindings, Checked, CheckedRow};

/// For a terminal.
pub fn terminal(findings: &CheckFindings, style: Style) -> String {
    let width = style.width.max(40);
    let mut out = wrapped(&heading(findings), width, "", "");
    out.push('\n');
    let fits = |text: &String| text.lines().all(|line| columns(line) <= width);
    let tries = [usize::MAX, 34, 26, 20, 14].map(|room| built(findings, room, style.color));
    out.push_str(tries.iter().find(|t| fits(t)).unwrap_or(&tries[tries.len() - 1]));
    out.push_str("\n\n");
    out.push_str(&wrapped(&outcome(findings), width, "→ ", "  "));
    let warnings: Vec<String> = findings.warnings.iter().map(ToString::to_string).collect();
    section(&mut out, &Paint(style.color).with("1;33", "Warnings"), &warnings, "! ", width);
    out
}

/// The findings as JSON.
///
/// # Errors
/// [`ReportError::Json`] for a value JSON has no form for.
pub fn json(findings: &CheckFindings) -> Result<String, ReportError> {
    let text = serde_json::to_string_pretty(findings);
    text.map(|text| text + "\n").map_err(|source| ReportError::Json { what: "check", source })
}

/// JUnit's XML: a test case for each metric.
pub fn junit(findings: &CheckFindings) -> String {
    let failures = findings.rows.iter().filter(|r| r.checked == Checked::Worse).count();
    let skipped = findings.rows.iter().filter(|r| r.checked == Checked::TooFewRounds).count();
    let count = findings.rows.len();
    let mut out = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  <testsuite name=\"vmtax\" tests=\"{count}\" failures=\"{failures}\" skipped=\"{skipped}\" errors=\"0\">\n"
    );
    for row in &findings.rows {
        out += &format!("    <testcase classname=\"{}\" name=\"{}\"", xml(&row.place), xml(row.metric.id()));
        let said = xml(&sentence(row, findings));
        out += &match row.checked {
            Checked::Passed => "/>\n".to_owned(),
            Checked::Worse => format!(">\n      <failure message=\"{said}\"/>\n    </testcase>\n"),
            Checked::TooFewRounds => format!(">\n      <skipped message=\"{said}\"/>\n    </testcase>\n"),
        };
    }
    out + "  </testsuite>\n</testsuites>\n"
}

/// A table for a comment.
pub fn markdown(findings: &CheckFindings) -> String {
    let mut out = format!(
        "**{}**\n\n{}\n\n| | metric | cost now / then | interval | may be | rounds |\n|---|---|--:|--:|--:|--:|\n",
        cell(&outcome(findings)),
        cell(&heading(findings))
    );
    for row in &findings.rows {
        let mark = match row.checked {
            Checked::Passed => "passed",
            Checked::Worse => "**worse**",
            Checked::TooFewRounds => "too few rounds",
        };
        out += &format!(
            "| {mark} | {} on {} | {} | {} | {} | {}, {} |\n",
            row.metric,
            cell(&row.place),
            ratio(row.ratio.median),
            interval(row),
            most(row),
            row.rounds.0,
            row.rounds.1
        );
    }
    out
}

/// Commands by which GitHub's workflows annotate: an error for each metric that is worse.
pub fn github(findings: &CheckFindings) -> String {
    let mut out = String::new();
    for row in findings.rows.iter().filter(|r| r.checked == Checked::Worse) {
        // https://docs.github.com/actions: what would end the line or the property is written as a percent code.
        let escaped = |text: &str| plain(text).replace('%', "%25");
        let title = escaped(&format!("{} on {}", row.metric, row.place)).replace(':', "%3A").replace(',', "%2C");
        out += &format!("::error title={title}::{}\n", escaped(&sentence(row, findings)));
    }
    out
}

fn heading(findings: &CheckFindings) -> String {
    format!(
        "{} checked against {}, {} sure that a metric is worse by more than it may be",
        findings.now,
        findings.baseline,
        percent(findings.confidence)
    )
}

fn outcome(findings: &CheckFindings) -> String {
    let worse: Vec<&CheckedRow> = findings.rows.iter().filter(|r| r.checked == Checked::Worse).collect();
    let unsaid = findings.rows.iter().filter(|r| r.checked == Checked::TooFewRounds).count();
    let unsaid = if unsaid > 0 { format!(" Of {unsaid} there are too few rounds to say.") } else { String::new() };
    match worse.as_slice() {
        [] => format!("No metric of {} is shown to be worse by more than it may be.{unsaid}", findings.rows.len()),
        [one] => format!("Worse: {}.{unsaid}", sentence(one, findings)),
        all => format!("{} of {} metrics are worse by more than they may be.{unsaid}", all.len(), findings.rows.len()),
    }
}

fn sentence(row: &CheckedRow, findings: &CheckFindings) -> String {
    format!(
        "{} on {} costs {} what it did ({} interval {}; {} and {} rounds), it may cost {}",
        row.metric,
        row.place,
        ratio(row.ratio.median),
        percent(2.0 * findings.confidence - 1.0),
        interval(row),
        row.rounds.0,
        row.rounds.1,
        most(row)
    )
}

fn most(row: &CheckedRow) -> String {
    ratio(1.0 + row.threshold)
}

fn interval(row: &CheckedRow) -> String {
    row.ratio.interval.as_ref().map_or_else(|| NONE.to_owned(), range)
}

fn built(findings: &CheckFindings, room: usize, color: bool) -> String {
    let mut table = table::empty(color);
    table.set_header(vec![
        Cell::new("metric"),
        right("cost now/then"),
        right("interval"),
        right("may be"),
        right("n"),
        Cell::new("outcome"),
    ]);
    for row in &findings.rows {
        let outcome = Cell::new(row.checked);
        table.add_row(vec![
            Cell::new(fit(&plain(&format!("{} on {}", row.metric, row.place)), room)),
            right(ratio(row.ratio.median)),
            right(interval(row)),
            right(most(row)),
            right(format!("{}, {}", row.rounds.0, row.rounds.1)),
            if row.checked == Checked::Worse { outcome.fg(Color::Red) } else { outcome },
        ]);
    }
    table::lines(table)
}

/// A text within a cell of Markdown.
fn cell(text: &str) -> String {
    plain(text).replace('|', "\\|").replace('<', "&lt;")
}

fn xml(text: &str) -> String {
    plain(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmtax_model::{Estimate, Interval, Metric};

    fn findings(place: &str) -> CheckFindings {
        let row = |metric, median: f64, checked| CheckedRow {
            place: place.to_owned(),
            metric,
            ratio: Estimate {
                median,
                interval: Some(Interval { low: median - 0.1, high: median + 0.1, coverage: 0.9 }),
            },
            rounds: (6, 8),
            threshold: 0.05,
            checked,
        };
        CheckFindings {
            schema: 1,
            baseline: "old".to_owned(),
            now: "new".to_owned(),
            confidence: 0.95,
            rows: vec![row(Metric::CpuEvents, 1.3, Checked::Worse), row(Metric::MutexTime, 1.0, Checked::Passed)],
            warnings: Vec::new(),
        }
    }

    #[test]
    fn names_cannot_break_out() {
        let hostile = "tcg, a\"<b>|&\n::error::x%,";
        let xml = junit(&findings(hostile));
        assert!(
            xml.contains("tests=\"2\" failures=\"1\"") && xml.contains("a&quot;&lt;b&gt;|&amp; ::error::x%,"),
            "{xml}"
        );
        let markdown = markdown(&findings(hostile));
        assert!(markdown.contains("a\"&lt;b>\\|&") && markdown.lines().count() == 8, "{markdown}");
        let annotations = github(&findings(hostile));
        assert_eq!(annotations.lines().count(), 1, "{annotations}");
        assert!(annotations.starts_with("::error title=cpu.events on tcg%2C a"), "{annotations}");
        assert!(annotations.contains("%25%2C::cpu.events on"), "{annotations}");
    }

    #[test]
    fn no_line_is_too_wide() {
        for width in [80, 100] {
            let text = terminal(&findings("tcg"), Style { width, color: false });
            assert!(text.lines().all(|l| columns(l) <= width), "{text}");
            assert!(text.contains("worse") && text.contains("×1.300"), "{text}");
        }
    }
}
