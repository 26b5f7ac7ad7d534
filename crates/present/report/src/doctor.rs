//! What the host can do, a line a check, and what fixes what it cannot.

use crate::engine::{Block, Cell, Column, Filled, Report, Section, Table, Tone, remedy_text};
use vmtax_model::{Check, HostFacts, Readiness};

/// The report: each check, then why it matters and what fixes it for each that is not ok.
pub fn doctor(facts: &HostFacts) -> Report<'static> {
    let poor: Vec<&Check> = facts.checks.iter().filter(|check| check.state != Readiness::Ok).collect();
    let fixes = poor.iter().map(|check| {
        let fixes = check.remedies.iter().map(|remedy| Block::Text(format!("→ {}", remedy_text(remedy))));
        let blocks = [Block::Text(check.why.clone())].into_iter().chain(fixes).collect();
        Section::new(format!("{} is {}", check.subject, marker(check.state)), blocks)
    });
    let all = Section::new("", vec![Block::Table(checks(&facts.checks).done())]);
    Report {
        study: "doctor",
        title: "What this host can do".to_owned(),
        basis: vec![facts.cpu.model.clone(), format!("{}, Linux {}", facts.distribution, facts.kernel)],
        answer: match poor.len() {
            0 => "Everything vmtax can use is here.".to_owned(),
            n => format!("{n} of {} checks are not ok: below, what fixes them.", facts.checks.len()),
        },
        sections: [all].into_iter().chain(fixes).collect(),
        ..Report::default()
    }
}

/// What each check found.
pub fn checks(checks: &[Check]) -> Filled<&Check> {
    Table::of("Checks of the host", checks)
        .column(Column::words("check").broken(16, 8), |check| check.subject.as_str())
        .column(Column::words("state"), |check| {
            Cell::from(marker(check.state)).tone(match check.state {
                Readiness::Ok => Tone::Good,
                Readiness::Limited => Tone::Warn,
                Readiness::Missing => Tone::Bad,
            })
        })
        .column(Column::words("found").broken(24, 12), |check| check.found.as_str())
}

/// The word for a state.
fn marker(state: Readiness) -> &'static str {
    match state {
        Readiness::Ok => "ok",
        Readiness::Limited => "limited",
        Readiness::Missing => "missing",
    }
}
