//! The configuration of a VM that somebody pastes: nothing of it has to be on this host.

mod command_line;
mod domain;
mod proxmox;

use crate::twin::TwinError;
use crate::twin::command_line::{Line, last_start};
use vmtax_model::VmConfiguration;

/// Reasons why a text has no configuration of a VM.
#[derive(Debug, thiserror::Error)]
pub enum ConfigurationError {
    /// It is of a VM, but cannot be read.
    #[error(transparent)]
    Unreadable(#[from] TwinError),
    /// It is of a VM of another architecture.
    #[error("the VM is of {0}: vmtax knows the costs of x86-64's devices and CPUs alone")]
    Architecture(String),
}

/// Reads a QEMU command line, also in a shell's script, `qm showcmd`'s output or libvirt's log, a domain of libvirt, or a VM's file of
/// Proxmox; `None` for any other text.
///
/// # Errors
/// [`ConfigurationError`] where the text is of a VM but has a fault.
pub fn configuration(text: &str) -> Result<Option<VmConfiguration>, ConfigurationError> {
    let begin = text.trim_start_matches('\u{feff}').trim_start();
    if begin.starts_with('<') {
        return domain::read(begin).map(Some);
    }
    if proxmox::is_config(begin) {
        return Ok(Some(proxmox::read(begin)));
    }
    let text = last_start(text);
    // Text of another kind may have a quote without its end.
    if !text.contains("qemu") && !text.contains("kvm") {
        return Ok(None);
    }
    let line = Line::find(&text)?;
    line.map(|line| command_line::read(&line)).transpose()
}

/// Words of an operating system's name that say that it is Windows.
fn is_windows_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let words = name.split(|c: char| !c.is_ascii_alphanumeric());
    let begins = |word: &str| {
        let behind = word.strip_prefix("windows").or(word.strip_prefix("win"));
        behind.is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit()))
    };
    words.into_iter().any(begins)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_of_windows_are_known() {
        assert!(
            ["win11", "srv-windows2019", "Windows 10"]
                .iter()
                .all(|name| is_windows_name(name))
        );
        assert!(
            ["winner", "darwin", "web01"]
                .iter()
                .all(|name| !is_windows_name(name))
        );
    }

    #[test]
    fn other_texts_have_no_configuration() {
        for text in [
            "",
            "it's slow",
            "make run",
            "a: b\nc: d",
            "kvm is slow on my host, isn't it",
        ] {
            assert!(!matches!(configuration(text), Ok(Some(_))), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "(<domain>|qemu-kvm -|cores: 2\nscsi0: )?[ -~\n]{0,200}") {
            let _ = configuration(&text);
        }
    }
}
