//! `scale`: which costs grow with a size, by which growth law, and what one more costs.

use crate::charts::curves::{Curves, cost_label, law_label, machine_label};
use crate::engine::{
    Block, Cell, Figure, Filled, Notice, Report, Section, Table, Tile, figures, words,
};
use crate::number::{NONE, count, counted, duration, nanoseconds, percent, range, ratio};
use crate::text::{Joined, only_if, when};
use crate::view::{self, host, origin};
use vmtax_model::{
    Estimate, Growth, GrowthFindings, Interval, Law, Metric, MissingStep, NoLaw, SizeRange,
    StepCost,
};
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
    growth
        .one_more
        .and_then(|e| e.interval)
        .map_or(NONE.to_owned(), |i| ends(&i))
}

fn ends(i: &Interval) -> String {
    format!("{} to {}", signed(i.low), signed(i.high))
}

fn signed(ns: f64) -> String {
    format!("{}{}", only_if(ns < 0.0, "−"), nanoseconds(ns.abs()))
}

/// The top step's cost over the bottom step's: "×13.1".
fn change(growth: &Growth) -> String {
    growth.change.map_or(NONE.to_owned(), |e| ratio(e.median))
}

/// The whole answer in a sentence.
fn sentence(growth: &Growth, option: &str) -> String {
    let (what, place) = (cost_label(growth), machine_label(growth));
    if growth.no_law == Some(NoLaw::TooFewSteps) {
        return format!("{what} on {place}: too few steps for growth; three are needed.");
    }
    let over = growth.change.map_or(String::new(), |e| {
        let interval = e
            .interval
            .map_or(String::new(), |i| format!(" (95 % CI {})", range(&i)));
        format!(
            "{}{interval} from the first step to the last",
            ratio(e.median)
        )
    });
    let costs = |step: &str| {
        let one_more = growth.one_more.as_ref();
        let interval = |e: &Estimate| {
            e.interval
                .map_or(String::new(), |i| format!(" (95 % CI {})", ends(&i)))
        };
        one_more.map_or(String::new(), |e| {
            format!("; {step} costs {}{}", signed(e.median), interval(e))
        })
    };
    let exponent = growth.exponent.map_or(String::new(), |e| {
        let constant = growth
            .constant_from
            .as_ref()
            .map_or(String::new(), |name| format!(" of {name}"));
        format!(
            " Beyond the constant part{constant} it grows with an exponent of {:.1} to {:.1}.",
            e.low, e.high
        )
    });
    match (growth.law, growth.no_law) {
        (Some(Law::Constant), _) if growth.or.is_empty() => {
            format!("{what} on {place} does not grow with {option}: O(1), {over}.")
        }
        (Some(Law::Constant), _) => {
            let most = growth
                .change
                .and_then(|e| e.interval)
                .map_or(String::new(), |i| format!(", at most {}", ratio(i.high)));
            format!("{what} on {place} shows no growth with {option}{most}: {over}.")
        }
        (Some(law), _) => {
            let misfit = growth.misfit.filter(|m| *m > NOTABLE_MISFIT);
            let misfit = misfit.map_or(String::new(), |share| {
                let share = percent(share);
                format!(" A rough fit: the best growth law leaves the interval of one step by {share}, as where a cache is exceeded.")
            });
            let law = law_label(growth) + &format!(": {over}{}.", costs(law.step()));
            format!("{what} on {place} grows with {option} as {law}{exponent}{misfit}")
        }
        (None, reason) => {
            let why = reason.map_or("", without_law);
            match growth.grows {
                true => {
                    let costs = costs("one more, on average,");
                    format!("{what} on {place} grows with {option}: {over}{costs}.{exponent}{why}")
                }
                false => {
                    format!("{what} on {place}: no growth with {option} found yet: {over}.{why}")
                }
            }
        }
    }
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
    let sizes = findings
        .growths
        .first()
        .map(|growth| &growth.steps)
        .filter(|steps| steps.len() > 1);
    let range = sizes.map_or(String::new(), |steps| {
        format!(
            " over {}–{}",
            count(steps[0].size),
            count(steps[steps.len() - 1].size)
        )
    });
    let grown = findings
        .growths
        .iter()
        .filter(|growth| growth.grows)
        .count();
    match ranked(findings).first() {
        None => "No trial gave a value: there is nothing to fit.".to_owned(),
        Some(first) if grown > 0 => format!(
            "{grown} of {all} grow with {option}{range}: {}",
            sentence(first, option)
        ),
        Some(first) if first.no_law.is_some() => sentence(first, option),
        Some(_) if findings.growths.iter().all(|growth| growth.or.is_empty()) => {
            format!("None of {all} grows with {option}{range}: O(1).")
        }
        Some(first) => format!(
            "No growth of {all} with {option} is shown{range}: {}",
            sentence(first, option)
        ),
    }
}

fn next(recording: &Recording, findings: &GrowthFindings) -> Vec<String> {
    let few = findings.rounds_complete < vmtax_model::FEWEST_ROUNDS;
    few.then(|| view::with_more_rounds(recording))
        .flatten()
        .into_iter()
        .collect()
}

/// The growths most worth reading first: those that grow, the largest at least first; then the others in their order.
fn ranked(findings: &GrowthFindings) -> Vec<&Growth> {
    let mut all: Vec<&Growth> = findings.growths.iter().collect();
    let weight = |g: &Growth| {
        if g.grows {
            g.change.map_or(0.0, |e| e.at_least())
        } else {
            f64::NEG_INFINITY
        }
    };
    all.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
    all
}

