//! What a plan's guests are started from: made once, used in every round.

use crate::{Means, RunError};
use std::path::{Path, PathBuf};
use vmtax_guests::kernel::{KernelError, Purpose};
use vmtax_model::{KernelFacts, MachineName, Plan, ShareMethod};
use vmtax_vm::{GuestImage, MachineError, MicroImage, Scratch, Target};

/// The images that the plan's machines need, for each variant.
pub(crate) struct Images {
    guests: Vec<GuestImage>,
    micros: Vec<MicroImage>,
    /// The shares that the guests' kernel cannot mount, with the reason.
    pub refused: Vec<(ShareMethod, KernelError)>,
}

impl Images {
    /// Makes them in the scratch folder. `methods` are the shares that guests are to mount.
    pub fn make(
        plan: &Plan,
        means: Option<&Means>,
        methods: &[ShareMethod],
        scratch: &Scratch,
    ) -> Result<Images, RunError> {
        let wants = |micro: bool| plan.machines.iter().any(|m| m.is_guest() && m.is_micro() == micro);
        let mut images = Images { guests: Vec::new(), micros: Vec::new(), refused: Vec::new() };
        let purpose = match &plan.command {
            Some(command) => Purpose::Command { network: command.net.is_some(), disk: command.scratch_mib.is_some() },
            None => Purpose::Workloads,
        };
        let Some(means) = means else { return Ok(images) };
        let mut made: Vec<(&KernelFacts, GuestImage)> = Vec::new();
        for (kernel, qemu) in means.kernels.iter().zip(&means.qemus).filter(|_| wants(false)) {
            let known = made.iter().find(|(other, _)| *other == kernel).map(|(_, image)| image.clone());
            let image = match known {
                Some(image) => GuestImage { qemu: qemu.clone(), ..image },
                None => {
                    let initramfs = scratch.folder().join(format!("initramfs-{}.cpio", made.len()));
                    let program = Path::new("/proc/self/exe");
                    let packed = vmtax_guests::kernel::initramfs(kernel, program, methods, purpose, &initramfs)?;
                    images.refused.extend(packed.refused);
                    let vmlinux = scratch.folder().join(format!("vmlinux-{}", made.len()));
                    GuestImage { qemu: qemu.clone(), kernel: unpacked(kernel, vmlinux), initramfs }
                }
            };
            made.push((kernel, image.clone()));
            images.guests.push(image);
        }
        if wants(true) {
            let rom = scratch.folder().join("micro.rom");
            std::fs::write(&rom, vmtax_vm::micro_guest::rom())
                .map_err(|source| MachineError::System { what: format!("writing {}", rom.display()), source })?;
            images.micros =
                means.qemus.iter().map(|qemu| MicroImage { qemu: qemu.clone(), rom: rom.clone() }).collect();
        }
        Ok(images)
    }

    pub fn target(&self, machine: MachineName, variant: usize) -> Result<Target<'_>, RunError> {
        let guest = || self.guests.get(variant).ok_or_else(|| no_means(machine));
        let micro = || self.micros.get(variant).ok_or_else(|| no_means(machine));
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

/// The kernel as a guest starts fastest from it.
fn unpacked(kernel: &KernelFacts, vmlinux: PathBuf) -> PathBuf {
    if vmtax_guests::kernel::unpack_vmlinux(kernel, &vmlinux) { vmlinux } else { kernel.image.clone() }
}
