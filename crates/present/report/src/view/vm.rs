//! Facts about a running VM for every report.

use super::{began, host, not_observed};
use crate::engine::Origin;
use crate::text::{distinct, plain};
use vmtax_model::{FailureKind, Missing, ProcessStop, VmFacts, Vmm};
use vmtax_recording::Recording;

/// "web01", else "process 123".
pub fn name(vm: &VmFacts) -> String {
    vm.name
        .clone()
        .unwrap_or_else(|| format!("process {}", vm.pid))
}

/// "web01 (PID 123, libvirt)", "kvm", "QEMU 7.2.22" or "Firecracker", as far as they are known.
pub fn basis(vm: &VmFacts) -> Vec<String> {
    let manager = vm.managed.as_ref();
    let manager = manager.map_or(String::new(), |one| format!(", {}", one.manager.as_str()));
    let accelerator = vm.accelerator.map(|one| one.as_str().to_owned());
    let vmm = match (&vm.version, vm.vmm) {
        (Some(version), vmm) => Some(format!("{} {version}", vmm.name())),
        (None, Vmm::Qemu) => None,
        (None, other) => Some(other.name().to_owned()),
    };
    let name = match vm.pid {
        // An imported trace may not say.
        0 => name(vm),
        pid => {
            let name = vm.name.as_deref().unwrap_or("unnamed VM");
            format!("{name} (PID {pid}{manager})")
        }
    };
    let all = [Some(name), accelerator, vmm];
    all.into_iter().flatten().collect()
}

/// Returns the basis of what was recorded of a running VM: the VM, for how long what was observed, when, the host.
pub fn recorded(recording: &Recording, vm: &VmFacts, observed: Option<String>) -> Vec<String> {
    let time = observed.into_iter().chain([began(recording)]).collect();
    [basis(vm), time, host(recording)].concat()
}

/// Returns the commands that follow a report of a running VM: all its details, and a profile.
pub fn next(origin: &Origin, vm: &VmFacts) -> Vec<String> {
    let profile = format!("vmtax profile --vm {}", vm.pid);
    vec![format!("{} --details", origin.command), profile]
}

/// A clause about a VM whose guest does not run: "web01 is paused".
pub fn stopped(vm: &VmFacts, name: &str) -> Option<String> {
    let vmm = vm.vmm.subject();
    let of_process = vm.process_stop.as_ref().map(|stop| match stop {
        ProcessStop::Signal => {
            let resume = format!("kill -CONT {}", vm.pid);
            format!("{name} does not run: {vmm} is stopped (SIGSTOP), `{resume}` resumes it")
        }
        ProcessStop::Tracer(tracer) => {
            format!("{name} does not run: {} has stopped {vmm}", plain(tracer))
        }
    });
    let of_guest = || {
        Some(match vm.state.as_ref()?.stopped()? {
            "paused" => format!("{name} is paused"),
            "guest-panicked" => format!("{name}'s guest has panicked"),
            state => format!("{name} does not run: its state is \"{}\"", plain(state)),
        })
    };
    of_process.or_else(|| panicked(vm, name)).or_else(of_guest)
}

/// A clause that says that a guest's kernel has panicked, with its line on the console.
fn panicked(vm: &VmFacts, name: &str) -> Option<String> {
    let failure = vm.kernel_failure.as_ref();
    let failure = failure.filter(|failure| failure.kind == FailureKind::Panic)?;
    let line = plain(&failure.line);
    Some(format!(
        "{name}'s guest has panicked, its console ends with \"{line}\""
    ))
}

/// Returns the data that could not be observed, each once.
pub fn missing<'a>(all: impl Iterator<Item = &'a Missing>) -> Vec<String> {
    distinct(all.map(|one| not_observed(one, "")))
}
