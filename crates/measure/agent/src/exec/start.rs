//! Starts a command with the environment of the user who runs vmtax; in a guest on a root of its own: an overlay of the host's
//! read-only root, with a writable layer in memory or on a disk, which is discarded with the guest.

use crate::devices::{configure_card, enable_loopback, load_modules, route_all};
use rustix::fd::OwnedFd;
use rustix::fs::{Gid, Mode, OFlags, Uid, fchown, open, statvfs};
use rustix::mount::{MountFlags, mount};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd as StdFd;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use vmtax_model::{NOT_EXECUTABLE, NOT_FOUND, Places, ShareMethod};
use vmtax_wire::{Bytes, Launch, SHARE, SHARE_MAC, Size, writable_tag};

const LAYER: &str = "/layer";
pub(crate) const ROOT: &str = "/root";
/// Below this much free space the writable layer counts as full, bytes.
const MIN_FREE: u64 = 1 << 20;

/// Makes the root for commands.
pub(crate) fn prepare(
    host_name: &Bytes,
    writable: &[Bytes],
    with_network: bool,
    places: &Places,
) -> Result<(), String> {
    let mut complaints = load_modules("modules-command");
    if !writable.is_empty() {
        complaints.extend(load_modules(&format!("modules-{}", ShareMethod::NineP)));
    }
    let root = Path::new(ROOT);
    let made = make(root, places).and_then(|()| folders(root, writable));
    made.and_then(|()| if with_network { connect(root) } else { Ok(()) })
        .map_err(|error| {
            complaints.insert(0, error);
            complaints.join("; ")
        })?;
    let _ = rustix::system::sethostname(host_name.0.as_encoded_bytes());
    let _ = enable_loopback();
    Ok(())
}

fn make(root: &Path, places: &Places) -> Result<(), String> {
    if !Path::new(SHARE).is_dir() {
        return Err("the host's root is not shared with this guest".to_owned());
    }
    folder(Path::new(LAYER))?;
    let layer = Path::new(LAYER);
    match &places.disk {
        Some(disk) => mount_at("ext4", disk, layer, MountFlags::NOATIME, "")?,
        None => mount_at("tmpfs", "tmpfs", layer, MountFlags::empty(), "mode=0755")?,
    }
    for name in ["upper", "work"] {
        folder(&Path::new(LAYER).join(name))?;
    }
    folder(root)?;
    let options = format!("lowerdir={SHARE},upperdir={LAYER}/upper,workdir={LAYER}/work");
    mount_at("overlay", "overlay", root, MountFlags::empty(), &options)?;
    mount_own(root)
}

/// Mounts the kernel's file systems and those in memory on the root, and makes the links of `/dev`.
fn mount_own(root: &Path) -> Result<(), String> {
    let plain = MountFlags::NOSUID | MountFlags::NODEV;
    let own = [
        ("proc", "proc", plain | MountFlags::NOEXEC, ""),
        ("sysfs", "sys", plain | MountFlags::NOEXEC, ""),
        ("devtmpfs", "dev", MountFlags::NOSUID, ""),
        (
            "devpts",
            "dev/pts",
            MountFlags::NOSUID | MountFlags::NOEXEC,
            "ptmxmode=0666,mode=0620,gid=5",
        ),
        ("tmpfs", "dev/shm", plain, "mode=1777"),
        ("tmpfs", "run", plain, "mode=0755"),
    ];
    for (kind, at, flags, options) in own {
        let at = root.join(at);
        folder(&at)?;
        mount_at(kind, kind, &at, flags, options)?;
    }
    for (name, target) in [
        ("fd", "fd"),
        ("stdin", "fd/0"),
        ("stdout", "fd/1"),
        ("stderr", "fd/2"),
    ] {
        // A kernel that made it already is no fault.
        let _ = symlink(format!("/proc/self/{target}"), root.join("dev").join(name));
    }
    Ok(())
}

/// Mounts the host's folders that the guest may write to. Writes go to the host's own folders: `cache=mmap` writes
/// through, and lets files be mapped to be written.
fn folders(root: &Path, writable: &[Bytes]) -> Result<(), String> {
    for (number, host) in writable.iter().enumerate() {
        let host = Path::new(&host.0);
        let at = root.join(host.strip_prefix("/").unwrap_or(host));
        folder(&at)?;
        let options = "trans=virtio,version=9p2000.L,msize=512000,cache=mmap";
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        mount_at("9p", writable_tag(number), &at, flags, options)?;
    }
    Ok(())
}

/// QEMU's user network as it always is: the address that it would give by DHCP, its gateway, its name server.
fn connect(root: &Path) -> Result<(), String> {
    let (address, gateway) = (Ipv4Addr::new(10, 0, 2, 15), Ipv4Addr::new(10, 0, 2, 2));
    configure_card(SHARE_MAC, address, Ipv4Addr::new(255, 255, 255, 0))?;
    route_all(gateway)?;
    let names = root.join("etc/resolv.conf");
    // It may point to where the host's own resolver writes.
    let _ = fs::remove_file(&names);
    fs::write(&names, "nameserver 10.0.2.3\n")
        .map_err(|e| format!("writing the guest's /etc/resolv.conf: {e}"))
}

