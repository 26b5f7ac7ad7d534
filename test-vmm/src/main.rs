//! A small VMM of the tests, on rust-vmm's crates as Firecracker, Cloud Hypervisor and libkrun are: it boots a Linux guest with one
//! vCPU and one disk on KVM. What is not as in a good VMM, a delay or a slow system call, an option plants.
//!
//! It is the guest's `/init`, too, which reads the disk. It runs until its standard input ends or the guest does.

mod boot;
mod cpu;
mod disk;
mod guest;
mod mmio;
mod serial;

use clap::{Parser, ValueEnum};
use kvm_bindings::{kvm_pit_config, kvm_userspace_memory_region};
use kvm_ioctls::{Kvm, VmFd};
use mmio::{Bus, VirtioBlock};
use std::error::Error;
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use vm_memory::{GuestAddress, GuestMemoryBackend, GuestMemoryMmap};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Engine by which the disk's thread reads and writes the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Engine {
    /// One request at a time, by `pread` and `pwrite`.
    Sync,
    /// All requests of a notification at once, by `io_uring`.
    IoUring,
}

#[derive(Debug, Parser)]
struct Options {
    /// Linux as ELF, with a PVH entry and drivers for virtio-mmio built in.
    #[arg(long)]
    kernel: PathBuf,
    /// Arguments of the kernel, besides those for the devices; those with a "=" are the environment of /init (see guest.rs).
    #[arg(long, default_value = "")]
    append: String,
    /// MiB of the guest's memory.
    #[arg(long, default_value_t = 128)]
    memory: usize,
    /// Raw image of the disk.
    #[arg(long)]
    image: PathBuf,
    /// Opens the image with O_DIRECT.
    #[arg(long)]
    direct: bool,
    #[arg(long, value_enum, default_value = "sync")]
    engine: Engine,
    /// Time for which the disk's thread spins between the notification and its system call, µs.
    #[arg(long, default_value_t = 0)]
    delay_submit: u64,
    /// Time for which the disk's thread spins between a completion and its interrupt, µs.
    #[arg(long, default_value_t = 0)]
    delay_interrupt: u64,
    /// Name of the vCPU's thread.
    #[arg(long, default_value = "worker-1")]
    vcpu_thread: String,
    /// Name of the disk's thread.
    #[arg(long, default_value = "worker-2")]
    disk_thread: String,
    /// File for the guest's serial console; else standard output.
    #[arg(long)]
    console: Option<PathBuf>,
}

fn main() -> ExitCode {
    let done = if std::process::id() == 1 {
        guest::run()
    } else {
        run(&Options::parse())
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("vmtax-test-vmm: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<()> {
    let image = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(if options.direct { libc::O_DIRECT } else { 0 })
        .open(&options.image)
        .map_err(|error| format!("{}: {error}", options.image.display()))?;
    let kvm = Kvm::new()?;
    let vm = kvm.create_vm()?;
    let memory = memory_of(&vm, options.memory << 20)?;
    vm.set_tss_address(0xfffb_d000)?;
    vm.create_irq_chip()?;
    vm.create_pit2(kvm_pit_config::default())?;
    let disk = disk::Disk {
        image,
        memory: memory.clone(),
        engine: options.engine,
        delay_submit: options.delay_submit,
        delay_interrupt: options.delay_interrupt,
        thread: options.disk_thread.clone(),
    };
    let block = VirtioBlock::new(&vm, disk)?;
    let words = format!(
        "console=ttyS0 panic=-1 {} {}",
        block.kernel_argument(),
        options.append
    );
    let entry = boot::load(&memory, &options.kernel, &words)?;
    let vcpu = cpu::create(&kvm, &vm, entry)?;
    let console: Box<dyn Write + Send> = match &options.console {
        Some(path) => Box::new(OpenOptions::new().create(true).append(true).open(path)?),
        None => Box::new(io::stdout()),
    };
    let bus = Bus::new(console, block);
    thread::Builder::new()
        .name(options.vcpu_thread.clone())
        .spawn(move || {
            let ended = cpu::run(vcpu, bus);
            if let Err(error) = &ended {
                eprintln!("vmtax-test-vmm: {error}");
            }
            std::process::exit(i32::from(ended.is_err()));
        })?;
    let _ = io::stdin().read_to_end(&mut Vec::new());
    Ok(())
}

/// The guest's memory, which begins at address 0 and ends below the devices.
fn memory_of(vm: &VmFd, bytes: usize) -> Result<GuestMemoryMmap> {
    let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), bytes)])?;
    let region = kvm_userspace_memory_region {
        memory_size: bytes as u64,
        userspace_addr: memory.get_host_address(GuestAddress(0))? as u64,
        ..kvm_userspace_memory_region::default()
    };
    // SAFETY: the mapping has this length, and KVM counts its references: threads that use it end with the process.
    unsafe { vm.set_user_memory_region(region)? };
    Ok(memory)
}
