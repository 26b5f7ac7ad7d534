//! What every report of a running VM says of it.

use vmtax_model::{Missing, VmFacts};

/// "web01", else "process 123".
pub fn name(vm: &VmFacts) -> String {
    vm.name.clone().unwrap_or_else(|| format!("process {}", vm.pid))
}

/// "web01 (PID 123, libvirt)", "kvm", "QEMU 7.2.22", as far as they are known.
pub fn basis(vm: &VmFacts) -> Vec<String> {
    let manager = vm.managed.as_ref().map_or(String::new(), |managed| format!(", {}", managed.manager.as_str()));
    let accelerator = vm.accelerator.map(|accelerator| accelerator.as_str().to_owned());
    let version = vm.version.as_ref().map(|version| format!("QEMU {version}"));
    let name = match vm.pid {
        // An imported trace may not say.
        0 => name(vm),
        pid => format!("{} (PID {pid}{manager})", vm.name.as_deref().unwrap_or("unnamed VM")),
    };
    [Some(name), accelerator, version].into_iter().flatten().collect()
}

/// What could not be observed, each once.
pub fn missing<'a>(all: impl Iterator<Item = &'a Missing>) -> Vec<String> {
    let mut texts: Vec<String> = Vec::new();
    for m in all {
        let fix = if m.fix.is_empty() { String::new() } else { format!(" → {}", m.fix) };
        let text = format!("{}: {}.{fix}", m.what, m.why.trim_end_matches('.'));
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    texts
}
