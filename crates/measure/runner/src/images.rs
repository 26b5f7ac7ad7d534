//! The images that a plan's guests boot from: made once, used in every round.

use crate::RunError;
use crate::requirements::Requirements;
use std::path::{Path, PathBuf};
use vmtax_guests::kernel::{Init, KernelError, Purpose};
use vmtax_model::{KernelFacts, Machine, Plan, Probes, ShareMethod};
use vmtax_vm::{Boot, GuestImage, MachineError, Scratch, VmmProgram};
use vmtax_workload::CheckedPlan;

/// The images that the plan's machines need, one for each kernel.
#[derive(Debug)]
pub(crate) struct Images {
    guests: Vec<(KernelFacts, GuestImage)>,
    /// The file of the micro-guest's ROM.
    rom: Option<PathBuf>,
    /// The shares that the guests' kernel cannot mount, with the reason.
    pub refused: Vec<(ShareMethod, KernelError)>,
}

impl Images {
    /// Makes them in the scratch folder. `methods` are the share methods that guests must support.
    pub fn make(
        plan: &CheckedPlan,
        requirements: Option<&Requirements>,
        methods: &[ShareMethod],
        scratch: &Scratch,
    ) -> Result<Images, RunError> {
        let mut images = Images {
            guests: Vec::new(),
            rom: None,
            refused: Vec::new(),
        };
        let purpose = match plan.command() {
            Some(command) => Purpose::Command {
                network: command.net.is_some(),
                disk: command.scratch_mib.is_some(),
            },
            None if plan.workloads.iter().any(|w| w.name.needs_network()) => Purpose::Network,
            None => Purpose::Workloads,
        };
        let Some(requirements) = requirements else {
            return Ok(images);
        };
        for kernel in &requirements.kernels {
            if images.guests.iter().any(|(known, _)| known == kernel) {
                continue;
            }
            let number = images.guests.len();
            let initramfs = scratch.folder().join(format!("initramfs-{number}.cpio"));
            let symbols = plan
                .probes
                .iter()
                .any(|probes| matches!(probes, Probes::Inside(_)));
            let init = Init {
                program: Path::new("/proc/self/exe"),
                symbols,
            };
            let packed = vmtax_guests::kernel::initramfs(
                kernel,
                init,
                methods,
                purpose,
                &drivers(plan),
                &initramfs,
            )?;
            images.refused.extend(packed.refused);
            let vmlinux = scratch.folder().join(format!("vmlinux-{number}"));
            images.guests.push((
                kernel.clone(),
                GuestImage {
                    kernel: unpacked(kernel, vmlinux),
                    initramfs,
                },
            ));
        }
        if plan.machines.iter().any(|m| !m.has_kernel()) {
            let rom = scratch.folder().join("micro.rom");
            std::fs::write(&rom, vmtax_vm::micro_guest::rom()).map_err(|source| {
                MachineError::System {
                    what: format!("writing {}", rom.display()),
                    source,
                }
            })?;
            images.rom = Some(rom);
        }
        Ok(images)
    }

    /// Returns what the machine boots with this kernel and its VMM's program.
    pub fn boot<'a>(
        &'a self,
        machine: Machine,
        kernel: Option<&KernelFacts>,
        program: Option<&'a VmmProgram>,
    ) -> Result<Boot<'a>, RunError> {
        if !machine.is_guest() {
            return Ok(Boot::Host);
        }
        let boot = program.and_then(|program| match machine.has_kernel() {
            true => {
                let image = self.guests.iter().find(|(known, _)| Some(known) == kernel);
                image.map(|(_, image)| Boot::Linux(program, image))
            }
            false => self.rom.as_deref().map(|rom| Boot::Micro(program, rom)),
        });
        boot.ok_or_else(|| no_program(machine))
    }
}

/// The modules of the buses on which the variants have the measured disk, virtio-blk's aside.
fn drivers(plan: &Plan) -> Vec<&'static str> {
    let mut all: Vec<&str> = Vec::new();
    for variant in &plan.variants {
        let modules: &[&str] = match variant.get("bus") {
            Some("virtio-scsi") => &["virtio_scsi", "sd_mod"],
            Some("sata") => &["ahci", "sd_mod"],
            Some("ide") => &["ata_piix", "ahci", "sd_mod"],
            Some("nvme") => &["nvme"],
            _ => &[],
        };
        all.extend(
            modules
                .iter()
                .filter(|module| !all.contains(module))
                .copied()
                .collect::<Vec<_>>(),
        );
    }
    all
}

/// The error of a guest without a VMM or an image.
pub(crate) fn no_program(machine: Machine) -> RunError {
    RunError::NoMachine {
        machine,
        reason: "no QEMU or kernel was found for it".to_owned(),
    }
}

/// The kernel in the format that boots fastest: uncompressed, if possible.
fn unpacked(kernel: &KernelFacts, vmlinux: PathBuf) -> PathBuf {
    if vmtax_guests::kernel::unpack_vmlinux(kernel, &vmlinux) {
        vmlinux
    } else {
        kernel.image.clone()
    }
}
