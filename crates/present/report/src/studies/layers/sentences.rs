//! Sentences about layers' findings, the same on the terminal and in HTML.

use crate::number::{count, counted, nanoseconds, percent, range, signed_percent};
use crate::text::{Joined, distinct, only_if};
use crate::view::layers::{self as view, Scale};
use crate::view::not_observed;
use vmtax_findings::{
    Batching, Comparison, Difference, Estimate, LayerColumn, LayerFindings, Matched, Verdict,
};
use vmtax_model::{Machine, Missing};

/// Returns the tracing overhead, compared with the untraced control.
pub fn observer(column: &LayerColumn) -> String {
    let Some(observer) = &column.observer else {
        return "not measured, there is no untraced run of the same requests".to_owned();
    };
    let ci = observer.interval.map_or(String::new(), |i| {
        let range = span(i.low - 1.0, i.high - 1.0, signed_percent);
        format!("; 95\u{a0}% CI {range}")
    });
    let effect = format!(
        "{} (median of the rounds' ratios, not the ratio of the medians above{ci})",
        signed_percent(observer.median - 1.0)
    );
    // The median of the rounds' medians, which is not the table's median of all requests: only its interval is given.
    let control = column.control_median.as_ref();
    let control = control.filter(|control| control.interval.is_some());
    let control = control.map_or(String::new(), |control| {
        let scale = Scale::for_total(control.median);
        let range = scale.range(control);
        format!(
            "; 95\u{a0}% CI of the untraced median: {range} {}",
            scale.unit
        )
    });
    effect + &control
}

/// Returns the time of a request less the cost of its events, compared with the untraced control; `None` if the cost
/// was not calibrated.
pub fn corrected(column: &LayerColumn) -> Option<String> {
    let corrected = column.corrected.as_ref()?;
    let whole = format!("{} at the median", nanoseconds(corrected.total.p50_ns));
    let taken = nanoseconds((column.traced.mean_ns - corrected.total.mean_ns).max(0.0));
    let number = corrected.events;
    let events = format!("tracing costs {taken} per request ({number:.1} events on average)");
    let Some(ratio) = &corrected.ratio else {
        return Some(format!(
            "{whole}, without a control to compare it with; {events}"
        ));
    };
    let difference = signed_percent(ratio.median - 1.0);
    let Some(i) = ratio.interval else {
        return Some(format!(
            "{whole}; {difference} against the control of the same round (median): inconclusive, too few rounds; {events}"
        ));
    };
    let holds = |traced: Estimate| (i.low..=i.high).contains(&traced.median);
    let holds_traced = column.observer.is_some_and(holds);
    let verdict = match Verdict::by_interval(ratio, 1.0) {
        Verdict::Faster => "they do not agree, tracing costs less than the calibration has it",
        Verdict::Slower => "they do not agree, tracing costs more than the calibration has it",
        // An interval that holds both ends tells nothing.
        _ if holds_traced => {
            "the noise is too large to tell whether the correction removes the tracing overhead"
        }
        _ => "they agree within the CI",
    };
    let range = span(i.low - 1.0, i.high - 1.0, signed_percent);
    Some(format!(
        "{whole}; {difference} against the control of the same round (median, 95\u{a0}% CI {range}): {verdict}; {events}"
    ))
}

/// Each variant against the first, in words.
pub fn differences(findings: &LayerFindings) -> Vec<String> {
    let all = findings.differences.iter();
    let several = distinct(all.clone().map(|one| one.machine)).len() > 1;
    let place = |one: &Difference| only_if(several, format!("{}: ", one.machine));
    all.map(|one| place(one) + &difference(one)).collect()
}

fn difference(d: &Difference) -> String {
    let (base, other) = (&d.base, &d.variant);
    let Some(i) = d.comparison.ratio.interval else {
        return format!(
            "{other} compared with {base}: inconclusive, too few rounds for a CI (untraced latency {}, median of paired ratios)",
            signed_percent(d.comparison.ratio.median - 1.0)
        );
    };
    let time = d.comparison.difference.and_then(|ns| {
        let (scale, i) = (Scale::for_total(ns.median), ns.interval?);
        let (low, high) = (scale.number(i.low), scale.number(i.high));
        Some(format!(" ({low} to {high} {})", scale.unit))
    });
    let time = time.unwrap_or_default();
    match d.comparison.verdict {
        Verdict::Faster => {
            let by = span(1.0 - i.high, 1.0 - i.low, percent);
            format!("{other} is faster than {base} by {by}{time}")
        }
        Verdict::Slower => {
            let by = span(i.low - 1.0, i.high - 1.0, percent);
            format!("{other} is slower than {base} by {by}{time}")
        }
        _ => format!(
            "{other} compared with {base}: inconclusive, the 95\u{a0}% CI of their ratio is {}",
            range(&i)
        ),
    }
}

