//! Sentences about layers' findings, the same on the terminal and in HTML.

use crate::number::{count, counted, nanoseconds, percent, range, signed_percent};
use crate::text::{Joined, only_if};
use crate::view::layers::{self as view, Scale};
use crate::view::not_observed;
use vmtax_model::{
    Batching, Difference, LayerColumn, LayerFindings, Machine, Matched, Missing, Verdict,
};

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
    let control = column
        .control_median
        .as_ref()
        .filter(|control| control.interval.is_some());
    control.map_or(effect.clone(), |control| {
        let scale = Scale::of(control.median);
        format!(
            "{effect}; 95\u{a0}% CI of the untraced median: {} {}",
            scale.range(control),
            scale.unit
        )
    })
}

/// Returns the time of a request less the cost of its events, compared with the untraced control; `None` if the cost
/// was not calibrated.
pub fn corrected(column: &LayerColumn) -> Option<String> {
    let corrected = column.corrected.as_ref()?;
    let whole = format!("{} at the median", nanoseconds(corrected.total.p50_ns));
    let taken = nanoseconds((column.traced.mean_ns - corrected.total.mean_ns).max(0.0));
    let events = format!(
        "tracing costs {taken} per request ({:.1} events on average)",
        corrected.events
    );
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
    let verdict = match Verdict::of(ratio, 1.0) {
        Verdict::Faster => "they do not agree, tracing costs less than the calibration has it",
        Verdict::Slower => "they do not agree, tracing costs more than the calibration has it",
        // An interval that holds both ends tells nothing.
        _ if column
            .observer
            .is_some_and(|traced| (i.low..=i.high).contains(&traced.median)) =>
        {
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
    let several = findings
        .differences
        .iter()
        .any(|d| Some(d.machine) != findings.differences.first().map(|f| f.machine));
    let place = |d: &Difference| only_if(several, format!("{}: ", d.machine));
    findings
        .differences
        .iter()
        .map(|d| format!("{}{}", place(d), difference(d)))
        .collect()
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
        let (scale, i) = (Scale::of(ns.median), ns.interval?);
        Some(format!(
            " ({} to {} {})",
            scale.number(i.low),
            scale.number(i.high),
            scale.unit
        ))
    });
    let time = time.unwrap_or_default();
    match d.comparison.verdict {
        Verdict::Faster => {
            format!(
                "{other} is faster than {base} by {}{time}",
                span(1.0 - i.high, 1.0 - i.low, percent)
            )
        }
        Verdict::Slower => {
            format!(
                "{other} is slower than {base} by {}{time}",
                span(i.low - 1.0, i.high - 1.0, percent)
            )
        }
        _ => format!(
            "{other} compared with {base}: inconclusive, the 95\u{a0}% CI of their ratio is {}",
            range(&i)
        ),
    }
}

/// Returns the fastest variant of a machine, or that none is shown to be fastest; `None` without variants.
pub fn fastest(findings: &LayerFindings, machine: Machine) -> Option<String> {
    let of_machine = || findings.differences.iter().filter(|d| d.machine == machine);
    let faster = of_machine().filter(|d| d.comparison.verdict == Verdict::Faster);
    let best = faster.min_by(|a, b| {
        a.comparison
            .ratio
            .median
            .total_cmp(&b.comparison.ratio.median)
    });
    let first = best.or_else(|| of_machine().next())?;
    Some(match of_machine().count() {
        others if others > 1 && best.is_none() => {
            format!(
                "None of {others} variants is shown to be faster than {}",
                first.base
            )
        }
        _ => difference(first),
    })
}

/// The layer whose part of a request changed most from the first column to the second: "host kernel 85.0 µs → 12.0 µs, of a request's
/// 240 µs → 160 µs (means, traced)"; `None` unless requests of two were followed.
pub fn moved(findings: &LayerFindings) -> Option<String> {
    let [before, after, ..] = view::columns(findings)[..] else {
        return None;
    };
    let layers = view::layers_of(&[before, after])
        .into_iter()
        .map(|(layer, means)| (layer, means[0], means[1]));
    let (layer, was, is) = layers.max_by(|a, b| (a.2 - a.1).abs().total_cmp(&(b.2 - b.1).abs()))?;
    let whole = [before, after].map(|column| nanoseconds(column.traced.mean_ns));
    Some(format!(
        "{} {} → {}, of a request's {} → {} (means, traced)",
        layer.label(),
        nanoseconds(was),
        nanoseconds(is),
        whole[0],
        whole[1]
    ))
}

/// Returns the agreement of both clocks.
pub fn clock(column: &LayerColumn) -> String {
    let clock = &column.clock;
    let drift = if clock.drift_ns == 0.0 {
        "no drift beyond it".to_owned()
    } else {
        format!("drift of {} more", nanoseconds(clock.drift_ns))
    };
    let violations = match clock.violations {
        0 => "no causality violations".to_owned(),
        n => format!("{} violated causality, rejected", counted(n, "request")),
    };
    let marked = below_bound(&[column]).map_or(
        "",
        |_| ". The clock error affects rows with one end in the guest and one on the host; shorter ones are marked †",
    );
    format!(
        "±{} between guest and host ({}), {drift}; {violations}{marked}",
        nanoseconds(clock.bound_ns),
        clock.source
    )
}

