//! Commands to a running VM's monitor, as people copy them.

use serde_json::{Value, json};
use vmtax_model::{VmRates, shell_line};

/// A QMP command: through libvirt for its domains, else as JSON for the QMP socket.
pub(super) fn qmp(vm: &VmRates, execute: &str, arguments: &Value) -> String {
    let command = json!({ "execute": execute, "arguments": arguments }).to_string();
    if is_libvirts(vm) {
        return virsh(vm, &["qemu-monitor-command", "DOMAIN", &command]);
    }
    format!("{command} to its QMP socket")
}

/// A command of virsh, in which `DOMAIN` stands for the VM.
pub(super) fn virsh(vm: &VmRates, words: &[impl AsRef<str>]) -> String {
    let word = |word: &_| match (AsRef::as_ref(word), &vm.name) {
        ("DOMAIN", Some(name)) => name.clone(),
        (word, _) => word.to_owned(),
    };
    shell_line(
        &["virsh".to_owned()]
            .into_iter()
            .chain(words.iter().map(word))
            .collect::<Vec<_>>(),
    )
}

/// Returns true if libvirt has the VM's monitor.
pub(super) fn is_libvirts(vm: &VmRates) -> bool {
    vm.manager.is_some_and(|manager| manager.is_libvirt())
}
