//! Whose events each file has.

use crate::error::ImportError;
use crate::surveyed::Surveyed;
use std::path::Path;
use vmtax_model::{Missing, TraceSide};

/// Decides it: QEMU's; of kernels the guest's is the one that was named, that trace-cmd synchronized with its host, or that has
/// no events of KVM.
pub(crate) fn assign(files: &mut [Surveyed], guest: Option<&Path>) -> Result<(), ImportError> {
    for file in files.iter_mut() {
        let is_synchronized = file.file.dat().is_some_and(|dat| !dat.time_shifts().is_empty());
        file.side = match guest {
            _ if file.file.is_of_qemu() => TraceSide::Qemu,
            Some(guest) if file.file.path == guest => TraceSide::Guest,
            Some(_) => TraceSide::Host,
            None if is_synchronized => TraceSide::Guest,
            None if file.survey.vcpus.is_empty() => TraceSide::Guest,
            None => TraceSide::Host,
        };
    }
    let is_empty = |file: &Surveyed| match file.side {
        TraceSide::Host => file.survey.vcpus.is_empty(),
        TraceSide::Guest => file.survey.block_devices.is_empty(),
        TraceSide::Qemu => file.survey.threads.is_empty(),
    };
    if let Some(first) = files.first().filter(|_| files.iter().all(is_empty)) {
        return Err(ImportError::Nothing { path: first.file.path.clone() });
    }
    let mut guests = files.iter().filter(|file| file.side == TraceSide::Guest);
    match guests.next().zip(guests.next()) {
        Some((first, second)) => {
            Err(ImportError::Guests { first: first.file.path.clone(), second: second.file.path.clone() })
        }
        None => Ok(()),
    }
}

/// A second trace of the host's kernel.
pub(crate) fn unused(file: &Surveyed) -> Missing {
    Missing {
        what: format!("events of {}", file.file.path.display()),
        why: "one trace of the host's kernel is analyzed, and another has more events of KVM".to_owned(),
        fix: "record all events of the host in one trace; name the guest's with --guest-trace".to_owned(),
    }
}
