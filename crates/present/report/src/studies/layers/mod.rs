//! `layers`: where the time of a request goes, layer by layer.

mod column;
pub mod sentences;

use sentences::FirstDifference;
pub use sentences::moved;

use crate::charts::layers::{Medians, Stack, Variants, class};
use crate::engine::{
    Block, Cell, Column, Figure, Notice, Report, Section, Table, Tile, figures, words,
};
use crate::number::{NONE, nanoseconds, signed_percent};
use crate::text::{Joined, listed, only_if};
use crate::view::layers::{self as view, Scale};
use crate::view::{self as common, host, origin};
use vmtax_findings::{LayerColumn, LayerFindings, State, Summary, main_column};
use vmtax_model::{DeviceClass, Layer, Plan, Probes};
use vmtax_recording::Recording;

/// Most states and layers that the answer names.
const NAMED: (usize, usize) = (3, 2);
/// From this part of all the time on, percent, the slowest 1 % of the requests are named in the answer.
const TAIL: f64 = 20.0;

/// Makes the report of where the time of a request goes, layer by layer.
pub fn report<'a>(recording: &'a Recording, findings: &'a LayerFindings) -> Report<'a> {
    let plan = &recording.plan;
    let run = common::run(recording, view::rounds(findings));
    let workload = vec![common::guests_in_short(plan), view::workload(recording)];
    let columns = view::columns(findings);
    let host_alone = findings.host.as_ref().map(|host| {
        let table = column::wholes(&[("one operation", Some(host))]);
        Section::detail("Bare host, the same workload on the same file", [table])
    });
    let several = columns.len() > 1;
    let side_by_side =
        several.then(|| Section::detail("Rows side by side, means", [rows(&columns)]));
    let origin = origin(recording);
    Report {
        study: "layers",
        title: format!("Time of a {}, by layer and state", request(plan)),
        basis: [run, host(recording), workload].concat(),
        answer: match main_column(&findings.columns) {
            None => "No request was matched in every layer: the warnings say why.".to_owned(),
            Some(main) => answer(findings, main, plan),
        },
        tiles: main_column(&findings.columns)
            .map_or(Vec::new(), |main| tiles(findings, main, plan)),
        next: vec![format!("{} --details", origin.command)],
        origin,
        advice: findings.advice.clone(),
        notices: vec![
            Notice::not_observed(sentences::missing(findings)),
            Notice::warnings(common::warnings(recording, &findings.warnings)),
        ],
        sections: brief(findings, traced_runs(plan))
            .into_iter()
            .chain(host_alone)
            .chain(details(findings))
            .chain(side_by_side)
            .chain(common::facts(recording, &[]))
            .collect(),
        method: only_if(!columns.is_empty(), vec![findings.method.clone()]),
    }
}

/// Returns the name of the operation that is traced: "request", or "network round trip".
fn request(plan: &Plan) -> &'static str {
    match plan.probes.contains(&Probes::Network) {
        true => "network round trip",
        false => "request",
    }
}

/// Returns the number of traced runs in a round, on each machine.
pub fn traced_runs(plan: &Plan) -> usize {
    let probes = plan.probes.iter();
    probes.filter(|probes| probes.follows_requests()).count()
}

/// Where variants are compared, which of them is fastest; else the median of a request, beside native's, and the layer that takes
/// most.
fn answer(findings: &LayerFindings, main: &LayerColumn, plan: &Plan) -> String {
    if let Some(best) = sentences::first_difference(findings, main.machine) {
        return compared(findings, main, &best, plan);
    }
    let takes = of_column(findings, main, plan);
    if main.matched.joined > 0 {
        return format!("{takes}.");
    }
    let untraced = only_if(main.control.is_some(), format!("{takes}. "));
    format!(
        "{untraced}{}",
        sentences::none_followed(main, request(plan))
    )
}

/// "A 4 KiB disk read takes 223 µs in the Linux guest on tcg (median, untraced)", with other words for what a fio job measures.
fn takes(column: &LayerColumn, plan: &Plan) -> String {
    let how = match column.control.is_some() {
        true => "median, untraced",
        false => "median, traced",
    };
    let what = match column.fio_requests {
        Some(_) => "fio's completion latency (clat) is".to_owned(),
        None => {
            let operation = view::operation(plan);
            format!("A {} takes", operation.unwrap_or(request(plan).to_owned()))
        }
    };
    let (median, place) = (view::undisturbed(column).p50_ns, view::title(column));
    format!("{what} {} in the {place} ({how})", unbroken(median))
}

