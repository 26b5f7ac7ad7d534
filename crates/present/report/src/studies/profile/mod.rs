//! `profile`: which threads and functions the time goes to, on CPU and off, and what a guest does that costs.

mod changes;
mod code;
mod exits;
mod functions;
mod guest;
mod heading;
mod notes;
mod schedule;
mod share;

pub use changes::{changes, unlike};
pub use guest::call_lines;

use crate::charts::flame::Flame;
use crate::engine::{Block, Cell, Column, Figure, Notice, Origin, Report, Section, Table};
use crate::number::{NONE, count};
use functions::functions;
use heading::heading;
use share::{percent, range};
use vmtax_model::{Advice, ProfileFindings, ThreadShare, WallFindings};

/// Threads that a terminal shows without details.
const THREADS: usize = 12;

/// The flame graphs that a profile has, as SVG.
#[derive(Debug, Clone, Default)]
pub struct Pictures {
    /// On CPU.
    pub on_cpu: Option<String>,
    /// By the clock.
    pub wall: Option<String>,
    /// On CPU, with the guest's own stacks where it ran.
    pub whole: Option<String>,
}

/// The report. `origin`: the version that draws it, when, and what makes it again.
pub fn report<'a>(findings: &'a ProfileFindings, pictures: &'a Pictures, origin: Origin) -> Report<'a> {
    let mut sections = drawn(pictures);
    if let Some(wall) = &findings.wall {
        let why = wall.explanation.iter().take(1 + THREADS).cloned().map(Block::Text);
        sections.push(Section::new("Why the two differ", why.collect()));
    }
    if findings.samples > 0 {
        sections.push(Section::new("Threads on CPU", vec![Block::Table(threads(findings))]));
        if !findings.tcg.is_empty() {
            sections.push(Section::new("What TCG's vCPU threads do", vec![Block::Table(tcg(findings))]));
        }
        let title = "Functions by the time in themselves, on CPU";
        sections.push(Section::new(title, vec![Block::Table(functions(title, &findings.functions))]));
    }
    sections.extend(
        findings.wall.iter().map(|wall| Section::new("Threads by wall-clock", vec![Block::Table(waits(wall))])),
    );
    sections.extend(findings.guest.iter().flat_map(guest::sections));
    sections.extend(findings.exits.iter().map(exits::section));
    sections.extend(findings.code.iter().map(code::section));
    sections.extend(findings.schedule.iter().flat_map(schedule::sections));
    Report {
        study: "profile",
        title: of(findings),
        basis: vec![heading(findings)],
        origin,
        notices: vec![Notice::warnings(notes::notes(findings))],
        advice: advice(findings),
        sections,
        method: notes::quality(findings),
        ..Report::default()
    }
}

/// What a profile is of: "qemu-system-x86_64, process 123", and the file where others recorded it.
pub fn of(findings: &ProfileFindings) -> String {
    let process = (findings.pid > 0).then(|| format!("{}, process {}", findings.program, findings.pid));
    findings.file.iter().cloned().chain(process).collect::<Vec<_>>().join(": ")
}

/// What the guest does at a cost that it need not pay, and the remedy.
fn advice(findings: &ProfileFindings) -> Vec<Advice> {
    let exits = findings.exits.iter().flat_map(|exits| &exits.advice);
    let code = findings.code.iter().flat_map(|code| &code.advice);
    exits.chain(code).cloned().collect()
}

fn drawn(pictures: &Pictures) -> Vec<Section<'_>> {
    let titles = [
        ("On CPU: what runs", &pictures.on_cpu),
        ("Wall-clock: what runs and what waits", &pictures.wall),
        ("QEMU and its guest in one: what the guest ran, on the vCPU thread that ran it", &pictures.whole),
    ];
    let mut sections = Vec::new();
    for (title, svg) in titles {
        if let Some(svg) = svg {
            let caption = "Click a frame to zoom, Ctrl-F to search. Wider is more; the kernel is orange, translated code \
                           green; the guest's own kernel blue, its programs cyan.";
            let figure = Figure { caption: caption.to_owned(), ..Figure::new(Flame { title: title.to_owned(), svg }) };
            sections.push(Section::new(title, vec![Block::Figure(figure)]));
        }
    }
    sections
}

fn threads(findings: &ProfileFindings) -> Table {
    let of = |thread: &ThreadShare, part: u64| percent(part as f64 / thread.share.samples.max(1) as f64);
    Table::of("Threads on CPU", &findings.threads)
        .column(Column::words("thread").cut(16, 10), |thread| thread.name.as_str())
        .column(Column::figures("tid").spare(3), |thread| thread.tid.to_string())
        .column(Column::figures("CPU"), |thread| thread.cpu.map_or(NONE.to_owned(), percent))
        .column(Column::figures("samples").spare(2), |thread| count(thread.share.samples))
        .column(Column::figures("share"), |thread| percent(thread.share.share))
        .column(Column::figures("in kernel").spare(1), |thread| of(thread, thread.kernel))
        .column(Column::figures("translated").spare(1), |thread| of(thread, thread.translated))
        .done()
        .most(THREADS)
}

/// What TCG's vCPU threads do.
fn tcg(findings: &ProfileFindings) -> Table {
    Table::of("What TCG's vCPU threads do", &findings.tcg)
        .column(Column::words("part").broken(24, 16), |part| part.part.words())
        .column(Column::figures("share"), |part| percent(part.share.share))
        .column(Column::figures("95 %"), |part| range(&part.share))
        .done()
}

/// What each thread does and waits for, a row for each wait that matters.
fn waits(wall: &WallFindings) -> Table {
    let columns = vec![
        Column::words("thread").cut(16, 10),
        Column::figures("tid").spare(2),
        Column::figures("CPU"),
        Column::figures("runnable").spare(1),
        Column::figures("waits"),
        Column::words("for").cut(28, 16),
    ];
    let mut table = Table::new("Threads by wall-clock", columns).most(2 * THREADS);
    for thread in &wall.threads {
        let mut waits = thread.waits.iter().filter(|wait| wait.share.share >= 0.01).take(3).map(|wait| {
            let below = if wait.below.is_empty() { String::new() } else { format!(" below {}", wait.below) };
            let words = wait.reason.words().trim_start_matches("for ");
            [percent(wait.share.share), format!("{words} ({}{below})", wait.call)]
        });
        // The scheduler's own count where there is one.
        let runs = percent(thread.on_cpu.unwrap_or(thread.runs.share));
        let runnable = thread.ready.map_or(NONE.to_owned(), percent);
        let named = [thread.name.clone(), thread.tid.to_string(), runs, runnable];
        table.first(named.into_iter().chain(waits.next().unwrap_or_default()).map(Cell::from).collect());
        waits.for_each(|wait| table.row(vec![""; 4].into_iter().map(Cell::from).chain(wait.map(Cell::from)).collect()));
    }
    table
}