/// The comparison of variants on a machine that an answer is about.
pub struct FirstDifference<'a> {
    /// The fastest variant that is shown to be faster; else the only one, where it is shown to be slower.
    pub shown: Option<&'a Difference>,
    /// The variant that others are compared with.
    pub base: &'a String,
    /// Number of variants that are compared with it.
    pub others: usize,
    /// The only variant that is compared with it.
    only: Option<&'a Difference>,
}

/// Returns the comparison of a machine's variants that an answer is about; `None` without variants.
pub fn first_difference(findings: &LayerFindings, machine: Machine) -> Option<FirstDifference<'_>> {
    let of_machine: Vec<&Difference> = findings
        .differences
        .iter()
        .filter(|one| one.machine == machine)
        .collect();
    let verdict = |one: &Difference| one.comparison.verdict;
    let cost = |one: &Difference| one.comparison.ratio.median;
    let faster = of_machine
        .iter()
        .copied()
        .filter(|one| verdict(one) == Verdict::Faster);
    let best = faster.min_by(|a, b| cost(a).total_cmp(&cost(b)));
    let only = of_machine
        .first()
        .copied()
        .filter(|_| of_machine.len() == 1);
    Some(FirstDifference {
        shown: best.or(only.filter(|one| verdict(one) == Verdict::Slower)),
        base: &of_machine.first()?.base,
        others: of_machine.len(),
        only,
    })
}

/// "6.0 % less than with aio=threads (95 % CI 4.0 to 9.0 %)".
pub fn against_base(shown: &Difference) -> String {
    let Comparison { ratio, verdict, .. } = &shown.comparison;
    let is_faster = *verdict == Verdict::Faster;
    let (word, change) = match is_faster {
        true => ("less", 1.0 - ratio.median),
        false => ("more", ratio.median - 1.0),
    };
    let interval = ratio.interval.map_or(String::new(), |i| {
        let by = match is_faster {
            true => span(1.0 - i.high, 1.0 - i.low, percent),
            false => span(i.low - 1.0, i.high - 1.0, percent),
        };
        format!(" (95\u{a0}% CI {by})")
    });
    let (by, base) = (percent(change), &shown.base);
    format!("{by} {word} than with {base}{interval}")
}

/// "none of 2 variants is shown to be faster", or why the only one is inconclusive.
pub fn against_none(best: &FirstDifference<'_>) -> String {
    let Some(only) = best.only else {
        return format!("none of {} variants is shown to be faster", best.others);
    };
    let why = match only.comparison.ratio.interval {
        None => "too few rounds for a CI".to_owned(),
        Some(i) => format!("95\u{a0}% CI of the ratio {}", range(&i)),
    };
    format!("{} is inconclusive: {why}", only.variant)
}

/// The layer whose part of a request changed most from the first column to the second: "host kernel 85.0 µs → 12.0 µs, of
/// a request's 240 µs → 160 µs (means, traced)"; `None` unless requests of two were followed.
pub fn moved(findings: &LayerFindings) -> Option<String> {
    let [before, after, ..] = view::columns(findings)[..] else {
        return None;
    };
    let layers = view::layers_of(&[before, after]).into_iter();
    let size = |means: &[f64]| (means[1] - means[0]).abs();
    let (layer, means) = layers.max_by(|a, b| size(&a.1).total_cmp(&size(&b.1)))?;
    let [was, is] = [means[0], means[1]].map(nanoseconds);
    let [before, after] = [before, after].map(|column| nanoseconds(column.traced.mean_ns));
    let layer = layer.label();
    Some(format!(
        "{layer} {was} → {is}, of a request's {before} → {after} (means, traced)"
    ))
}

