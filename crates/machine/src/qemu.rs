//! A QEMU guest as a machine: its command line, in one place.

use crate::MachineError;
use crate::child::{Child, FIRST_DESCRIPTOR, Start};
use crate::setup::{GuestImage, Setup};
use rustix::fd::OwnedFd;
use serde_json::json;
use std::path::{Path, PathBuf};
use vmtax_model::{MachineName, shell_line};
use vmtax_wire::{DISK_SERIAL, FILES_SERIAL, PORT};

/// `panic=-1` with `-no-reboot` turns a panic into the end of QEMU, at once. `no_timer_check`: on a busy host TCG may
/// deliver no timer interrupt while the kernel looks for one, which then panics ("IO-APIC + timer doesn't work").
const KERNEL_PARAMETERS: &str = "console=ttyS0 panic=-1 no_timer_check quiet";

/// QEMU's ends of the three streams.
pub(crate) struct Streams {
    pub agent: OwnedFd,
    pub console: OwnedFd,
    pub monitor: OwnedFd,
}

pub(crate) fn start(setup: &Setup<'_>, image: &GuestImage, streams: Streams) -> Result<Child, MachineError> {
    let command = command_line(setup, image);
    let saved = setup.log.join("qemu.command");
    std::fs::write(&saved, shell_line(&command) + "\n")
        .map_err(|e| MachineError::system(format!("writing {}", saved.display()), e))?;
    Child::spawn(Start {
        command,
        stdin: None,
        descriptors: vec![streams.agent, streams.console, streams.monitor],
        log: &log(setup.log),
        emptied: Vec::new(),
        removed: vec![setup.scratch.folder().to_path_buf()],
    })
}

/// Where QEMU's own words go.
pub(crate) fn log(folder: &Path) -> PathBuf {
    folder.join("qemu.log")
}

fn command_line(setup: &Setup<'_>, image: &GuestImage) -> Vec<String> {
    let (accelerator, cpu) = match setup.target.name() {
        MachineName::Kvm => ("kvm", "host"),
        MachineName::Tcg | MachineName::Native => ("tcg,thread=multi", "max"),
    };
    let [agent, console, monitor] = [0, 1, 2].map(|n| FIRST_DESCRIPTOR + n);
    let mut words = Words(vec![image.qemu.path.display().to_string()]);
    // Nothing that was not asked for: no default devices, no user's configuration.
    words.add(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]);
    words.add(["-machine", "q35", "-accel", accelerator, "-cpu", cpu]);
    words.add(["-smp", &setup.cpus.to_string(), "-m", &format!("{}M", setup.memory_mib)]);
    words.add(["-kernel", &image.kernel.display().to_string()]);
    words.add(["-initrd", &image.initramfs.display().to_string()]);
    words.add(["-append", KERNEL_PARAMETERS]);
    words.add(["-chardev", &format!("socket,id=console,fd={console}"), "-serial", "chardev:console"]);
    words.add(["-chardev", &format!("socket,id=monitor,fd={monitor}"), "-mon", "chardev=monitor,mode=control"]);
    words.add(["-device", "virtio-serial-pci", "-chardev", &format!("socket,id=agent,fd={agent}")]);
    words.add(["-device", &format!("virtserialport,chardev=agent,name={PORT}")]);
    let (files, disk) = (setup.scratch.files_image(), setup.scratch.disk());
    for (node, serial, file) in [("files", FILES_SERIAL, files), ("disk", DISK_SERIAL, disk)] {
        if let Some(file) = file {
            words.disk(node, serial, &file, setup, image);
        }
    }
    words.0
}

struct Words(Vec<String>);

impl Words {
    fn add<const N: usize>(&mut self, words: [&str; N]) {
        self.0.extend(words.map(str::to_owned));
    }

    /// A raw disk past the host's page cache, as a measurement of the disk needs it.
    fn disk(&mut self, node: &str, serial: &str, file: &Path, setup: &Setup<'_>, image: &GuestImage) {
        let direct = setup.scratch.direct();
        let aio = if direct && image.qemu.aio.iter().any(|a| a == "native") { "native" } else { "threads" };
        let protocol = json!({
            "driver": "file", "node-name": format!("{node}-file"), "filename": file, "aio": aio,
            "cache": { "direct": direct },
        });
        let format = json!({
            "driver": "raw", "node-name": node, "file": format!("{node}-file"), "cache": { "direct": direct },
        });
        self.add(["-blockdev", &protocol.to_string(), "-blockdev", &format.to_string()]);
        self.add(["-device", &format!("virtio-blk-pci,drive={node},serial={serial}")]);
    }
}