/// Returns the median of a request in a column, how many times native's it is, and the layer that takes most.
fn of_column(findings: &LayerFindings, column: &LayerColumn, plan: &Plan) -> String {
    let median = view::undisturbed(column).p50_ns;
    let host = findings.host.as_ref();
    let host = host.filter(|host| host.p50_ns > 0.0 && column.control.is_some());
    let host = host.map_or(String::new(), |host| {
        let (factor, native) = (median / host.p50_ns, unbroken(host.p50_ns));
        format!(", {factor:.1} times native ({native})")
    });
    format!("{}{host}{}", takes(column, plan), largest_layer(column))
}

/// "; largest layer: guest kernel (25 % of the traced mean)"; nothing where no request was followed.
pub(super) fn largest_layer(column: &LayerColumn) -> String {
    let layers = (column.matched.joined > 0).then(|| layers_by_part(column));
    let layer = layers.into_iter().flatten().next();
    layer.map_or(String::new(), |layer| {
        format!(
            "; largest layer: {}",
            layer.text(" of the traced mean", true)
        )
    })
}

/// The median of a request with the fastest variant, compared with the first one; where none is shown to be faster, with the first.
fn compared(
    findings: &LayerFindings,
    main: &LayerColumn,
    best: &FirstDifference<'_>,
    plan: &Plan,
) -> String {
    let named = best.shown.map_or(best.base, |one| &one.variant);
    let mut columns = findings.columns.iter();
    let column = columns.find(|one| one.machine == main.machine && one.variant == *named);
    let takes = takes(column.unwrap_or(main), plan);
    match best.shown.filter(|_| column.is_some()) {
        Some(shown) => {
            let layer = column.map_or(String::new(), largest_layer);
            format!("{takes}, {}{layer}.", sentences::against_base(shown))
        }
        None => format!("{takes}; {}.", sentences::against_none(best)),
    }
}

/// Sentences below the answer: of compared variants the main column's own figures, and what its traced requests show.
fn tiles(findings: &LayerFindings, main: &LayerColumn, plan: &Plan) -> Vec<Tile> {
    let is_compared = sentences::first_difference(findings, main.machine).is_some();
    let is_followed = main.matched.joined > 0;
    let own = match (is_compared, is_followed) {
        (false, _) => None,
        (true, true) => Some(format!("{}.", of_column(findings, main, plan))),
        (true, false) => Some(sentences::none_followed(main, request(plan))),
    };
    let own = own.map(|text| Tile {
        text,
        ..Tile::default()
    });
    own.into_iter()
        .chain(is_followed.then(|| traced(main)))
        .collect()
}

/// Returns the states and layers that the mean of the traced requests goes to.
fn traced(main: &LayerColumn) -> Tile {
    let layers = largest_layers(main);
    let slowest = view::slowest_percent(main);
    let tail = only_if(
        slowest >= TAIL,
        format!(" (the slowest 1\u{a0}% of requests take {slowest:.0}\u{a0}% of the time)"),
    );
    let traced = unbroken(main.traced.mean_ns);
    let untraced = main.control.as_ref().map_or(String::new(), |one| {
        format!("; without {}", unbroken(one.mean_ns))
    });
    let rest = match main.fio_requests {
        Some(_) => format!(", {}", layers_beside_native(main)),
        None => format!(": {}{tail}. {layers}", states_in_short(main)),
    };
    Tile {
        text: format!("Of the mean latency with tracing ({traced}{untraced}){rest}"),
        ..Tile::default()
    }
}

/// "service time 70 %, C-state exit (host) 23 %, blocked 3 %": the largest states.
fn states_in_short(column: &LayerColumn) -> String {
    let states = view::states_of(column).into_iter().take(NAMED.0);
    let named = states.filter(|(.., percent)| *percent >= 0.5);
    named
        .map(|(state, _, part)| format!("{} {part:.0}\u{a0}%", state.label()))
        .joined(", ")
}

/// "15 % is host kernel and disk time, as in the native run; the rest: run-queue wait (host) 45 %, QEMU 20 %.": where
/// the time of a guest's requests is that native ones do not have.
fn layers_beside_native(column: &LayerColumn) -> String {
    let in_service = |layer| view::percent_in(column, layer, State::Running);
    let layers = view::layers_of(&[column])
        .into_iter()
        .map(|(layer, _)| layer);
    let (of_native, others): (Vec<Layer>, Vec<Layer>) =
        layers.partition(|layer| matches!(layer, Layer::HostKernel | Layer::Device));
    let works = others
        .iter()
        .map(|layer| (layer.label(), in_service(*layer)));
    let states = view::states_of(column).into_iter();
    let waits = states.filter(|(state, ..)| *state != State::Running);
    let waits = waits.map(|(state, _, percent)| (state.label(), percent));
    let mut rest: Vec<(&str, f64)> = works.chain(waits).collect();
    rest.retain(|(_, percent)| *percent >= 0.5);
    rest.sort_by(|a, b| b.1.total_cmp(&a.1));
    rest.truncate(NAMED.0);
    let rest = rest
        .iter()
        .map(|(name, percent)| format!("{name} {percent:.0}\u{a0}%"))
        .joined(", ");
    let of_native: f64 = of_native.into_iter().map(in_service).sum();
    format!(
        "{of_native:.0}\u{a0}% is host kernel and disk time, as in the native run; the rest: {rest}."
    )
}

