//! The VM exits in a trace of the host's kernel.

use crate::error::ImportError;
use crate::source::SourceFile;
use crate::survey::Survey;
use std::collections::BTreeMap;
use vmtax_model::samples::{ApicFeatures, ExitCounts};
use vmtax_model::{Missing, VmFacts};
use vmtax_observe::ExitCounter;
use vmtax_trace::Entry;

/// Counts the exits of a VM. `mhz`: ticks of the file's clock in a microsecond.
pub(crate) fn count(
    file: &SourceFile,
    survey: &Survey,
    vm: &VmFacts,
    mhz: f64,
) -> Result<ExitCounts, ImportError> {
    let mut counter = ExitCounter::new(file.formats());
    let mut events = file.events()?;
    while let Some(entry) = events.next()? {
        if let Entry::Event(event) = entry {
            if vm.threads.iter().any(|thread| thread.tid == event.pid) {
                counter.take(&event);
            }
        }
    }
    let ticks = survey.span.map_or(0, |(first, last)| last - first);
    Ok(ExitCounts {
        seconds: ticks as f64 / mhz / 1e6,
        traced: Some(counter.finish(vm.threads.clone(), mhz, survey.counts.lost)),
        counters: BTreeMap::new(),
        memory_tree: None,
        monitor_advice: "use `vmtax exits --vm` while the VM runs".to_owned(),
        apic: ApicFeatures::default(),
    })
}

/// Returns the data about exits that the file lacks.
pub(crate) fn missing(file: &SourceFile, survey: &Survey) -> Vec<Missing> {
    let mut missing = Vec::new();
    if !survey.has_brackets {
        missing.push(Missing {
            what: "exits that KVM handles itself".to_owned(),
            why: format!("{} has no kvm_exit", file.path.display()),
            fix: "record all events of KVM: `trace-cmd record -e kvm`".to_owned(),
        });
        if !survey.has_calls {
            missing.push(Missing {
                what: "times of exits".to_owned(),
                why: format!(
                    "{} has neither kvm_exit and kvm_entry nor sys_enter",
                    file.path.display()
                ),
                fix: "record `-e kvm -e raw_syscalls:sys_enter`".to_owned(),
            });
        }
    }
    missing
}
