//! QEMU's command line.

use super::device_arguments::{Disk, NET_DEVICE, dummy_devices};
use crate::micro_guest::qemu as micro;
use crate::network::{NetworkEnd, NetworkLink};
use crate::process::child::FIRST_DESCRIPTOR;
use crate::setup::{GuestImage, Setup};
use crate::share::{self, ServerAddress, ServerLink};
use std::collections::BTreeMap;
use std::path::Path;
use vmtax_model::{Accelerator, Guest, NetBackend, QemuFacts};
use vmtax_vmm::qemu::arguments::escaped;
use vmtax_wire::{
    DISK_PARAMETER, DISK_SERIAL, FILES_SERIAL, NET_ADDRESS, NET_MAC, NET_MASK, NET_PARAMETER, PORT,
};

/// `panic=-1` with `-no-reboot` turns a panic into the end of QEMU, at once. `no_timer_check`: on a busy host TCG may
/// deliver no timer interrupt while the kernel looks for one, which then panics ("IO-APIC + timer doesn't work").
/// `cryptomgr.notests`: without it the kernel tests its ciphers for a fifth of its start under TCG.
const KERNEL_PARAMETERS: &str = "console=ttyS0 panic=-1 no_timer_check cryptomgr.notests quiet";
/// The measured disk's name in QEMU.
const DISK: &str = "disk";
/// The measured disk's device, as the monitor names it.
pub const DISK_DEVICE: &str = "disk-device";
/// ID of the measured network card's backend in QEMU.
const NET_BACKEND: &str = "measured";
/// The connection to what is behind it, with vhost-user.
const VHOST_SOCKET: &str = "vhost-user";

/// The descriptors of a guest that has an agent, in order; the micro-guest has monitor and memory alone.
const AGENT: i32 = FIRST_DESCRIPTOR;
const CONSOLE: i32 = FIRST_DESCRIPTOR + 1;
const MONITOR: i32 = FIRST_DESCRIPTOR + 2;
const SHARED: i32 = FIRST_DESCRIPTOR + 3;
/// Of the share's server, where that has a stream.
const SERVER: i32 = FIRST_DESCRIPTOR + 4;
const MICRO_MONITOR: i32 = FIRST_DESCRIPTOR;
const MICRO_SHARED: i32 = FIRST_DESCRIPTOR + 1;
const MICRO_NETWORK: i32 = FIRST_DESCRIPTOR + 2;

/// `network`: what is behind the measured network card, if there is one, and the descriptor of that.
pub(super) fn guest(
    setup: &Setup<'_>,
    qemu: &QemuFacts,
    image: &GuestImage,
    network: Option<(&NetworkLink, i32)>,
) -> Vec<String> {
    let link = network.map(|(link, _)| link);
    let mut arguments = Arguments::new(qemu, MONITOR);
    arguments.add_machine(setup, link);
    arguments.add_kernel(setup, image, link);
    arguments.add_channels();
    arguments.add_disks(setup, qemu);
    if let Some((link, descriptor)) = network {
        arguments.add_card("virtio-net-pci,romfile=", setup, link, descriptor);
    }
    arguments
        .0
        .extend(dummy_devices(setup.guest.disks, setup.guest.memory_regions));
    arguments.0
}

/// Returns the object that is the guest's memory; `None` where the machine's own suffices.
fn memory_backend(setup: &Setup<'_>, link: Option<&NetworkLink>) -> Option<String> {
    let memory = setup.guest.qemu_properties("memory-backend.");
    let has_vhost_user = link.is_some_and(|link| matches!(link.end, NetworkEnd::VhostUser(_)));
    let is_shared = has_vhost_user && !share::shares_memory(setup.share);
    if memory.is_empty() && !is_shared {
        return None;
    }
    let size = setup.guest.memory_mib;
    // Reserved huge pages and shared memory need a file.
    let is_file = is_shared || memory.contains(",hugetlb=on");
    let kind = if is_file { "memfd" } else { "ram" };
    let shared = if is_shared { ",share=on" } else { "" };
    Some(format!(
        "memory-backend-{kind},id=memory,size={size}M{shared}{memory}"
    ))
}

/// Returns the model of the CPUs with its properties.
fn cpu(setup: &Setup<'_>) -> String {
    let usual = if setup.machine.is_kvm() {
        "host"
    } else {
        "max"
    };
    let model = setup.guest.cpu_model.as_deref().unwrap_or(usual);
    model.to_owned() + &setup.guest.qemu_properties("cpu-flag.")
}

/// Returns the parameters of the guest's kernel: the usual ones, the user's, and those that tell of measured devices.
fn kernel_parameters(setup: &Setup<'_>, link: Option<&NetworkLink>) -> String {
    let mut parameters = KERNEL_PARAMETERS.to_owned();
    if let Some(more) = &setup.guest.kernel_args {
        parameters += &format!(" {more}");
    }
    if let Some(link) = link {
        parameters += &format!(" {NET_PARAMETER}={}", link.echo);
    }
    if setup.disk.get("bus").is_some_and(|bus| bus != "virtio-blk") {
        parameters += &format!(" {DISK_PARAMETER}");
    }
    parameters
}

