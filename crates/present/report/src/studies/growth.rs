//! `scale`: which costs grow with a size, by which growth law, and what one more costs.

use crate::charts::series::{Curves, cost_label, law_label, machine_label};
use crate::engine::{
    Block, Cell, Figure, Filled, Notice, Report, Section, Table, Tile, figures, words,
};
use crate::number::{NONE, count, counted, duration, nanoseconds, percent, range, ratio};
use crate::text::{Joined, only_if};
use crate::view::{self, host, origin};
use vmtax_findings::{Estimate, Growth, GrowthFindings, Law, MissingStep, NoLaw, StepCost};
use vmtax_model::{Interval, Metric, SizeRange};
use vmtax_recording::Recording;

/// Sentences that a reader takes in.
const SAID: usize = 4;
/// A growth law that leaves a step's interval by more than this is a rough fit.
const NOTABLE_MISFIT: f64 = 0.1;

/// Returns the cost of one more, with its sign if it is below 0: "9.12 ns".
fn one_more(growth: &Growth) -> String {
    growth
        .one_more
        .map_or(NONE.to_owned(), |e| signed(e.median))
}

/// The interval of what one more costs.
fn one_more_range(growth: &Growth) -> String {
    let interval = growth.one_more.and_then(|e| e.interval);
    interval.map_or(NONE.to_owned(), |i| ends(&i))
}

fn ends(i: &Interval) -> String {
    format!("{} to {}", signed(i.low), signed(i.high))
}

fn signed(ns: f64) -> String {
    format!("{}{}", only_if(ns < 0.0, "−"), nanoseconds(ns.abs()))
}

/// The whole answer in a sentence.
fn sentence(growth: &Growth, option: &str) -> String {
    let (what, place) = (cost_label(growth), machine_label(growth));
    let cost = format!("{what} on {place}");
    if growth.no_law == Some(NoLaw::TooFewSteps) {
        return format!("{cost}: too few steps for growth; three are needed.");
    }
    let over = change(growth);
    match (growth.law, growth.no_law) {
        (Some(Law::Constant), _) if growth.or.is_empty() => {
            format!("{cost} does not grow with {option}: O(1), {over}.")
        }
        (Some(Law::Constant), _) => {
            let most = growth.change.and_then(|e| e.interval);
            let most = most.map_or(String::new(), |i| format!(", at most {}", ratio(i.high)));
            format!("{cost} shows no growth with {option}{most}: {over}.")
        }
        (Some(law), _) => {
            let misfit = growth.misfit.filter(|misfit| *misfit > NOTABLE_MISFIT);
            let misfit = misfit.map(percent).map_or(String::new(), |share| {
                format!(" A rough fit: the best growth law leaves the interval of one step by {share}, as where a cache is exceeded.")
            });
            let (label, step, exponent) = (
                law_label(growth),
                step_cost(growth, law.step()),
                exponent(growth),
            );
            format!("{cost} grows with {option} as {label}: {over}{step}.{exponent}{misfit}")
        }
        (None, reason) => {
            let why = reason.map_or("", without_law);
            let (step, exponent) = (step_cost(growth, "one more, on average,"), exponent(growth));
            match growth.grows {
                true => format!("{cost} grows with {option}: {over}{step}.{exponent}{why}"),
                false => format!("{cost}: no growth with {option} found yet: {over}.{why}"),
            }
        }
    }
}

/// "×9.90 (95 % CI 9.81–9.93) from the first step to the last"; empty where that is not known.
fn change(growth: &Growth) -> String {
    growth.change.map_or(String::new(), |e| {
        let (times, ci) = (ratio(e.median), in_brackets(&e, range));
        format!("{times}{ci} from the first step to the last")
    })
}

/// " (95 % CI 1.02–1.05)"; nothing where there is no interval.
fn in_brackets(estimate: &Estimate, text: impl Fn(&Interval) -> String) -> String {
    let interval = estimate.interval.as_ref();
    interval.map_or(String::new(), |i| format!(" (95 % CI {})", text(i)))
}

/// "; one more costs 9.12 ns (95 % CI 9.01 ns to 9.20 ns)"; empty where that is not known.
fn step_cost(growth: &Growth, step: &str) -> String {
    growth.one_more.map_or(String::new(), |e| {
        let (cost, ci) = (signed(e.median), in_brackets(&e, ends));
        format!("; {step} costs {cost}{ci}")
    })
}

/// A sentence, behind a space, on the exponent of growth; empty where it is not known.
fn exponent(growth: &Growth) -> String {
    let constant = growth.constant_from.as_ref();
    let constant = constant.map_or(String::new(), |name| format!(" of {name}"));
    growth.exponent.map_or(String::new(), |e| {
        let (low, high) = (e.low, e.high);
        format!(" Beyond the constant part{constant} it grows with an exponent of {low:.1} to {high:.1}.")
    })
}

