//! `layers`: where the time of a request goes, layer by layer.

mod column;
pub mod sentences;

pub use sentences::moved;

use crate::charts::layers::{Medians, Stack, Variants, class};
use crate::engine::{Block, Cell, Column, Figure, Notice, Report, Section, Table, figures, words};
use crate::number::{NONE, nanoseconds, signed_percent};
use crate::text::{only_if, when};
use crate::view::layers::{self as view, Scale};
use crate::view::{self as common, host, origin};
use vmtax_model::{DeviceClass, LayerColumn, LayerFindings, Plan, Probes, main_column};
use vmtax_recording::Recording;

/// Most states and layers that the answer names.
const NAMED: (usize, usize) = (3, 2);
/// From this part of all the time on, percent, the slowest 1 % of the requests are named in the answer.
const TAIL: f64 = 20.0;

/// Makes the report of where the time of a request goes, layer by layer.
pub fn report<'a>(recording: &'a Recording, findings: &'a LayerFindings) -> Report<'a> {
    let run = vec![
        recording.plan.name.clone(),
        when(&recording.manifest.started),
        view::rounds(findings),
    ];
    let columns = view::columns(findings);
    let several = columns.len() > 1;
    let host_alone = findings.host.as_ref().map(|host| {
        let table = column::wholes(&[("one operation", Some(host))]);
        Section::detail("Bare host, the same workload on the same file", [table])
    });
    let side_by_side =
        several.then(|| Section::detail("Rows side by side, means", [rows(&columns)]));
    Report {
        study: "layers",
        title: format!("Time of a {}, by layer and state", request(&recording.plan)),
        basis: [
            run,
            host(recording),
            vec![
                common::guests_in_short(&recording.plan),
                view::workload(recording),
            ],
        ]
        .concat(),
        origin: origin(recording),
        answer: match main_column(&findings.columns) {
            None => "No request was joined through the layers: the warnings say why.".to_owned(),
            Some(main) => answer(findings, main, request(&recording.plan)),
        },
        next: vec![format!("{} --details", origin(recording).command)],
        advice: findings.advice.clone(),
        notices: vec![
            Notice::missing("Not observed", sentences::missing(findings)),
            Notice::warnings(common::warnings(recording, &findings.warnings)),
        ],
        sections: brief(findings, traced_runs(&recording.plan))
            .into_iter()
            .chain(host_alone)
            .chain(details(findings))
            .chain(side_by_side)
            .chain(common::facts(recording, &[]))
            .collect(),
        method: only_if(!columns.is_empty(), vec![findings.method.clone()]),
        ..Report::default()
    }
}

/// Returns the name of the operation that is followed: "request", or "network round trip".
fn request(plan: &Plan) -> &'static str {
    if plan.probes.contains(&Probes::Network) {
        "network round trip"
    } else {
        "request"
    }
}

/// Returns the number of traced runs in a round, on each machine.
pub fn traced_runs(plan: &Plan) -> usize {
    plan.probes
        .iter()
        .filter(|probes| probes.follows_requests())
        .count()
}

/// The median of a request, beside native's; then, in a statement of its own, what the mean of the traced ones goes to.
fn answer(findings: &LayerFindings, main: &LayerColumn, request: &str) -> String {
    let median = view::undisturbed(main).p50_ns;
    let how = if main.control.is_some() {
        "median, untraced"
    } else {
        "median, traced"
    };
    let host = findings
        .host
        .as_ref()
        .filter(|host| host.p50_ns > 0.0 && main.control.is_some());
    let host = host.map_or(String::new(), |host| {
        let factor = median / host.p50_ns;
        format!(
            ", {factor:.1} times native ({})",
            nanoseconds(host.p50_ns).replace(' ', "\u{a0}")
        )
    });
    let fastest = sentences::fastest(findings, main.machine)
        .map_or(String::new(), |text| format!("{text}. "));
    if main.matched.joined == 0 {
        let untraced = main.control.as_ref().map_or(String::new(), |control| {
            let median = nanoseconds(control.p50_ns).replace(' ', "\u{a0}");
            format!(
                "A {request} takes {median} in the {} ({how}){host}. ",
                view::title(main)
            )
        });
        return format!(
            "{fastest}{untraced}{}",
            sentences::none_followed(main, request)
        );
    }
    let (states, layers) = (largest_states(main), largest_layers(main));
    let slowest = view::slowest_percent(main);
    let tail = only_if(
        slowest >= TAIL,
        format!(" (the slowest 1\u{a0}% of requests take {slowest:.0}\u{a0}% of the time)"),
    );
    let in_words = |ns: f64| nanoseconds(ns).replace(' ', "\u{a0}");
    let (median, traced) = (in_words(median), in_words(main.traced.mean_ns));
    let untraced = main.control.as_ref().map_or(String::new(), |one| {
        format!("; without {}", in_words(one.mean_ns))
    });
    format!(
        "{fastest}A {request} takes {median} in the {} ({how}){host}. Of the mean latency with tracing ({traced}{untraced}), {states}{tail}. {layers}",
        view::title(main)
    )
}

