//! `layers`: where the time of a request goes, layer by layer.

mod column;
pub mod words;

use crate::charts::layers::{Ladder, Stack, Variants, class};
use crate::engine::{Block, Cell, Column, Figure, Notice, Report, Section, Table};
use crate::number::{NONE, nanoseconds, signed_percent};
use crate::text::when;
use crate::view::layers::{self as view, Scale};
use crate::view::{self as common, host, origin};
use vmtax_model::{LayerColumn, LayerFindings};
use vmtax_recording::Recording;

/// How many layers the answer names.
const NAMED: usize = 3;

/// The report.
pub fn report<'a>(recording: &'a Recording, findings: &'a LayerFindings) -> Report<'a> {
    let run = vec![recording.plan.name.clone(), when(&recording.manifest.started), view::rounds(findings)];
    let columns = view::columns(findings);
    let several = columns.len() > 1;
    let host_alone = findings.host.as_ref().map(|host| {
        let table = column::wholes(&[("one operation", Some(host))]);
        Section::detail("Bare host, the same work on the same file", vec![Block::Table(table)])
    });
    let side_by_side = several.then(|| Section::detail("Rows side by side, means", vec![Block::Table(rows(&columns))]));
    Report {
        study: "layers",
        title: "Where the time of a request goes".to_owned(),
        basis: [run, host(recording), vec![view::workload(recording)]].concat(),
        origin: origin(recording),
        answer: match view::main_column(findings) {
            None => "No request was followed: there is nothing to show. The warnings say why.".to_owned(),
            Some(main) => answer(findings, main),
        },
        advice: findings.advice.clone(),
        notices: vec![
            Notice::missing("Not observed", words::missing(findings)),
            Notice::warnings(common::warnings(recording, &findings.warnings)),
        ],
        sections: brief(findings)
            .into_iter()
            .chain(host_alone)
            .chain(details(findings))
            .chain(side_by_side)
            .chain(common::facts(recording, &[]))
            .collect(),
        method: if columns.is_empty() { Vec::new() } else { vec![findings.method.clone()] },
        ..Report::default()
    }
}

/// The medians from the bare host to the guest, then what the guest's time goes to, largest first.
fn answer(findings: &LayerFindings, main: &LayerColumn) -> String {
    let steps = view::ladder(findings).into_iter();
    // Not broken between a name and its figure.
    let steps: Vec<String> =
        steps.map(|(name, ns)| format!("{name} {}", nanoseconds(ns)).replace(' ', "\u{a0}")).collect();
    let mut layers: Vec<_> = view::layers_of(&[main]).into_iter().map(|(layer, means)| (layer, means[0])).collect();
    layers.sort_by(|a, b| b.1.total_cmp(&a.1));
    let scale = Scale::for_columns(&[main]);
    let named: Vec<String> =
        layers.iter().take(NAMED).map(|(layer, ns)| format!("{} {}", scale.text(*ns), layer.label())).collect();
    let others = layers.len().saturating_sub(NAMED);
    let others = if others > 0 { format!(" and less in {others} other layers") } else { String::new() };
    format!(
        "One request, median: {}. Of the {} that it takes on average on {}: {}{others}.",
        steps.join(" · "),
        scale.text(main.traced.mean_ns),
        view::title(main),
        named.join(", "),
    )
}

/// Everything of every column, for those who ask for details.
pub fn details(findings: &LayerFindings) -> Vec<Section<'_>> {
    view::columns(findings).into_iter().enumerate().map(|(i, one)| column::section(one, i == 0)).collect()
}

