//! `profile`: which threads run or wait, and for what; which functions the CPU time goes to; avoidable costs of the guest.

pub(super) mod exits;
mod guest;
mod notes;
pub(super) mod samples;
mod schedule;
pub(super) mod threads;

pub use guest::call_lines;
pub use samples::{changes, unlike};

use crate::charts::profile::Flame;
use crate::engine::{Figure, Notice, Origin, Report, Section, Table, figures, words};
use crate::text::Joined;
use crate::view::not_observed;
use samples::{functions, heading, percent, range};
use vmtax_findings::{Advice, ProfileFindings};

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
    let missing = findings.missing.iter();
    Report {
        study: "profile",
        title: subject(findings),
        basis: vec![heading(findings)],
        answer: threads::answer(findings),
        next: vec![format!("{} --details", origin.command)],
        advice: advice(findings),
        notices: vec![
            Notice::not_observed(missing.map(|one| not_observed(one, "")).collect()),
            Notice::warnings(notes::notes(findings)),
        ],
        origin,
        sections: sections(findings, pictures),
        method: notes::quality(findings),
        ..Report::default()
    }
}

fn sections<'a>(findings: &'a ProfileFindings, pictures: &'a Pictures) -> Vec<Section<'a>> {
    let mut sections: Vec<Section<'_>> = Vec::new();
    if let Some(states) = &findings.states {
        let title = format!("Thread states over {:.1} s", states.seconds);
        sections.push(Section::new(title, [threads::states(states)]));
        sections.extend(threads::over_time(states));
    }
    sections.extend(drawn(pictures));
    if findings.samples > 0 {
        if !findings.tcg.is_empty() {
            sections.push(Section::new("vCPU threads under TCG", [tcg(findings)]));
        }
        if !findings.functions.is_empty() {
            let title = "Functions by CPU samples (self)";
            sections.push(Section::new(title, [functions(title, &findings.functions)]));
        }
        if !findings.threads.is_empty() {
            // What threads did says more.
            sections.push(Section {
                detail: findings.states.is_some(),
                ..Section::new("Threads by CPU samples", [threads::on_cpu(findings)])
            });
        }
    }
    sections.extend(findings.exits.iter().map(exits::section));
    sections.extend(findings.guest.iter().flat_map(guest::sections));
    sections.extend(findings.code.iter().map(guest::code));
    sections.extend(findings.schedule.iter().flat_map(schedule::sections));
    sections
}

/// Returns the subject of a profile: "qemu-system-x86_64, process 123", and the file if other tools recorded it.
pub fn subject(findings: &ProfileFindings) -> String {
    let (program, pid) = (&findings.program, findings.pid);
    let process = (pid > 0).then(|| format!("{program}, process {pid}"));
    findings.file.iter().cloned().chain(process).joined(": ")
}

/// Waits and costs that a remedy takes away.
fn advice(findings: &ProfileFindings) -> Vec<Advice> {
    let states = findings.states.iter().flat_map(|states| &states.advice);
    let exits = findings.exits.iter().flat_map(|exits| &exits.advice);
    let code = findings.code.iter().flat_map(|code| &code.advice);
    states.chain(exits).chain(code).cloned().collect()
}

fn drawn(pictures: &Pictures) -> impl Iterator<Item = Section<'_>> {
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
    let caption = "A frame's width is its fraction of the samples. Click it to zoom, Ctrl-F searches. Colors: QEMU red, \
                   libraries yellow, host kernel orange, translated code green, guest kernel blue, guest programs cyan.";
    titles.into_iter().filter_map(move |(title, svg)| {
        let svg = svg.as_ref()?;
        let figure = Figure {
            caption: caption.to_owned(),
            ..Figure::new(Flame { title, svg })
        };
        Some(Section::new(title, [figure]))
    })
}

/// Makes the table of the activities of vCPU threads under TCG.
fn tcg(findings: &ProfileFindings) -> Table {
    Table::of("What TCG's vCPU threads do", &findings.tcg)
        .column(words("part").broken(24, 16), |part| part.part.label())
        .column(figures("share"), |part| percent(part.share.share))
        .column(figures("95 % CI"), |part| range(&part.share))
        .done()
}
