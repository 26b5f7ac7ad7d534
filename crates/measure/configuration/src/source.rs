//! The kinds of text that have the configuration of a VM.

use super::{ConfigurationError, command_line, domain, proxmox};
use crate::twin::command_line::{Line, is_program, last_start};
use vmtax_vmm::qemu::arguments::Arguments;
use vmtax_model::VmConfiguration;

/// Reads a QEMU command line, also in a shell's script, `qm showcmd`'s output or libvirt's log, a domain of libvirt, or a
/// VM's file of Proxmox; `None` for any other text.
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

/// Returns the configuration with which a running QEMU was started, by its command line; `None` where that cannot be read, or the
/// process is no QEMU of x86-64.
pub fn configuration_of(pid: i32) -> Option<VmConfiguration> {
    let words: Vec<String> = Arguments::of(pid).all().map(str::to_owned).collect();
    let line = Line {
        words,
        wrappers: Vec::new(),
    };
    let is_qemu = line
        .words
        .first()
        .is_some_and(|program| is_program(program));
    command_line::read(&line).ok().filter(|_| is_qemu)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