/// Returns the number of rounds behind the figures.
fn rounds(findings: &GrowthFindings) -> String {
    view::rounds(findings.rounds_complete, findings.rounds_planned)
}

/// Steps without a value, each with its reason.
fn missing(findings: &GrowthFindings) -> Vec<String> {
    let one = |m: &MissingStep| {
        let gap = only_if(!m.variant.is_empty(), ", ");
        format!(
            "{}={} on {}{gap}{}: {}",
            findings.option, m.size, m.machine, m.variant, m.reason
        )
    };
    findings.missing.iter().map(one).collect()
}

/// Returns the sizes that the range's budget left out; `None` if it left none out.
pub fn left_out(range: &SizeRange) -> Option<String> {
    let sizes = range.left_out.iter().map(|size| count(*size)).joined(", ");
    let budget = range
        .budget_s
        .filter(|_| !sizes.is_empty())
        .map(|s| duration(f64::from(s)))?;
    Some(format!(
        "{} {sizes}: left out, six rounds would exceed the budget of {budget} (--budget)",
        range.option
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
    let others = ranked(findings)
        .into_iter()
        .skip(1)
        .filter(|growth| growth.grows)
        .take(SAID);
    Report {
        study: "growth",
        title: format!("Growth with {}", findings.option),
        basis: [
            vec![
                recording.plan.name.clone(),
                when(&recording.manifest.started),
                rounds(findings),
            ],
            host(recording),
        ]
        .concat(),
        origin: origin(recording),
        answer: answer(findings),
        next: next(recording, findings),
        tiles: others.map(tile).collect(),
        notices: vec![
            Notice::missing(
                "Not measured",
                missing(findings)
                    .into_iter()
                    .chain(recording.plan.range().and_then(left_out))
                    .collect(),
            ),
            Notice::warnings(view::warnings(recording, &findings.warnings)),
        ],
        sections: if empty {
            view::facts(recording, &[])
        } else {
            sections(recording, findings)
        },
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
    let figures = metrics.into_iter().map(|(metric, growths)| Figure {
        title: format!(
            "{} ({metric})",
            growths
                .first()
                .map_or(String::new(), |(_, g)| cost_label(g))
        ),
        ..Figure::new(Curves {
            growths,
            option: &findings.option,
        })
    });
    let intro = format!(
        "Cost against {}, both on logarithmic axes. Each dot is one round at one size; the line is the fitted growth \
         law, its band the 95 % CI.",
        findings.option
    );
    let every = Block::folded("Every size", [steps(recording, findings)]);
    let own = vec![
        Section::detail(
            "Growth curves",
            [Block::Text(intro), Block::Figures(wide, figures.collect())],
        ),
        Section::new("Growth laws", [laws(recording, findings)]),
        Section::new(
            "Cost by size, medians over rounds",
            [Block::Table(by_size(recording, findings)), every],
        ),
    ];
    own.into_iter().chain(view::facts(recording, &[])).collect()
}

/// The class that gives a column its colour: its machine's, or where a machine has several variants one of each.
fn class(recording: &Recording, growth: &Growth) -> &'static str {
    let variants = &recording.plan.variants;
    let place = variants
        .iter()
        .position(|v| v.name == growth.variant)
        .unwrap_or(0);
    match growth.machine.is_guest() && variants.len() > 1 {
        true => ["v0", "v1", "v2", "v3", "v4", "v5"][place % 6],
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
    Table::of(label, items)
        .column(words("cost of").cut(24, 14), |item| {
            cost_label(growth(item))
        })
        .column(words("where").cut(12, 4), |item| {
            Cell::key(class(recording, growth(item)), machine_label(growth(item)))
        })
}

fn laws(recording: &Recording, findings: &GrowthFindings) -> Table {
    let step = |growth: &&Growth| match growth.law.map(Law::step) {
        None | Some("one more") => one_more(growth),
        Some("twice as many") => format!("{} a doubling", one_more(growth)),
        Some(_) => format!("{} at the last step", one_more(growth)),
    };
    costs(
        "Growth law of each cost",
        recording,
        &findings.growths,
        |growth| growth,
    )
    .column(words("growth law"), |growth| {
        Cell::strong(law_label(growth))
    })
    .column(figures("exponent").spare(6), |growth| {
        growth.exponent.map_or(NONE.to_owned(), |e| {
            format!("{:.1} to {:.1}", e.low, e.high)
        })
    })
    .column(figures("one more").spare(4), step)
    .column(figures("95 % CI").spare(3), |growth| one_more_range(growth))
    .column(
        figures("last/first, paired").broken(11, 2).spare(2),
        |growth| change(growth),
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
    let sizes: Vec<u64> = findings
        .growths
        .first()
        .map_or(Vec::new(), |g| g.steps.iter().map(|r| r.size).collect());
    let last = sizes.len().saturating_sub(1);
    let spare = |i: usize| {
        if i == 0 || i == last {
            0
        } else {
            i.trailing_zeros() as u8 + 1
        }
    };
    let named = costs(
        "Median cost by size",
        recording,
        &findings.growths,
        |growth| growth,
    );
    let sizes = sizes
        .iter()
        .enumerate()
        .map(|(i, size)| (i, figures(count(*size)).spare(spare(i))));
    let cost = |growth: &Growth, i: usize| growth.steps.get(i).map_or(String::new(), cost);
    sizes
        .fold(named, |table, (i, column)| {
            table.column(column, |growth| cost(growth, i))
        })
        .done()
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
