//! The files that a run's machines work on: a scratch folder, and the images that guests boot from, made once and used in
//! every round.

use crate::RunError;
use crate::requirements::Requirements;
use crate::shares;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use vmtax_guests::kernel::{Init, KernelError, Purpose};
use vmtax_model::{KernelFacts, Machine, Plan, Probes, ShareMethod, Variant};
use vmtax_vm::{
    Boot, DiskKind, GuestImage, MachineError, Needs, Scratch, VmmProgram, disk_images_mib,
};
use vmtax_workload::CheckedPlan;

/// The scratch folder of a run and what its guests boot from; the parts of a tuning share them. Removed with the value.
#[derive(Debug)]
pub(crate) struct Workspace {
    pub(crate) scratch: Scratch,
    pub(crate) images: Images,
}

impl Workspace {
    pub(crate) fn create(
        plan: &CheckedPlan,
        requirements: Option<&Requirements>,
        folder: &Path,
    ) -> Result<Workspace, RunError> {
        let scratch = Scratch::create(folder, needs(plan)?)?;
        let images = Images::make(plan, requirements, &shares::methods(plan)?, &scratch)?;
        Ok(Workspace { scratch, images })
    }
}

/// The disks and files that the plan's machines need in the scratch folder.
fn needs(plan: &CheckedPlan) -> Result<Needs, RunError> {
    let shares::Written {
        files_bytes,
        share: written,
    } = shares::written(plan)?;
    let guest = plan.machines.iter().any(|m| m.is_linux_guest());
    let mut images_mib = if guest { shares::images_mib(plan)? } else { 0 };
    let data = plan
        .workloads
        .iter()
        .any(|w| w.name.needs_disk())
        .then_some(DiskKind::Data);
    let layer = plan.command().filter(|_| guest).and_then(|c| c.scratch_mib);
    let disk = data.or(layer.map(|mib| DiskKind::Layer { mib }));
    if disk.is_some() {
        let disks: Vec<BTreeMap<String, String>> =
            plan.variants.iter().map(Variant::disk).collect();
        images_mib += disk_images_mib(disks.iter());
    }
    // A command, and a program of the host, use the host's files.
    let files = guest && !plan.shares_host_root();
    Ok(Needs {
        disk,
        guest,
        files,
        files_bytes,
        tree: plan.tree.clone(),
        written,
        images_mib,
    })
}

/// The images that the plan's machines need, one for each kernel.
#[derive(Debug, Default)]
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
        let mut images = Images::default();
        let Some(requirements) = requirements else {
            return Ok(images);
        };
        for kernel in requirements.kernels() {
            if !images.guests.iter().any(|(known, _)| known == kernel) {
                images.add_guest(plan, kernel, methods, scratch)?;
            }
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

    fn add_guest(
        &mut self,
        plan: &CheckedPlan,
        kernel: &KernelFacts,
        methods: &[ShareMethod],
        scratch: &Scratch,
    ) -> Result<(), RunError> {
        let purpose = match plan.command() {
            Some(command) => Purpose::Command {
                network: command.net.is_some(),
                disk: command.scratch_mib.is_some(),
            },
            None if plan.workloads.iter().any(|w| w.name.needs_network()) => Purpose::Network,
            None => Purpose::Workloads,
        };
        let number = self.guests.len();
        let initramfs = scratch.folder().join(format!("initramfs-{number}.cpio"));
        let init = Init {
            program: Path::new("/proc/self/exe"),
            symbols: plan
                .probes
                .iter()
                .any(|probes| matches!(probes, Probes::Inside(_))),
        };
        let drivers = drivers(plan);
        let packed =
            vmtax_guests::kernel::initramfs(kernel, init, methods, purpose, &drivers, &initramfs)?;
        self.refused.extend(packed.refused);
        let vmlinux = scratch.folder().join(format!("vmlinux-{number}"));
        let image = GuestImage {
            kernel: unpacked(kernel, vmlinux),
            initramfs,
        };
        self.guests.push((kernel.clone(), image));
        Ok(())
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
        for module in modules {
            if !all.contains(module) {
                all.push(module);
            }
        }
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
