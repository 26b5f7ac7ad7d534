//! The configuration of a VM that somebody pastes, of which nothing has to be on this host; and the twin of a VM, which
//! takes over what it can.

mod cards;
mod command_line;
mod domain;
mod proxmox;
mod source;
mod twin;

pub use source::{configuration, configuration_of};
pub use twin::{DomainEdit, Twin, TwinDisk, TwinError, edit_domain, read_text, read_twin, twin};

/// Reasons why a text has no configuration of a VM.
#[derive(Debug, thiserror::Error)]
pub enum ConfigurationError {
    /// It is of a VM, but cannot be read.
    #[error(transparent)]
    Unreadable(#[from] TwinError),
    /// It is of a VM of another architecture.
    #[error("the VM's architecture is {0}: vmtax knows only the costs of x86-64 devices and CPUs")]
    Architecture(String),
    /// The process runs no code of a guest.
    #[error("machine type {0} runs no guest: give the QEMU command line of the VM itself")]
    NoGuest(String),
}

/// Cards by the begin of their drivers' names, with the models that people know.
const CARDS: [(&str, &str); 11] = [
    ("virtio", "virtio"),
    ("e1000e", "e1000e"),
    ("e1000", "e1000"),
    ("rtl8139", "rtl8139"),
    ("vmxnet3", "vmxnet3"),
    ("ne2k", "ne2k"),
    ("pcnet", "pcnet"),
    ("i825", "i82559"),
    ("igb", "igb"),
    ("tulip", "tulip"),
    ("usb-net", "usb-net"),
];

/// The model of a network card, by its name in any text; `None` for an unknown one.
fn card_model(name: &str) -> Option<String> {
    let name = name.to_ascii_lowercase();
    let known = CARDS.iter().find(|(begin, _)| name.starts_with(begin));
    known.map(|(_, model)| (*model).to_owned())
}

/// Returns true if an operating system's or a VM's name says that it is Windows.
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
}