/// Why no growth law is named.
fn without_law(reason: NoLaw) -> &'static str {
    match reason {
        NoLaw::TooFewRounds => " A growth law needs six rounds.",
        NoLaw::TooFewSteps => " A growth law needs three steps.",
        NoLaw::SizesTooClose => {
            " For a growth law the largest size must be ten times the smallest."
        }
        NoLaw::CostSteps => {
            " No growth law fits: one item costs more from some size on, as where a cache is exceeded, or the cost jumps."
        }
    }
}

/// The costs that grow, the largest growth in full; where none does, that.
fn answer(findings: &GrowthFindings) -> String {
    let all = counted(findings.growths.len() as u64, "cost");
    let option = &findings.option;
    let steps = findings
        .growths
        .first()
        .map_or(&[][..], |growth| &growth.steps);
    let range = match steps {
        [first, .., last] => format!(" over {}–{}", count(first.size), count(last.size)),
        _ => String::new(),
    };
    let grown = findings
        .growths
        .iter()
        .filter(|growth| growth.grows)
        .count();
    match ranked(findings).first() {
        None => "No trial gave a value: there is nothing to fit.".to_owned(),
        Some(first) if grown > 0 => {
            let (cost, law) = (cost_label(first), law_label(first));
            let place = machine_label(first);
            let times = [law, change(first)].into_iter();
            let times = times.filter(|text| !text.is_empty()).joined(", ");
            let most = only_if(grown > 1, "most of all ");
            format!("{grown} of {all} grow with {option}{range}, {most}{cost} on {place}: {times}.")
        }
        Some(first) if first.no_law.is_some() => sentence(first, option),
        Some(_) if findings.growths.iter().all(|growth| growth.or.is_empty()) => {
            format!("None of {all} grows with {option}{range}: O(1).")
        }
        Some(first) => {
            let first = sentence(first, option);
            format!("No growth of {all} with {option} is shown{range}: {first}")
        }
    }
}

/// The growths most worth reading first: those that grow, the largest at least first; then the others in their order.
fn ranked(findings: &GrowthFindings) -> Vec<&Growth> {
    let mut all: Vec<&Growth> = findings.growths.iter().collect();
    let weight = |growth: &Growth| match growth.grows {
        true => growth.change.map_or(0.0, |e| e.at_least()),
        false => f64::NEG_INFINITY,
    };
    all.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
    all
}

/// Steps without a value, each with its reason.
fn missing(findings: &GrowthFindings) -> Vec<String> {
    let one = |m: &MissingStep| {
        let gap = only_if(!m.variant.is_empty(), ", ");
        let MissingStep {
            size,
            machine,
            variant,
            reason,
        } = m;
        format!(
            "{}={size} on {machine}{gap}{variant}: {reason}",
            findings.option
        )
    };
    findings.missing.iter().map(one).collect()
}

/// Returns the sizes that the range's budget left out; `None` if it left none out.
pub fn left_out(range: &SizeRange) -> Option<String> {
    let sizes = range.left_out.iter().map(|size| count(*size)).joined(", ");
    let budget = range.budget_s.filter(|_| !sizes.is_empty())?;
    let (option, budget) = (&range.option, duration(f64::from(budget)));
    Some(format!(
        "{option} {sizes}: left out, six rounds would exceed the budget of {budget} (--budget)"
    ))
}

/// Makes the report of the growth of costs with a size.
pub fn report<'a>(recording: &'a Recording, findings: &'a GrowthFindings) -> Report<'a> {
    let tile = |growth: &Growth| Tile {
        class: class(recording, growth),
        figure: law_label(growth),
        text: sentence(growth, &findings.option),
        limits: String::new(),
    };
    let empty = findings.growths.is_empty();
    let grown = ranked(findings).into_iter();
    let grown = grown.filter(|growth| growth.grows).take(SAID);
    let complete = findings.rounds_complete;
    let rounds = view::rounds(complete, findings.rounds_planned);
    let missing = missing(findings).into_iter();
    let left_out = recording.plan.range().and_then(left_out);
    Report {
        study: "growth",
        title: format!("Growth with {}", findings.option),
        basis: [view::run(recording, rounds), host(recording)].concat(),
        origin: origin(recording),
        answer: answer(findings),
        next: view::next_if_few(recording, complete),
        tiles: grown.map(tile).collect(),
        notices: vec![
            Notice::missing("Not measured", missing.chain(left_out).collect()),
            Notice::warnings(view::warnings(recording, &findings.warnings)),
        ],
        sections: only_if(!empty, sections(recording, findings))
            .into_iter()
            .chain(view::facts(recording, &[]))
            .collect(),
        method: only_if(!empty, vec![findings.method.clone()]),
        ..Report::default()
    }
}