/// Returns the agreement of both clocks.
pub fn clock(column: &LayerColumn) -> String {
    let clock = &column.clock;
    let drift = match clock.drift_ns {
        0.0 => "no drift beyond it".to_owned(),
        ns => format!("drift of {} more", nanoseconds(ns)),
    };
    let violations = match clock.violations {
        0 => "no causality violations".to_owned(),
        n => format!("{} violated causality, rejected", counted(n, "request")),
    };
    let marked = only_if(
        below_bound(column).is_some(),
        ". The clock error affects rows with one end in the guest and one on the host; shorter ones are marked †",
    );
    let (bound, source) = (nanoseconds(clock.bound_ns), &clock.source);
    format!("±{bound} between guest and host ({source}), {drift}; {violations}{marked}")
}

/// Returns the number of operations joined and rejected; `runs`: number of traced runs in a round.
pub fn matched(column: &LayerColumn, runs: usize) -> String {
    let m = &column.matched;
    let all = counted(m.operations, "traced request");
    let each = (runs > 1).then(|| format!("{runs} traced runs each"));
    let rounds = (column.rounds > 1).then(|| format!("{} rounds", column.rounds));
    let of = [rounds, each].into_iter().flatten().joined(", ");
    let of = only_if(!of.is_empty(), format!(" ({of})"));
    let lost = match m.lost_events {
        0 => "no events lost".to_owned(),
        n => format!("{} lost", counted(n, "event")),
    };
    let (matched, share, not) = (count(m.joined), joined(m), reasons(m, "; unmatched: "));
    let were = if m.joined == 1 { "was" } else { "were" };
    format!("{matched} of {all}{of} {were} matched in every layer ({share}){not}; {lost}")
}

/// From this part on the requests that fio counted and that were traced differ.
const OTHER_COUNT: f64 = 0.03;

/// Returns fio's own mean of the traced runs beside the sum of the layers; `None` of other workloads.
pub fn fio(column: &LayerColumn) -> Option<String> {
    let counted_by_fio = column.fio_requests.filter(|_| column.matched.joined > 0)?;
    let traced = column.matched.operations;
    let (mean, layers) = (
        column.traced.mean_ns,
        column.traced.mean_ns - column.unexplained_ns,
    );
    let difference = signed_percent(layers / mean - 1.0);
    let sum = format!(
        "its own mean completion latency with tracing is {}, the sum of the layers {} ({difference})",
        nanoseconds(mean),
        nanoseconds(layers)
    );
    let number = counted(counted_by_fio, "request");
    let others = traced.abs_diff(counted_by_fio) as f64 > OTHER_COUNT * counted_by_fio as f64;
    let why = only_if(
        others,
        ": the others did not go to the disk one by one (page cache, merged or split requests; direct=1 leaves the page cache out)",
    );
    Some(format!(
        "{sum}; it counted {number}, its system calls show {}{why}",
        count(traced)
    ))
}

/// That none of the traced operations was matched, why, and what to do.
pub fn none_followed(column: &LayerColumn, request: &str) -> String {
    let m = &column.matched;
    let next = match m.lost_events {
        0 => "`vmtax doctor` names what this host's tracing lacks",
        _ => "Events were lost: trace fewer operations, as with count=200",
    };
    let (all, why, place) = (count(m.operations), reasons(m, ": "), view::title(column));
    format!(
        "None of {all} traced {request}s in the {place} could be matched in every layer{why}. {next}."
    )
}

/// Why operations were not joined, with how many of each.
fn reasons(m: &Matched, before: &str) -> String {
    let reasons = m.rejected.iter();
    let reasons = reasons
        .map(|(reason, n)| format!("{} ({reason})", count(*n)))
        .joined(", ");
    only_if(!m.rejected.is_empty(), format!("{before}{reasons}"))
}

/// Returns the batching of packets, and those lost on the way; `None` if requests are no packets.
pub fn packets(column: &LayerColumn) -> Option<String> {
    let packets = column.packets.as_ref()?;
    let losses = [
        ("lost requests", packets.unanswered.lost),
        ("late responses", packets.unanswered.late),
        ("sent again", packets.repeated),
        ("out of order", packets.reordered),
    ];
    let losses = losses.map(|(what, n)| format!("{what} {}", count(n)));
    Some([batched(&packets.batching), losses.join(", ")].join("; "))
}