/// A time that no line ends within.
pub fn unbroken(ns: f64) -> String {
    nanoseconds(ns).replace(' ', "\u{a0}")
}

/// "75 % is run-queue wait (host), 20 % is service time and 2 % is C-state exit (host)": the largest states.
pub fn largest_states(column: &LayerColumn) -> String {
    let states = view::states_of(column).into_iter().take(NAMED.0);
    let named = states.filter(|(.., percent)| *percent >= 0.5);
    let named = named.map(|(state, _, part)| format!("{part:.0}\u{a0}% is {}", state.label()));
    listed(&named.collect::<Vec<_>>())
}

/// "Largest layers: device (35 %) and notification (18 %, mostly C-state exit)."
pub fn largest_layers(column: &LayerColumn) -> String {
    let mut layers = layers_by_part(column);
    layers.truncate(NAMED.1);
    let first = layers.first().and_then(|first| first.mostly);
    let common = first.filter(|state| layers.iter().all(|one| one.mostly == Some(state)));
    let has_state = common.is_none() || layers.len() == 1;
    let named = layers.iter().map(|layer| layer.text("", has_state));
    let named = listed(&named.collect::<Vec<String>>());
    match (layers.len(), common) {
        (0, _) => String::new(),
        (1, _) => format!("Largest layer: {named}."),
        (_, Some(state)) => format!("Largest layers: {named}, both mostly {state}."),
        (_, None) => format!("Largest layers: {named}."),
    }
}

/// A layer's part of a request.
struct LayerPart {
    label: &'static str,
    /// The state that most of it is, without the side, which the layer says.
    mostly: Option<&'static str>,
    percent: f64,
}

impl LayerPart {
    /// "notification (18 % of the traced mean, mostly C-state exit)", where `base` is " of the traced mean", or without the state.
    fn text(&self, base: &str, has_state: bool) -> String {
        let mostly = self.mostly.filter(|_| has_state);
        let mostly = mostly.map_or(String::new(), |state| format!(", mostly {state}"));
        format!("{} ({:.0}\u{a0}%{base}{mostly})", self.label, self.percent)
    }
}

/// The layers of a column, the largest first; without those that round to nothing.
fn layers_by_part(column: &LayerColumn) -> Vec<LayerPart> {
    let layers = view::layers_of(&[column]).into_iter();
    let layers = layers.map(|(layer, _)| LayerPart {
        label: layer.label(),
        mostly: view::mostly(column, layer).and_then(|state| state.label().split(" (").next()),
        percent: view::percent_of(column, layer),
    });
    let mut layers: Vec<LayerPart> = layers.collect();
    layers.sort_by(|a, b| b.percent.total_cmp(&a.percent));
    layers.retain(|layer| layer.percent >= 0.5);
    layers
}

/// Everything of every column, for those who ask for details.
pub fn details(findings: &LayerFindings) -> Vec<Section<'_>> {
    let main = main_column(&findings.columns);
    let is_main = |one: &LayerColumn| main.is_some_and(|main| std::ptr::eq(main, one));
    let columns = view::columns(findings).into_iter();
    columns
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
            sentences::fio(main).map(|text| format!("fio: {text}.")),
            sentences::packets(main).map(|text| format!("Packets: {text}.")),
        ];
        all.push(Section::new(
            "",
            rests.into_iter().flatten().map(Block::Text),
        ));
    }
    all
}

/// The columns of single traced runs. `quality` says how exact each is, `untraced` that it has no control, and why. The main
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
    let overhead = format!("Tracing overhead: {untraced}.");
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
    let side_by_side = (columns.len() > 1)
        .then(|| Section::new("Layers side by side", [means(findings, &columns)]));
    let has_control = columns.iter().any(|column| column.control.is_some());
    let control = only_if(
        has_control,
        " The line across a bar is the untraced control's mean.",
    );
    let host = findings.host.as_ref();
    let stack = Figure {
        caption: format!(
            "Mean of a traced request by layer; plain for service time, hatched where it waits.{control}"
        ),
        ..Figure::new(Stack { host, columns })
    };
    let medians = view::medians(findings);
    // Two are in the answer.
    let tiles = (medians.len() > 2).then(|| Figure::new(Medians(medians)));
    let mut all = vec![Section::new("Layers", tiles.into_iter().chain([stack]))];
    all.extend(sums_and_segments(main));
    all.extend(side_by_side);
    all.extend((!findings.differences.is_empty()).then(|| variants(findings)));
    all
}

