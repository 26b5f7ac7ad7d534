//! What a plan's guests are started from: made once, used in every round.

use crate::{Means, RunError};
use std::path::Path;
use vmtax_machine::{GuestImage, MachineError, MicroImage, Scratch, Target};
use vmtax_model::{MachineName, Plan};

/// The images that the plan's machines need.
pub(crate) struct Images {
    guest: Option<GuestImage>,
    micro: Option<MicroImage>,
}

impl Images {
    /// Makes them in the scratch folder.
    pub fn make(plan: &Plan, means: Option<&Means>, scratch: &Scratch) -> Result<Images, RunError> {
        let wants = |micro: bool| plan.machines.iter().any(|m| m.is_guest() && m.is_micro() == micro);
        let mut images = Images { guest: None, micro: None };
        let Some(means) = means else { return Ok(images) };
        if wants(false) {
            images.guest = guest(means, scratch)?;
        }
        if wants(true) {
            images.micro = Some(micro(means, scratch)?);
        }
        Ok(images)
    }

    pub fn target(&self, machine: MachineName) -> Result<Target<'_>, RunError> {
        let guest = || self.guest.as_ref().ok_or_else(|| no_means(machine));
        let micro = || self.micro.as_ref().ok_or_else(|| no_means(machine));
        Ok(match machine {
            MachineName::Native => Target::Native,
            MachineName::Kvm => Target::Kvm(guest()?),
            MachineName::Tcg => Target::Tcg(guest()?),
            MachineName::MicroKvm => Target::MicroKvm(micro()?),
            MachineName::MicroTcg => Target::MicroTcg(micro()?),
        })
    }
}

/// A guest without what it is started from.
pub(crate) fn no_means(machine: MachineName) -> RunError {
    RunError::NoMachine { machine, reason: "no QEMU and kernel were found for it".to_owned() }
}

fn guest(means: &Means, scratch: &Scratch) -> Result<Option<GuestImage>, RunError> {
    let Some(kernel) = &means.kernel else { return Ok(None) };
    let initramfs = scratch.folder().join("initramfs.cpio");
    vmtax_kernel::initramfs(kernel, Path::new("/proc/self/exe"), &initramfs)?;
    let vmlinux = scratch.folder().join("vmlinux");
    let direct = vmtax_kernel::unpack_vmlinux(kernel, &vmlinux);
    let kernel = if direct { vmlinux } else { kernel.image.clone() };
    Ok(Some(GuestImage { qemu: means.qemu.clone(), kernel, initramfs }))
}

fn micro(means: &Means, scratch: &Scratch) -> Result<MicroImage, RunError> {
    let rom = scratch.folder().join("micro.rom");
    std::fs::write(&rom, vmtax_micro::rom())
        .map_err(|source| MachineError::System { what: format!("writing {}", rom.display()), source })?;
    Ok(MicroImage { qemu: means.qemu.clone(), rom })
}