/// "75 % is run-queue wait (host), 20 % is service time and 2 % is C-state exit (host)": the largest states.
pub fn largest_states(column: &LayerColumn) -> String {
    let states = view::states_of(column)
        .into_iter()
        .map(|(state, _, percent)| (state.label(), percent));
    let named = states.take(NAMED.0).filter(|(_, part)| *part >= 0.5);
    listed(
        &named
            .map(|(state, part)| format!("{part:.0}\u{a0}% is {state}"))
            .collect::<Vec<_>>(),
    )
}

/// "Largest layers: device (35 %) and notification (18 %, mostly C-state exit)."
pub fn largest_layers(column: &LayerColumn) -> String {
    let layers = view::layers_of(&[column]).into_iter().map(|(layer, _)| {
        // "run-queue wait" without the side, which the layer says.
        let mostly = view::mostly(column, layer).and_then(|state| state.label().split(" (").next());
        (layer.label(), mostly, view::percent_of(column, layer))
    });
    let mut layers: Vec<(&str, Option<&str>, f64)> = layers.collect();
    layers.sort_by(|a, b| b.2.total_cmp(&a.2));
    layers.retain(|(.., part)| *part >= 0.5);
    layers.truncate(NAMED.1);
    let common = layers.first().and_then(|first| {
        first
            .1
            .filter(|state| layers.iter().all(|one| one.1 == Some(state)))
    });
    let named = layers.iter().map(|(layer, mostly, part)| {
        let mostly = mostly.filter(|_| common.is_none() || layers.len() == 1);
        format!(
            "{layer} ({part:.0}\u{a0}%{})",
            mostly.map_or(String::new(), |state| format!(", mostly {state}"))
        )
    });
    let named: Vec<String> = named.collect();
    match (named.len(), common) {
        (0, _) => String::new(),
        (1, _) => format!("Largest layer: {}.", listed(&named)),
        (_, Some(state)) => format!("Largest layers: {}, both mostly {state}.", listed(&named)),
        (_, None) => format!("Largest layers: {}.", listed(&named)),
    }
}

/// "a, b and c".
fn listed(named: &[String]) -> String {
    match named.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        _ => named.concat(),
    }
}

/// Everything of every column, for those who ask for details.
pub fn details(findings: &LayerFindings) -> Vec<Section<'_>> {
    let main = main_column(&findings.columns);
    let is_main = |one: &LayerColumn| main.is_some_and(|main| std::ptr::eq(main, one));
    view::columns(findings)
        .into_iter()
        .map(|one| column::section(one, is_main(one)))
        .collect()
}

/// `runs`: traced runs of a round. What [`pictures`] shows, and how exact it is.
pub fn brief(findings: &LayerFindings, runs: usize) -> Vec<Section<'_>> {
    let mut all = pictures(findings);
    if let Some(main) = main_column(&findings.columns) {
        let rests = [
            Some(format!("Tracing overhead: {}.", sentences::observer(main))),
            sentences::corrected(main).map(|text| format!("Corrected for tracing: {text}.")),
            Some(format!("Clock error: {}.", sentences::clock(main))),
            Some(format!("Requests: {}.", sentences::matched(main, runs))),
            sentences::packets(main).map(|text| format!("Packets: {text}.")),
        ];
        all.push(Section::new(
            "",
            rests.into_iter().flatten().map(Block::Text),
        ));
    }
    all
}

/// The columns of single traced runs. `quality` says how exact each is, `untraced` why it has no control. The main
/// column's tables are enough of a disk's requests; of packets all columns' are shown.
pub fn of_runs<'a>(
    findings: &'a LayerFindings,
    class: DeviceClass,
    quality: impl Iterator<Item = String>,
    untraced: &str,
) -> Vec<Section<'a>> {
    if findings.columns.is_empty() {
        return Vec::new();
    }
    let mut all = pictures(findings);
    if class == DeviceClass::Net {
        all.extend(findings.columns.iter().skip(1).flat_map(sums_and_segments));
    }
    let overhead = format!("Tracing overhead: not measured, {untraced}.");
    let texts = quality.chain([overhead]).map(Block::Text);
    all.push(Section::new("", texts));
    all.extend(details(findings));
    all
}

