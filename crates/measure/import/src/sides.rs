//! Whose events each file has.

use crate::error::ImportError;
use crate::surveyed::Surveyed;
use std::path::Path;
use vmtax_model::{Missing, TraceSide};

/// Decides it: QEMU's; of kernels the guest's is the one that was named, that trace-cmd synchronized with its host, or that has
/// no events of KVM.
pub(crate) fn assign(files: &mut [Surveyed], guest: Option<&Path>) -> Result<(), ImportError> {
    for file in files.iter_mut() {
        let is_synchronized = file
            .file
            .dat()
            .is_some_and(|dat| !dat.time_shifts().is_empty());
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
        return Err(ImportError::Nothing {
            path: first.file.path.clone(),
        });
    }
    one_clock_of_qemu(files)?;
    let mut guests = files.iter().filter(|file| file.side == TraceSide::Guest);
    match guests.next().zip(guests.next()) {
        Some((first, second)) => Err(ImportError::Guests {
            first: first.file.path.clone(),
            second: second.file.path.clone(),
        }),
        None => Ok(()),
    }
}

/// Nothing joins the clocks of two traces of QEMU: neither bounds the other's by cause and effect.
fn one_clock_of_qemu(files: &[Surveyed]) -> Result<(), ImportError> {
    let mut of_qemu = files
        .iter()
        .filter(|file| file.side == TraceSide::Qemu && !file.survey.threads.is_empty());
    let Some(first) = of_qemu.next() else {
        return Ok(());
    };
    match of_qemu.find(|file| file.file.clock() != first.file.clock()) {
        Some(second) => Err(ImportError::QemuClocks {
            first: first.file.path.clone(),
            first_clock: first.file.clock().to_owned(),
            second: second.file.path.clone(),
            second_clock: second.file.clock().to_owned(),
        }),
        None => Ok(()),
    }
}

/// A second trace of the host's kernel.
pub(crate) fn unused(file: &Surveyed) -> Missing {
    Missing {
        what: format!("events of {}", file.file.path.display()),
        why: "one trace of the host's kernel is analyzed, and another has more events of KVM"
            .to_owned(),
        fix: "record all events of the host in one trace; name the guest's with --guest-trace"
            .to_owned(),
    }
}
