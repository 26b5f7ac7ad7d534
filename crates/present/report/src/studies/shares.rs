//! `share`: which method gives a guest a tree of files, and what each costs and keeps.

use super::overhead::ci;
use crate::charts::bars::{Bars, Lane, Row};
use crate::engine::{Block, Cell, Figure, Notice, Report, Section, Table, Tone, figures, words};
use crate::number::{NONE, bytes, counted, range, ratio, significant, value};
use crate::text::{Joined, distinct, only_if};
use crate::view::verdict::{self, Pair};
use crate::view::{self, by_workload, host, not_observed, origin};
use std::collections::BTreeSet;
use vmtax_findings::{Estimate, ShareCell, ShareColumn, ShareFindings, ShareRow, ShareScore};
use vmtax_model::{Keeping, Kept, ON_THE_HOST, Plan, ShareFacts, WorkloadName, parse_size};
use vmtax_recording::Recording;

/// Makes the report of a comparison of share methods.
pub fn report<'a>(recording: &'a Recording, findings: &'a ShareFindings) -> Report<'a> {
    let plan = &recording.plan;
    let rounds = view::rounds(findings.rounds_planned, findings.rounds_planned);
    let tree = plan.tree.as_ref().map(|tree| match &tree.path {
        Some(path) => format!("tree {}", path.display()),
        None if tree.bytes == 0 => format!("a tree of {} files", tree.files),
        None => {
            let size = bytes(tree.bytes).replace(".00 ", " ");
            format!("a tree of {} files, {size}", tree.files)
        }
    });
    let cached = cached(plan);
    let own = all_in_one(findings, cached.as_deref()).into_iter();
    let own = own.chain(figure_by_figure(findings, cached.as_deref()));
    Report {
        study: "shares",
        title: "Methods of sharing files with a guest".to_owned(),
        next: view::next_if_few(recording, findings.rounds_planned),
        basis: [
            view::run(recording, rounds),
            host(recording),
            vec![view::guests_in_short(plan)],
            security_models(findings),
            tree.into_iter().collect(),
        ]
        .concat(),
        origin: origin(recording),
        answer: answer(findings),
        advice: findings.advice.clone(),
        notices: vec![
            Notice::missing("Not measured", not_measured(plan)),
            Notice::notes("Not preserved", not_kept(findings)),
            Notice::notes("Verified in the guest", effects(findings)),
            Notice::warnings(view::warnings(recording, &findings.warnings)),
        ],
        sections: own
            .chain(keeping(findings))
            .chain([cpus(findings)])
            .chain(view::facts(recording, &[]))
            .collect(),
        method: vec![findings.method.clone()],
        ..Report::default()
    }
}

/// The methods that the host cannot have, each with the reason and the remedy.
pub fn not_measured(plan: &Plan) -> Vec<String> {
    let missing = plan.not_measured.iter();
    missing.map(|missing| not_observed(missing, "")).collect()
}

/// The method that is fastest for each workload where one is significantly faster, and what it loses.
fn answer(findings: &ShareFindings) -> String {
    let base = base(findings);
    let fastest = |cells: &[Option<Estimate>]| {
        let all = guest_costs(findings, cells).into_iter();
        let faster = all.filter(|(_, cost)| cost.interval.is_some_and(|i| i.high < 1.0));
        faster.min_by(|a, b| a.1.median.total_cmp(&b.1.median))
    };
    let loses = |column: &ShareColumn| {
        let lost = guests_kept(column, Keeping::Lost);
        let loses = only_if(!lost.is_empty(), format!(", and loses {}", lost.join(", ")));
        if column.kept.is_empty() || !lost.is_empty() {
            loses
        } else {
            ", and preserves all metadata that was tested".to_owned()
        }
    };
    let each = findings.scores.iter().map(|score| {
        let of_workload = match fastest(&score.cells) {
            Some((column, cost)) => {
                let (title, times, ci) = (title(column), ratio(cost.median), ci(&cost));
                let loses = loses(column);
                format!("{title} is fastest, {times} of {base}'s cost{ci}{loses}")
            }
            None => undecided(findings, &score.cells),
        };
        format!("workload {}: {of_workload}", score.workload)
    });
    match each.joined("; ") {
        each if each.is_empty() => "No share method has a value.".to_owned(),
        each => format!("{each}."),
    }
}

