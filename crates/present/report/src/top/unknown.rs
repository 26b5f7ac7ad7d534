//! The columns of `vmtax top` that have no figure of a VM, with their reasons.

use super::counters::top_columns;
use crate::text::only_if;
use std::collections::BTreeSet;
use vmtax_model::VmRates;

/// The columns that have no figure of this VM at this level, with their reason: those of one reason together.
pub fn unknown_columns(vm: &VmRates, level: u8) -> Vec<(Vec<&'static str>, String)> {
    let mut all: Vec<(Vec<&'static str>, String)> = Vec::new();
    for column in top_columns().filter(|column| (column.value)(vm).is_none()) {
        let reason = (column.unknown)(vm, level);
        match all.iter_mut().find(|(_, known)| *known == reason) {
            Some((names, _)) => names.push(column.column),
            None => all.push((vec![column.column], reason)),
        }
    }
    all
}

/// Returns the columns that have no figure of some VM, with the VMs, a line for each reason.
pub(super) fn of_all(vms: &[VmRates], level: u8) -> Vec<String> {
    let mut all: Vec<(Vec<&'static str>, String, BTreeSet<String>)> = Vec::new();
    for vm in vms {
        for (names, reason) in unknown_columns(vm, level) {
            match all
                .iter_mut()
                .find(|known| (&known.0, &known.1) == (&names, &reason))
            {
                Some((.., labels)) => labels.extend([vm.label()]),
                None => all.push((names, reason, BTreeSet::from([vm.label()]))),
            }
        }
    }
    let line = |(names, reason, labels): (Vec<&str>, String, BTreeSet<String>)| {
        let labels: Vec<String> = labels.into_iter().collect();
        let of_some = only_if(
            labels.len() < vms.len(),
            format!(" of {}", labels.join(", ")),
        );
        format!("{}{of_some}: {reason}.", names.join(", "))
    };
    all.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmtax_model::{Accelerator, DiskRates, IoRates};

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
                let dashes = top_columns().filter(|column| column.text(&vm) == "–");
                assert!(
                    dashes.clone().count() == names.len() && names.contains(&"DAVG"),
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
        let lines = of_all(
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
            lines.contains(&"%ST, GAVG, p99, QD: read from --level 1 on.".to_owned()),
            "{lines:?}"
        );
    }
}
