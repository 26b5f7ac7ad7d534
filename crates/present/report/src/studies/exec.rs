//! `exec`: how a command ended, what it cost on each machine, and where the difference goes.

use super::{command_layers, metric_rows, overhead};
use crate::charts::bars::{NEGLIGIBLE_S, PartTimes, Parts, seconds};
use crate::engine::{Block, Cell, Figure, Notice, Report, Section, Table, figures, words};
use crate::number::{counted, difference, percent, ratio, value};
use crate::text::{Joined, distinct, fit, only_if};
use crate::view::verdict::paired_median;
use crate::view::{self, origin};
use crate::{ReportError, json as document};
use serde::Serialize;
use std::collections::BTreeMap;
use vmtax_findings::{
    Advice, Breakdown, CommandLayers, Comparison, ExecFindings, MachineColumn, OutlierRun, Part,
    PartRow, Statuses, Verdict,
};
use vmtax_model::{Accelerator, Machine, Metric, Plan, Probes, Unit, Warning, shell_line};
use vmtax_recording::Recording;

/// The report. `layers`: what its guests asked of their disks.
pub fn report<'a>(
    recording: &'a Recording,
    findings: &'a ExecFindings,
    layers: Option<&'a CommandLayers>,
) -> Report<'a> {
    let overheads = &findings.overheads;
    let rows = metric_rows::with_printed(overheads, &findings.printed);
    let plan = &recording.plan;
    let breakdowns = findings.breakdowns.iter().map(|one| section(one, plan));
    let about = about(plan, findings).map(Block::Text);
    let requests = layers.map_or(Vec::new(), |one| command_layers::sections(one, findings));
    let of_packets = layers.and_then(|layers| layers.packets.as_ref());
    let traced = || {
        let of_disks = layers.map(|layers| &layers.layers).into_iter();
        of_disks.chain(of_packets.map(|packets| &packets.layers))
    };
    let missing = distinct(traced().flat_map(super::layers::sentences::missing));
    let of_traces = traced().flat_map(|layers| &layers.advice);
    let advice = overheads.advice.iter().chain(of_traces).cloned().collect();
    let warned = traced().flat_map(|layers| &layers.warnings).cloned();
    let warned = view::in_words(&warned.collect::<Vec<Warning>>());
    let next = next(recording, findings, layers.is_some());
    Report {
        study: "exec",
        title: "Overhead of a command".to_owned(),
        basis: [overhead::basis(recording, overheads), vec![ended(findings)]].concat(),
        origin: origin(recording),
        answer: answer(recording, findings),
        next: next.into_iter().collect(),
        advice: by_gain(advice),
        notices: vec![
            Notice::not_observed(missing),
            Notice::warnings([warnings(recording, findings), warned].concat()),
        ],
        sections: breakdowns
            .chain([Section::new("", about)])
            .chain(overhead::sections(recording, overheads, &rows))
            .chain(requests)
            .chain([overhead::trials(recording)])
            .chain(view::facts(recording, &overheads.kernels))
            .collect(),
        method: vec![overheads.method.clone()],
        ..Report::default()
    }
}

/// Sorts findings by the part of the run that they may save, the largest first; a remedy appears once, with the first
/// finding that it is for.
fn by_gain(mut advice: Vec<Advice>) -> Vec<Advice> {
    advice.sort_by(|a, b| b.gain.total_cmp(&a.gain));
    let mut lines: Vec<String> = Vec::new();
    for one in &mut advice {
        let line = one.remedies.first().map(|remedy| remedy.line.clone());
        match line.filter(|line| !line.is_empty()) {
            Some(line) if lines.contains(&line) => {
                one.finding.push_str(" The remedy above is for this, too.");
                one.remedies.clear();
                one.source.clear();
            }
            line => lines.extend(line),
        }
    }
    advice
}

