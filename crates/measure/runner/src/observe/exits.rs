//! The VM exits of a running guest: of a profile, or alone.

use super::observer::{Stop, wait};
use crate::RunError;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use vmtax_configuration::configuration_of;
use vmtax_model::samples::{ExitCounts, ProfileFacts};
use vmtax_model::{Accelerator, Missing, ObservedVm, files};
use vmtax_observe::{ExitTracer, ProbeError, kvm_features};
use vmtax_recording::TrialFiles;
use vmtax_vmm::{Monitor, Vm};

/// Name of what tracing VM exits gives.
pub(super) const EXITS: &str = "VM exits by reason and device";

/// Counts the VM exits of a running VM, until the duration has passed, it ends, or `stop` says so. The counts go to `files`.
///
/// # Errors
/// [`RunError`] for a VM without exits, and when the files cannot be written.
pub(crate) fn vm_exits(
    vm: &Vm,
    spec: &ObservedVm,
    mut files: TrialFiles,
    stop: &Stop<'_>,
) -> Result<(), RunError> {
    let pid = vm.pid();
    let (program, facts) = (vm.program(), vm.facts_with_state());
    let exits = Exits::start(vm).ok_or(RunError::NoExits { pid })?;
    let (counts, why) = exits.follow(vm, spec.time(), stop);
    if counts.traced.is_none() && counts.counters.is_empty() {
        return Err(why.map_or(RunError::NoExits { pid }, RunError::from));
    }
    files.store(files::EXITS, &counts)?;
    let facts = ProfileFacts {
        pid,
        program,
        vm: facts,
        missing: Vec::from_iter(why.map(|why| Missing::for_error(EXITS, &why))),
        ..ProfileFacts::default()
    };
    Ok(files.store(files::OBSERVED, &facts)?)
}

/// VM exits of a guest that KVM runs: traced where the kernel lets us, else by KVM's counters.
pub(super) struct Exits {
    tracer: Result<ExitTracer, ProbeError>,
    before: BTreeMap<String, u64>,
    begun: Instant,
}

impl Exits {
    /// `None` where the process has no guest of KVM's. From its return on no exit is missed.
    pub fn start(vm: &Vm) -> Option<Exits> {
        (vm.accelerator() == Some(Accelerator::Kvm)).then(|| Exits {
            before: counters(vm),
            tracer: ExitTracer::start(vm.pid(), vm.threads()),
            begun: Instant::now(),
        })
    }

    /// Counts until the timeout or `stop` says so; also gives why they could not be traced.
    pub fn follow(
        self,
        vm: &Vm,
        time: Duration,
        stop: &dyn Fn() -> bool,
    ) -> (ExitCounts, Option<ProbeError>) {
        let traced = self
            .tracer
            .and_then(|tracer| tracer.follow(time, stop))
            .inspect_err(|_| {
                wait(time.saturating_sub(self.begun.elapsed()), stop);
            });
        let span = traced
            .as_ref()
            .map_or_else(|_| self.begun.elapsed(), |(_, span)| *span);
        let mut counters = counters(vm);
        counters.iter_mut().for_each(|(name, value)| {
            *value = value.saturating_sub(self.before.get(name).copied().unwrap_or(0));
        });
        let memory_tree = vm.monitor().and_then(|monitor| monitor.memory_tree().ok());
        let (traced, why) = match traced {
            Ok((mut traced, _)) => {
                // Threads that began meanwhile have their roles by now.
                traced.threads.splice(0..0, vm.threads());
                (Some(traced), None)
            }
            Err(why) => (None, Some(why)),
        };
        let counts = ExitCounts {
            seconds: span.as_secs_f64(),
            traced,
            counters,
            memory_tree,
            monitor_advice: vm.monitor_advice(),
            apic: vm.apic_features(),
            kvm: kvm_features(),
            configuration: configuration_of(vm.pid()),
        };
        (counts, why)
    }
}

/// KVM's own: from debugfs, which disturbs no vCPU, or through QEMU, which takes no rights, where debugfs lacks those of vCPUs.
fn counters(vm: &Vm) -> BTreeMap<String, u64> {
    let read = vmtax_observe::kvm_counters(vm.pid());
    if read.contains_key("exits") {
        return read;
    }
    vm.monitor()
        .map(Monitor::kvm_counters)
        .filter(|counters| !counters.is_empty())
        .unwrap_or(read)
}
