//! What can go wrong with a machine.

use std::io;
use std::path::PathBuf;
use vmtax_model::{Machine, ShareMethod, WorkloadName};

/// A machine failed to boot, or a trial on it has no result.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// A file, process or system call on the host.
    #[error("{what}: {source}")]
    System {
        /// What was tried, with its object.
        what: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// Stamps cannot be exchanged.
    #[error(transparent)]
    Clock(#[from] vmtax_clock::ClockError),
    /// The micro-guest cannot do what it was told.
    #[error(transparent)]
    Micro(#[from] crate::micro_guest::MicroError),
    /// The micro-guest did not finish.
    #[error("{machine} did not finish {doing} in {seconds} s: make it smaller, or give it longer with --timeout. QEMU's log is {log}", log = .log.display())]
    MicroSilent {
        /// Which machine.
        machine: Machine,
        /// Where in its life.
        doing: String,
        /// How long was waited.
        seconds: u64,
        /// What QEMU wrote.
        log: PathBuf,
    },
    /// What only a guest with an agent can.
    #[error("{machine} has no agent for that: name another machine")]
    NoAgent {
        /// Which machine.
        machine: Machine,
    },
    /// A setting of the host that cannot be made.
    #[error("host.{name}: {why}")]
    HostSetting {
        /// Which.
        name: String,
        /// Why, and what to do.
        why: String,
    },
    /// Settings of the host that a comparison changed and that could not be put back.
    #[error("host settings were NOT restored. Run as root: {commands}")]
    NotRestored {
        /// What does it.
        commands: String,
    },
    /// Not enough room for disks and files.
    #[error("{folder} has {free_mib} MiB free, the disks and files take {needed_mib} MiB: free some, choose another folder with --dir, or make fileio.total-size, bonnie.size, bonnie.files, the plan's tree or --scratch smaller", folder = .folder.display())]
    NoSpace {
        /// Where.
        folder: PathBuf,
        /// MiB free there.
        free_mib: u64,
        /// MiB needed.
        needed_mib: u64,
    },
    /// Not enough inodes for the tree's files.
    #[error("{folder} has room for {free} more files, the tree and what is made in it take {needed}: choose another folder with --dir, give the plan's tree fewer files, or make bonnie.files or open-fids.count smaller", folder = .folder.display())]
    NoInodes {
        /// Where.
        folder: PathBuf,
        /// Inodes free there.
        free: u64,
        /// Inodes needed.
        needed: u64,
    },
    /// The folder to be shared.
    #[error("the tree {folder} cannot be shared ({source}): give a folder that you may read", folder = .folder.display())]
    NoTree {
        /// Which.
        folder: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The next guest has no folder to write in.
    #[error("what a guest left in {folder} cannot be put aside ({source}): see what it is, and who owns it, or share the tree with share.readonly=on", folder = .folder.display())]
    NotCleared {
        /// Which.
        folder: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A way to share the tree that this host, QEMU or kernel does not have.
    #[error("{0}")]
    NoShare(String),
    /// The tree cannot be kept from being written to.
    #[error("{folder} cannot be kept from being written to by the share's server ({source}): run as root, or share a copy of it with share=disk", folder = .folder.display())]
    ReadOnly {
        /// Which.
        folder: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The host's root cannot be given to guests.
    #[error(
        "the host's files cannot be kept from being written to by who serves them to guests ({source}): it takes root, or user namespaces (`sysctl user.max_user_namespaces`), and Linux 5.12; `vmtax exec --machine native` does without guests"
    )]
    NoRoot {
        /// What the kernel said.
        source: io::Error,
    },
    /// The server behind a share ended, or did not begin to serve.
    #[error("share={method}: {what} (exit status {status}){said}\nIts log is {log}; the command line is beside it", said = quoted_lines(.said), log = .log.display())]
    ServerEnded {
        /// How the tree was shared.
        method: ShareMethod,
        /// Which server, and where in the machine's life.
        what: String,
        /// Exit status of its process; 128 + n for signal n.
        status: i32,
        /// The end of what it wrote.
        said: String,
        /// All that it wrote.
        log: PathBuf,
    },
    /// Devices that a guest was given besides and has no room for.
    #[error(
        "the guest has addresses for {placed} of {asked} devices (guest.disks, guest.memory-regions): give fewer, or another QEMU with --qemu"
    )]
    Devices {
        /// How many it was given.
        asked: u32,
        /// How many of them it can reach.
        placed: usize,
    },
    /// The guest did not get its share.
    #[error("share={method}: the guest cannot mount it ({said}). QEMU's log is {log}", log = .log.display())]
    NotMounted {
        /// How it was shared.
        method: ShareMethod,
        /// What the guest said.
        said: String,
        /// All that QEMU wrote.
        log: PathBuf,
    },
    /// The guest's disk cannot be formatted.
    #[error("mkfs.ext4 {said}: install it with `apt-get install e2fsprogs`")]
    Mkfs {
        /// What it said, or why it did not start.
        said: String,
    },
    /// QEMU ended before the agent said hello, and said why itself.
    #[error("QEMU ended before the guest booted (exit status {status}):\n{said}\nIts log is {log}; the command line is beside it", log = .log.display())]
    Refused {
        /// QEMU's exit status.
        status: i32,
        /// The end of what QEMU wrote.
        said: String,
        /// All that it wrote.
        log: PathBuf,
    },
    /// The guest's kernel gave up.
    #[error("the guest's kernel panicked. Its console ends with:\n{tail}\nThe console's log is {log}. Try another kernel (`vmtax get kernel`), or more memory with --memory", log = .log.display())]
    Panic {
        /// The console's last lines.
        tail: String,
        /// The whole console.
        log: PathBuf,
    },
    /// The machine ended by itself.
    #[error("{machine} ended while {doing} (exit status {status}){console}\n{fix}", console = quoted(.tail, .log), fix = fix_ended(*.status))]
    Ended {
        /// Which machine.
        machine: Machine,
        /// Where in its life.
        doing: String,
        /// Exit status of its process; 128 + n for signal n.
        status: i32,
        /// The console's last lines.
        tail: String,
        /// The whole console.
        log: PathBuf,
    },
    /// The agent did not respond in time.
    #[error("the agent on {machine} did not respond within {seconds} s{console}\nIs this kernel for x86-64 and has it virtio? Try `vmtax get kernel`, or give it longer with --boot-timeout", console = quoted(.tail, .log))]
    Silent {
        /// Which machine.
        machine: Machine,
        /// How long was waited.
        seconds: u64,
        /// The console's last lines.
        tail: String,
        /// The whole console.
        log: PathBuf,
    },
    /// A trial took too long.
    #[error("{workload} on {machine} had no result after {seconds} s{console}\nMake it smaller, or give it longer with --timeout", console = quoted(.tail, .log))]
    Timeout {
        /// Which machine.
        machine: Machine,
        /// Which workload.
        workload: WorkloadName,
        /// How long was waited.
        seconds: u64,
        /// The console's last lines.
        tail: String,
        /// The whole console.
        log: PathBuf,
    },
    /// The agent sent what is no reply.
    #[error(
        "{machine} sent an invalid message ({what}): nothing of it was kept, do not trust this guest. Its log is {log}; `vmtax get kernel` fetches another kernel", log = .log.display()
    )]
    InvalidMessage {
        /// Which machine.
        machine: Machine,
        /// What.
        what: String,
        /// The whole console.
        log: PathBuf,
    },
    /// Not the CPUs that were asked for.
    #[error("{machine} has {got} of the {asked} CPUs asked for: use --cpus {got}, or allow it more")]
    Vcpus {
        /// Which machine.
        machine: Machine,
        /// CPUs asked for.
        asked: u32,
        /// CPUs that it has.
        got: u32,
    },
    /// QEMU's monitor.
    #[error("QEMU's monitor (QMP): {0}: is this QEMU working? Try another with --qemu")]
    Monitor(String),
    /// QEMU runs the guest otherwise than asked.
    #[error("KVM was asked for, but QEMU runs the guest without it: see `vmtax doctor`")]
    NotKvm,
    /// The workload itself failed; the machine still runs.
    #[error("{0}")]
    Workload(String),
    /// A person or a signal asked to stop.
    #[error("interrupted")]
    Interrupted,
}

impl MachineError {
    pub(crate) fn system(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        MachineError::System { what: what.into(), source: source.into() }
    }

    /// Whether the machine can go on with the next workload.
    pub fn leaves_machine_running(&self) -> bool {
        matches!(self, MachineError::Workload(_))
    }
}

fn quoted_lines(said: &str) -> String {
    if said.is_empty() { String::new() } else { format!(". It said last:\n{said}") }
}

fn fix_ended(status: i32) -> &'static str {
    if status == 128 + rustix::process::Signal::KILL.as_raw() {
        "Something killed it: where `dmesg` says that the host was out of memory, make the guest smaller with --memory"
    } else {
        "Try it with more memory (--memory), or with another kernel (`vmtax get kernel`)"
    }
}

fn quoted(tail: &str, log: &std::path::Path) -> String {
    if tail.is_empty() {
        format!(". Its log is {}", log.display())
    } else {
        format!(". Its console ends with:\n{tail}\nThe whole log is {}", log.display())
    }
}
