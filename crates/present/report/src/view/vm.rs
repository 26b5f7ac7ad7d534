//! Facts about a running VM for every report.

use super::not_observed;
use crate::text::plain;
use vmtax_model::{FailureKind, Missing, ProcessStop, VmFacts};

/// "web01", else "process 123".
pub fn name(vm: &VmFacts) -> String {
    vm.name
        .clone()
        .unwrap_or_else(|| format!("process {}", vm.pid))
}

/// "web01 (PID 123, libvirt)", "kvm", "QEMU 7.2.22", as far as they are known.
pub fn basis(vm: &VmFacts) -> Vec<String> {
    let manager = vm.managed.as_ref().map_or(String::new(), |managed| {
        format!(", {}", managed.manager.as_str())
    });
    let accelerator = vm
        .accelerator
        .map(|accelerator| accelerator.as_str().to_owned());
    let version = vm.version.as_ref().map(|version| format!("QEMU {version}"));
    let name = match vm.pid {
        // An imported trace may not say.
        0 => name(vm),
        pid => format!(
            "{} (PID {pid}{manager})",
            vm.name.as_deref().unwrap_or("unnamed VM")
        ),
    };
    [Some(name), accelerator, version]
        .into_iter()
        .flatten()
        .collect()
}

/// A clause about a VM whose guest does not run: "web01 is paused".
pub fn stopped(vm: &VmFacts, name: &str) -> Option<String> {
    let of_process = vm.process_stop.as_ref().map(|stop| match stop {
        ProcessStop::Signal => {
            format!(
                "{name} does not run: QEMU is stopped (SIGSTOP), `kill -CONT {}` resumes it",
                vm.pid
            )
        }
        ProcessStop::Tracer(tracer) => {
            format!("{name} does not run: {} has stopped QEMU", plain(tracer))
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
    let failure = vm
        .kernel_failure
        .as_ref()
        .filter(|failure| failure.kind == FailureKind::Panic)?;
    Some(format!(
        "{name}'s guest has panicked, its console ends with \"{}\"",
        plain(&failure.line)
    ))
}

/// Returns the data that could not be observed, each once.
pub fn missing<'a>(all: impl Iterator<Item = &'a Missing>) -> Vec<String> {
    let mut texts: Vec<String> = Vec::new();
    for m in all {
        let text = not_observed(m, "");
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    texts
}
