//! A kernel and its initramfs in the guest's memory, as Xen's direct boot protocol (PVH) wants them.

use crate::Result;
use cpio::newc::{self, ModeFileType};
use linux_loader::configurator::pvh::PvhBootConfigurator;
use linux_loader::configurator::{BootConfigurator, BootParams};
use linux_loader::loader::KernelLoader;
use linux_loader::loader::elf::start_info::{
    hvm_memmap_table_entry, hvm_modlist_entry, hvm_start_info,
};
use linux_loader::loader::elf::{Elf, PvhBootCapability};
use std::fs::{self, File};
use std::path::Path;
use vm_memory::{Address, Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryMmap};

/// Where the guest is told about itself: the lowest memory, which the kernel leaves alone until it has read that.
pub const START_INFO: u64 = 0x6000;
const MODULES: u64 = 0x6800;
const MEMORY_MAP: u64 = 0x7000;
const ARGUMENTS: u64 = 0x2_0000;
/// The kernel's beginning; below it a PC has its BIOS.
const HIGH_MEMORY: u64 = 0x10_0000;
const LOW_MEMORY_END: u64 = 0x9_fc00;
const MAGIC: u32 = 0x336e_c578;
const RAM: u32 = 1;
const PAGE: u64 = 4096;

/// Loads a kernel with this program as its `/init`; gives the address at which the vCPU begins.
pub fn load(memory: &GuestMemoryMmap, kernel: &Path, arguments: &str) -> Result<u64> {
    let named = |error: &dyn std::fmt::Display| format!("{}: {error}", kernel.display());
    let mut file = File::open(kernel).map_err(|error| named(&error))?;
    let loaded = Elf::load(memory, None, &mut file, Some(GuestAddress(HIGH_MEMORY)))
        .map_err(|error| named(&error))?;
    let PvhBootCapability::PvhEntryPresent(entry) = loaded.pvh_boot_cap else {
        return Err(named(&"no PVH entry").into());
    };
    let mut text = arguments.as_bytes().to_vec();
    text.push(0);
    memory.write_slice(&text, GuestAddress(ARGUMENTS))?;
    let end = memory.last_addr().raw_value() + 1;
    let initramfs = initramfs()?;
    let at = (end - initramfs.len() as u64) / PAGE * PAGE;
    memory.write_slice(&initramfs, GuestAddress(at))?;
    let ram = |addr, end| hvm_memmap_table_entry {
        addr,
        size: end - addr,
        type_: RAM,
        ..hvm_memmap_table_entry::default()
    };
    let map = [ram(0, LOW_MEMORY_END), ram(HIGH_MEMORY, end)];
    let module = hvm_modlist_entry {
        paddr: at,
        size: initramfs.len() as u64,
        ..hvm_modlist_entry::default()
    };
    let info = hvm_start_info {
        magic: MAGIC,
        version: 1,
        cmdline_paddr: ARGUMENTS,
        nr_modules: 1,
        modlist_paddr: MODULES,
        memmap_paddr: MEMORY_MAP,
        memmap_entries: map.len() as u32,
        ..hvm_start_info::default()
    };
    let mut params = BootParams::new(&info, GuestAddress(START_INFO));
    params.set_sections(&map, GuestAddress(MEMORY_MAP));
    params.set_modules(&[module], GuestAddress(MODULES));
    PvhBootConfigurator::write_bootparams(&params, memory)?;
    Ok(entry.raw_value())
}

/// An archive with this program as `/init`.
fn initramfs() -> Result<Vec<u8>> {
    let program = fs::read("/proc/self/exe")?;
    let mut archive = Vec::new();
    for (number, folder) in ["dev", "sys"].into_iter().enumerate() {
        let entry = newc::Builder::new(folder)
            .ino(number as u32 + 1)
            .mode(0o755);
        let entry = entry.set_mode_file_type(ModeFileType::Directory);
        entry.write(&mut archive, 0).finish()?;
    }
    let entry = newc::Builder::new("init").ino(3).mode(0o755);
    let entry = entry.set_mode_file_type(ModeFileType::Regular);
    let mut file = entry.write(&mut archive, u32::try_from(program.len())?);
    std::io::Write::write_all(&mut file, &program)?;
    file.finish()?;
    newc::trailer(&mut archive)?;
    Ok(archive)
}
