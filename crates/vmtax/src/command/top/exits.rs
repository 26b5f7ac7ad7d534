//! The VM exits of one VM, traced for some time.

use std::time::Duration;
use vmtax_model::samples::ExitCounts;
use vmtax_model::{Accelerator, GuestExits};
use vmtax_observe::ExitTracer;
use vmtax_profile::exits::{Devices, summary};
use vmtax_vm::Vm;

/// Traces the VM's exits for `time` and counts them by reason and device. The error is the reason, as a text for
/// people, why they could not be traced.
pub(super) fn traced(
    vm: &Vm,
    time: Duration,
    stop: &dyn Fn() -> bool,
) -> Result<GuestExits, String> {
    if vm.accelerator() != Some(Accelerator::Kvm) {
        return Err("only KVM has VM exits".to_owned());
    }
    let tracer = ExitTracer::start(vm.pid(), vm.threads()).map_err(|e| e.to_string())?;
    let (counted, span) = tracer.follow(time, stop).map_err(|e| e.to_string())?;
    let memory_tree = vm.monitor().and_then(|monitor| monitor.memory_tree().ok());
    let devices = memory_tree
        .as_deref()
        .and_then(Devices::of_memory_tree)
        .unwrap_or_else(Devices::usual);
    let apic = vm.apic_features();
    let counts = ExitCounts {
        seconds: span.as_secs_f64(),
        traced: Some(counted),
        apic,
        ..ExitCounts::default()
    };
    Ok(summary(&counts, &devices))
}