/// The main column's rows, all columns' layers, the variants, and what it rests on.
pub fn brief(findings: &LayerFindings) -> Vec<Section<'_>> {
    let Some(main) = view::main_column(findings) else { return Vec::new() };
    let columns = view::columns(findings);
    let title = if columns.len() > 1 { "Layers side by side" } else { "Layers" };
    let stack = Figure {
        caption: "Mean of one traced request by layer; a layer's stretches lie side by side, hatched where a request does not \
                  run. The line across a bar is the untraced control's mean."
            .to_owned(),
        table: (columns.len() > 1).then(|| means(findings, &columns)),
        below: true,
        ..Figure::new(Stack { host: findings.host.as_ref(), columns })
    };
    let mut all = vec![
        Section::new("", vec![Block::Figure(Figure::new(Ladder(view::ladder(findings))))]),
        Section::new(view::title(main), vec![Block::Figure(column::distributions(main))]),
        Section::new(title, vec![Block::Figure(stack)]),
    ];
    if !findings.differences.is_empty() {
        let caption = format!(
            "Left of the line is faster. The whisker is the 95 % interval over {}; where it holds ×1, no difference is shown.",
            view::rounds(findings)
        );
        let sentences = words::differences(findings);
        let said = sentences.iter().map(|text| vec![text.as_str()]);
        let table =
            Table::new("Variants against the first", vec![Column::words("request latency").broken(40, 20)]).rows(said);
        let figure = Figure { caption, table: Some(table), ..Figure::new(Variants { findings, sentences }) };
        all.push(Section::new("Variants against the first, untraced", vec![Block::Figure(figure)]));
    }
    let rests = [
        format!("Observer effect: {}.", words::observer(main)),
        format!("Clocks: {}.", words::clock(main)),
        format!("Requests: {}.", words::matched(main)),
    ];
    all.push(Section::new("", rests.into_iter().map(Block::Text).collect()));
    all
}

fn head(column: &LayerColumn) -> Column {
    let name = format!("{}\n{}", column.machine, column.variant.replace(',', "\n"));
    Column::figures(name.trim_end()).broken(24, 8)
}

/// The layers' means, a column for each machine and variant.
fn means(findings: &LayerFindings, columns: &[&LayerColumn]) -> Table {
    let scale = Scale::for_columns(columns);
    let host = findings.host.as_ref();
    let heads = host.map(|_| Column::figures("bare host").spare(1)).into_iter().chain(columns.iter().map(|c| head(c)));
    let columns_of_table = [Column::words(format!("mean, {}", scale.unit))].into_iter().chain(heads).collect();
    let mut table = Table::new("Mean of each layer by machine and variant", columns_of_table).in_parts();
    for (layer, means) in view::layers_of(columns) {
        let empty = host.map(|_| Cell::default());
        let means = means.iter().map(|mean| scale.number(*mean).into());
        table
            .row([Cell::key(class(layer), layer.label())].into_iter().chain(empty).chain(means).collect::<Vec<Cell>>());
    }
    let time = |ns: Option<f64>| ns.map_or(NONE.to_owned(), |ns| scale.number(ns));
    let mut row = |name: &str, of_host: Option<f64>, text: &dyn Fn(&LayerColumn) -> String| {
        let of_host = host.map(|_| of_host.map_or(String::new(), |ns| scale.number(ns)).into());
        let texts = columns.iter().map(|c| Cell::strong(text(c)));
        let cells: Vec<Cell> = [Cell::from(name)].into_iter().chain(of_host).chain(texts).collect();
        if name == "total, traced" { table.first(cells) } else { table.row(cells) }
    };
    row("unexplained", None, &|c| time(Some(c.unexplained_ns)));
    row("total, traced", None, &|c| time(Some(c.traced.mean_ns)));
    if columns.iter().any(|c| c.control.is_some()) {
        row("control, untraced", host.map(|h| h.mean_ns), &|c| time(c.control.map(|f| f.mean_ns)));
        row("control p50", host.map(|h| h.p50_ns), &|c| time(c.control.map(|f| f.p50_ns)));
        row("control p99", host.map(|h| h.p99_ns), &|c| time(c.control.map(|f| f.p99_ns)));
        let effect = |c: &LayerColumn| c.observer.as_ref().map_or(NONE.to_owned(), |o| signed_percent(o.median - 1.0));
        row("observer effect", None, &effect);
    }
    row("followed", None, &|c| words::followed(&c.matched));
    row("clocks within", None, &|c| format!("±{}", nanoseconds(c.clock.bound_ns)));
    table
}

/// Every row of every column.
fn rows(columns: &[&LayerColumn]) -> Table {
    let scale = Scale::for_columns(columns);
    let heads = columns.iter().map(|c| head(c));
    let heads = [Column::words(format!("mean, {}", scale.unit)).broken(30, 20)].into_iter().chain(heads).collect();
    let row = |key: view::Key| {
        let mean = |c: &&LayerColumn| key.find(c).map_or(String::new(), |r| scale.number(r.time.mean_ns));
        [key.name()].into_iter().chain(columns.iter().map(mean)).collect::<Vec<String>>()
    };
    let table = Table::new("Mean of each row by machine and variant", heads).in_parts();
    table.rows(view::rows_of(columns).into_iter().map(row))
}