/// The guests' methods that have a cost in these cells, with it.
fn guest_costs<'a>(
    findings: &'a ShareFindings,
    cells: &[Option<Estimate>],
) -> Vec<(&'a ShareColumn, Estimate)> {
    let columns = findings.columns.iter().zip(cells);
    let costs = columns.filter_map(|(column, cost)| Some((column, (*cost)?)));
    costs
        .filter(|(column, _)| column.machine.is_guest())
        .collect()
}

/// Returns a sentence for the case that no method is significantly faster than the baseline.
fn undecided(findings: &ShareFindings, cells: &[Option<Estimate>]) -> String {
    let base = base(findings);
    let mut costs = guest_costs(findings, cells);
    let base_column = findings.columns.get(findings.base);
    costs.retain(|(column, _)| !base_column.is_some_and(|base| std::ptr::eq(base, *column)));
    if costs.iter().any(|(_, cost)| cost.interval.is_some()) {
        return format!("no method is significantly faster than {base}");
    }
    let rounds = counted(findings.rounds_planned.into(), "round");
    let fastest = costs
        .iter()
        .min_by(|a, b| a.1.median.total_cmp(&b.1.median));
    match fastest {
        None => format!("no method except {base} has a figure"),
        Some((column, cost)) if cost.median < 1.0 => {
            let (title, times) = (title(column), ratio(cost.median));
            format!(
                "undecided after {rounds}; the fastest so far is {title}, {times} the cost of {base}"
            )
        }
        Some(_) => format!("undecided after {rounds}; the fastest so far is {base}"),
    }
}

/// The properties of files of which a method makes this in the guest.
fn guests_kept(column: &ShareColumn, keeping: Keeping) -> Vec<&str> {
    let guest = column
        .kept
        .iter()
        .filter(|kept| !kept.what.ends_with(ON_THE_HOST));
    let such = guest.filter(|kept| kept.keeping == keeping);
    such.map(|kept| kept.what.as_str()).collect()
}

/// A method's name.
fn title(column: &ShareColumn) -> String {
    if column.machine.is_guest() {
        column.variant.clone()
    } else {
        column.machine.to_string()
    }
}

fn base(findings: &ShareFindings) -> String {
    let column = findings.columns.get(findings.base);
    column.map_or_else(String::new, title)
}

/// Seconds of guest, QEMU and server for all workloads in one round.
fn cpu_seconds(column: &ShareColumn) -> Option<(f64, f64, f64)> {
    let all = || column.cpu_seconds.iter().map(|(_, seconds)| seconds);
    (!column.cpu_seconds.is_empty()).then(|| {
        let server = all().map(|s| s.server.unwrap_or(0.0)).sum();
        (
            all().map(|s| s.guest).sum(),
            all().map(|s| s.qemu).sum(),
            server,
        )
    })
}

/// Why reads of bonnie's files may be those of a cache; `None` where the files are too large for that.
fn cached(plan: &Plan) -> Option<String> {
    let mut workloads = plan.workloads.iter();
    let bonnie = workloads.find(|w| w.name == WorkloadName::Bonnie)?;
    let size = parse_size(bonnie.options.get("size")?)?;
    let memory = u64::from(plan.guest.memory_mib) << 20;
    (size < memory.saturating_mul(2)).then(|| {
        let (size, memory) = (bytes(size), bytes(memory));
        format!(
            "{CACHED} bonnie's files ({size}) are less than twice the guest's memory ({memory}): reads may be answered from its cache."
        )
    })
}

/// Marks figures that a cache may have given.
const CACHED: &str = "‡";

fn all_in_one<'a>(findings: &ShareFindings, cached: Option<&str>) -> Option<Section<'a>> {
    let group = |score: &ShareScore| {
        let cost = |i: usize| score.cells.get(i).copied().flatten();
        let bars = bars(findings, &cost, &|_| String::new());
        (score.workload.to_string(), bars)
    };
    let groups = findings.scores.iter().map(group).collect();
    let block = drawn(findings, groups, tournament(findings, cached));
    let title = "Relative cost: geometric mean over a workload's metrics";
    (!findings.columns.is_empty()).then(|| Section::new(title, [block]))
}