fn folder(at: &Path) -> Result<(), String> {
    fs::create_dir_all(at).map_err(|e| format!("making {}: {e}", at.display()))
}

fn mount_at(
    kind: &str,
    source: impl AsRef<Path>,
    at: &Path,
    flags: MountFlags,
    options: &str,
) -> Result<(), String> {
    let words = CString::new(options).map_err(|e| e.to_string())?;
    mount(source.as_ref(), at, kind, flags, words.as_c_str())
        .map_err(|e| format!("mounting {kind} on {} with '{options}': {e}", at.display()))
}

/// Notes on the guest's root for the reader of the command's figures.
pub(super) fn notes(places: &Places) -> Vec<String> {
    let mut notes = Vec::new();
    if let Ok(room) = statvfs(LAYER) {
        let (size, free) = (
            room.f_blocks.saturating_mul(room.f_frsize),
            room.f_bavail.saturating_mul(room.f_frsize),
        );
        if free < MIN_FREE {
            let mib = size >> 20;
            let (of, option) = match places.disk {
                Some(_) => ("its disk", "--scratch"),
                None => ("half of its memory", "--memory, or a disk with --scratch"),
            };
            notes.push(format!(
                "the guest's writable layer is full ({mib} MiB, {of}): use a larger {option}"
            ));
        }
    }
    let log = crate::devices::kernel_log();
    let mut lines = log.lines().rev();
    let killed = lines.find(|line| line.contains("Out of memory: Killed process"));
    notes.extend(killed.map(|line| {
        format!("the guest ran out of memory: its kernel says '{line}'. Use a larger --memory")
    }));
    notes
}

/// A command that runs.
pub(super) struct Started {
    pub pid: i32,
    pub stdin: Option<OwnedFd>,
    pub stdout: OwnedFd,
    /// None of its own in a terminal.
    pub stderr: Option<OwnedFd>,
    pub terminal: Option<OwnedFd>,
}

/// Why a command did not start, with its exit status as in a shell.
pub(super) struct NotStarted {
    pub status: i32,
    pub error: String,
}

impl NotStarted {
    fn because(error: impl Into<String>) -> NotStarted {
        NotStarted {
            status: NOT_EXECUTABLE,
            error: error.into(),
        }
    }
}

/// Starts it, in `root` where there is one.
pub(super) fn start_command(launch: &Launch, root: Option<&Path>) -> Result<Started, NotStarted> {
    let Some((program, arguments)) = launch.words.split_first() else {
        return Err(NotStarted::because("no command was given"));
    };
    let mut command = Command::new(&program.0);
    command.args(arguments.iter().map(|word| &word.0));
    let environment = launch.environment.iter();
    command
        .env_clear()
        .envs(environment.map(|(name, value)| (&name.0, &value.0)));
    let terminal = give_streams(&mut command, launch, root)?;
    let in_terminal = terminal.is_some();
    let (surroundings, root) = (launch.clone(), root.map(Path::to_path_buf));
    // SAFETY: between fork and exec this process has one thread, so that what allocates does not wait for another's lock.
    unsafe {
        command.pre_exec(move || prepare_child(&surroundings, root.as_deref(), in_terminal));
    }
    let mut child = command.spawn().map_err(|e| NotStarted {
        status: status_of(&e),
        error: describe(launch, &e),
    })?;
    // The other ends of the streams: else they would not end with the command.
    drop(command);
    let broken = || NotStarted::because("the command's pipes could not be created");
    let pid = child.id() as i32;
    if let Some(terminal) = terminal {
        let copy = || terminal.try_clone().map_err(|_| broken());
        return Ok(Started {
            pid,
            stdin: Some(copy()?),
            stdout: copy()?,
            stderr: None,
            terminal: Some(terminal),
        });
    }
    Ok(Started {
        pid,
        stdin: child.stdin.take().map(StdFd::from),
        stdout: child.stdout.take().map(StdFd::from).ok_or_else(broken)?,
        stderr: Some(child.stderr.take().map(StdFd::from).ok_or_else(broken)?),
        terminal: None,
    })
}

/// Pipes, or a terminal, of which this side's end is given.
fn give_streams(
    command: &mut Command,
    launch: &Launch,
    root: Option<&Path>,
) -> Result<Option<OwnedFd>, NotStarted> {
    let Some(size) = launch.terminal else {
        let stdin = if launch.stdin {
            Stdio::piped()
        } else {
            Stdio::null()
        };
        command
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        return Ok(None);
    };
    let failed = |e: io::Error| {
        NotStarted::because(format!("failed to open a terminal for the command: {e}"))
    };
    let Terminal { ours, theirs } =
        make_terminal(root.unwrap_or(Path::new("/")), size, launch.user).map_err(failed)?;
    let copy = || theirs.try_clone().map(Stdio::from).map_err(failed);
    command.stdin(copy()?).stdout(copy()?).stderr(copy()?);
    Ok(Some(ours))
}

