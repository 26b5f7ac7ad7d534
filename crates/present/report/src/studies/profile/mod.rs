//! `profile`: which threads run or wait, and for what; which functions the CPU time goes to; avoidable costs of the guest.

mod changes;
mod code;
pub(super) mod exits;
pub(super) mod functions;
mod guest;
mod heading;
mod notes;
mod schedule;
mod share;
pub(super) mod threads;

pub use changes::{changes, unlike};
pub use guest::call_lines;

use crate::charts::flame::Flame;
use crate::engine::{Block, Column, Figure, Notice, Origin, Report, Section, Table};
use crate::view::not_observed;
use functions::functions;
use heading::heading;
use share::{percent, range};
use vmtax_model::{Advice, ProfileFindings};

/// The flame graphs that a profile has, as SVG.
#[derive(Debug, Clone, Default)]
pub struct Pictures {
    /// Flame graph of on-CPU samples.
    pub on_cpu: Option<String>,
    /// Flame graph of wall-clock samples.
    pub wall: Option<String>,
    /// On CPU, with the guest's own stacks where it ran.
    pub whole: Option<String>,
}

/// The report. `origin`: the version that draws it, when, and what makes it again.
pub fn report<'a>(
    findings: &'a ProfileFindings,
    pictures: &'a Pictures,
    origin: Origin,
) -> Report<'a> {
    let mut sections: Vec<Section<'_>> = Vec::new();
    if let Some(states) = &findings.states {
        let title = format!("Thread states over {:.1} s", states.seconds);
        sections.push(Section::new(
            title,
            vec![Block::Figure(threads::states(states))],
        ));
    }
    sections.extend(drawn(pictures));
    if findings.samples > 0 {
        if !findings.tcg.is_empty() {
            sections.push(Section::new(
                "vCPU threads under TCG",
                vec![Block::Table(tcg(findings))],
            ));
        }
        let title = "Functions by CPU samples (self)";
        sections.push(Section::new(
            title,
            vec![Block::Table(functions(title, &findings.functions))],
        ));
        let (title, table) = (
            "Threads by CPU samples",
            Block::Table(threads::on_cpu(findings)),
        );
        // What threads did says more.
        sections.push(Section {
            detail: findings.states.is_some(),
            ..Section::new(title, vec![table])
        });
    }
    sections.extend(findings.exits.iter().map(exits::section));
    sections.extend(findings.guest.iter().flat_map(guest::sections));
    sections.extend(findings.code.iter().map(code::section));
    sections.extend(findings.schedule.iter().flat_map(schedule::sections));
    Report {
        study: "profile",
        title: of(findings),
        basis: vec![heading(findings)],
        answer: threads::answer(findings),
        next: vec![format!("{} --details", origin.command)],
        advice: advice(findings),
        notices: vec![
            Notice::missing(
                "Not observed",
                findings
                    .missing
                    .iter()
                    .map(|missing| not_observed(missing, ""))
                    .collect(),
            ),
            Notice::warnings(notes::notes(findings)),
        ],
        origin,
        sections,
        method: notes::quality(findings),
        ..Report::default()
    }
}

/// Returns the subject of a profile: "qemu-system-x86_64, process 123", and the file if other tools recorded it.
pub fn of(findings: &ProfileFindings) -> String {
    let process =
        (findings.pid > 0).then(|| format!("{}, process {}", findings.program, findings.pid));
    findings
        .file
        .iter()
        .cloned()
        .chain(process)
        .collect::<Vec<_>>()
        .join(": ")
}

/// Waits and costs that a remedy takes away.
fn advice(findings: &ProfileFindings) -> Vec<Advice> {
    let states = findings.states.iter().flat_map(|states| &states.advice);
    let exits = findings.exits.iter().flat_map(|exits| &exits.advice);
    let code = findings.code.iter().flat_map(|code| &code.advice);
    states.chain(exits).chain(code).cloned().collect()
}

fn drawn(pictures: &Pictures) -> Vec<Section<'_>> {
    let titles = [
        ("Flame graph, on CPU: only what runs", &pictures.on_cpu),
        (
            "Flame graph, wall-clock: every thread at each sample, running or waiting",
            &pictures.wall,
        ),
        (
            "Flame graph, QEMU and its guest: guest stacks on the vCPU thread that ran them",
            &pictures.whole,
        ),
    ];
    let mut sections = Vec::new();
    for (title, svg) in titles {
        if let Some(svg) = svg {
            let caption = "A frame's width is its fraction of the samples. Click it to zoom, Ctrl-F searches. Colors: QEMU red, \
                           libraries yellow, host kernel orange, translated code green, guest kernel blue, guest programs cyan.";
            let figure = Figure {
                caption: caption.to_owned(),
                ..Figure::new(Flame {
                    title: title.to_owned(),
                    svg,
                })
            };
            sections.push(Section::new(title, vec![Block::Figure(figure)]));
        }
    }
    sections
}

/// Makes the table of the activities of vCPU threads under TCG.
fn tcg(findings: &ProfileFindings) -> Table {
    Table::of("What TCG's vCPU threads do", &findings.tcg)
        .column(Column::words("part").broken(24, 16), |part| {
            part.part.label()
        })
        .column(Column::figures("share"), |part| percent(part.share.share))
        .column(Column::figures("95 % CI"), |part| range(&part.share))
        .done()
}
