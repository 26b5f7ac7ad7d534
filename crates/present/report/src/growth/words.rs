//! What growth is called, for terminal and page.

use crate::number::{NONE, nanoseconds, percent, range, ratio};
use crate::view;
use vmtax_model::{Estimate, Growth, GrowthFindings, Interval, Law, Unit};
use vmtax_recording::Recording;

/// A law that leaves a rung's interval by more than this does not hold there.
const NOTABLE_MISFIT: f64 = 0.1;

/// Whose cost: "stat", or of a rate "direct requests, each".
pub fn what(growth: &Growth) -> String {
    let label = growth.metric.label();
    match growth.metric.unit() {
        Unit::Nanoseconds | Unit::Seconds | Unit::Mebibytes | Unit::Count => label.to_owned(),
        Unit::PerSecond => format!("{label}, each"),
        Unit::MebibytesPerSecond => format!("{label}, each MiB"),
    }
}

/// Where: "tcg, qemu=5.2".
pub fn place(growth: &Growth) -> String {
    let gap = if growth.variant.is_empty() { "" } else { ", " };
    format!("{}{gap}{}", growth.machine, growth.variant)
}

/// "O(n)", "O(n) or O(n log n)", "O(log n) to O(n²)"; a dash where none can be named.
pub fn law(growth: &Growth) -> String {
    let Some(law) = growth.law else { return NONE.to_owned() };
    let mut laws: Vec<Law> = [law].into_iter().chain(growth.or.iter().copied()).collect();
    if laws.len() > 2 {
        laws.sort_unstable();
        return format!("{} to {}", laws[0].notation(), laws[laws.len() - 1].notation());
    }
    laws.iter().map(|law| law.notation()).collect::<Vec<_>>().join(" or ")
}

/// What one more costs, with its sign where it costs nothing: "9.12 ns".
pub fn one_more(growth: &Growth) -> String {
    growth.one_more.map_or(NONE.to_owned(), |e| signed(e.median))
}

/// The interval of what one more costs.
pub fn one_more_range(growth: &Growth) -> String {
    growth.one_more.and_then(|e| e.interval).map_or(NONE.to_owned(), |i| ends(&i))
}

fn ends(i: &Interval) -> String {
    format!("{} to {}", signed(i.low), signed(i.high))
}

fn signed(ns: f64) -> String {
    format!("{}{}", if ns < 0.0 { "−" } else { "" }, nanoseconds(ns.abs()))
}

/// The top rung's cost over the bottom rung's: "×13.1".
pub fn change(growth: &Growth) -> String {
    growth.change.map_or(NONE.to_owned(), |e| ratio(e.median))
}

/// The whole answer in a sentence.
pub fn sentence(growth: &Growth, option: &str) -> String {
    let (what, place) = (what(growth), place(growth));
    let Some(found) = growth.law else {
        return format!(
            "{what} on {place}: too few rounds or rungs to name a law; it takes two rounds and three rungs."
        );
    };
    let interval = |e: &Estimate| e.interval.map_or(String::new(), |i| format!(" (95 % interval {})", ends(&i)));
    let over = growth.change.map_or(String::new(), |e| {
        let interval = e.interval.map_or(String::new(), |i| format!(" (95 % interval {})", range(&i)));
        format!("{}{interval} from the bottom rung to the top", ratio(e.median))
    });
    let misfit = match growth.misfit.filter(|m| *m > NOTABLE_MISFIT) {
        Some(share) => format!(
            " It is a rough fit: at one rung the law leaves the interval by {} (a step, as a cache has it, is no law).",
            percent(share)
        ),
        None => String::new(),
    };
    let one_more = growth.one_more.as_ref();
    if found == Law::Constant {
        let left = one_more.map_or(String::new(), |e| match e.interval {
            Some(i) => format!("; one more costs {} to {}, with 95 % coverage", signed(i.low), signed(i.high)),
            None => String::new(),
        });
        return format!("{what} on {place} shows no growth with {option}: O(1), {over}{left}.{misfit}");
    }
    let costs =
        one_more.map_or(String::new(), |e| format!("; {} costs {}{}", found.step(), signed(e.median), interval(e)));
    format!("{what} on {place} grows with {option} as {}: {over}{costs}.{misfit}", law(growth))
}

/// The growths most worth reading first: those that grow, the largest at least first; then the others in their order.
pub fn ranked(findings: &GrowthFindings) -> Vec<&Growth> {
    let mut all: Vec<&Growth> = findings.growths.iter().collect();
    let grows = |g: &Growth| g.law.is_some_and(|law| law != Law::Constant);
    let weight = |g: &Growth| if grows(g) { g.change.map_or(0.0, |e| e.at_least()) } else { f64::NEG_INFINITY };
    all.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
    all
}

/// "n = 6 rounds".
pub fn rounds(findings: &GrowthFindings) -> String {
    let (done, planned) = (findings.rounds_complete, findings.rounds_planned);
    let plural = if planned == 1 { "" } else { "s" };
    if done == planned { format!("n = {done} round{plural}") } else { format!("n = {done} of {planned} round{plural}") }
}

/// Rungs without a value, each with its reason.
pub fn missing(findings: &GrowthFindings) -> Vec<String> {
    let one = |m: &vmtax_model::MissingRung| {
        let gap = if m.variant.is_empty() { "" } else { ", " };
        format!("{}={} on {}{gap}{}: {}", findings.option, m.size, m.machine, m.variant, m.reason)
    };
    findings.missing.iter().map(one).collect()
}

/// What the reader has to know.
pub fn warnings(recording: &Recording, findings: &GrowthFindings) -> Vec<String> {
    view::warnings(recording, &findings.warnings)
}