/// Returns the number of operations joined and rejected; `runs`: number of traced runs in a round.
pub fn matched(column: &LayerColumn, runs: usize) -> String {
    let m = &column.matched;
    let all = counted(m.operations, "traced request");
    let each = (runs > 1).then(|| format!("{runs} traced runs each"));
    let rounds = (column.rounds > 1).then(|| format!("{} rounds", column.rounds));
    let of = [rounds, each].into_iter().flatten().joined(", ");
    let of = if of.is_empty() {
        of
    } else {
        format!(" ({of})")
    };
    let text = format!(
        "{} of {all}{of} were matched in every layer ({}){}",
        count(m.joined),
        joined(m),
        reasons(m, "; not: ")
    );
    let lost = match m.lost_events {
        0 => "no events lost".to_owned(),
        n => format!("{} lost", counted(n, "event")),
    };
    format!("{text}; {lost}")
}

/// That none of the traced operations was followed, why, and what to do.
pub fn none_followed(column: &LayerColumn, request: &str) -> String {
    let m = &column.matched;
    let next = if m.lost_events > 0 {
        "Events were lost: trace fewer operations, as with count=200"
    } else {
        "`vmtax doctor` names what this host's tracing lacks"
    };
    let why = reasons(m, ": ");
    format!(
        "None of {} traced {request}s in the {} could be followed{why}. {next}.",
        count(m.operations),
        view::title(column)
    )
}

/// Why operations were not joined, with how many of each.
fn reasons(m: &Matched, before: &str) -> String {
    if m.rejected.is_empty() {
        return String::new();
    }
    let reasons: Vec<String> = m
        .rejected
        .iter()
        .map(|(reason, n)| format!("{} ({reason})", count(*n)))
        .collect();
    format!("{before}{}", reasons.join(", "))
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
    let texts = all
        .iter()
        .map(|batching| format!("{:.2} {}", batching.mean(), batching.kind.label()));
    texts.joined(", ")
}

/// A sentence, behind a space, on the batching of packets; empty where none is known.
pub fn batches(all: &[Batching]) -> String {
    match all {
        [] => String::new(),
        all => format!(" Packets: {}.", batched(all)),
    }
}

/// The fraction that was joined, cut to two decimals and not rounded: 100 % means all.
pub fn joined(m: &Matched) -> String {
    let share = if m.operations == 0 {
        0.0
    } else {
        m.joined as f64 / m.operations as f64
    };
    format!("{}\u{a0}%", (share * 10_000.0).floor() / 100.0)
}

/// Returns the data that could not be observed, each once, with the place where it is missing unless that is
/// everywhere.
pub fn missing(findings: &LayerFindings) -> Vec<String> {
    let mut all: Vec<&Missing> = Vec::new();
    for m in findings.columns.iter().flat_map(|c| &c.missing) {
        if !all.contains(&m) {
            all.push(m);
        }
    }
    all.into_iter()
        .map(|missing| not_observed(missing, &place(findings, missing)))
        .collect()
}

/// " (tcg; kvm, aio=native)": machines, with their variants where it is not all of them.
fn place(findings: &LayerFindings, m: &Missing) -> String {
    let lacks = |c: &&LayerColumn| c.missing.contains(m);
    if findings.columns.iter().all(|c| lacks(&c)) {
        return String::new();
    }
    let mut places: Vec<String> = Vec::new();
    for c in findings.columns.iter().filter(lacks) {
        let whole = findings
            .columns
            .iter()
            .filter(|o| o.machine == c.machine)
            .all(|o| lacks(&o));
        let place = if whole {
            c.machine.to_string()
        } else {
            format!("{}, {}", c.machine, c.variant)
        };
        if !places.contains(&place) {
            places.push(place);
        }
    }
    format!(" ({})", places.join("; "))
}

/// Returns the meaning of the mark †; `None` if no row has it.
pub fn below_bound(columns: &[&LayerColumn]) -> Option<String> {
    let marked = columns
        .iter()
        .any(|c| c.rows.iter().any(|r| r.below_bound && r.count > 0));
    marked.then(|| {
        "† shorter than the clock error: reliable only as a sum with the rows beside it".to_owned()
    })
}

/// "4.0 to 9.0 %".
fn span(low: f64, high: f64, text: impl Fn(f64) -> String) -> String {
    let low = text(low);
    format!("{} to {}", low.trim_end_matches('%').trim_end(), text(high))
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmtax_model::{Comparison, Estimate, Interval};

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
        let verdict = Verdict::of(&ratio, 1.0);
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
