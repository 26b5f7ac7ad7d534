//! Avoidable costs in guest kernels, as evidence for claims.

use crate::reproduce::{Check, Evidence, Tested};
use vmtax_findings::{AntipatternFindings, AntipatternRow, ClaimUnit};
use vmtax_model::HostFacts;

impl Evidence for AntipatternFindings {
    fn test(&self, check: &Check, host: &HostFacts) -> Option<Tested> {
        let (Check::Antipattern {
            antipattern,
            machine,
            ..
        }
        | Check::Spared {
            antipattern,
            machine,
            ..
        }) = check
        else {
            return None;
        };
        let rows = self
            .machines
            .iter()
            .find(|m| m.machine == *machine)
            .map(|m| &m.rows);
        let Some(row) =
            rows.and_then(|rows| rows.iter().find(|row| row.antipattern == *antipattern))
        else {
            return Some(Tested::absent(*machine, host));
        };
        if row.emulated {
            let why = "it needs a guest at CPL 0, which this host's KVM emulates; the micro-guest's other operations run at CPL 3";
            return Some(Tested::untestable(why));
        }
        Some(match check {
            Check::Antipattern { at_least, .. } => match row.ratio {
                Some(ratio) => Tested::at_least(ratio, *at_least),
                None => Tested::untestable(row.why.clone()),
            },
            Check::Spared { at_least, .. } => spared(row, *at_least),
            _ => return None,
        })
    }
}

/// Compares the number of VM exits that the fix saves with the claimed minimum.
fn spared(row: &AntipatternRow, at_least: f64) -> Tested {
    match row.exits_saved {
        Some(saved) => Tested::within(saved, ClaimUnit::Count, Some(at_least), None),
        None if !row.why.is_empty() => Tested::untestable(row.why.clone()),
        None => Tested::untestable("this QEMU does not tell KVM's counters: it takes 7.1 or newer"),
    }
}