/// "2.50 transmitted per doorbell, 1.00 transmitted per write to the backend".
fn batched(all: &[Batching]) -> String {
    let text = |one: &Batching| format!("{:.2} {}", one.mean(), one.kind.label());
    all.iter().map(text).joined(", ")
}

/// A sentence, behind a space, on the batching of packets; empty where none is known.
pub fn batches(all: &[Batching]) -> String {
    only_if(!all.is_empty(), format!(" Packets: {}.", batched(all)))
}

/// The fraction that was joined, cut to two decimals and not rounded: 100 % means all.
pub fn joined(m: &Matched) -> String {
    let share = m.joined as f64 / m.operations.max(1) as f64;
    format!("{}\u{a0}%", (share * 10_000.0).floor() / 100.0)
}

/// Returns the data that could not be observed, each once, with the place where it is missing unless that is
/// everywhere.
pub fn missing(findings: &LayerFindings) -> Vec<String> {
    let all = distinct(findings.columns.iter().flat_map(|column| &column.missing));
    let text = |missing: &Missing| not_observed(missing, &place(findings, missing));
    all.into_iter().map(text).collect()
}

/// " (tcg; kvm, aio=native)": machines, with their variants where it is not all of them.
fn place(findings: &LayerFindings, m: &Missing) -> String {
    let all = || findings.columns.iter();
    let lacks = |column: &LayerColumn| column.missing.contains(m);
    if all().all(lacks) {
        return String::new();
    }
    let place = |column: &LayerColumn| {
        let machine = column.machine;
        let is_whole = all().filter(|other| other.machine == machine).all(lacks);
        let variant = only_if(!is_whole, format!(", {}", column.variant));
        format!("{machine}{variant}")
    };
    let places = distinct(all().filter(|column| lacks(column)).map(place));
    format!(" ({})", places.join("; "))
}

/// Returns the meaning of the mark †; `None` if no row has it.
pub fn below_bound(column: &LayerColumn) -> Option<&'static str> {
    view::taken(column)
        .any(|row| row.below_bound)
        .then_some("† shorter than the clock error: reliable only as a sum with the next rows")
}

/// "4.0 to 9.0 %".
fn span(low: f64, high: f64, text: impl Fn(f64) -> String) -> String {
    let low = text(low);
    format!("{} to {}", low.trim_end_matches('%').trim_end(), text(high))
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmtax_findings::Comparison;
    use vmtax_model::Interval;

    fn difference_of(low: f64, median: f64, high: f64, rounds_suffice: bool) -> String {
        // Of a base of 240 µs.
        let estimate = |of: fn(f64) -> f64| Estimate {
            median: of(median),
            interval: rounds_suffice.then_some(Interval {
                low: of(low),
                high: of(high),
                coverage: 0.97,
            }),
        };
        let (ratio, ns) = (estimate(|r| r), estimate(|r| (r - 1.0) * 240_000.0));
        let verdict = Verdict::by_interval(&ratio, 1.0);
        difference(&Difference {
            machine: Machine::TCG,
            base: "aio=threads".into(),
            variant: "aio=io_uring".into(),
            comparison: Comparison {
                ratio,
                difference: Some(ns),
                rounds: 6,
                p: None,
                verdict,
            },
        })
    }

    #[test]
    fn a_winner_only_where_there_is_one() {
        let nbsp = |text: String| text.replace('\u{a0}', " ");
        let faster = nbsp(difference_of(0.91, 0.94, 0.96, true));
        assert_eq!(
            faster,
            "aio=io_uring is faster than aio=threads by 4.0 to 9.0 % (−21.60 to −9.60 µs)"
        );
        let slower = nbsp(difference_of(1.04, 1.10, 1.20, true));
        assert!(
            slower.starts_with("aio=io_uring is slower than aio=threads by 4.0 to 20 %"),
            "{slower}"
        );
        let none = nbsp(difference_of(0.97, 1.0, 1.02, true));
        assert!(
            none.contains("inconclusive") && none.contains("0.970–1.020"),
            "{none}"
        );
        let few = nbsp(difference_of(0.9, 0.9, 0.9, false));
        assert!(
            few.contains("inconclusive, too few rounds")
                && few.contains("(untraced latency −10 %, median of paired ratios)"),
            "{few}"
        );
    }
}
