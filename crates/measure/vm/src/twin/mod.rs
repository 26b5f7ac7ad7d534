//! The twin of somebody's VM: what a guest of the lab takes over from a running VM, from libvirt's XML or from a QEMU command
//! line. The original is only read: its process's arguments, the header of its image, its domain as libvirt prints it.

pub(crate) mod command_line;
mod definition;
mod diff;
pub(crate) mod domain_disk;
mod domain_edit;
pub(crate) mod domain_xml;
mod error;
mod image;
mod properties;
pub(crate) mod source;
pub(crate) mod xml;

pub use definition::{Twin, TwinDisk};
pub use domain_edit::{DomainEdit, edit_domain};
pub use error::TwinError;
pub use source::twin;

/// Reads a text as the command line and as the XML of a VM, for fuzzing: returns the number of a disk's settings.
pub fn read_twin(text: &str) -> usize {
    let settings_count = |twin: Result<Twin, TwinError>| twin.map_or(0, |twin| twin.disk.set.len());
    let edited = edit_domain(
        text,
        "vda",
        &[("cache".to_owned(), "none".to_owned())].into(),
    );
    if let Some(edit) = &edited {
        assert!(
            roxmltree::Document::parse(&edit.xml).is_ok(),
            "an edit broke {text}"
        );
    }
    settings_count(domain_xml::read(text, None))
        + settings_count(command_line::read(
            &source::words(text).unwrap_or_default(),
            None,
        ))
}
