//! A published finding beside what was measured, and the verdict: above everything else that a recording says.

use crate::number::{NONE, nanoseconds, percent, ratio, significant};
use crate::text::{Paint, wrapped};
use crate::{ReportError, Style};
use maud::html as markup;
use serde_json::Value;
use vmtax_model::{CaseFindings, CaseRow, CaseUnit, CaseVerdict};

/// The verdict for a terminal.
pub fn terminal(case: &CaseFindings, style: Style) -> String {
    let width = style.width.max(40);
    let paint = Paint(style.color);
    let mut out = wrapped(&format!("Case {}: {}. {}", case.name, case.title, case.claim), width, "", "");
    out.push_str(&wrapped(&format!("Published in {}.", case.source), width, "", ""));
    out.push('\n');
    for row in &case.rows {
        let line = format!(
            "{}: {}; published {}, measured {}; {}.",
            word(row.verdict),
            row.what,
            row.published,
            measured(row),
            row.why
        );
        out.push_str(&wrapped(&line, width, mark(row.verdict), "  "));
    }
    let code = if case.verdict == CaseVerdict::DoesNotHoldHere { "1;31" } else { "1;32" };
    out.push_str(&format!("\nVerdict: {}\n\n", paint.with(code, word(case.verdict))));
    out
}

/// A report's JSON with the case beside its findings.
///
/// # Errors
/// [`ReportError::Json`] for what has no form as JSON.
pub fn into_json(document: &str, case: &CaseFindings) -> Result<String, ReportError> {
    let failed = |source| ReportError::Json { what: "report of a case", source };
    let mut value: Value = serde_json::from_str(document).map_err(failed)?;
    value["case"] = serde_json::to_value(case).map_err(failed)?;
    serde_json::to_string_pretty(&value).map_err(failed)
}

/// A report's page with the case above everything else on it.
pub fn into_page(page: &str, case: &CaseFindings) -> String {
    let section = markup! {
        section.case aria-label="The case" {
            p.kicker { "Case " (case.name) " · published in " (case.source) }
            h1 { (case.title) ": " span.(class(case.verdict)) { (word(case.verdict)) } }
            p.lead { (case.claim) }
            div.scroll tabindex="0" role="region" aria-label="Claims" {
                table.taxes {
                    caption.hidden { "Claims of the case" }
                    thead { tr { @for name in ["claim", "published", "measured", "verdict", "why"] { th scope="col" { (name) } } } }
                    tbody {
                        @for row in &case.rows {
                            tr {
                                th.metric scope="row" { (row.what) }
                                td { (row.published) }
                                td.median { (measured(row)) }
                                td.(class(row.verdict)) { (word(row.verdict)) }
                                td { (row.why) }
                            }
                        }
                    }
                }
            }
        }
    };
    page.replacen("<main>", &format!("<main>{}", crate::printable(&section.into_string())), 1)
}

fn measured(row: &CaseRow) -> String {
    let Some(figure) = row.measured else { return NONE.to_owned() };
    let text = |v: f64| match row.unit {
        CaseUnit::Ratio => ratio(v),
        CaseUnit::Nanoseconds => nanoseconds(v),
        CaseUnit::Percent => percent(v / 100.0),
        CaseUnit::Count => significant(v),
    };
    let interval =
        figure.interval.map_or(String::new(), |i| format!(" (95 % interval {} to {})", text(i.low), text(i.high)));
    format!("{}{interval}", text(figure.median))
}

/// The verdict in words.
fn word(verdict: CaseVerdict) -> &'static str {
    match verdict {
        CaseVerdict::Holds => "holds",
        CaseVerdict::DoesNotHoldHere => "does not hold here",
        CaseVerdict::NotTestableHere => "not testable here",
    }
}

fn mark(verdict: CaseVerdict) -> &'static str {
    match verdict {
        CaseVerdict::Holds => "+ ",
        CaseVerdict::DoesNotHoldHere => "- ",
        CaseVerdict::NotTestableHere => "? ",
    }
}

fn class(verdict: CaseVerdict) -> &'static str {
    match verdict {
        CaseVerdict::Holds => "gains",
        CaseVerdict::DoesNotHoldHere => "costs",
        CaseVerdict::NotTestableHere => "open",
    }
}
