//! Activity of running VMs, interval by interval: a table, CSV, OpenMetrics; and the figures of their counters, which are
//! also columns of the live screen.

mod counters;
mod formats;
mod host;

pub use counters::{counter_text, counter_value};
pub use formats::{csv_head, csv_rows, openmetrics};
pub use host::{Statement, host_lines, host_statements, vm_statement};

use crate::engine::{Block, Notice, Report, Section, Table, figures, words};
use crate::number::{NONE, counted, percent};
use crate::text::{Joined, grouped, only_if};
use crate::view::NO_VM;
use std::collections::BTreeSet;
use vmtax_findings::{TopSample, VmRates};
use vmtax_model::Counter;

/// The report. The answer is the finding that costs most.
pub fn top(sample: &TopSample) -> Report<'static> {
    let of_host = host::host_statements(sample).into_iter();
    let found = of_host.chain(host::vm_statements(sample));
    let texts = |lines: Vec<String>| lines.into_iter().map(Block::Text).collect::<Vec<_>>();
    let findings = texts(found.map(|statement| statement.line()).collect());
    let host = texts(host_lines(sample));
    let sections = [
        (!host.is_empty()).then(|| Section::new("Host", host)),
        (!sample.vms.is_empty()).then(|| Section::new("VMs", [table(&sample.vms)])),
        (!findings.is_empty()).then(|| Section::new("Findings", findings)),
    ];
    Report {
        study: "top",
        title: sample.time.clone(),
        answer: answer(sample),
        basis: vec![level_cost(sample)],
        sections: sections.into_iter().flatten().collect(),
        notices: notes(sample),
        ..Report::default()
    }
}

/// A row for each VM.
pub(crate) fn table<'a>(vms: impl IntoIterator<Item = &'a VmRates>) -> Table {
    let mut table = Table::of("VMs", vms).column(words("VM").cut(16, 8), |vm| vm.label());
    for column in Counter::columns() {
        let head = figures(column.column).spare(column.spare);
        table = table.column(head, |vm| counter_text(column, vm));
    }
    table
        .column(words("busiest thread").cut(20, 10), |vm| busiest(vm))
        .done()
        .naming_left_out()
}

/// The row of a single VM at a level, with what its columns mean, and why a figure is missing.
pub(crate) fn explained(vm: &VmRates, level: u8) -> Table {
    let mut table = table([vm]);
    for column in Counter::columns() {
        let mut columns = table.columns.iter_mut();
        let shown = columns.find(|shown| shown.name == column.column);
        let reason = match counter_value(column, vm) {
            None => format!("; –: {}", counters::unknown(column, vm, level)),
            Some(_) => String::new(),
        };
        if let Some(shown) = shown {
            shown.note = Some(format!("{}: {}{reason}.", column.column, column.what));
        }
    }
    table
}

fn notes(sample: &TopSample) -> Vec<Notice> {
    let of_events = Notice::notes("Notes", sample.notes.clone());
    let of_unknown = Notice::notes("Not known (–)", unknown_of_all(&sample.vms, sample.level));
    let all = [of_events, of_unknown].into_iter();
    all.filter(|notice| !notice.items.is_empty()).collect()
}

fn answer(sample: &TopSample) -> String {
    let of_host = sample.host.iter().flat_map(|host| &host.findings);
    // A setting whose cost nobody measured is no answer.
    let of_host = of_host.filter(|advice| advice.gain > 0.0);
    let of_host = of_host.map(|advice| ("Host".to_owned(), advice));
    let of_vms = sample
        .vms
        .iter()
        .filter_map(|vm| Some((vm.label(), host::own_finding(sample, vm)?)));
    let worst = of_vms
        .chain(of_host)
        .max_by(|a, b| a.1.gain.total_cmp(&b.1.gain));
    match worst {
        Some((label, advice)) => format!("{label}: {}", advice.finding),
        None if sample.vms.is_empty() => NO_VM.to_owned(),
        None => {
            let vms = counted(sample.vms.len() as u64, "VM");
            let unknown = not_known_to_run(&sample.vms);
            format!("{vms}, no known problem in this interval{unknown}.")
        }
    }
}

/// A clause that names the VMs whose vCPUs did not run and whose monitor does not tell why; empty without one.
fn not_known_to_run(vms: &[VmRates]) -> String {
    let may_be_paused = vms.iter().filter(|vm| vm.may_be_paused());
    let names: Vec<String> = may_be_paused.map(VmRates::label).collect();
    let which = match names.as_slice() {
        [] => return String::new(),
        [one] => format!("{one} is"),
        several => format!("{} VMs are", several.len()),
    };
    format!("; whether {which} halted or paused is not known")
}

/// The busiest thread with its role.
fn busiest(vm: &VmRates) -> String {
    vm.busiest().map_or(NONE.to_owned(), |thread| {
        format!("{} {}", thread.role.label(), percent(thread.run))
    })
}

/// The columns that have no figure of this VM at this level, with their reason: those of one reason together.
pub fn unknown_columns(vm: &VmRates, level: u8) -> Vec<(Vec<&'static str>, String)> {
    let unknown = Counter::columns().filter(|column| counter_value(column, vm).is_none());
    let reasons = unknown.map(|column| (counters::unknown(column, vm, level), column.column));
    let no_thread = (vm.busiest().is_none()).then(|| {
        let reason = "no thread of its process ran in the interval".to_owned();
        (reason, "busiest thread")
    });
    let all = grouped(reasons.chain(no_thread)).into_iter();
    all.map(|(reason, names)| (names, reason)).collect()
}

