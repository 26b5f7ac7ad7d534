//! Errors of machines.

use std::io;
use std::path::PathBuf;
use vmtax_model::{Machine, ShareMethod, WorkloadName, limit_remedy};
use vmtax_vmm::VmmError;

/// A machine failed to boot, or a trial on it has no result.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// A file, process or system call on the host.
    #[error("{what}: {source}{}", limit_remedy(.source))]
    System {
        /// Operation that failed, with its object.
        what: String,
        /// The error of the kernel.
        source: io::Error,
    },
    /// Stamps cannot be exchanged.
    #[error(transparent)]
    Clock(#[from] vmtax_clock::ClockError),
    /// The micro-guest rejected or failed an order.
    #[error(transparent)]
    Micro(#[from] crate::micro_guest::MicroError),
    /// The micro-guest did not finish.
    #[error("{machine} did not finish {doing} within {seconds} s (log: {log}). Use a smaller workload, or a longer --timeout", log = .log.display())]
    MicroSilent {
        /// Machine of the micro-guest.
        machine: Machine,
        /// Activity that was not finished.
        doing: String,
        /// The timeout, seconds.
        seconds: u64,
        /// Path of QEMU's log.
        log: PathBuf,
    },
    /// The operation needs a guest agent.
    #[error("{machine} has no guest agent, which this needs: use another machine")]
    NoAgent {
        /// Machine without a guest agent.
        machine: Machine,
    },
    /// A host setting cannot be applied.
    #[error("host.{name}: {why}")]
    HostSetting {
        /// Name of the setting, without `host.`.
        name: String,
        /// Why, and what to do.
        why: String,
    },
    /// Host settings that a comparison changed could not be restored.
    #[error("host settings were NOT restored. Run as root: {commands}")]
    NotRestored {
        /// The shell commands that restore them.
        commands: String,
    },
    /// Not enough room for disks and files.
    #[error("not enough space in {folder}: {free_mib} MiB are free, disks and files need {needed_mib} MiB. Free some, choose another directory with --dir, or make fileio.total-size, bonnie.size, bonnie.files, the plan's tree or --scratch smaller", folder = .folder.display())]
    NoSpace {
        /// Directory for disks and files.
        folder: PathBuf,
        /// MiB free there.
        free_mib: u64,
        /// Needed space, in MiB.
        needed_mib: u64,
    },
    /// Not enough inodes for the tree's files.
    #[error("not enough inodes in {folder}: {free} are free, the tree needs {needed}. Choose another directory with --dir, give the plan's tree fewer files, or make bonnie.files or open-fids.count smaller", folder = .folder.display())]
    NoInodes {
        /// Directory for the tree's files.
        folder: PathBuf,
        /// Inodes free there.
        free: u64,
        /// Number of inodes needed.
        needed: u64,
    },
    /// The folder to be shared.
    #[error("the tree {folder} cannot be shared: {source}. Give a directory that this user can read", folder = .folder.display())]
    NoTree {
        /// Path of the directory.
        folder: PathBuf,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The folder that guests write in cannot be emptied for the next guest.
    #[error("the files that a guest left in {folder} cannot be moved away: {source}. Check their owner, or share the tree with share.readonly=on", folder = .folder.display())]
    NotCleared {
        /// Path of the directory.
        folder: PathBuf,
        /// The error of the kernel.
        source: io::Error,
    },
    /// A network of the machine's own cannot be made.
    #[error("failed to make the network of the workload: {0}")]
    NoNetwork(String),
    /// This user may make no network namespace.
    #[error(
        "making a network namespace for the workload's server: {source}. Run vmtax as root, or set backend=user: QEMU's user-mode network needs no rights"
    )]
    NoNamespace {
        /// The error of the kernel.
        source: io::Error,
    },
    /// A share method that this host, QEMU or kernel does not support.
    #[error("{0}")]
    NoShare(String),
    /// The tree cannot be made read-only.
    #[error("{folder} cannot be made read-only for the share's server: {source}. Run as root, or share a copy with share=disk", folder = .folder.display())]
    ReadOnly {
        /// Path of the tree.
        folder: PathBuf,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The host's root cannot be shared with guests.
    #[error(
        "the host's root cannot be made read-only for guests: {source}. This needs root or user namespaces (`sysctl user.max_user_namespaces`) and Linux 5.12; `vmtax exec --machine native` needs no guest"
    )]
    NoRoot {
        /// The error of the kernel.
        source: io::Error,
    },
    /// The writes of a native command cannot be discarded.
    #[error(
        "what the command writes on this host cannot be discarded: {source}. Give --in-place to let it stay, or run the command in guests only (--machine kvm,tcg)"
    )]
    NoOverlay {
        /// The error of the kernel.
        source: io::Error,
    },
    /// The server of a share ended, or did not start to serve.
    #[error("share={method}: {what} (exit status {status}){said}\nIts log is {log}; the command line is beside it", said = quoted_lines(.said), log = .log.display())]
    ServerEnded {
        /// The share method.
        method: ShareMethod,
        /// Program of the server, and the phase of the machine's life in which it ended.
        what: String,
        /// Exit status of its process; 128 + n for signal n.
        status: i32,
        /// The end of its log.
        said: String,
        /// Path of the server's log.
        log: PathBuf,
    },
    /// The guest has no addresses for all dummy devices.
    #[error(
        "the guest has addresses for only {placed} of {asked} devices: reduce guest.disks or guest.memory-regions, or use another QEMU with --qemu"
    )]
    Devices {
        /// Number of dummy devices that the guest was given.
        asked: u32,
        /// Number of dummy devices that the guest can reach.
        placed: usize,
    },
    /// The guest cannot mount its share.
    #[error("share={method}: the guest cannot mount it ({said}). QEMU's log is {log}", log = .log.display())]
    NotMounted {
        /// The share method.
        method: ShareMethod,
        /// The guest's error.
        said: String,
        /// Path of QEMU's log.
        log: PathBuf,
    },
    /// The guest's disk cannot be formatted.
    #[error(
        "mkfs.ext4 {said}: install it with `apt-get install e2fsprogs` (Fedora: `dnf install e2fsprogs`; Arch: `pacman -S e2fsprogs`)"
    )]
    Mkfs {
        /// Error of mkfs.ext4, or the reason why it did not start.
        said: String,
    },
    /// An image of the guest's disk cannot be made.
    #[error(
        "qemu-img {words}: {said}. Install qemu-img (Debian, Ubuntu: qemu-utils), or give other options of the image (format, image.OPTION)"
    )]
    Image {
        /// Arguments of qemu-img before the files.
        words: String,
        /// Error of qemu-img, or the reason why it did not start.
        said: String,
    },
    /// QEMU ended before the agent responded, and logged the reason.
    #[error("QEMU ended before the guest booted, with exit status {status}:\n{said}\nIts log is {log}; the command line is beside it", log = .log.display())]
    Refused {
        /// QEMU's exit status.
        status: i32,
        /// The end of its log.
        said: String,
        /// Path of QEMU's log.
        log: PathBuf,
    },
    /// The guest's kernel panicked.
    #[error("the guest's kernel panicked. Its console ends with:\n{tail}\nThe console's log is {log}. Try another kernel (`vmtax get kernel`), or more memory with --memory", log = .log.display())]
    Panic {
        /// The console's last lines.
        tail: String,
        /// The whole console.
        log: PathBuf,
    },
    /// The machine ended by itself.
    #[error("{machine} ended while {doing} (exit status {status}){console}\n{fix}", console = quoted(.tail, .log), fix = fix_ended(*.machine, *.status))]
    Ended {
        /// Machine that ended by itself.
        machine: Machine,
        /// Activity during which the machine ended.
        doing: String,
        /// Exit status of its process; 128 + n for signal n.
        status: i32,
        /// The console's last lines.
        tail: String,
        /// The whole console.
        log: PathBuf,
    },
    /// The agent did not respond in time.
    #[error("the agent on {machine} did not respond within {seconds} s{console}\nTry a kernel for x86-64 with virtio (`vmtax get kernel`), or a longer --boot-timeout", console = quoted(.tail, .log))]
    Silent {
        /// Machine whose agent did not respond.
        machine: Machine,
        /// The timeout, seconds.
        seconds: u64,
        /// The console's last lines.
        tail: String,
        /// The whole console.
        log: PathBuf,
    },
    /// A trial took too long.
    #[error("{workload} on {machine} had no result after {seconds} s{console}\nUse a smaller workload, or a longer --timeout", console = quoted(.tail, .log))]
    Timeout {
        /// Machine of the trial.
        machine: Machine,
        /// Workload of the trial.
        workload: WorkloadName,
        /// The timeout, seconds.
        seconds: u64,
        /// The console's last lines.
        tail: String,
        /// The whole console.
        log: PathBuf,
    },
    /// The agent sent an invalid message.
    #[error(
        "{machine} sent an invalid message ({what}), which was dropped (log: {log}). Do not trust this guest: use another kernel (`vmtax get kernel`)", log = .log.display()
    )]
    InvalidMessage {
        /// Machine that sent the message.
        machine: Machine,
        /// Description of the invalid part.
        what: String,
        /// The whole console.
        log: PathBuf,
    },
    /// Not the CPUs that were asked for.
    #[error(
        "{machine} has {got} of the {asked} CPUs asked for: use --cpus {got}, or allow it more"
    )]
    Vcpus {
        /// Machine with too few or too many CPUs.
        machine: Machine,
        /// CPUs asked for.
        asked: u32,
        /// CPUs that it has.
        got: u32,
    },
    /// The VMM, or the guest, of a VM that runs.
    #[error(transparent)]
    Vmm(#[from] VmmError),
    /// The monitor of a QEMU that vmtax started.
    #[error("QEMU's monitor (QMP) failed: {0}. Try another QEMU with --qemu")]
    GuestMonitor(String),
    /// QEMU fell back to another accelerator.
    #[error("QEMU runs the guest without KVM although KVM was requested: see `vmtax doctor`")]
    NotKvm,
    /// The guest has no such attribute of a disk's request queue, or not this value.
    #[error(
        "the guest refused an attribute of its disk's request queue: {0}. Leave it out, or see /sys/block/DISK/queue in the guest for what it has"
    )]
    BlockQueue(String),
    /// The workload itself failed; the machine still runs.
    #[error("{0}")]
    Workload(String),
    /// A person or a signal asked to stop.
    #[error("interrupted")]
    Interrupted,
}

impl MachineError {
    pub(crate) fn system(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        MachineError::System {
            what: what.into(),
            source: source.into(),
        }
    }

    /// Returns true if the machine can go on with the next workload.
    pub fn leaves_machine_running(&self) -> bool {
        matches!(self, MachineError::Workload(_))
    }
}

fn quoted_lines(said: &str) -> String {
    if said.is_empty() {
        String::new()
    } else {
        format!(". Its last output:\n{said}")
    }
}

fn fix_ended(machine: Machine, status: i32) -> &'static str {
    if status == 128 + rustix::process::Signal::KILL.as_raw() {
        "A signal killed it: if `dmesg` reports that the host was out of memory, use a smaller --memory"
    } else if !machine.is_guest() {
        "See there what it lacks on this host"
    } else {
        "Try more memory (--memory), or another kernel (`vmtax get kernel`)"
    }
}

fn quoted(tail: &str, log: &std::path::Path) -> String {
    if tail.is_empty() {
        format!(". Its log is {}", log.display())
    } else {
        format!(
            ". Its console ends with:\n{tail}\nThe whole log is {}",
            log.display()
        )
    }
}