fn figure_by_figure<'a>(findings: &ShareFindings, cached: Option<&str>) -> Vec<Section<'a>> {
    let group = |row: &&ShareRow| {
        let cell = |i: usize| row.cells.get(i);
        let figure = |i: usize| {
            let spread = cell(i).and_then(|cell| cell.spread.as_ref());
            spread.map_or(NONE.to_owned(), |s| value(row.metric.unit(), s.median))
        };
        let cost = |i: usize| Some(cell(i)?.against.as_ref()?.ratio);
        let bars = bars(findings, &cost, &figure);
        (row.metric.label().to_owned(), bars)
    };
    let section = |(workload, rows): (WorkloadName, Vec<&ShareRow>)| {
        let table = metrics_table(findings, workload, &rows, cached);
        let block = drawn(findings, rows.iter().map(group).collect(), table);
        Section::detail(format!("Per metric: {workload}"), [block])
    };
    let workloads = by_workload(&findings.rows, |row| row.metric);
    workloads.into_iter().map(section).collect()
}

/// A bar for each method: its cost over the base's.
fn bars(
    findings: &ShareFindings,
    cost: &dyn Fn(usize) -> Option<Estimate>,
    figure: &dyn Fn(usize) -> String,
) -> Vec<Row> {
    let row = |(i, column): (usize, &ShareColumn)| {
        let is_base = i == findings.base;
        let cost = cost(i).filter(|_| !is_base);
        let times = cost.map_or(String::new(), |c| ratio(c.median));
        let ends = range_of(cost);
        let (figure, range) = match figure(i) {
            text if text.is_empty() => (times, ends),
            text => (text, format!("{times} {ends}")),
        };
        let shown = cost.is_none_or(|c| c.interval.is_none_or(|i| i.low > 1.0 || i.high < 1.0));
        let lane = Lane {
            class: column.machine.as_str(),
            cost,
            shown,
            figure,
            range,
        };
        Row {
            name: title(column),
            more: only_if(is_base, "(×1)"),
            lanes: vec![lane],
        }
    };
    findings.columns.iter().enumerate().map(row).collect()
}

fn drawn<'a>(findings: &ShareFindings, groups: Vec<(String, Vec<Row>)>, table: Table) -> Block<'a> {
    let bars = Bars {
        class: "ways",
        legend: Vec::new(),
        groups,
    };
    if bars.is_empty() {
        return Block::Table(table);
    }
    let (base, scale) = (base(findings), bars.scale());
    let caption = format!(
        "Cost relative to {base} (baseline), the median of the rounds' ratios (paired); left of the line is faster. {scale} The whisker is the 95 % CI; a \
         pale bar is inconclusive."
    );
    Block::Figure(Figure {
        caption,
        table: Some(table),
        ..Figure::new(bars)
    })
}

/// The ends of a cost's interval; empty where there is none.
fn range_of(cost: Option<Estimate>) -> String {
    let interval = cost.and_then(|cost| cost.interval);
    interval.as_ref().map_or(String::new(), range)
}

fn tournament(findings: &ShareFindings, cached: Option<&str>) -> Table {
    let mut costs = findings
        .scores
        .iter()
        .flat_map(|score| &score.cells)
        .flatten();
    let intervals = costs.any(|cost| cost.interval.is_some());
    let columns = findings.columns.iter().enumerate();
    let mut table = Table::of("Costs of the share methods", columns)
        .column(words("share method").broken(24, 12), |(_, one)| title(one));
    for score in &findings.scores {
        let cost = |i: usize| score.cells.get(i).copied().flatten();
        table = table.column(figures(head(score.workload, cached)), |(i, _)| {
            score_cell(cost(*i), *i == findings.base)
        });
        if intervals {
            let ends = |i: usize| range_of(cost(i));
            table = table.column(figures("95 % CI").spare(1), |(i, _)| ends(*i));
        }
    }
    let note = format!(
        "×: cost relative to {} (baseline), below ×1 is faster; native, without a guest, for comparison only. Single operations \
         differ more: --details. CPU: seconds of guest, QEMU and server in one round.",
        base(findings)
    );
    let all = table.column(figures("CPU s"), |(_, column)| {
        let seconds = cpu_seconds(column).map(|(guest, qemu, server)| guest + qemu + server);
        seconds.map_or(NONE.to_owned(), significant)
    });
    let notes = [Some(note), cached.map(str::to_owned)]
        .into_iter()
        .flatten();
    all.done().in_parts().notes(notes.collect())
}