/// The picture, the main column's states, layers and rows, all columns' layers, and the variants.
pub fn pictures(findings: &LayerFindings) -> Vec<Section<'_>> {
    let Some(main) = main_column(&findings.columns) else {
        return Vec::new();
    };
    let columns = view::columns(findings);
    let several = columns.len() > 1;
    let side_by_side =
        several.then(|| Section::new("Layers side by side", [means(findings, &columns)]));
    let stack = Figure {
        caption:
            "Mean of a traced request by layer; plain for service time, hatched where it waits. The line across a bar \
                  is the untraced control's mean."
                .to_owned(),
        ..Figure::new(Stack { host: findings.host.as_ref(), columns })
    };
    let medians = view::medians(findings);
    // Two are in the answer.
    let tiles = (medians.len() > 2).then(|| Block::Figure(Figure::new(Medians(medians))));
    let pictures = tiles.into_iter().chain([Block::Figure(stack)]);
    let mut all = vec![Section::new("Layers", pictures)];
    all.extend(sums_and_segments(main));
    all.extend(side_by_side);
    if !findings.differences.is_empty() {
        let caption = format!(
            "Left of the line is faster. The whisker is the 95 % CI over {}; one that contains ×1 is inconclusive.",
            view::rounds(findings)
        );
        let sentences = sentences::differences(findings);
        let said = sentences.iter().map(|text| vec![text.as_str()]);
        let table = Table::new(
            "Variants compared with the first",
            vec![words("request latency").broken(40, 20)],
        )
        .rows(said);
        let figure = Figure {
            caption,
            table: Some(table),
            ..Figure::new(Variants {
                findings,
                sentences,
            })
        };
        all.push(Section::new(
            "Variants compared with the first, untraced",
            [figure],
        ));
    }
    all
}

/// One column's states and layers, and its segments.
pub fn sums_and_segments(column: &LayerColumn) -> [Section<'_>; 2] {
    [
        Section::new(view::title(column), [column::sums(column)]),
        Section::new("Segments in the order of the path", [column::brief(column)]),
    ]
}

fn head(column: &LayerColumn) -> Column {
    let variant = column.variant.replace(", ", "\n").replace(',', "\n");
    let name = if column.from_host {
        variant
    } else {
        format!("{}\n{variant}", column.machine)
    };
    figures(name.trim_end()).broken(24, 8)
}

/// The layers' means, a column for each machine and variant.
fn means(findings: &LayerFindings, columns: &[&LayerColumn]) -> Table {
    let scale = Scale::for_columns(columns);
    let host = findings.host.as_ref();
    let heads = host
        .map(|_| figures("native").spare(1))
        .into_iter()
        .chain(columns.iter().map(|c| head(c)));
    let columns_of_table = [words(scale.unit)].into_iter().chain(heads).collect();
    let mut table = Table::new(
        "Mean of each layer by machine and variant",
        columns_of_table,
    )
    .in_parts();
    table.group("Mean of a traced request");
    for (layer, means) in view::layers_of(columns) {
        let empty = host.map(|_| Cell::default());
        let means = means.iter().map(|mean| scale.number(*mean).into());
        table.row(
            [Cell::key(class(layer), layer.label())]
                .into_iter()
                .chain(empty)
                .chain(means)
                .collect::<Vec<Cell>>(),
        );
    }
    let time = |ns: Option<f64>| ns.map_or(NONE.to_owned(), |ns| scale.number(ns));
    let mut row = |name: &str, of_host: Option<f64>, text: &dyn Fn(&LayerColumn) -> String| {
        let of_host = host.map(|_| of_host.map_or(String::new(), |ns| scale.number(ns)).into());
        let texts = columns.iter().map(|c| Cell::strong(text(c)));
        let cells: Vec<Cell> = [Cell::from(name)]
            .into_iter()
            .chain(of_host)
            .chain(texts)
            .collect();
        if name == "total, traced" {
            table.first(cells)
        } else {
            table.row(cells)
        }
    };
    row("unexplained", None, &|c| time(Some(c.unexplained_ns)));
    row("total, traced", None, &|c| time(Some(c.traced.mean_ns)));
    if columns.iter().any(|c| c.control.is_some()) {
        row("control, untraced: mean", host.map(|h| h.mean_ns), &|c| {
            time(c.control.map(|f| f.mean_ns))
        });
        row("control p50", host.map(|h| h.p50_ns), &|c| {
            time(c.control.map(|f| f.p50_ns))
        });
        row("control p99", host.map(|h| h.p99_ns), &|c| {
            time(c.control.map(|f| f.p99_ns))
        });
        let effect = |c: &LayerColumn| {
            c.observer
                .as_ref()
                .map_or(NONE.to_owned(), |o| signed_percent(o.median - 1.0))
        };
        row("tracing overhead, paired", None, &effect);
    }
    row("joined", None, &|c| sentences::joined(&c.matched));
    row("clock error", None, &|c| {
        format!("±{}", nanoseconds(c.clock.bound_ns))
    });
    table
}

/// Every row of every column.
fn rows(columns: &[&LayerColumn]) -> Table {
    let scale = Scale::for_columns(columns);
    let heads = columns.iter().map(|c| head(c));
    let heads = [words(format!("mean, {}", scale.unit)).broken(30, 20)]
        .into_iter()
        .chain(heads)
        .collect();
    let row = |key: view::Key| {
        let mean = |c: &&LayerColumn| {
            key.find(c)
                .map_or(String::new(), |r| scale.number(r.time.mean_ns))
        };
        [key.name()]
            .into_iter()
            .chain(columns.iter().map(mean))
            .collect::<Vec<String>>()
    };
    let table = Table::new("Mean of each row by machine and variant", heads).in_parts();
    table.rows(view::rows_of(columns).into_iter().map(row))
}
