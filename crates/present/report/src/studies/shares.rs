//! `share`: which method gives a guest a tree of files, and what each costs and keeps.

use super::overhead::ci;
use crate::charts::bars::{Bars, Lane, Row};
use crate::engine::{Block, Cell, Column, Figure, Notice, Report, Section, Table, Tone};
use crate::number::{NONE, bytes, counted, range, ratio, significant, value};
use crate::text::when;
use crate::view::{self, by_workload, host, not_observed, origin, verdict};
use vmtax_model::{
    Estimate, Keeping, Kept, ON_THE_HOST, Plan, ShareCell, ShareColumn, ShareFacts, ShareFindings,
    ShareRow, Verdict, WorkloadName, parse_size,
};
use vmtax_recording::Recording;

/// Makes the report of a comparison of share methods.
pub fn report<'a>(recording: &'a Recording, findings: &'a ShareFindings) -> Report<'a> {
    let plan = &recording.plan;
    let rounds = view::rounds(findings.rounds_planned, findings.rounds_planned);
    let tree = plan.tree.as_ref().map(|tree| match &tree.path {
        Some(path) => format!("tree {}", path.display()),
        None if tree.bytes == 0 => format!("a tree of {} files", tree.files),
        None => format!(
            "a tree of {} files, {}",
            tree.files,
            bytes(tree.bytes).replace(".00 ", " ")
        ),
    });
    let run = vec![
        plan.name.clone(),
        when(&recording.manifest.started),
        rounds.clone(),
    ];
    let cached = cached(plan);
    let own = [all_in_one(findings, cached.as_deref())]
        .into_iter()
        .flatten()
        .chain(figure_by_figure(findings, cached.as_deref()));
    Report {
        study: "shares",
        title: "Methods of sharing files with a guest".to_owned(),
        next: next(recording, findings),
        basis: [
            run,
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
    plan.not_measured
        .iter()
        .map(|missing| not_observed(missing, ""))
        .collect()
}

/// The method that is fastest for each workload where one is significantly faster, and what it loses.
fn answer(findings: &ShareFindings) -> String {
    let base = base(findings);
    let fastest = |cells: &[Option<Estimate>]| {
        let all = findings
            .columns
            .iter()
            .zip(cells)
            .filter(|(column, _)| column.machine.is_guest());
        let all = all.filter_map(|(column, cost)| Some((column, (*cost)?)));
        let faster = all.filter(|(_, cost)| cost.interval.is_some_and(|i| i.high < 1.0));
        faster.min_by(|a, b| a.1.median.total_cmp(&b.1.median))
    };
    let loses = |column: &ShareColumn| {
        let lost = lost(column);
        let loses = if lost.is_empty() {
            String::new()
        } else {
            format!(", and loses {}", lost.join(", "))
        };
        if column.kept.is_empty() || !lost.is_empty() {
            loses
        } else {
            ", and preserves all metadata that was tested".to_owned()
        }
    };
    let each = findings
        .scores
        .iter()
        .map(|score| match fastest(&score.cells) {
            Some((column, cost)) => format!(
                "workload {}: {} is fastest, {} of {base}'s cost{}{}",
                score.workload,
                title(column),
                ratio(cost.median),
                ci(&cost),
                loses(column)
            ),
            None => format!(
                "workload {}: {}",
                score.workload,
                undecided(findings, &score.cells)
            ),
        });
    let each: Vec<String> = each.collect();
    if each.is_empty() {
        "No share method has a value.".to_owned()
    } else {
        format!("{}.", each.join("; "))
    }
}

/// Returns a sentence for the case that no method is significantly faster than the baseline.
fn undecided(findings: &ShareFindings, cells: &[Option<Estimate>]) -> String {
    let base = base(findings);
    let guests = findings.columns.iter().zip(cells).enumerate();
    let guests = guests.filter(|(i, (column, _))| *i != findings.base && column.machine.is_guest());
    let costs: Vec<(&ShareColumn, Estimate)> = guests
        .filter_map(|(_, (column, cost))| Some((column, (*cost)?)))
        .collect();
    if costs.iter().any(|(_, cost)| cost.interval.is_some()) {
        return format!("no method is significantly faster than {base}");
    }
    let rounds = counted(findings.rounds_planned.into(), "round");
    match costs
        .iter()
        .min_by(|a, b| a.1.median.total_cmp(&b.1.median))
    {
        None => format!("no method has a figure beside {base}"),
        Some((column, cost)) if cost.median < 1.0 => {
            format!(
                "undecided after {rounds}; the fastest so far is {}, {} the cost of {base}",
                title(column),
                ratio(cost.median)
            )
        }
        Some(_) => format!("undecided after {rounds}; the fastest so far is {base}"),
    }
}

/// The properties of files that a method loses in the guest.
fn lost(column: &ShareColumn) -> Vec<&str> {
    let guest = column
        .kept
        .iter()
        .filter(|kept| !kept.what.ends_with(ON_THE_HOST));
    guest
        .filter(|kept| kept.keeping == Keeping::Lost)
        .map(|kept| kept.what.as_str())
        .collect()
}

/// More rounds where there are too few for an interval.
fn next(recording: &Recording, findings: &ShareFindings) -> Vec<String> {
    let few = findings.rounds_planned < vmtax_model::FEWEST_ROUNDS;
    few.then(|| view::with_more_rounds(recording))
        .flatten()
        .into_iter()
        .collect()
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
    findings
        .columns
        .get(findings.base)
        .map_or_else(String::new, title)
}

/// Seconds of guest, QEMU and server for all workloads in one round.
fn cpu_seconds(column: &ShareColumn) -> Option<(f64, f64, f64)> {
    let sum = |of: &dyn Fn(&vmtax_model::CpuSeconds) -> f64| {
        column.cpu_seconds.iter().map(|(_, s)| of(s)).sum::<f64>()
    };
    (!column.cpu_seconds.is_empty()).then(|| {
        (
            sum(&|s| s.guest),
            sum(&|s| s.qemu),
            sum(&|s| s.server.unwrap_or(0.0)),
        )
    })
}

/// Why reads of bonnie's files may be those of a cache; `None` where the files are too large for that.
fn cached(plan: &Plan) -> Option<String> {
    let bonnie = plan
        .workloads
        .iter()
        .find(|w| w.name == WorkloadName::Bonnie)?;
    let size = parse_size(bonnie.options.get("size")?)?;
    let memory = u64::from(plan.guest.memory_mib) << 20;
    (size < memory.saturating_mul(2)).then(|| {
        format!(
            "{CACHED} bonnie's files ({}) are less than twice the guest's memory ({}): reads may be answered from its cache.",
            bytes(size),
            bytes(memory)
        )
    })
}

/// Marks figures that a cache may have given.
const CACHED: &str = "‡";

fn all_in_one<'a>(findings: &ShareFindings, cached: Option<&str>) -> Option<Section<'a>> {
    let group = |score: &vmtax_model::ShareScore| {
        let cost = |i: usize| score.cells.get(i).copied().flatten();
        (
            score.workload.to_string(),
            bars(findings, &cost, &|_| String::new()),
        )
    };
    let table = tournament(findings, cached);
    let blocks = vec![drawn(
        findings,
        findings.scores.iter().map(group).collect(),
        table,
    )];
    (!findings.columns.is_empty()).then(|| {
        Section::new(
            "Relative cost: geometric mean over a workload's metrics",
            blocks,
        )
    })
}

fn figure_by_figure<'a>(findings: &ShareFindings, cached: Option<&str>) -> Vec<Section<'a>> {
    let section = |(workload, rows): (WorkloadName, Vec<&ShareRow>)| {
        let group = |row: &&ShareRow| {
            let spread = |i: usize| row.cells.get(i).and_then(|c| c.spread.as_ref());
            let figure = |i: usize| {
                spread(i).map_or(NONE.to_owned(), |s| value(row.metric.unit(), s.median))
            };
            let cost = |i: usize| {
                row.cells
                    .get(i)
                    .and_then(|c| c.against.as_ref())
                    .map(|t| t.ratio)
            };
            (
                row.metric.label().to_owned(),
                bars(findings, &cost, &figure),
            )
        };
        let table = figures(findings, workload, &rows, cached);
        Section::detail(
            format!("Figure by figure: {workload}"),
            vec![drawn(findings, rows.iter().map(group).collect(), table)],
        )
    };
    by_workload(&findings.rows, |r| r.metric)
        .into_iter()
        .map(section)
        .collect()
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
        let ends = cost
            .and_then(|c| c.interval)
            .map_or(String::new(), |i| range(&i));
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
            more: if is_base { "(×1)" } else { "" },
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
    let caption = format!(
        "Cost over {}, the median of the rounds' ratios (paired); left of the line is faster. {} The whisker is the 95 % CI; a \
         pale bar is inconclusive.",
        base(findings),
        bars.scale()
    );
    Block::Figure(Figure {
        caption,
        table: Some(table),
        ..Figure::new(bars)
    })
}

fn tournament(findings: &ShareFindings, cached: Option<&str>) -> Table {
    let intervals = findings
        .scores
        .iter()
        .flat_map(|s| &s.cells)
        .flatten()
        .any(|c| c.interval.is_some());
    let mut table = Table::of(
        "Costs of the share methods",
        findings.columns.iter().enumerate(),
    )
    .column(
        Column::words("share method").broken(24, 12),
        |(_, column)| title(column),
    );
    for score in &findings.scores {
        let cost = |i: usize| score.cells.get(i).copied().flatten();
        table = table.column(Column::figures(head(score.workload, cached)), |(i, _)| {
            score_cell(cost(*i), *i == findings.base)
        });
        if intervals {
            let ends = |i: usize| {
                cost(i)
                    .and_then(|c| c.interval)
                    .map_or(String::new(), |i| range(&i))
            };
            table = table.column(Column::figures("95 % CI").spare(1), |(i, _)| ends(*i));
        }
    }
    let note = format!(
        "×: cost over {}'s, below ×1 is faster; native, without a guest, is the reference. Single operations \
         differ more: --details. CPU: seconds of guest, QEMU and server in one round.",
        base(findings)
    );
    let seconds = |column: &ShareColumn| {
        cpu_seconds(column).map(|(guest, qemu, server)| guest + qemu + server)
    };
    let all = table.column(Column::figures("CPU s"), |(_, c)| {
        seconds(c).map_or(NONE.to_owned(), significant)
    });
    all.done().in_parts().notes(
        [Some(note), cached.map(str::to_owned)]
            .into_iter()
            .flatten()
            .collect(),
    )
}

fn head(workload: WorkloadName, cached: Option<&str>) -> String {
    let mark = cached
        .filter(|_| workload == WorkloadName::Bonnie)
        .map_or(String::new(), |_| format!(" {CACHED}"));
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
fn figures(
    findings: &ShareFindings,
    workload: WorkloadName,
    rows: &[&ShareRow],
    cached: Option<&str>,
) -> Table {
    let heads = findings
        .columns
        .iter()
        .map(|column| Column::figures(title(column)).broken(20, 18));
    let columns = [Column::words("metric").broken(22, 16)]
        .into_iter()
        .chain(heads)
        .collect();
    let row = |row: &&ShareRow| {
        let cell = |i: usize| {
            row.cells
                .get(i)
                .map_or(NONE.to_owned(), |c| figure(row, findings.base, c))
        };
        let cells = (0..findings.columns.len()).map(cell);
        let cached =
            cached.filter(|_| workload == WorkloadName::Bonnie && row.metric.id().contains("read"));
        let mark = cached.map_or(String::new(), |_| format!(" {CACHED}"));
        [format!("{}{mark}", row.metric.label())]
            .into_iter()
            .chain(cells)
            .collect::<Vec<String>>()
    };
    let table = Table::new(format!("Figures of {workload}"), columns).rows(rows.iter().map(row));
    let cached = cached
        .filter(|_| workload == WorkloadName::Bonnie)
        .map(str::to_owned);
    let opposed = verdict::opposed_note(rows.iter().any(|row| is_opposed(row, findings.base)));
    table
        .in_parts()
        .notes(cached.into_iter().chain(opposed).collect())
}

/// "12.3 MiB/s ×0.41".
fn figure(row: &ShareRow, base: usize, cell: &ShareCell) -> String {
    match (&cell.spread, &cell.against) {
        (Some(s), Some(cost)) => {
            let paired = match base_median(row, base) {
                Some(base) => {
                    verdict::paired(cost.ratio.median, base, s.median, Some(row.metric.better()))
                }
                None => ratio(cost.ratio.median),
            };
            let paired = if cost.verdict == Verdict::Inconclusive {
                format!("({paired})")
            } else {
                paired
            };
            format!("{} {paired}", value(row.metric.unit(), s.median))
        }
        (Some(s), None) => value(row.metric.unit(), s.median),
        (None, _) if cell.unsupported.is_some() => "none".to_owned(),
        (None, _) => NONE.to_owned(),
    }
}

fn base_median(row: &ShareRow, base: usize) -> Option<f64> {
    Some(row.cells.get(base)?.spread.as_ref()?.median)
}

/// Returns true if a figure of the row is marked: the ratio of its two medians is on the other side of ×1 than the
/// rounds' ratio.
fn is_opposed(row: &ShareRow, base: usize) -> bool {
    let Some(base) = base_median(row, base) else {
        return false;
    };
    let mut pairs = row
        .cells
        .iter()
        .filter_map(|cell| Some((cell.against.as_ref()?, cell.spread.as_ref()?)));
    pairs.any(|(cost, s)| {
        verdict::is_opposed(cost.ratio.median, base, s.median, Some(row.metric.better()))
    })
}

/// Who worked for it: a method that is fast by using the host's CPUs is not free.
fn cpus<'a>(findings: &ShareFindings) -> Section<'a> {
    let measured = findings
        .columns
        .iter()
        .filter_map(|column| Some((column, cpu_seconds(column)?)));
    let table = Table::of("CPU time", measured)
        .column(
            Column::words("share method").broken(24, 12),
            |(column, _)| title(column),
        )
        .figures(
            ["guest", "QEMU", "server", "all"],
            |(_, (guest, qemu, server))| {
                [*guest, *qemu, *server, guest + qemu + server].map(significant)
            },
        )
        .done();
    Section::detail("CPU time of one round, seconds", vec![Block::Table(table)])
}

/// Makes the section on the properties of a file that each method keeps; the detail is the cell's hint.
fn keeping<'a>(findings: &ShareFindings) -> Option<Section<'a>> {
    let methods: Vec<&ShareColumn> = findings
        .columns
        .iter()
        .filter(|c| !c.kept.is_empty())
        .collect();
    let mut tried: Vec<&str> = Vec::new();
    for kept in methods.iter().flat_map(|c| &c.kept) {
        if !tried.contains(&kept.what.as_str()) {
            tried.push(&kept.what);
        }
    }
    let columns = methods
        .iter()
        .map(|method| Column::words(title(method)).broken(14, 8));
    let columns = [Column::words("tried").broken(22, 12)]
        .into_iter()
        .chain(columns)
        .collect();
    let row = |what: &&str| {
        let cells = methods
            .iter()
            .map(|method| kept(method.kept.iter().find(|k| k.what == **what)));
        [Cell::from(*what)]
            .into_iter()
            .chain(cells)
            .collect::<Vec<Cell>>()
    };
    let table = Table::new("What each share method keeps", columns).in_parts();
    let table = table.rows(tried.iter().map(row));
    let intro = "Each tried in the guest on the share. On the page, rest the pointer on a cell for what was found.";
    let blocks = vec![Block::Text(intro.to_owned()), Block::Table(table)];
    (!tried.is_empty()).then(|| Section::detail("What each share method keeps", blocks))
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
        let properties_with = |keeping: Keeping| {
            let guests = column
                .kept
                .iter()
                .filter(|k| !k.what.ends_with(ON_THE_HOST));
            guests
                .filter(move |k| k.keeping == keeping)
                .map(|k| k.what.clone())
        };
        let guest: Vec<String> = properties_with(Keeping::Kept).collect();
        let host = column
            .kept
            .iter()
            .filter(|k| k.keeping != Keeping::Kept)
            .filter_map(|k| {
                let what = k.what.strip_suffix(ON_THE_HOST)?.to_owned();
                guest.contains(&what).then_some(what)
            });
        let said = |word: &str, what: Vec<String>| {
            (!what.is_empty()).then(|| format!("{word} {}", what.join(", ")))
        };
        let parts = [
            said("loses", properties_with(Keeping::Lost).collect()),
            said("refuses", properties_with(Keeping::Refused).collect()),
            said("kept in the guest but not on the host:", host.collect()),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        (!parts.is_empty()).then(|| format!("{}: {}", title(column), parts.join("; ")))
    };
    findings
        .columns
        .iter()
        .filter_map(properties_not_kept)
        .collect()
}

/// Returns the security model of 9p: "security_model=none".
fn security_model(facts: &ShareFacts) -> Option<&str> {
    facts.qemu.iter().find_map(|argument| {
        argument
            .split(',')
            .find(|option| option.starts_with("security_model="))
    })
}

/// "9p with security_model=none, security_model=mapped-xattr"; nothing without 9p.
fn security_models(findings: &ShareFindings) -> Vec<String> {
    let mut models: Vec<&str> = findings
        .columns
        .iter()
        .filter_map(|column| security_model(column.facts.as_ref()?))
        .collect();
    models.sort_unstable();
    models.dedup();
    let all = (!models.is_empty()).then(|| format!("9p with {}", models.join(", ")));
    all.into_iter().collect()
}

/// Returns the options that took effect for each method, and the reason for a method without figures.
fn effects(findings: &ShareFindings) -> Vec<String> {
    let effects_of_options = |column: &ShareColumn| {
        let name = title(column);
        if let Some(reason) = &column.failed {
            return Some(format!(
                "{name}: {}",
                reason.lines().next().unwrap_or_default()
            ));
        }
        let facts = column.facts.as_ref()?;
        let msize = facts
            .msize
            .map_or(String::new(), |bytes| format!("negotiated msize={bytes}; "));
        let image = facts.image.as_ref().map_or(String::new(), |i| {
            format!(
                "image of {} MiB made in {:.1} s; ",
                i.bytes >> 20,
                i.seconds
            )
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
