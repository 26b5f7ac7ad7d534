//! A VM that runs already: its block requests by layer, its VM exits.

use crate::analysis::StudyError;
use crate::reproduce::Evidence;
use vmtax_model::{VmExits, VmLayers};
use vmtax_recording::Recording;

/// The requests of the VM, as its host traced them.
pub(crate) fn layers(recording: &Recording) -> Result<VmLayers, StudyError> {
    Ok(vmtax_layers::vm(
        &recording.trial_folder(0),
        &recording.host,
    )?)
}

/// The exits of the VM.
pub(crate) fn exits(recording: &Recording) -> Result<VmExits, StudyError> {
    Ok(vmtax_profile::vm_exits(&recording.trial_folder(0))?)
}

/// No published result claims anything of a VM that runs already.
impl Evidence for VmLayers {}

/// No published result claims anything of a running VM's exits.
impl Evidence for VmExits {}
