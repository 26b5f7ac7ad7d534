//! QEMU's command line.

use crate::MachineError;
use crate::micro_guest::qemu as micro;
use crate::process::child::{Child, FIRST_DESCRIPTOR, Start};
use crate::qemu::disk::Disk;
use crate::qemu::dummy_devices;
use crate::qemu::logs::{events, log};
use crate::sandbox::namespaces::Namespaces;
use crate::setup::{GuestImage, MicroImage, Setup};
use crate::share::{self, Meets, Reach, Sharing};
use rustix::fd::OwnedFd;
use std::collections::BTreeMap;
use vmtax_model::{Accelerator, Guest, QemuFacts, ShareMethod, shell_line};
use vmtax_wire::{DISK_SERIAL, FILES_SERIAL, PORT};

/// `panic=-1` with `-no-reboot` turns a panic into the end of QEMU, at once. `no_timer_check`: on a busy host TCG may
/// deliver no timer interrupt while the kernel looks for one, which then panics ("IO-APIC + timer doesn't work").
const KERNEL_PARAMETERS: &str = "console=ttyS0 panic=-1 no_timer_check quiet";
/// The measured disk's name in QEMU.
const DISK: &str = "disk";
/// The measured disk's device, as the monitor names it.
pub(crate) const DISK_DEVICE: &str = "disk-device";

/// QEMU's ends of what connects it with this program.
pub(crate) struct Streams {
    /// The agent's channel and the console: of a guest with a kernel.
    pub agent: Option<(OwnedFd, OwnedFd)>,
    pub monitor: OwnedFd,
    /// Memory that both sides see.
    pub shared: OwnedFd,
    /// The share's server.
    pub server: Option<Reach>,
}

/// Starts a guest with a kernel.
pub(crate) fn start(setup: &Setup<'_>, image: &GuestImage, streams: Streams) -> Result<Started, MachineError> {
    let share = share_words(setup, &image.qemu, streams.server.as_ref());
    let mut words = guest(setup, image);
    words.extend(share.iter().cloned());
    Ok(Started { child: spawn(setup, words, streams)?, share })
}

/// A guest that was started.
pub(crate) struct Started {
    pub child: Child,
    /// The words of its share.
    pub share: Vec<String>,
}

/// Starts the micro-guest.
pub(crate) fn start_micro(setup: &Setup<'_>, image: &MicroImage, streams: Streams) -> Result<Child, MachineError> {
    spawn(setup, micro_guest(setup, image), streams)
}

fn spawn(setup: &Setup<'_>, mut command: Vec<String>, streams: Streams) -> Result<Child, MachineError> {
    if setup.events {
        command.extend(["-msg".to_owned(), "timestamp=on".to_owned(), "-D".to_owned()]);
        command.push(events(setup.log).display().to_string());
    }
    command.extend(setup.guest.qemu_args.iter().cloned());
    let saved = setup.log.join("qemu.command");
    std::fs::write(&saved, shell_line(&command) + "\n")
        .map_err(|e| MachineError::system(format!("writing {}", saved.display()), e))?;
    let agent = streams.agent.into_iter().flat_map(|(agent, console)| [agent, console]);
    let (server, network_of) = match streams.server {
        Some(Reach::Stream(stream)) => (Some(stream), None),
        Some(Reach::Ports { of, .. }) => (None, Some(of)),
        None => (None, None),
    };
    let descriptors = agent.chain([streams.monitor, streams.shared]).chain(server).collect();
    // An old QEMU opens what devices a guest makes on a 9p share.
    let no_devices = setup.share.map(Sharing::served_by_qemu).unwrap_or_default();
    // Of the shares only this one is QEMU's own to serve.
    let root = setup.share.filter(|s| s.share.method == ShareMethod::NineP).and_then(Sharing::root);
    Child::spawn(Start {
        command,
        stdin: None,
        descriptors,
        log: &log(setup.log),
        apart: Namespaces { network_of, no_devices, root, ..Namespaces::default() },
        emptied: Vec::new(),
        removed: vec![setup.scratch.folder().to_path_buf()],
        put_back: setup.put_back.to_vec(),
    })
}

/// In which order a guest has them; the micro-guest has monitor and memory alone.
const AGENT: i32 = FIRST_DESCRIPTOR;
const CONSOLE: i32 = FIRST_DESCRIPTOR + 1;
const MONITOR: i32 = FIRST_DESCRIPTOR + 2;
const SHARED: i32 = FIRST_DESCRIPTOR + 3;
const SERVER: i32 = FIRST_DESCRIPTOR + 4;
const MICRO_MONITOR: i32 = FIRST_DESCRIPTOR;
const MICRO_SHARED: i32 = FIRST_DESCRIPTOR + 1;