fn head(workload: WorkloadName, cached: Option<&str>) -> String {
    let is_cached = cached.is_some() && workload == WorkloadName::Bonnie;
    let mark = only_if(is_cached, format!(" {CACHED}"));
    format!("{workload}{mark}")
}

fn score_cell(cost: Option<Estimate>, base: bool) -> Cell {
    let Some(cost) = cost else { return NONE.into() };
    let cell = Cell::from(ratio(cost.median));
    match cost.interval {
        _ if base => cell,
        Some(i) if i.high < 1.0 => Cell {
            strong: true,
            ..cell.tone(Tone::Good)
        },
        Some(i) if i.low > 1.0 => cell.tone(Tone::Warn),
        _ => cell,
    }
}

/// A row for each metric, a column for each method.
fn metrics_table(
    findings: &ShareFindings,
    workload: WorkloadName,
    rows: &[&ShareRow],
    cached: Option<&str>,
) -> Table {
    let base = findings.base;
    let cached = cached.filter(|_| workload == WorkloadName::Bonnie);
    let mut table = Table::of(format!("Figures of {workload}"), rows).column(
        words("metric").broken(22, 16),
        |row| {
            let is_cached = cached.is_some() && row.metric.id().contains("read");
            let mark = only_if(is_cached, format!(" {CACHED}"));
            format!("{}{mark}", row.metric.label())
        },
    );
    for (i, column) in findings.columns.iter().enumerate() {
        table = table.column(figures(title(column)).broken(20, 18), |row| {
            let cell = row.cells.get(i);
            cell.map_or(NONE.to_owned(), |cell| figure(row, base, cell))
        });
    }
    let opposed = rows
        .iter()
        .flat_map(|row| pairs(row, base))
        .any(Pair::is_opposed);
    let unsupported = rows.iter().flat_map(|row| &row.cells);
    let unsupported = distinct(unsupported.filter_map(|cell| cell.unsupported.clone()));
    let unsupported = unsupported
        .into_iter()
        .map(|reason| format!("{NONE}: unsupported ({reason})."));
    let notes = cached
        .map(str::to_owned)
        .into_iter()
        .chain(verdict::opposed_note(opposed))
        .chain(unsupported);
    table.done().in_parts().notes(notes.collect())
}

/// "12.3 MiB/s ×0.41".
fn figure(row: &ShareRow, base: usize, cell: &ShareCell) -> String {
    match (&cell.spread, &cell.against) {
        (Some(s), Some(cost)) => {
            let paired = pair(row, base, cell);
            let paired = paired.map_or_else(|| ratio(cost.ratio.median), Pair::text);
            let paired = verdict::in_parentheses(paired, cost.verdict);
            format!("{} {paired}", value(row.metric.unit(), s.median))
        }
        (Some(s), None) => value(row.metric.unit(), s.median),

        (None, _) => NONE.to_owned(),
    }
}

/// The cost of a method, the base's median and its own.
fn pair(row: &ShareRow, base: usize, cell: &ShareCell) -> Option<Pair> {
    Some(Pair {
        cost: cell.against.as_ref()?.ratio.median,
        base: row.cells.get(base)?.spread.as_ref()?.median,
        other: cell.spread.as_ref()?.median,
        better: Some(row.metric.better()),
    })
}

fn pairs(row: &ShareRow, base: usize) -> impl Iterator<Item = Pair> + '_ {
    row.cells
        .iter()
        .filter_map(move |cell| pair(row, base, cell))
}

/// Who worked for it: a method that is fast by using the host's CPUs is not free.
fn cpus<'a>(findings: &ShareFindings) -> Section<'a> {
    let columns = findings.columns.iter();
    let measured = columns.filter_map(|column| Some((column, cpu_seconds(column)?)));
    let heads = ["guest", "QEMU", "server", "all"];
    let table = Table::of("CPU time", measured)
        .column(words("share method").broken(24, 12), |(one, _)| title(one))
        .figures(heads, |(_, (guest, qemu, server))| {
            [*guest, *qemu, *server, guest + qemu + server].map(significant)
        })
        .done();
    Section::detail("CPU time of one round, seconds", [table])
}