/// Each variant compared with the first.
fn variants(findings: &LayerFindings) -> Section<'_> {
    let caption = format!(
        "Left of the line is faster. The whisker is the 95 % CI over {}; one that contains ×1 is inconclusive.",
        view::rounds(findings)
    );
    let sentences = sentences::differences(findings);
    let table = Table::of("Variants compared with the first", &sentences)
        .column(words("request latency").broken(40, 20), |text| {
            text.as_str()
        })
        .done();
    let figure = Figure {
        caption,
        table: Some(table),
        ..Figure::new(Variants {
            findings,
            sentences,
        })
    };
    Section::new("Variants compared with the first, untraced", [figure])
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

/// A figure of a distribution, ns.
type SummaryFigure = fn(&Summary) -> f64;

/// The figures of the untraced control.
const CONTROL: [(&str, SummaryFigure); 3] = [
    ("control, untraced: mean", |one| one.mean_ns),
    ("control p50", |one| one.p50_ns),
    ("control p99", |one| one.p99_ns),
];

/// The layers' means, a column for each machine and variant.
fn means(findings: &LayerFindings, columns: &[&LayerColumn]) -> Table {
    let scale = Scale::for_columns(columns);
    let host = findings.host.as_ref();
    let native = host.map(|_| figures("native").spare(1)).into_iter();
    let heads = [words(scale.unit)].into_iter().chain(native);
    let heads = heads
        .chain(columns.iter().map(|column| head(column)))
        .collect();
    let mut table = Table::new("Mean of each layer by machine and variant", heads).in_parts();
    // A name, what the bare host has beside it, and a cell for each column.
    let cells = |name: Cell, of_host: Option<f64>, of_columns: Vec<Cell>| {
        let of_host = of_host.map_or(String::new(), |ns| scale.number(ns));
        let of_host = host.map(|_| Cell::from(of_host)).into_iter();
        [name]
            .into_iter()
            .chain(of_host)
            .chain(of_columns)
            .collect::<Vec<Cell>>()
    };
    table.group("Mean of a traced request");
    // Of requests none of which was matched there is no mean.
    let mean = |column: &LayerColumn, ns: f64| match column.matched.joined {
        0 => NONE.to_owned(),
        _ => scale.number(ns),
    };
    for (layer, means) in view::layers_of(columns) {
        let means = columns.iter().zip(means);
        let means = means.map(|(column, ns)| mean(column, ns).into());
        let name = Cell::key(class(layer), layer.label());
        table.row(cells(name, None, means.collect()));
    }
    let row = |name: &str, of_host: Option<f64>, text: &dyn Fn(&LayerColumn) -> String| {
        let texts = columns.iter().map(|column| Cell::strong(text(column)));
        cells(name.into(), of_host, texts.collect())
    };
    let unexplained = columns
        .first()
        .map_or("unexplained", |c| view::unexplained(c));
    table.row(row(unexplained, None, &|c| mean(c, c.unexplained_ns)));
    table.first(row("total, traced", None, &|c| mean(c, c.traced.mean_ns)));
    if columns.iter().any(|c| c.control.is_some()) {
        for (name, figure) in CONTROL {
            let text = |column: &LayerColumn| {
                let control = column.control.as_ref();
                control.map_or(NONE.to_owned(), |one| scale.number(figure(one)))
            };
            table.row(row(name, host.map(figure), &text));
        }
        table.row(row("tracing overhead, paired", None, &tracing_overhead));
    }
    table.row(row("matched", None, &|c| sentences::joined(&c.matched)));
    let clock_error = |c: &LayerColumn| format!("±{}", nanoseconds(c.clock.bound_ns));
    table.row(row("clock error", None, &clock_error));
    table
}

fn tracing_overhead(column: &LayerColumn) -> String {
    let observer = column.observer.as_ref();
    observer.map_or(NONE.to_owned(), |one| signed_percent(one.median - 1.0))
}

/// Every row of every column.
fn rows(columns: &[&LayerColumn]) -> Table {
    let scale = Scale::for_columns(columns);
    let first = words(format!("mean, {}", scale.unit)).broken(30, 20);
    let title = "Mean of each row by machine and variant";
    let mut table = Table::of(title, view::rows_of(columns)).column(first, |key| key.name());
    for column in columns {
        table = table.column(head(column), |key| {
            let row = key.find(column);
            row.map_or(String::new(), |row| scale.number(row.time.mean_ns))
        });
    }
    table.done().in_parts()
}