/// Makes the child, before it executes the program, a session of the user in the command's folder.
fn prepare_child(launch: &Launch, root: Option<&Path>, in_terminal: bool) -> io::Result<()> {
    rustix::process::setsid()?;
    if in_terminal {
        rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
    }
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    if let Some(root) = root {
        // A guest's first process is never killed for its memory; what it starts must be.
        let _ = std::fs::write("/proc/self/oom_score_adj", "0");
        rustix::process::chroot(root)?;
    }
    std::env::set_current_dir(&launch.directory.0)?;
    if is_foreign_elf(launch) {
        return Err(io::Error::from_raw_os_error(libc::ENOEXEC));
    }
    if root.is_some() {
        switch_user(launch)?;
    }
    Ok(())
}

/// Limits before the user: raising them is root's right. Natively the process has all of this from its parents.
fn switch_user(launch: &Launch) -> io::Result<()> {
    for &(resource, soft, hard) in &launch.limits {
        let limit = libc::rlimit {
            rlim_cur: soft,
            rlim_max: hard,
        };
        // SAFETY: the kernel reads one `rlimit`, which this is. A limit that this kernel does not know is none.
        unsafe { libc::setrlimit(resource as _, &raw const limit) };
    }
    rustix::process::umask(Mode::from_raw_mode(launch.umask));
    let done = |result: libc::c_int| match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    };
    // SAFETY: the groups are read as many as there are; the other two take numbers.
    unsafe {
        done(libc::setgroups(launch.groups.len(), launch.groups.as_ptr()))?;
        done(libc::setgid(launch.group))?;
        done(libc::setuid(launch.user))
    }
}

/// Returns true if the program is one for another CPU: the C library would give it to a shell, as it does with scripts
/// without a first line that names who reads them. Who has registered such programs with the kernel may run them.
fn is_foreign_elf(launch: &Launch) -> bool {
    let Some(program) = launch.words.first().map(|word| Path::new(&word.0)) else {
        return false;
    };
    let mut environment = launch.environment.iter();
    let path = environment.find(|(name, _)| name.0 == "PATH");
    let path = path.map(|(_, value)| value.0.clone());
    let places: Vec<PathBuf> = if program.components().count() > 1 || program.is_absolute() {
        vec![program.to_path_buf()]
    } else {
        std::env::split_paths(&path.unwrap_or_default())
            .map(|folder| folder.join(program))
            .collect()
    };
    let Some(mut file) = places.iter().find_map(|place| File::open(place).ok()) else {
        return false;
    };
    let mut head = [0; 20];
    let registered = std::fs::read_dir("/proc/sys/fs/binfmt_misc").map_or(0, Iterator::count) > 2;
    file.read_exact(&mut head).is_ok()
        && head.starts_with(b"\x7fELF")
        && !SUPPORTED_ELF.contains(&head[18])
        && !registered
}

/// ELF's numbers for x86-64 and for the 32-bit programs that it runs.
const SUPPORTED_ELF: [u8; 2] = [62, 3];

fn describe(launch: &Launch, error: &io::Error) -> String {
    let program = launch.words.first().map(|word| word.0.to_string_lossy());
    let program = program.unwrap_or_default();
    let directory = launch.directory.0.to_string_lossy();
    let why = match error.raw_os_error() {
        Some(libc::ENOENT) => "no such file, interpreter or directory",
        Some(libc::ENOEXEC) => {
            return format!(
                "'{program}' cannot be started: it is neither a program for this CPU nor a script with #! in its first line"
            );
        }
        _ => &error.to_string(),
    };
    format!("'{program}' cannot be started in {directory}: {why}")
}

/// The status that stands for why a program could not be started, as a shell has it.
fn status_of(error: &std::io::Error) -> i32 {
    match error.kind() {
        std::io::ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_EXECUTABLE,
    }
}

/// The group that terminals belong to, as the file system of terminals is mounted.
const TTY: u32 = 5;

/// Both ends of a pseudoterminal.
pub(super) struct Terminal {
    pub ours: OwnedFd,
    pub theirs: OwnedFd,
}

/// One of the terminals in `root`, of this size, for this user.
pub(super) fn make_terminal(root: &Path, size: Size, user: u32) -> io::Result<Terminal> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let ours = open(root.join("dev/pts/ptmx"), flags, Mode::empty())?;
    unlockpt(&ours)?;
    let theirs = ioctl_tiocgptpeer(
        &ours,
        OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC,
    )?;
    fchown(&theirs, Some(Uid::from_raw(user)), Some(Gid::from_raw(TTY)))?;
    resize(&ours, size);
    Ok(Terminal { ours, theirs })
}

/// Tells the programs in it.
pub(super) fn resize(terminal: &OwnedFd, size: Size) {
    let size = Winsize {
        ws_row: size.rows,
        ws_col: size.columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let _ = tcsetwinsize(terminal, size);
}