fn sections<'a>(recording: &'a Recording, findings: &'a GrowthFindings) -> Vec<Section<'a>> {
    let mut metrics: Vec<(Metric, Vec<(&'static str, &Growth)>)> = Vec::new();
    for growth in &findings.growths {
        let curve = (class(recording, growth), growth);
        match metrics
            .last_mut()
            .filter(|(metric, _)| *metric == growth.metric)
        {
            Some((_, curves)) => curves.push(curve),
            None => metrics.push((growth.metric, vec![curve])),
        }
    }
    let wide = only_if(metrics.len() < 3, "wide");
    let option = &findings.option;
    let figures = metrics.into_iter().map(|(metric, growths)| {
        let cost = growths
            .first()
            .map_or(String::new(), |(_, growth)| cost_label(growth));
        Figure {
            title: format!("{cost} ({metric})"),
            ..Figure::new(Curves { growths, option })
        }
    });
    let intro = format!(
        "Cost against {option}, both on logarithmic axes. Each dot is one round at one size; the line is the fitted growth \
         law, its band the 95 % CI."
    );
    let curves = [Block::Text(intro), Block::Figures(wide, figures.collect())];
    let every = Block::folded("Every size", [steps(recording, findings)]);
    let by_size = [by_size(recording, findings).into(), every];
    vec![
        Section::detail("Growth curves", curves),
        Section::new("Growth laws", [laws(recording, findings)]),
        Section::new("Cost by size, medians over rounds", by_size),
    ]
}

/// The class that gives a column its colour: its machine's, or where a machine has several variants one of each.
fn class(recording: &Recording, growth: &Growth) -> &'static str {
    let variants = &recording.plan.variants;
    let place = variants
        .iter()
        .position(|variant| variant.name == growth.variant);
    match growth.machine.is_guest() && variants.len() > 1 {
        true => ["v0", "v1", "v2", "v3", "v4", "v5"][place.unwrap_or(0) % 6],
        false => growth.machine.as_str(),
    }
}

/// A row for each of these, beginning with which cost it is of.
fn costs<'a, R>(
    label: &str,
    recording: &Recording,
    items: impl IntoIterator<Item = R>,
    growth: impl Fn(&R) -> &'a Growth,
) -> Filled<R> {
    let place = |growth| Cell::key(class(recording, growth), machine_label(growth));
    Table::of(label, items)
        .column(words("cost of").cut(24, 14), |item| {
            cost_label(growth(item))
        })
        .column(words("where").cut(12, 4), |item| place(growth(item)))
}

fn laws(recording: &Recording, findings: &GrowthFindings) -> Table {
    let step = |growth: &&Growth| match growth.law.map(Law::step) {
        None | Some("one more") => one_more(growth),
        Some("twice as many") => format!("{} a doubling", one_more(growth)),
        Some(_) => format!("{} at the last step", one_more(growth)),
    };
    let title = "Growth law of each cost";
    costs(title, recording, &findings.growths, |growth| growth)
        .column(words("growth law"), |growth| {
            Cell::strong(law_label(growth))
        })
        .column(figures("exponent").spare(6), |growth| {
            let exponent = growth.exponent;
            exponent.map_or(NONE.to_owned(), |e| {
                format!("{:.1} to {:.1}", e.low, e.high)
            })
        })
        .column(figures("one more").spare(4), step)
        .column(figures("95 % CI").spare(3), |growth| one_more_range(growth))
        .column(
            figures("last/first, paired").broken(11, 2).spare(2),
            |growth| growth.change.map_or(NONE.to_owned(), |e| ratio(e.median)),
        )
        .column(figures("p").spare(1), |growth| format!("{:.3}", growth.p))
        .done()
}

/// A step's median.
fn cost(step: &StepCost) -> String {
    step.ns.map_or(NONE.to_owned(), |e| nanoseconds(e.median))
}

/// The steps' medians. Where not all sizes fit, every second is left out, then every fourth; the first and the last stay.
fn by_size(recording: &Recording, findings: &GrowthFindings) -> Table {
    let growths = &findings.growths;
    let mut table = costs("Median cost by size", recording, growths, |growth| growth);
    let sizes = growths.first().map_or(&[][..], |growth| &growth.steps);
    for (i, step) in sizes.iter().enumerate() {
        let spare = match i {
            0 => 0,
            i if i + 1 == sizes.len() => 0,
            i => i.trailing_zeros() as u8 + 1,
        };
        table = table.column(figures(count(step.size)).spare(spare), |growth| {
            growth.steps.get(i).map_or(String::new(), cost)
        });
    }
    table.done()
}

fn steps(recording: &Recording, findings: &GrowthFindings) -> Table {
    let steps = findings
        .growths
        .iter()
        .flat_map(|growth| growth.steps.iter().map(move |step| (growth, step)));
    let interval = |i: Interval| format!("{} to {}", nanoseconds(i.low), nanoseconds(i.high));
    costs(
        "Median cost at each size, with its interval",
        recording,
        steps,
        |(growth, _)| growth,
    )
    .column(figures(findings.option.as_str()), |(_, step)| {
        count(step.size)
    })
    .column(figures("rounds"), |(_, step)| step.rounds.len().to_string())
    .column(figures("median"), |(_, step)| cost(step))
    .column(figures("95 % CI"), |(_, step)| {
        step.ns
            .and_then(|e| e.interval)
            .map_or(NONE.to_owned(), interval)
    })
    .done()
}