fn guest(setup: &Setup<'_>, image: &GuestImage) -> Vec<String> {
    let (accelerator, usual_cpu) = match setup.machine.is_kvm() {
        true => ("kvm", "host"),
        false => ("tcg,thread=multi", "max"),
    };
    let Guest { cpu_model, machine_type, firmware, kernel_args, .. } = setup.guest;
    let machine = format!("{}{}", machine_type.as_deref().unwrap_or("q35"), share::machine(setup.share));
    let cpu = cpu_model.as_deref().unwrap_or(usual_cpu);
    let mut words = Words::new(&image.qemu, MONITOR);
    words.add(["-machine", &machine, "-accel", accelerator, "-cpu", cpu]);
    if let Some(firmware) = firmware {
        words.add(["-bios", &firmware.display().to_string()]);
    }
    words.add(["-smp", &setup.guest.cpus.to_string(), "-m", &format!("{}M", setup.guest.memory_mib)]);
    words.add(["-kernel", &image.kernel.display().to_string()]);
    words.add(["-initrd", &image.initramfs.display().to_string()]);
    let append = kernel_args.as_ref().map_or(String::new(), |more| format!(" {more}"));
    words.add(["-append", &format!("{KERNEL_PARAMETERS}{append}")]);
    words.add(["-chardev", &format!("socket,id=console,fd={CONSOLE}"), "-serial", "chardev:console"]);
    words.add(["-device", "virtio-serial-pci", "-chardev", &format!("socket,id=agent,fd={AGENT}")]);
    words.add(["-device", &format!("virtserialport,chardev=agent,name={PORT}")]);
    // Through which stamps are exchanged, to bring both sides' clocks together.
    let shared = format!("memory-backend-file,id=shared,mem-path=/proc/self/fd/{SHARED},size={SHARED_BYTES},share=on");
    words.add(["-object", &shared, "-device", "ivshmem-plain,memdev=shared"]);
    let ((direct, aio), nothing) = (usual(setup, &image.qemu), BTreeMap::new());
    let files = (setup.scratch.files_image(), "files", FILES_SERIAL, &nothing);
    let measured = (setup.scratch.disk(), DISK, DISK_SERIAL, setup.disk);
    // Where the host's disk is full the guest is told, instead of being stopped.
    let device = if setup.scratch.is_thrown_away() { "virtio-blk-pci,werror=report" } else { "virtio-blk-pci" };
    for (file, node, serial, set) in [files, measured] {
        if let Some(file) = &file {
            let serial = Some(serial);
            words.0.extend(Disk { node, device, serial, file, direct, aio, read_only: false, set }.words());
        }
    }
    words.0.extend(dummy_devices::words(setup.guest.disks, setup.guest.memory_regions));
    words.0
}

/// The words of the guest's share.
fn share_words(setup: &Setup<'_>, qemu: &QemuFacts, server: Option<&Reach>) -> Vec<String> {
    let ports = if let Some(Reach::Ports { ports, .. }) = server { *ports } else { [0; 2] };
    let meets = Meets { memory_mib: setup.guest.memory_mib, stream: SERVER, ports };
    setup.share.map(|sharing| share::words(sharing, qemu, usual(setup, qemu), &meets)).unwrap_or_default()
}

fn micro_guest(setup: &Setup<'_>, image: &MicroImage) -> Vec<String> {
    let accelerator = setup.machine.accelerator().unwrap_or(Accelerator::Tcg).as_str();
    let mut words = Words::new(&image.qemu, MICRO_MONITOR);
    words.add(["-machine", micro::MACHINE, "-accel", accelerator]);
    words.add(["-m", micro::MEMORY, "-bios", &image.rom.display().to_string()]);
    words.add(["-object", &format!("{}/proc/self/fd/{MICRO_SHARED}", micro::MEMORY_OBJECT)]);
    if let Some(file) = setup.scratch.disk() {
        let (direct, aio) = usual(setup, &image.qemu);
        let (node, device) = (DISK, micro::DISK_DEVICE);
        words.0.extend(
            Disk { node, device, serial: None, file: &file, direct, aio, read_only: false, set: setup.disk }.words(),
        );
    }
    words.0
}

/// One page would do.
pub(crate) const SHARED_BYTES: usize = 1 << 20;

struct Words(Vec<String>);

impl Words {
    /// What every guest has: nothing that was not asked for, no default devices, no user's configuration; a monitor.
    fn new(qemu: &QemuFacts, monitor: i32) -> Words {
        let mut words = Words(vec![qemu.path.display().to_string()]);
        words.add(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]);
        // Threads carry their purpose as their name: traces and people tell them apart by it.
        words.add(["-name", "vmtax,debug-threads=on"]);
        words.add(["-chardev", &format!("socket,id=monitor,fd={monitor}"), "-mon", "chardev=monitor,mode=control"]);
        words
    }

    fn add<const N: usize>(&mut self, words: [&str; N]) {
        self.0.extend(words.map(str::to_owned));
    }
}

/// A disk is read past the host's page cache, as a measurement of it needs, by the engine that suits that.
fn usual(setup: &Setup<'_>, qemu: &QemuFacts) -> (bool, &'static str) {
    let direct = setup.scratch.direct();
    (direct, if direct && qemu.aio.iter().any(|a| a == "native") { "native" } else { "threads" })
}