/// More rounds where there are too few, else what shows where most of the additional time comes from.
fn next(recording: &Recording, findings: &ExecFindings, observed: bool) -> Option<String> {
    if view::has_no_working_guest(recording) {
        return Some(view::CHECK_HOST.to_owned());
    }
    let compared = recording
        .plan
        .machines
        .iter()
        .any(|machine| !machine.is_guest());
    if compared && !view::has_intervals(&findings.overheads) {
        return view::with_more_rounds(recording);
    }
    let mut largest = findings.breakdowns.iter();
    match largest.find_map(|breakdown| Some(sorted(breakdown).first()?.part))? {
        Part::QemuThreads | Part::Waiting => (!observed).then(|| again_with(recording, "--layers")),
        _ => (!has_option(recording, "--profile")).then(|| again_with(recording, "--profile")),
    }
}

/// Returns true if the command that made the recording had this option; the words of the measured command do not count.
fn has_option(recording: &Recording, option: &str) -> bool {
    let mut own = recording
        .manifest
        .command
        .iter()
        .take_while(|word| *word != "--");
    own.any(|word| word == option)
}

/// Returns the same command with another option; for a plan's file the command with the corresponding options.
fn again_with(recording: &Recording, option: &str) -> String {
    let command = view::command_again(recording);
    let own = match &command[..] {
        [_, study, ..] if study == "exec" => {
            view::as_line(&view::with_option(&command, option, None))
        }
        _ => None,
    };
    own.unwrap_or_else(|| {
        let plan = Plan {
            machines: view::working_machines(recording),
            ..recording.plan.clone()
        };
        plan.on_same_guests(&format!("vmtax exec {option} -- {}", command_line(&plan)))
    })
}

/// The findings, with what was found of requests to the guests' disks, where that was asked for.
#[derive(Serialize)]
struct Both<'a> {
    #[serde(flatten)]
    findings: &'a ExecFindings,
    #[serde(flatten)]
    layers: Option<&'a CommandLayers>,
}

/// The recording and its findings as one JSON document.
///
/// # Errors
/// [`ReportError::Json`] for a value JSON has no form for.
pub fn json(
    recording: &Recording,
    findings: &ExecFindings,
    layers: Option<&CommandLayers>,
) -> Result<String, ReportError> {
    document(recording, &Both { findings, layers })
}

fn command_line(plan: &Plan) -> String {
    let command = plan.command();
    command.map_or(String::new(), |command| shell_line(&command.argv))
}

/// Length of the command in the answer, in columns: the report has all of it.
const COMMAND_COLUMNS: usize = 48;
/// Parts that the answer names, and the least of the whole that each is.
const NAMED: usize = 2;
const LARGE: f64 = 0.05;

/// Returns the command's slowdown on each guest, and the parts that cause it.
fn answer(recording: &Recording, findings: &ExecFindings) -> String {
    let mut rows = findings.overheads.rows.iter();
    let row = rows.find(|row| row.metric == Metric::ExecWall);
    let native = row.and_then(|row| view::column(row, Machine::NATIVE)?.spread.as_ref());
    let native = native.map_or(String::new(), |spread| {
        let wall = value(Unit::Seconds, spread.median);
        format!(", {wall} natively (medians)")
    });
    let failed = failed(findings);
    let takes = if failed.is_some() {
        "it takes"
    } else {
        "takes"
    };
    let on_machine = |column: &MachineColumn| {
        let machine = column.machine;
        let wall = value(Unit::Seconds, column.spread.as_ref()?.median);
        let slower = column.overhead.map_or(String::new(), |overhead| {
            format!("{native}, {}", slowdown(recording, machine, &overhead))
        });
        let mut breakdowns = findings.breakdowns.iter();
        let breakdown = breakdowns.find(|breakdown| breakdown.machine == machine);
        let parts = breakdown.map_or(String::new(), largest);
        Some(format!("{takes} {wall} on {machine}{slower}{parts}"))
    };
    let columns = row.into_iter().flat_map(|row| &row.machines);
    let guests = columns.filter(|column| column.machine.is_guest());
    let each = guests.filter_map(on_machine).joined("; ");
    let command = fit(&command_line(&recording.plan), COMMAND_COLUMNS);
    if each.is_empty() {
        return match not_measured(recording) {
            Some(machines) => format!("`{command}` {machines}."),
            None => ended(findings),
        };
    }
    let failed = failed.map_or(String::new(), |failed| format!("{failed}: "));
    format!("`{command}` {failed}{each}.")
}