/// The accelerator with its properties; TCG has a thread for each vCPU unless they say otherwise.
fn accelerator(setup: &Setup<'_>) -> String {
    let accelerator = setup.machine.accelerator().unwrap_or(Accelerator::Tcg);
    let own = setup.guest.qemu_properties("accel.");
    let is_threaded =
        accelerator != Accelerator::Tcg || own.contains(",thread=") || !setup.machine.has_kernel();
    let threads = if is_threaded { "" } else { ",thread=multi" };
    format!("{}{threads}{own}", accelerator.as_str())
}

/// The network card's backend.
fn backend(link: &NetworkLink, descriptor: i32) -> String {
    match &link.end {
        NetworkEnd::Tap(queues) => {
            let numbers = (descriptor..).take(queues.len());
            let numbers: Vec<String> = numbers.map(|number| number.to_string()).collect();
            let key = if numbers.len() > 1 { "fds" } else { "fd" };
            format!("tap,id={NET_BACKEND},{key}={}", numbers.join(":"))
        }
        NetworkEnd::Passt(_) => {
            format!("stream,id={NET_BACKEND},server=off,addr.type=fd,addr.str={descriptor}")
        }
        NetworkEnd::VhostUser(_) => format!("vhost-user,id={NET_BACKEND},chardev={VHOST_SOCKET}"),
        // The echo server's address stands for the loopback device.
        NetworkEnd::Namespace(_) | NetworkEnd::Host => {
            format!(
                "user,id={NET_BACKEND},ipv6=off,net={NET_ADDRESS}/{NET_MASK},host={}",
                link.echo.ip()
            )
        }
    }
}

/// A variant's settings as properties of the network card, or of what is behind it; `prefix` is none of QEMU's.
fn properties(set: &[(&String, &String)], prefix: &str) -> String {
    let property = |(key, value): &(&String, &String)| {
        let key = key.strip_prefix(prefix).unwrap_or(key);
        format!(",{key}={}", escaped(value))
    };
    set.iter().map(property).collect()
}

/// The arguments of the guest's share.
pub(super) fn share(
    setup: &Setup<'_>,
    qemu: &QemuFacts,
    server: Option<&ServerAddress>,
) -> Vec<String> {
    let link = ServerLink {
        memory_mib: setup.guest.memory_mib,
        stream: SERVER,
        ports: match server {
            Some(ServerAddress::Ports { ports, .. }) => *ports,
            _ => [0; 2],
        },
    };
    let (direct, aio) = disk_defaults(setup, qemu);
    let arguments = |sharing| share::arguments(sharing, qemu, direct, aio, &link);
    setup.share.map(arguments).unwrap_or_default()
}

/// The descriptor of a network's end, which comes behind the stream of the share's server, if there is one.
pub(super) fn network_descriptor(server: Option<&ServerAddress>) -> i32 {
    SERVER + i32::from(matches!(server, Some(ServerAddress::Stream(_))))
}

pub(super) fn micro_guest(
    setup: &Setup<'_>,
    qemu: &QemuFacts,
    rom: &Path,
    network: Option<&NetworkLink>,
) -> Vec<String> {
    let mut arguments = Arguments::new(qemu, MICRO_MONITOR);
    arguments.add(["-machine", micro::MACHINE, "-accel", &accelerator(setup)]);
    arguments.add(["-m", micro::MEMORY, "-bios", &rom.display().to_string()]);
    let memory = format!("{}/proc/self/fd/{MICRO_SHARED}", micro::MEMORY_OBJECT);
    arguments.add(["-object", &memory]);
    if let Some(file) = setup.scratch.image(setup.disk) {
        let (direct, aio) = disk_defaults(setup, qemu);
        let disk = Disk {
            node: DISK,
            device: micro::DISK_DEVICE,
            serial: None,
            file: &file,
            direct,
            aio,
            read_only: false,
            set: setup.disk,
        };
        arguments.0.extend(disk.arguments());
    }
    if let Some(link) = network {
        arguments.add_card(micro::NET_DEVICE, setup, link, MICRO_NETWORK);
    }
    arguments.0
}

/// One page suffices.
pub(super) const SHARED_BYTES: usize = 1 << 20;

struct Arguments(Vec<String>);

impl Arguments {
    /// Returns the arguments of every guest: nothing that was not asked for, no default devices, no user's
    /// configuration; a monitor.
    fn new(qemu: &QemuFacts, monitor: i32) -> Arguments {
        let mut arguments = Arguments(vec![qemu.path.display().to_string()]);
        arguments.add([
            "-nodefaults",
            "-no-user-config",
            "-no-reboot",
            "-display",
            "none",
        ]);
        // Threads are named for their role, which traces show.
        arguments.add(["-name", "vmtax,debug-threads=on"]);
        arguments.add(["-chardev", &format!("socket,id=monitor,fd={monitor}")]);
        arguments.add(["-mon", "chardev=monitor,mode=control"]);
        arguments
    }

