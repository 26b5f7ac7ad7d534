//! Abilities of the host, a line for each check, and fixes for what is missing.

use crate::engine::{Block, Cell, Column, Filled, Report, Section, Table, Tone, remedy_text};
use vmtax_model::{Check, HostFacts, KvmClass, Machine, Readiness};

/// The report: each check, then why it matters and what fixes it for each that is not ok.
pub fn doctor(facts: &HostFacts) -> Report<'static> {
    let poor: Vec<&Check> = facts
        .checks
        .iter()
        .filter(|check| check.state != Readiness::Ok)
        .collect();
    let fixes = poor.iter().map(|check| {
        let fixes = check
            .remedies
            .iter()
            .map(|remedy| Block::Text(format!("→ {}", remedy_text(remedy))));
        let blocks = [Block::Text(check.why.clone())]
            .into_iter()
            .chain(fixes)
            .collect();
        Section::new(
            format!("{} is {}", check.subject, marker(check.state)),
            blocks,
        )
    });
    let all = Section::new("", vec![Block::Table(checks(&facts.checks).done())]);
    Report {
        study: "doctor",
        title: "Host check".to_owned(),
        next: if facts.kernels.is_empty() {
            vec!["vmtax get kernel".to_owned()]
        } else {
            vec!["vmtax run --quick".to_owned()]
        },
        basis: vec![
            facts.cpu.model.clone(),
            format!("{}, Linux {}", facts.distribution, facts.kernel),
        ],
        answer: answer(facts, poor.len()),
        sections: [all].into_iter().chain(fixes).collect(),
        ..Report::default()
    }
}

/// The machines that this host can measure, and why not all.
fn answer(facts: &HostFacts, poor: usize) -> String {
    let guests = !facts.qemu.is_empty();
    let linux = guests && !facts.kernels.is_empty();
    let machines = Machine::ALL
        .iter()
        .copied()
        .filter(|machine| match *machine {
            Machine::NATIVE => true,
            Machine::KVM => linux && facts.kvm.class == KvmClass::Hardware,
            machine if machine.has_kernel() => linux,
            machine => guests && facts.micro_guests().contains(&machine),
        });
    let machines: Vec<&str> = machines.map(Machine::as_str).collect();
    let why = match facts.kvm.class {
        KvmClass::Hardware => "",
        KvmClass::EmulatesKernels => {
            "; kvm is too slow for Linux guests, since it emulates their kernels"
        }
        KvmClass::Broken => "; KVM does not work here",
        KvmClass::NoPermission => "; this user may not open /dev/kvm",
        KvmClass::Absent => "; there is no /dev/kvm",
    };
    let checks = match poor {
        0 => format!("all {} checks are ok", facts.checks.len()),
        n => format!("{n} of {} checks are not ok", facts.checks.len()),
    };
    format!(
        "This host can measure {}{why}; {checks}.",
        machines.join(", ")
    )
}

/// Makes a table with the result of each check.
pub fn checks(checks: &[Check]) -> Filled<&Check> {
    Table::of("Checks of the host", checks)
        .column(Column::words("check").broken(16, 8), |check| {
            check.subject.as_str()
        })
        .column(Column::words("state"), |check| {
            Cell::from(marker(check.state)).tone(match check.state {
                Readiness::Ok => Tone::Good,
                Readiness::Limited => Tone::Warn,
                Readiness::Missing => Tone::Bad,
            })
        })
        .column(Column::words("found").broken(24, 12), |check| {
            check.found.as_str()
        })
}

/// The word for a state.
fn marker(state: Readiness) -> &'static str {
    match state {
        Readiness::Ok => "ok",
        Readiness::Limited => "limited",
        Readiness::Missing => "missing",
    }
}
