//! One trial observed from inside its guest: the host's side of it.

use super::observer::{Observer, PING, answered, failed};
use std::time::Duration;
use vmtax_clock::beat;
use vmtax_model::{ClockReading, Inside, InsideFacts, Ping, SCHEMA, files};
use vmtax_recording::TrialFiles;
use vmtax_vm::{MachineError, Observed, RunningMachine};
use vmtax_vmm::Vm;

/// A guest sends names and numbers: more than this no guest sends that is sound, bytes.
const MAX_BYTES: usize = 256 << 20;

/// Has the guest sample and count itself.
pub(super) struct InsideObserver {
    vm: Option<Vm>,
    store: TrialFiles,
    pings: Vec<Result<Ping, MachineError>>,
    begun: ClockReading,
    timeout: Duration,
}

impl InsideObserver {
    pub fn start(
        vm: Option<Vm>,
        machine: &mut dyn RunningMachine,
        inside: Inside,
        timeout: Duration,
        store: TrialFiles,
    ) -> Result<InsideObserver, MachineError> {
        let pings = vec![machine.ping(PING)];
        let begun = beat();
        machine.start_sampling(inside)?;
        Ok(InsideObserver {
            vm,
            store,
            pings,
            begun,
            timeout,
        })
    }
}

impl Observer for InsideObserver {
    /// The guest's samples, and what brings them together with those of its QEMU, go to the trial's files.
    fn stop(
        self: Box<Self>,
        machine: &mut dyn RunningMachine,
        _: Option<Observed>,
    ) -> Result<(), MachineError> {
        let InsideObserver {
            vm,
            mut store,
            mut pings,
            begun,
            timeout,
        } = *self;
        let mut taken = 0;
        let mut missing = machine.stop_sampling(timeout, &mut |name, bytes| {
            let known = [files::GUEST_PROFILE, files::GUEST_CALLS].contains(&name);
            let name = known
                .then_some(name)
                .ok_or_else(|| format!("a file '{}'", name.escape_default()))?;
            taken += bytes.len();
            if taken > MAX_BYTES {
                return Err(format!("{} MiB and more of samples", MAX_BYTES >> 20));
            }
            store.append(name, bytes).map_err(|e| e.to_string())
        })?;
        let beats = [begun, beat()];
        pings.push(machine.ping(PING));
        let pings = answered(pings, &mut missing);
        let facts = InsideFacts {
            schema: SCHEMA,
            threads: vm.as_ref().map_or_else(Vec::new, Vm::threads),
            pings,
            kvm_offset: vm
                .as_ref()
                .and_then(|vm| vmtax_observe::kvm_offset(vm.pid())),
            beats,
            missing,
        };
        store
            .store(files::INSIDE, &facts)
            .map_err(failed("storing the guest's samples"))
    }
}