    /// Adds the machine with its accelerator, CPUs, memory and firmware.
    fn add_machine(&mut self, setup: &Setup<'_>, link: Option<&NetworkLink>) {
        let machine_type = setup.guest.machine_type.as_deref();
        let mut machine = machine_type.unwrap_or(Guest::MACHINE_TYPE).to_owned();
        machine += share::machine(setup.share);
        if let Some(memory) = memory_backend(setup, link) {
            machine += ",memory-backend=memory";
            self.add(["-object", &memory]);
        }
        self.add(["-machine", &machine, "-accel", &accelerator(setup)]);
        self.add(["-cpu", &cpu(setup)]);
        if let Some(firmware) = &setup.guest.firmware {
            self.add(["-bios", &firmware.display().to_string()]);
        }
        self.add(["-smp", &setup.guest.cpus.to_string()]);
        self.add(["-m", &format!("{}M", setup.guest.memory_mib)]);
    }

    /// Adds the kernel that the guest boots, with its initramfs and parameters.
    fn add_kernel(&mut self, setup: &Setup<'_>, image: &GuestImage, link: Option<&NetworkLink>) {
        self.add(["-kernel", &image.kernel.display().to_string()]);
        self.add(["-initrd", &image.initramfs.display().to_string()]);
        self.add(["-append", &kernel_parameters(setup, link)]);
    }

    /// Adds the channels to the guest: its console, the agent's port, and shared memory.
    fn add_channels(&mut self) {
        self.add(["-chardev", &format!("socket,id=console,fd={CONSOLE}")]);
        self.add(["-serial", "chardev:console"]);
        self.add(["-device", "virtio-serial-pci"]);
        self.add(["-chardev", &format!("socket,id=agent,fd={AGENT}")]);
        let port = format!("virtserialport,chardev=agent,name={PORT}");
        self.add(["-device", &port]);
        // Shared memory for the exchange of time stamps, which aligns the clocks of host and guest.
        let shared = format!(
            "memory-backend-file,id=shared,mem-path=/proc/self/fd/{SHARED},size={SHARED_BYTES},share=on"
        );
        self.add(["-object", &shared, "-device", "ivshmem-plain,memdev=shared"]);
    }

    /// Adds the disk of the files and the measured disk, as far as the guest has them.
    fn add_disks(&mut self, setup: &Setup<'_>, qemu: &QemuFacts) {
        let ((direct, aio), nothing) = (disk_defaults(setup, qemu), BTreeMap::new());
        let files = (setup.scratch.files_image(), "files", FILES_SERIAL, &nothing);
        let image = setup.scratch.image(setup.disk);
        let measured = (image, DISK, DISK_SERIAL, setup.disk);
        // If the host's disk is full, the guest gets an error instead of being paused.
        let device = if setup.scratch.is_thrown_away() {
            "virtio-blk-pci,werror=report"
        } else {
            "virtio-blk-pci"
        };
        for (file, node, serial, set) in [files, measured] {
            let disk = |file| Disk {
                node,
                device,
                serial: Some(serial),
                file,
                direct,
                aio,
                read_only: false,
                set,
            };
            let disk = file.as_deref().map(disk);
            self.0.extend(disk.iter().flat_map(Disk::arguments));
        }
    }

    /// The measured network card, with what is behind it.
    fn add_card(&mut self, device: &str, setup: &Setup<'_>, link: &NetworkLink, descriptor: i32) {
        // The queues are the tap's descriptors.
        let set = (setup.disk.iter()).filter(|(key, _)| *key != NetBackend::QUEUES);
        let (netdev, card): (Vec<_>, Vec<_>) =
            set.partition(|(key, _)| key.starts_with(NetBackend::PROPERTY));
        let properties_of_card = properties(&card, "device.");
        // An interrupt for each queue of either direction, one for the control queue, one for the card itself.
        let queues = match &link.end {
            NetworkEnd::Tap(queues) if queues.len() > 1 => {
                format!(",mq=on,vectors={}", 2 * queues.len() + 2)
            }
            _ => String::new(),
        };
        let card = format!(
            "{device},id={NET_DEVICE},netdev={NET_BACKEND},mac={NET_MAC}{queues}{properties_of_card}"
        );
        let netdev = backend(link, descriptor) + &properties(&netdev, NetBackend::PROPERTY);
        if let NetworkEnd::VhostUser(name) = &link.end {
            let socket = format!("socket,id={VHOST_SOCKET},path={name},abstract=on");
            self.add(["-chardev", &socket]);
        }
        self.add(["-netdev", &netdev, "-device", &card]);
    }

    fn add<const N: usize>(&mut self, arguments: [&str; N]) {
        self.0.extend(arguments.map(str::to_owned));
    }
}

/// A disk is read past the host's page cache, as a measurement of it needs, by the engine that suits that.
fn disk_defaults(setup: &Setup<'_>, qemu: &QemuFacts) -> (bool, &'static str) {
    let direct = setup.scratch.direct();
    let is_native = direct && qemu.aio.iter().any(|aio| aio == "native");
    (direct, if is_native { "native" } else { "threads" })
}