/// "was not measured on kvm: /dev/kvm is missing": the guests of which every trial failed, with the reason of the first.
fn not_measured(recording: &Recording) -> Option<String> {
    let working = view::working_machines(recording);
    let machines = recording.plan.machines.iter();
    let failed: Vec<&Machine> = machines.filter(|one| !working.contains(one)).collect();
    let first = failed.first()?;
    let mut trials = recording.trials.iter();
    let why = trials.find_map(|trial| trial.failure().filter(|_| trial.machine == **first))?;
    let names = failed
        .iter()
        .map(|machine| machine.as_str())
        .joined(" and ");
    let why = why.trim_end_matches('.');
    Some(format!("was not measured on {names}: {why}"))
}

/// A guest's cost over native's with its interval; where there is none, the range of the rounds' ratios.
fn slowdown(recording: &Recording, machine: Machine, overhead: &Comparison) -> String {
    if overhead.ratio.interval.is_none() {
        let range = range_of_rounds(recording, machine);
        return range.unwrap_or(ratio(overhead.ratio.median));
    }
    let open = only_if(overhead.verdict == Verdict::Inconclusive, ", inconclusive");
    format!("{}{open}", paired_median(&overhead.ratio))
}

/// "failed (exit status 2)", where its figures are not those of the work that was asked for.
fn failed(findings: &ExecFindings) -> Option<String> {
    match findings.status() {
        _ if findings.differs() => Some(format!(
            "did not end alike everywhere ({})",
            ended(findings)
        )),
        Some(code) if code != 0 => Some(format!("failed ({})", ended(findings))),
        _ => None,
    }
}

/// "×35 to ×124 in 2 rounds": between which ratios of wall time the rounds lie.
fn range_of_rounds(recording: &Recording, machine: Machine) -> Option<String> {
    let walls = |machine: Machine| {
        let trials = recording.trials.iter();
        let untraced = trials.filter(move |t| t.machine == machine && t.probes == Probes::None);
        untraced.filter_map(|t| Some((t.round, t.result()?.value(Metric::ExecWall)?)))
    };
    let native: BTreeMap<u32, f64> = walls(Machine::NATIVE).collect();
    let ratios = walls(machine).filter_map(|(round, wall)| Some(wall / native.get(&round)?));
    let mut ratios: Vec<f64> = ratios.collect();
    ratios.sort_by(f64::total_cmp);
    let (low, high) = (ratio(*ratios.first()?), ratio(*ratios.last()?));
    let rounds = ratios.len();
    (rounds > 1).then(|| format!("{low} to {high} in {rounds} rounds"))
}

/// "; largest parts of the additional time (means): 55 % off CPU (guest halted: …), 13 % run-queue wait (vCPU steal)": those that
/// together are no more than all.
fn largest(breakdown: &Breakdown) -> String {
    let native = breakdown.native_s;
    let whole = breakdown.machine_s - native.unwrap_or(0.0);
    let more = |row: &PartRow| row.machine_s - native.and(row.native_s).unwrap_or(0.0);
    let parts = sorted(breakdown).into_iter();
    let parts = parts.map(|row| (more(row), in_words(row.part, breakdown.machine)));
    let parts = parts.chain([(breakdown.unexplained_s, "unexplained")]);
    let mut parts: Vec<(f64, &str)> = parts.collect();
    parts.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut left = whole;
    let named = parts.iter().take_while(|(more, _)| {
        left -= more;
        left >= 0.0 && *more >= LARGE * whole
    });
    let named = named
        .take(NAMED)
        .map(|(more, part)| format!("{} {part}", percent(more / whole)));
    let named: Vec<String> = named.collect();
    let of = native.map_or("time", |_| "additional time");
    let parts = if named.len() == 1 { "part" } else { "parts" };
    only_if(
        !named.is_empty(),
        format!(
            "; largest {parts} of the {of} (means): {}",
            named.join(", ")
        ),
    )
}