/// Makes the section on the properties of a file that each method keeps; the detail is the cell's hint.
fn keeping<'a>(findings: &ShareFindings) -> Option<Section<'a>> {
    let title_of_all = "What each share method keeps";
    let methods = || {
        findings
            .columns
            .iter()
            .filter(|column| !column.kept.is_empty())
    };
    let tried = distinct(
        methods()
            .flat_map(|one| &one.kept)
            .map(|kept| kept.what.as_str()),
    );
    let is_any = !tried.is_empty();
    let mut table =
        Table::of(title_of_all, tried).column(words("tried").broken(22, 12), |what| *what);
    for method in methods() {
        table = table.column(words(title(method)).broken(14, 8), |what| {
            kept(method.kept.iter().find(|kept| kept.what == *what))
        });
    }
    let intro = "Each tried in the guest on the share. On the page, rest the pointer on a cell for what was found.";
    let blocks = [
        Block::Text(intro.to_owned()),
        table.done().in_parts().into(),
    ];
    is_any.then(|| Section::detail(title_of_all, blocks))
}

fn kept(kept: Option<&Kept>) -> Cell {
    let Some(kept) = kept else {
        return Cell::from(NONE).tone(Tone::Soft);
    };
    let cell = match kept.keeping {
        Keeping::Kept => Cell::from("kept").tone(Tone::Good),
        Keeping::Lost => Cell::from("lost").tone(Tone::Bad),
        Keeping::Refused => Cell::from("refused").tone(Tone::Soft),
    };
    cell.hint(&kept.detail)
}

/// Returns the properties that each method loses or refuses, in a line for each, and those that it keeps for the guest
/// alone.
fn not_kept(findings: &ShareFindings) -> Vec<String> {
    let properties_not_kept = |column: &ShareColumn| {
        let guest = guests_kept(column, Keeping::Kept);
        let host = column
            .kept
            .iter()
            .filter(|kept| kept.keeping != Keeping::Kept);
        let host = host.filter_map(|kept| kept.what.strip_suffix(ON_THE_HOST));
        let said = |word: &str, what: Vec<&str>| {
            (!what.is_empty()).then(|| format!("{word} {}", what.join(", ")))
        };
        let parts = [
            said("loses", guests_kept(column, Keeping::Lost)),
            said("refuses", guests_kept(column, Keeping::Refused)),
            said(
                "kept in the guest but not on the host:",
                host.filter(|what| guest.contains(what)).collect(),
            ),
        ];
        let parts = parts.into_iter().flatten().joined("; ");
        (!parts.is_empty()).then(|| format!("{}: {parts}", title(column)))
    };
    findings
        .columns
        .iter()
        .filter_map(properties_not_kept)
        .collect()
}

/// Returns the security model of 9p: "security_model=none".
fn security_model(facts: &ShareFacts) -> Option<&str> {
    let mut options = facts.qemu.iter().flat_map(|argument| argument.split(','));
    options.find(|option| option.starts_with("security_model="))
}

/// "9p with security_model=none, security_model=mapped-xattr"; nothing without 9p.
fn security_models(findings: &ShareFindings) -> Vec<String> {
    let facts = findings
        .columns
        .iter()
        .filter_map(|column| column.facts.as_ref());
    let models: BTreeSet<&str> = facts.filter_map(security_model).collect();
    let named = models.iter().copied().joined(", ");
    only_if(!models.is_empty(), vec![format!("9p with {named}")])
}

/// Returns the options that took effect for each method, and the reason for a method without figures.
fn effects(findings: &ShareFindings) -> Vec<String> {
    let effects_of_options = |column: &ShareColumn| {
        let name = title(column);
        if let Some(reason) = &column.failed {
            let reason = reason.lines().next().unwrap_or_default();
            return Some(format!("{name}: {reason}"));
        }
        let facts = column.facts.as_ref()?;
        let msize = facts.msize;
        let msize = msize.map_or(String::new(), |bytes| format!("negotiated msize={bytes}; "));
        let image = facts.image.as_ref().map_or(String::new(), |image| {
            let (mib, seconds) = (image.bytes >> 20, image.seconds);
            format!("image of {mib} MiB made in {seconds:.1} s; ")
        });
        let model = security_model(facts).map_or(String::new(), |model| format!("{model}; "));
        Some(format!("{name}: {model}{msize}{image}{}", facts.mount))
    };
    findings
        .columns
        .iter()
        .filter_map(effects_of_options)
        .collect()
}
