//! A guest's first process: sets up the system that workloads need, serves requests, and powers off.

use crate::devices::{
    configure_measured_card, disk_with_serial, load_modules, measured_disk, wait_for,
};
use crate::{AgentError, serve};
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, mount};
use rustix::system::RebootCommand;
use rustix::termios;
use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use vmtax_model::Places;
use vmtax_wire::{FILES_SERIAL, PORT};

const CONSOLE: &str = "/dev/ttyS0";
const FILES: &str = "/files";

/// Runs as PID 1 until the controller sends `Leave`, then powers the guest off. Errors go to the console.
pub fn init() -> ! {
    if let Err(e) = set_up_and_serve() {
        eprintln!("vmtax agent: {e}");
    }
    rustix::fs::sync();
    let _ = rustix::system::reboot(RebootCommand::PowerOff);
    // Only a kernel without power-off comes here: ending PID 1 makes it panic, which ends the guest too.
    std::process::exit(1)
}

fn set_up_and_serve() -> Result<(), AgentError> {
    for (kind, at) in [
        ("proc", "/proc"),
        ("sysfs", "/sys"),
        ("devtmpfs", "/dev"),
        ("tmpfs", "/tmp"),
    ] {
        let _ = fs::create_dir_all(at);
        mount(kind, at, kind, MountFlags::empty(), None)
            .map_err(|e| AgentError::system(format!("mounting {kind} on {at}"), e))?;
    }
    let mut complaints = load_modules("modules");
    let channel = match port() {
        Some(port) => port,
        None => console()?,
    };
    let disk = measured_disk();
    let files = disk_with_serial(FILES_SERIAL).and_then(|disk| mount_files(&disk, &mut complaints));
    let echo =
        configure_measured_card().and_then(|echo| echo.map_err(|why| complaints.push(why)).ok());
    serve(
        channel,
        &Places {
            files,
            destroy: disk.clone(),
            disk,
            share: None,
            echo,
            notified: false,
        },
        complaints,
    )
}

/// The virtio-serial port of the controller, waited for where the kernel has such ports at all: without it the console
/// has to do.
fn port() -> Option<File> {
    let class = Path::new("/sys/class/virtio-ports");
    if !class.exists() {
        return None;
    }
    wait_for(|| {
        let mut entries = fs::read_dir(class).ok()?.flatten();
        let ours = entries.find(|e| {
            fs::read_to_string(e.path().join("name")).is_ok_and(|name| name.trim_end() == PORT)
        })?;
        OpenOptions::new()
            .read(true)
            .write(true)
            .open(Path::new("/dev").join(ours.file_name()))
            .ok()
    })
}

/// The serial console as a channel: raw, and with the kernel's log kept off it.
fn console() -> Result<File, AgentError> {
    let open = rustix::fs::open(CONSOLE, OFlags::RDWR | OFlags::NOCTTY, Mode::empty());
    let tty = open.map_err(|_| AgentError::NoChannel(PathBuf::from(CONSOLE)))?;
    let mut attributes = termios::tcgetattr(&tty)
        .map_err(|e| AgentError::system("reading the console's mode", e))?;
    attributes.make_raw();
    termios::tcsetattr(&tty, termios::OptionalActions::Now, &attributes)
        .map_err(|e| AgentError::system("switching the console to raw mode", e))?;
    // Level 1: only emergencies. They would be skipped as noise, but would tear a frame apart.
    let _ = fs::write("/proc/sys/kernel/printk", "1");
    Ok(File::from(tty))
}

fn mount_files(disk: &Path, complaints: &mut Vec<String>) -> Option<PathBuf> {
    let mounted = fs::create_dir_all(FILES)
        .and_then(|()| mount(disk, FILES, "ext4", MountFlags::NOATIME, None).map_err(Into::into));
    match mounted {
        Ok(()) => Some(PathBuf::from(FILES)),
        Err(e) => {
            let disk = disk.display();
            complaints.push(format!("mounting ext4 from {disk} on {FILES}: {e}"));
            None
        }
    }
}