/// Returns a part's label; of the time off CPU with its possible causes.
fn in_words(part: Part, machine: Machine) -> &'static str {
    match part {
        Part::Waiting => "off CPU (sleep, or waiting for the host's disk or another process)",
        _ => part.label(machine),
    }
}

/// The parts by what they add to native's time, the largest first.
fn sorted(breakdown: &Breakdown) -> Vec<&PartRow> {
    let mut rows: Vec<&PartRow> = breakdown.rows.iter().collect();
    let more = |row: &PartRow| row.machine_s - row.native_s.unwrap_or(0.0);
    rows.sort_by(|a, b| more(b).total_cmp(&more(a)));
    rows
}

/// Returns the exit status of the command.
fn ended(findings: &ExecFindings) -> String {
    let words = |statuses: &[i32]| statuses.iter().map(|s| status(*s)).joined(" or ");
    let (ran, not): (Vec<&Statuses>, Vec<_>) = findings
        .statuses
        .iter()
        .partition(|s| !s.statuses.is_empty());
    match ran.first() {
        None => "no exit status".to_owned(),
        Some(first) if not.is_empty() && !findings.differs() => {
            format!("exit {} in all runs", words(&first.statuses))
        }
        Some(_) => {
            let all = ran
                .iter()
                .map(|s| format!("{} on {}", words(&s.statuses), s.machine));
            let nowhere = not.iter().map(|s| s.machine.as_str()).joined(" and ");
            let nowhere = only_if(!nowhere.is_empty(), format!(", no run on {nowhere}"));
            format!("exit {}{nowhere}", all.joined(", "))
        }
    }
}

fn status(status: i32) -> String {
    match status {
        signal @ 129..=192 => format!("status {status} (ended by signal {})", signal - 128),
        other => format!("status {other}"),
    }
}

/// Returns the reasons why the figures are weaker, the command's own end first.
fn warnings(recording: &Recording, findings: &ExecFindings) -> Vec<String> {
    let mut all = Vec::new();
    if findings.differs() {
        all.push("the command did not end alike everywhere: what it cost is not the cost of the same work.".to_owned());
    } else if findings.status().is_some_and(|status| status != 0) {
        all.push("the command failed: these are the figures of a failing command.".to_owned());
    }
    all.extend(outliers(&findings.outliers));
    all.extend(findings.notes.iter().cloned());
    all.extend(view::warnings(recording, &findings.overheads.warnings));
    all
}

/// Returns a sentence that names the rounds that are far from the others.
fn outliers(runs: &[OutlierRun]) -> Option<String> {
    let seconds = |seconds: f64| value(Unit::Seconds, seconds);
    let one = |run: &OutlierRun| {
        let (round, machine) = (run.round + 1, run.machine);
        let (wall, median) = (seconds(run.wall_s), seconds(run.median_s));
        format!("round {round} on {machine} ({wall}; median {median})")
    };
    let named = runs.iter().map(one).joined(", ");
    let remedy = match runs.iter().any(|run| run.round == 0) {
        true => {
            "The first round is slow while caches are cold: `--warmup 1` runs the command once before each measured run."
        }
        false => "Repeat on a quieter host.",
    };
    (!runs.is_empty()).then(|| format!("outliers of wall time: {named}. {remedy}"))
}

