//! What the host can do, a line a check, and what fixes what it cannot.

use crate::engine::remedy_text;
use crate::text::{Paint, columns, fit, plain, wrapped};
use crate::{ReportError, Style};
use vmtax_model::{Check, HostFacts, Readiness};

/// The facts for a terminal: a line for each check, then why it matters and what fixes it for each that is not ok.
pub fn doctor_terminal(facts: &HostFacts, style: Style) -> String {
    let width = style.width.max(40);
    let paint = Paint(style.color);
    let widest = facts.checks.iter().map(|c| columns(&plain(&c.subject))).max().unwrap_or(0);
    let subject = widest.min(width / 3);
    let indent = " ".repeat(10 + subject + 2);
    let mut out = String::new();
    for check in &facts.checks {
        let name = fit(&plain(&check.subject), subject);
        let lead = format!("  {:<8}{name}{}", marker(check.state), " ".repeat(subject + 2 - columns(&name)));
        let lines = wrapped(&check.found, width, &lead, &indent);
        out.push_str(&lines.replacen(marker(check.state), &painted(check.state, paint), 1));
    }
    let poor: Vec<&Check> = facts.checks.iter().filter(|c| c.state != Readiness::Ok).collect();
    if poor.is_empty() {
        out.push_str("\nEverything vmtax can use is here.\n");
        return out;
    }
    for check in poor {
        out.push('\n');
        let heading = wrapped(&format!("{} is {}", check.subject, marker(check.state)), width, "", "");
        out.push_str(&paint.bold(heading.trim_end()));
        out.push('\n');
        out.push_str(&wrapped(&check.why, width, "  ", "  "));
        for remedy in &check.remedies {
            out.push_str(&wrapped(&remedy_text(remedy), width, "  → ", "    "));
        }
    }
    out
}

/// The facts for scripts.
///
/// # Errors
/// [`ReportError::Json`] for a value JSON has no form for (a path that is not UTF-8).
pub fn doctor_json(facts: &HostFacts) -> Result<String, ReportError> {
    serde_json::to_string_pretty(facts).map_err(|source| ReportError::Json { what: "doctor's facts", source })
}

/// The word for a state.
pub fn marker(state: Readiness) -> &'static str {
    match state {
        Readiness::Ok => "ok",
        Readiness::Limited => "limited",
        Readiness::Missing => "missing",
    }
}

fn painted(state: Readiness, paint: Paint) -> String {
    let colour = match state {
        Readiness::Ok => "32",
        Readiness::Limited => "33",
        Readiness::Missing => "31",
    };
    paint.with(colour, marker(state))
}