/// Returns the columns that have no figure of some VM, with the VMs, a line for each reason.
fn unknown_of_all(vms: &[VmRates], level: u8) -> Vec<String> {
    let all = vms.iter().flat_map(|vm| {
        let unknown = unknown_columns(vm, level).into_iter();
        unknown.map(|columns| (columns, vm.label()))
    });
    let line = |((names, reason), labels): ((Vec<&str>, String), Vec<String>)| {
        let labels: BTreeSet<String> = labels.into_iter().collect();
        let is_of_some = labels.len() < vms.len();
        let of_some = only_if(
            is_of_some,
            format!(" of {}", labels.into_iter().joined(", ")),
        );
        format!("{}{of_some}: {reason}.", names.join(", "))
    };
    grouped(all).into_iter().map(line).collect()
}

/// The level, what it does, and what it cost, as the interval showed.
pub fn level_cost(sample: &TopSample) -> String {
    let does = match sample.level {
        0 => "counters",
        1 => "counters, QMP histograms",
        _ => "counters, QMP histograms, traces",
    };
    let (level, cpu) = (sample.level, sample.own_cpu * 100.0);
    format!("level {level} ({does}), vmtax: {cpu:.1} % CPU")
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmtax_findings::{Advice, DiskRates, IoRates};
    use vmtax_model::{Accelerator, Remedy};

    #[test]
    fn the_first_finding_is_the_sentence_and_a_hostile_one_is_harmless() {
        let remedy = |line: &str| Remedy {
            line: line.to_owned(),
            ..Remedy::default()
        };
        let finding = Advice {
            finding: "It is \u{1b}[31mslow.".to_owned(),
            remedies: vec![remedy(""), remedy("vmtax profile --vm a")],
            ..Advice::default()
        };
        let vm = VmRates {
            findings: vec![finding],
            ..VmRates::default()
        };
        let statement = |vm| vm_statement(&TopSample::default(), vm).unwrap();
        let Statement { text, next, .. } = statement(&vm);
        assert!(
            !text.contains('\u{1b}') && text.ends_with("slow."),
            "{text:?}"
        );
        assert_eq!(next.as_deref(), Some("vmtax profile --vm a"));
        assert_eq!(statement(&VmRates::default()).next, None);
    }

    fn reason(vm: &VmRates, level: u8, column: &str) -> Option<String> {
        unknown_columns(vm, level)
            .into_iter()
            .find(|(names, _)| names.contains(&column))
            .map(|(_, reason)| reason)
    }

    #[test]
    fn every_figure_that_is_not_known_has_its_reason() {
        let io = Some(IoRates {
            reads_per_s: 5.0,
            ..IoRates::default()
        });
        let guests = [None, Some(Accelerator::Kvm), Some(Accelerator::Tcg)];
        for (level, accelerator) in [0, 1, 2]
            .into_iter()
            .flat_map(|level| guests.map(|guest| (level, guest)))
        {
            for io in [None, Some(IoRates::default()), io] {
                let vm = VmRates {
                    accelerator,
                    io,
                    guest: io.map(|_| Default::default()),
                    ..VmRates::default()
                };
                let all = unknown_columns(&vm, level);
                assert!(all.iter().all(|(_, reason)| !reason.is_empty()), "{all:?}");
                let names: Vec<_> = all.iter().flat_map(|(names, _)| names).copied().collect();
                let dashes = Counter::columns().filter(|column| counter_text(column, &vm) == "–");
                assert!(
                    dashes.clone().count() + 1 == names.len() && names.contains(&"DAVG"),
                    "{names:?}"
                );
            }
        }
    }

    #[test]
    fn the_reason_is_that_of_the_vm() {
        let io = |reads_per_s| {
            Some(IoRates {
                reads_per_s,
                ..IoRates::default()
            })
        };
        let named = |vm| VmRates {
            name: Some("web".to_owned()),
            ..vm
        };
        let without = named(VmRates {
            no_monitor: Some("no QMP socket".to_owned()),
            ..VmRates::default()
        });
        assert_eq!(
            reason(&without, 0, "IOPS").as_deref(),
            Some("no monitor: no QMP socket")
        );
        assert_eq!(reason(&without, 0, "DAVG"), reason(&without, 0, "BLKAVG"));
        let silent = VmRates {
            monitor_timeout_s: Some(2.0),
            ..without.clone()
        };
        assert_eq!(
            reason(&silent, 1, "p99").as_deref(),
            Some("QMP did not answer within 2 s")
        );
        let idle = named(VmRates {
            io: io(0.0),
            ..VmRates::default()
        });
        assert_eq!(
            reason(&idle, 0, "DAVG").as_deref(),
            Some("no requests in the interval")
        );
        let file = named(VmRates {
            io: io(50.0),
            ..VmRates::default()
        });
        assert!(
            reason(&file, 0, "KAVG")
                .unwrap()
                .contains("`vmtax layers --vm web`")
        );
        let disk = DiskRates {
            davg_ns: Some(1e6),
            ..DiskRates::default()
        };
        let few = VmRates {
            disks: vec![disk],
            ..file.clone()
        };
        assert_eq!(
            (
                reason(&few, 0, "DAVG"),
                reason(&few, 0, "KAVG").unwrap().contains("fewer")
            ),
            (None, true)
        );
        let tcg = VmRates {
            accelerator: Some(Accelerator::Tcg),
            ..file.clone()
        };
        let lines = unknown_of_all(
            &[
                tcg,
                VmRates {
                    pid: 7,
                    ..VmRates::default()
                },
            ],
            0,
        );
        assert!(
            lines.contains(
                &"EXIT/s of web: only KVM has VM exits, and TCG runs this guest.".to_owned()
            ),
            "{lines:?}"
        );
        assert!(
            lines.contains(&"%ST, AWAIT, p99, QD: needs --level 1.".to_owned()),
            "{lines:?}"
        );
    }
}