/// Returns the meaning of the parts, and why they are not the metrics of the same name.
fn legend(machine: Machine) -> String {
    let (adds, overhead) = match machine.accelerator() {
        Some(Accelerator::Tcg) => (
            "including binary translation",
            "Emulator and wake-up overhead: the vCPU thread ran without executing guest code",
        ),
        _ => (
            "including its page walks (EPT, NPT or shadow)",
            "VM-exit and wake-up overhead: vCPU threads ran while the guest had nothing to run (HLT exits, halt polling, wake-ups)",
        ),
    };
    format!(
        "Means, which add up. Without steal: CPU time while the vCPU had a host CPU, {adds}; user time and system time \
         below are as the guest accounts them (medians), steal included. {overhead}: in KVM, in QEMU's device emulation, or waking up. Waiting \
         for QEMU's threads or the file server (virtiofsd, NFS): they ran while the vCPU was blocked. Run-queue wait: in a guest, its vCPU threads waited for a host CPU (steal); \
         natively, threads of the command waited for a CPU, sampled every 20 ms, so most children that live less than 20 ms are missed. Off CPU: natively, the other time in which no thread of the command \
         was on a CPU; in a guest, the time in which no vCPU, QEMU or file-server thread ran: the guest was halted, or waited for the host's disk or another process. Unexplained: wall time \
         minus all parts, below 0 where CPU accounting of guest and host overlaps."
    )
}

/// The parts, what none accounts for, and the sum.
fn section<'a>(breakdown: &Breakdown, plan: &Plan) -> Section<'a> {
    let machine = breakdown.machine;
    let rounds = counted(breakdown.rounds.into(), "round");
    let title = format!("Where the time goes on {machine} (means of {rounds})");
    let mut columns = vec![words(unit(plan)).broken(20, 12), figures(machine.as_str())];
    if breakdown.native_s.is_some() {
        columns.extend([
            figures("native").spare(2),
            figures("difference"),
            figures("% of difference").spare(1),
        ]);
    }
    let rows = sorted(breakdown).into_iter();
    let rows = rows.map(|row| (row.part.label(machine), row.native_s, row.machine_s));
    let rows: Vec<PartTimes> = rows.collect();
    let mut table = Table::new(title.clone(), columns);
    let unexplained = ("unexplained", None, breakdown.unexplained_s);
    for part in rows.iter().chain([&unexplained]) {
        table.row(part_cells(breakdown, part));
    }
    let sum = ("sum", breakdown.native_s, breakdown.machine_s);
    table.first(part_cells(breakdown, &sum));
    let figure = Figure {
        table: Some(table.notes(vec![legend(machine)])),
        below: true,
        ..Figure::new(Parts { machine, rows })
    };
    Section::new(title, [figure])
}

/// A part on the guest and natively, the difference, and its fraction of the whole difference.
fn part_cells(breakdown: &Breakdown, (label, native, machine): &PartTimes) -> Vec<Cell> {
    let whole = breakdown
        .native_s
        .map(|native| breakdown.machine_s - native);
    // What only a guest has is all difference.
    let more = whole.map(|_| machine - native.unwrap_or(0.0));
    let whole = whole.filter(|whole| *whole > 1e-6);
    let share = more.zip(whole).map(|(more, whole)| more / whole);
    let share = share.map_or(String::new(), |share| match share < 0.0 {
        true => format!("−{}", percent(-share)),
        false => percent(share),
    });
    let native = native.map_or(String::new(), seconds);
    let more = more.map_or(String::new(), |s| match s.abs() < NEGLIGIBLE_S {
        true => "0".to_owned(),
        false => difference(Unit::Seconds, s),
    });
    let machine = Cell::strong(seconds(*machine));
    vec![
        (*label).into(),
        machine,
        native.into(),
        more.into(),
        share.into(),
    ]
}

/// Returns the meaning of the seconds: wall time, times the number of CPUs.
fn unit(plan: &Plan) -> String {
    match plan.guest.cpus {
        1 => "wall time".to_owned(),
        cpus => format!("wall time × {cpus} CPUs"),
    }
}

/// Returns a description of the guests' root file system.
fn about(plan: &Plan, findings: &ExecFindings) -> Option<String> {
    let layer = match plan.command().and_then(|command| command.scratch_mib) {
        Some(mib) => format!("on the scratch disk ({mib} MiB)"),
        None => "in the guest's memory".to_owned(),
    };
    let root = findings.root.as_ref()?;
    // Of a line of /proc/mounts: source, folder, type, options.
    let options = root.mount.split(' ').nth(3).unwrap_or_default();
    Some(format!(
        "The guests' root file system is an overlayfs: its lower layer is the host's files over {}, read-only ({options}); its upper layer is \
             {layer}. Reads of the host's files go through the share, writes to the upper layer.",
        root.method
    ))
}

