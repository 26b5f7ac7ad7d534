//! Which way to share a tree: by what was shown, never by a median alone.

use vmtax_model::{Estimate, Plan, ShareColumn, ShareFindings};

const MOST: usize = 5;
/// Faster by less than this is not worth another way to share.
const WORTH: f64 = 0.95;

/// The advice, most important first.
pub(crate) fn advice(plan: &Plan, findings: &ShareFindings) -> Vec<String> {
    let mut all = Vec::new();
    for score in &findings.scores {
        let Some(base) = findings.columns.get(findings.base) else { continue };
        let guests = findings.columns.iter().zip(&score.cells).enumerate();
        let ways = guests.filter(|(i, (c, _))| *i != findings.base && c.machine.is_guest());
        let known: Vec<(&ShareColumn, Estimate)> = ways.filter_map(|(_, (c, e))| Some((c, (*e)?))).collect();
        let shown = known.iter().filter(|(_, e)| e.interval.is_some_and(|i| i.high < WORTH));
        // By the interval's upper end: what it costs at most.
        let at_most = |e: &Estimate| e.interval.map_or(e.median, |i| i.high);
        match shown.min_by(|a, b| at_most(&a.1).total_cmp(&at_most(&b.1))) {
            Some((column, cost)) => all.push(take(score.workload.as_str(), base, column, cost)),
            None if known.iter().any(|(_, e)| e.interval.is_some()) => all.push(format!(
                "For {} no way is shown to be faster than {}.",
                score.workload,
                base.variant.escape_default()
            )),
            None => {}
        }
    }
    all.extend(findings.columns.iter().filter_map(failed));
    if all.is_empty() && plan.rounds < crate::FEWEST_ROUNDS {
        all.push(format!("Take {} rounds or more to know which way is faster: --rounds {0}.", crate::FEWEST_ROUNDS));
    }
    all.truncate(MOST);
    all
}

fn take(workload: &str, base: &ShareColumn, column: &ShareColumn, cost: &Estimate) -> String {
    let range = cost.interval.map_or(String::new(), |i| format!(" ({:.2} to {:.2})", i.low, i.high));
    let mut text = format!(
        "For {workload} share by {}: it takes {:.2} times as long as {}{range}.",
        column.variant.escape_default(),
        cost.median,
        base.variant.escape_default()
    );
    if let Some(facts) = &column.facts {
        text += &format!(" QEMU: {}", facts.qemu.join(" "));
        if !facts.server.is_empty() {
            text += &format!(" · server: {}", facts.server.join(" "));
        }
        text += &format!(" · in the guest, /proc/mounts: {}", facts.mount);
    }
    text
}

fn failed(column: &ShareColumn) -> Option<String> {
    let reason = column.failed.as_ref()?;
    let name = if column.variant.is_empty() { column.machine.as_str() } else { &column.variant };
    Some(format!("{} could not be measured: {}", name.escape_default(), reason.lines().next().unwrap_or_default()))
}