#[cfg(test)]
mod tests {
    use super::{by_gain, largest, outliers};
    use vmtax_findings::{Advice, Breakdown, OutlierRun, Part, PartRow};
    use vmtax_model::{Machine, Remedy};

    #[test]
    fn the_largest_parts_are_fractions_of_the_additional_time_and_no_more_than_it() {
        let largest_parts = |parts: &[(Part, f64, f64)]| {
            let rows = parts.iter().map(|(part, native_s, machine_s)| PartRow {
                part: *part,
                native_s: Some(*native_s),
                machine_s: *machine_s,
            });
            let sum = |side: fn(&(Part, f64, f64)) -> f64| parts.iter().map(side).sum();
            let (native_s, machine_s) = (Some(sum(|part| part.1)), sum(|part| part.2));
            let (machine, rows) = (Machine::KVM, rows.collect());
            let found = Breakdown {
                machine,
                rounds: 6,
                native_s,
                machine_s,
                rows,
                unexplained_s: 0.0,
            };
            largest(&found).replace('\u{a0}', " ")
        };
        let steal = (Part::Steal, 0.0, 1.4);
        assert_eq!(
            largest_parts(&[(Part::User, 1.0, 1.03), (Part::Kernel, 0.1, 0.6), steal]),
            "; largest parts of the additional time (means): 73 % run-queue wait (vCPU steal), 26 % kernel (without steal)"
        );
        let less = (Part::Waiting, 0.6, 0.1);
        let all = largest_parts(&[(Part::Kernel, 0.1, 0.6), steal, less]);
        assert_eq!(
            all, "; largest part of the additional time (means): 100 % run-queue wait (vCPU steal)",
            "the parts are 1.9 s of 1.4 s"
        );
        assert_eq!(
            largest_parts(&[(Part::User, 1.0, 0.9)]),
            "",
            "no additional time"
        );
    }

    #[test]
    fn outliers_are_named_with_their_round() {
        let run = |machine, round, wall_s| OutlierRun {
            machine,
            round,
            wall_s,
            median_s: 0.2,
        };
        let said = |runs: &[OutlierRun]| outliers(runs).map(|line| line.replace('\u{a0}', " "));
        assert_eq!(said(&[]), None);
        let both = [run(Machine::NATIVE, 0, 2.0), run(Machine::KVM, 3, 1.5)];
        let line = said(&both).unwrap();
        assert!(
            line.starts_with("outliers of wall time: round 1 on native (2.00 s; median 200 ms), round 4 on kvm (1.50"),
            "{line}"
        );
        assert!(line.contains("--warmup 1"), "{line}");
        assert!(!said(&both[1..]).unwrap().contains("--warmup"));
    }

    #[test]
    fn the_larger_gain_is_first_and_a_remedy_stands_once() {
        let advice = |rule: &str, gain: f64| {
            let line = "echo CPUS | sudo tee /sys/fs/cgroup/GROUP/cpuset.cpus".to_owned();
            let remedy = Remedy {
                line,
                ..Remedy::default()
            };
            let (rule, finding) = (rule.to_owned(), format!("{rule}."));
            Advice {
                rule,
                finding,
                gain,
                remedies: vec![remedy],
                change: None,
                source: "Linux".to_owned(),
            }
        };
        let all = by_gain(vec![
            advice("qemu-run-queue-wait", 0.06),
            advice("command-steal", 0.54),
        ]);
        let texts: Vec<(&str, usize)> = all
            .iter()
            .map(|one| (one.finding.as_str(), one.remedies.len()))
            .collect();
        assert_eq!(
            texts,
            [
                ("command-steal.", 1),
                ("qemu-run-queue-wait. The remedy above is for this, too.", 0)
            ]
        );
    }
}
