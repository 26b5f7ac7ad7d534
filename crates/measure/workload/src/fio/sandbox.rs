//! fio in a sandbox: a root of its own with the host's programs, which cannot be written to, and of all disks the measured one.
//!
//! A mount namespace in which the root is a small tmpfs: the folders of programs and libraries read-only and without devices, five
//! character devices, the CPUs in `/sys`, the disk at [`DISK`], the working directory at [`HERE`]. Of `/proc` the allowed CPUs and memory nodes alone, no home, no other file.
//! A network and System V objects of its own. On the host root's rights are taken as well; in a guest, which is thrown away, fio
//! keeps them, since buffered requests to a device need them (`invalidate`).

use crate::WorkloadError;
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive,
    mount_change, mount_move, unmount,
};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Resource, Rlimit, chdir, chroot, getegid, geteuid, pivot_root, setrlimit};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::ffi::CString;
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The measured disk, for fio.
pub(crate) const DISK: &str = "/disk";
/// The working directory of fio.
const HERE: &str = "/job";
/// The job's file there.
const FILE: &str = "/job/job.fio";
/// Folders of programs and libraries. The last two are those of NixOS and Guix.
const PROGRAMS: [&str; 9] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/etc/ld.so.cache",
    "/nix/store",
    "/gnu/store",
];
/// Character devices that programs expect.
const DEVICES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];
/// What stands there says how many CPUs and nodes there are.
const CPUS: &str = "/sys/devices/system";
/// File with the CPUs and memory nodes that a process may use.
const STATUS: &str = "/proc/self/status";
/// Folders in which the new root may be mounted; the first that is above nothing that is needed.
const MOUNT_POINTS: [&str; 6] = ["/mnt", "/media", "/srv", "/opt", "/tmp", "/home"];
/// Rights that shape requests: locked memory, priorities, limits. The others are taken on the host.
const RIGHTS: [u32; 3] = [14, 23, 24];
/// More than the kernel has.
const MAX_RIGHT: u32 = 64;
/// The longest output that is read, bytes.
const MAX_OUTPUT: u64 = 64 << 20;
/// The part of the messages that an error shows, bytes.
const MAX_SAID: usize = 600;

/// A run of fio.
pub(crate) struct Sandboxed<'a> {
    /// Path of fio, below `base`.
    pub program: &'a Path,
    /// Root of the host's files: `/`, in a guest the folder where it shares them.
    pub base: &'a Path,
    /// The measured disk.
    pub disk: &'a Path,
    /// Text of the job's file.
    pub job: &'a str,
    /// True if fio itself is to refuse jobs that write, and to make no file longer.
    pub is_read_only: bool,
    /// True on the host itself, where root's rights are taken.
    pub is_native: bool,
}

/// Runs fio to its end; gives what it printed.
///
/// # Errors
/// [`WorkloadError::Program`] with its last lines where it fails or the sandbox cannot be made.
pub(crate) fn run(sandbox: &Sandboxed<'_>) -> Result<String, WorkloadError> {
    let failed = |said: String| WorkloadError::Program {
        program: "fio",
        status: 1,
        said,
    };
    let mut child = start(sandbox).map_err(failed)?;
    let Ended {
        status,
        stdout,
        stderr,
    } = collect(&mut child).map_err(|e| failed(e.to_string()))?;
    match status {
        0 => Ok(stdout),
        status => Err(WorkloadError::Program {
            program: "fio",
            status,
            said: last_lines(&stderr, &stdout),
        }),
    }
}

/// Starts fio in its sandbox.
///
/// # Errors
/// Reason, for people.
fn start(sandbox: &Sandboxed<'_>) -> Result<Child, String> {
    let root = mount_point(sandbox)?;
    let mut command = Command::new(sandbox.program);
    command
        .args(["--output-format=json+", "--eta=never"])
        .args(sandbox.is_read_only.then_some("--readonly"))
        .arg(FILE)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let plan = Plan::new(sandbox, root).map_err(|e| e.to_string())?;
    let (reasons, reason) = pipe_with(PipeFlags::CLOEXEC).map_err(|e| e.to_string())?;
    // SAFETY: between fork and exec this process has one thread, so that what allocates does not wait for another's lock.
    unsafe {
        command.pre_exec(move || {
            plan.enter().map_err(|(what, error)| {
                // The error itself carries a number alone.
                let text = format!("its sandbox: {what}: {error}");
                let _ = rustix::io::write(&reason, text.as_bytes());
                error
            })
        });
    }
    let spawned = command.spawn();
    // The other end of the pipe is its closure's.
    drop(command);
    spawned.map_err(|error| {
        let mut said = String::new();
        let _ = fs::File::from(reasons).read_to_string(&mut said);
        if said.is_empty() {
            error.to_string()
        } else {
            said
        }
    })
}

/// The end of a run.
struct Ended {
    status: i32,
    stdout: String,
    stderr: String,
}

fn collect(child: &mut Child) -> io::Result<Ended> {
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let (stdout, stderr) = std::thread::scope(|scope| {
        let reads = std::thread::Builder::new().spawn_scoped(scope, || text_of(stderr))?;
        let stdout = text_of(stdout)?;
        let gone = |_| Err(io::Error::other("the thread that reads its messages ended"));
        io::Result::Ok((stdout, reads.join().unwrap_or_else(gone)?))
    })?;
    let status = child.wait()?;
    Ok(Ended {
        status: status.code().unwrap_or(128 + status.signal().unwrap_or(0)),
        stdout,
        stderr,
    })
}

/// The text of a stream; what is beyond a limit is read and lost.
fn text_of(stream: Option<impl Read>) -> io::Result<String> {
    let mut bytes = Vec::new();
    if let Some(mut stream) = stream {
        (&mut stream).take(MAX_OUTPUT).read_to_end(&mut bytes)?;
        io::copy(&mut stream, &mut io::sink())?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// What fio said last: its messages, or of its output what stands before the figures.
fn last_lines(stderr: &str, stdout: &str) -> String {
    let before = stdout.split("\n{").next().unwrap_or_default();
    let before = if before.starts_with('{') { "" } else { before };
    let mut lines = stderr.lines().chain(before.lines()).map(str::trim);
    let said: Vec<&str> = lines.by_ref().filter(|line| !line.is_empty()).collect();
    let mut text = said.join("; ");
    if text.is_empty() {
        return "it said nothing".to_owned();
    }
    if text.len() > MAX_SAID {
        let from = text.len() - MAX_SAID;
        let from = (from..).find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text = format!("…{}", &text[from..]);
    }
    text
}

/// A folder to mount the new root on, which hides nothing that is needed.
fn mount_point(sandbox: &Sandboxed<'_>) -> Result<PathBuf, String> {
    let needed = [
        sandbox.disk,
        sandbox.base,
        &below(sandbox.base, sandbox.program),
    ]
    .map(|path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()));
    let is_free = |folder: &&&str| {
        let folder = Path::new(folder);
        folder.is_dir() && !needed.iter().any(|path| path.starts_with(folder))
    };
    let found = MOUNT_POINTS.iter().find(is_free);
    found.map(PathBuf::from).ok_or_else(|| {
        format!(
            "no directory to mount its root on: create one of {}",
            MOUNT_POINTS.join(", ")
        )
    })
}

/// Where a path of the host is.
fn below(base: &Path, path: &Path) -> PathBuf {
    base.join(path.strip_prefix("/").unwrap_or(path))
}

/// A step that failed, with its error.
type Step<T> = Result<T, (String, io::Error)>;

/// The sandbox as it is to be made, between fork and exec.
struct Plan {
    root: PathBuf,
    base: PathBuf,
    program: PathBuf,
    disk: PathBuf,
    job: String,
    /// The largest file that fio may make: a disk that is a file must not grow; `None` of a device.
    limit: Option<u64>,
    is_native: bool,
}

impl Plan {
    fn new(sandbox: &Sandboxed<'_>, root: PathBuf) -> io::Result<Plan> {
        let disk = sandbox.disk.metadata()?;
        let is_device = disk.file_type().is_block_device();
        Ok(Plan {
            root,
            base: sandbox.base.to_owned(),
            program: sandbox.program.to_owned(),
            disk: fs::canonicalize(sandbox.disk)?,
            job: sandbox.job.to_owned(),
            limit: (!is_device).then_some(disk.len()),
            is_native: sandbox.is_native,
        })
    }

    /// Puts this process into the sandbox.
    fn enter(&self) -> Step<()> {
        let step = |what: &'static str| move |e: Errno| (what.to_owned(), io::Error::from(e));
        namespaces(self.is_native)?;
        let ends_with_parent = || {
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
                .map_err(step("asking to end with its parent"))
        };
        ends_with_parent()?;
        if self.is_native {
            become_first().map_err(|e| ("starting in its namespace".to_owned(), e))?;
            ends_with_parent()?;
        }
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        mount_change("/", private).or_else(|e| match e {
            // A guest's first file system is no mount.
            Errno::INVAL => Ok(()),
            other => Err(step("making mounts private")(other)),
        })?;
        let (flags, options) = (
            MountFlags::NOSUID | MountFlags::NODEV,
            c"mode=0755,size=64m",
        );
        mount("tmpfs", &self.root, "tmpfs", flags, Some(options))
            .map_err(step("mounting its root"))?;
        self.fill()?;
        change_root(&self.root).map_err(step("changing its root"))?;
        chdir(HERE).map_err(step("entering its working directory"))?;
        if let Some(bytes) = self.limit {
            let limit = Rlimit {
                current: Some(bytes),
                maximum: Some(bytes),
            };
            setrlimit(Resource::Fsize, limit).map_err(step("limiting its files"))?;
        }
        if self.is_native {
            drop_rights().map_err(|e| ("taking its rights".to_owned(), e))?;
        }
        Ok(())
    }

    /// Fills the new root.
    fn fill(&self) -> Step<()> {
        for path in PROGRAMS.iter().map(Path::new) {
            self.show(path)?;
        }
        self.show(Path::new(CPUS)).unwrap_or_default();
        let at = below(&self.root, &self.program);
        if !at.exists() {
            self.show(&self.program)?;
        }
        for folder in ["dev", "tmp", "dev/shm", HERE.trim_start_matches('/')] {
            make_folder(&self.root.join(folder))?;
        }
        for name in DEVICES {
            let path = format!("dev/{name}");
            // A guest's own are outside of the host's files.
            bind(&Path::new("/").join(&path), &self.root.join(&path))?;
        }
        self.show_allowed()?;
        bind(&self.disk, &below(&self.root, Path::new(DISK)))?;
        let file = below(&self.root, Path::new(FILE));
        fs::write(&file, &self.job).map_err(|e| (format!("writing {}", file.display()), e))
    }

    /// Shows which CPUs and memory nodes this process may use, without which libnuma knows none.
    fn show_allowed(&self) -> Step<()> {
        let status = fs::read_to_string(STATUS).unwrap_or_default();
        let is_shown = |line: &&str| ["Cpus_", "Mems_"].iter().any(|key| line.starts_with(key));
        let lines: String = status.split_inclusive('\n').filter(is_shown).collect();
        let at = below(&self.root, Path::new(STATUS));
        make_file(&at)?;
        fs::write(&at, lines).map_err(|e| (format!("writing {}", at.display()), e))
    }

    /// Shows a file or folder of the host's at its own path, read-only and without devices; what is not there stays so.
    fn show(&self, path: &Path) -> Step<()> {
        let (from, at) = (below(&self.base, path), below(&self.root, path));
        let failed = |e: io::Error| (format!("showing {}", path.display()), e);
        let Ok(about) = fs::symlink_metadata(&from) else {
            return Ok(());
        };
        if about.file_type().is_symlink() && PROGRAMS.iter().any(|known| Path::new(known) == path) {
            let target = fs::read_link(&from).map_err(failed)?;
            return std::os::unix::fs::symlink(target, &at).map_err(failed);
        }
        if about.is_dir() {
            make_folder(&at)?;
        } else {
            make_file(&at)?;
        }
        mount_bind_recursive(&from, &at).map_err(|e| failed(e.into()))?;
        let attributes = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NODEV | libc::MOUNT_ATTR_NOSUID;
        set_mount_attributes(&at, attributes).map_err(failed)
    }
}

/// A file or device at another path, as it is.
fn bind(from: &Path, at: &Path) -> Step<()> {
    make_file(at)?;
    mount_bind(from, at).map_err(|e| (format!("showing {}", from.display()), e.into()))
}

fn make_folder(path: &Path) -> Step<()> {
    fs::create_dir_all(path).map_err(|e| (format!("making {}", path.display()), e))
}

fn make_file(path: &Path) -> Step<()> {
    make_folder(path.parent().unwrap_or(path))?;
    let made = fs::File::create(path).map(drop);
    made.map_err(|e| (format!("making {}", path.display()), e))
}

/// Mounts, a network, System V objects and natively processes of this process's own; an ordinary user has them in a user namespace.
fn namespaces(is_native: bool) -> Step<()> {
    let mut own = UnshareFlags::NEWNS | UnshareFlags::NEWNET | UnshareFlags::NEWIPC;
    own.set(UnshareFlags::NEWPID, is_native);
    // SAFETY: this process has one thread, which shares nothing with its parent.
    let done = unsafe { unshare_unsafe(own) };
    if done.is_ok() {
        return Ok(());
    }
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    let failed = |e: io::Error| {
        let what = "making namespaces (run as root, or where user namespaces are allowed)";
        (what.to_owned(), e)
    };
    // SAFETY: as above.
    unsafe { unshare_unsafe(own | UnshareFlags::NEWUSER) }.map_err(|e| failed(e.into()))?;
    fs::write("/proc/self/setgroups", "deny").map_err(failed)?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1")).map_err(failed)?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1")).map_err(failed)
}

/// Goes on as the first process of the namespace of processes, with which the kernel ends all others there: fio's jobs are processes
/// that outlive it. This process waits for it, and ends as it does.
fn become_first() -> io::Result<()> {
    // SAFETY: this process has one thread, and what waits below allocates nothing.
    let first = unsafe { libc::fork() };
    match first {
        -1 => return Err(io::Error::last_os_error()),
        0 => return Ok(()),
        _ => {}
    }
    let mut status = 0;
    // SAFETY: the ends of pipes that are closed here are fio's; the kernel writes the status.
    unsafe {
        libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, 0);
        while libc::waitpid(first, &raw mut status, 0) < 0
            && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
        {}
        libc::_exit(if libc::WIFEXITED(status) {
            libc::WEXITSTATUS(status)
        } else {
            128 + libc::WTERMSIG(status)
        })
    }
}

/// Makes the mount `root` the root of this process.
fn change_root(root: &Path) -> rustix::io::Result<()> {
    chdir(root)?;
    match pivot_root(".", ".") {
        // Both at one place: the former root is below the new one until it is taken off.
        Ok(()) => unmount(".", UnmountFlags::DETACH)?,
        // A guest's first file system cannot be taken off: it is covered.
        Err(Errno::INVAL) => {
            mount_move(".", "/")?;
            chroot(".")?;
        }
        Err(other) => return Err(other),
    }
    chdir("/")
}

/// Takes root's rights for good, except those that shape requests; an ordinary user has none when fio is executed.
fn drop_rights() -> io::Result<()> {
    // SAFETY: these requests take numbers alone.
    unsafe {
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 {
            return Err(io::Error::last_os_error());
        }
        if !geteuid().is_root() {
            return Ok(());
        }
        for right in (0..MAX_RIGHT).filter(|right| !RIGHTS.contains(right)) {
            let known = libc::prctl(libc::PR_CAPBSET_READ, right, 0, 0, 0) >= 0;
            if known && libc::prctl(libc::PR_CAPBSET_DROP, right, 0, 0, 0) != 0 {
                return Err(io::Error::last_os_error());
            }
        }
    }
    Ok(())
}

/// Gives what is mounted at `at`, and all that is mounted below, more attributes (`MOUNT_ATTR_…`): at once, so that none can be
/// forgotten.
///
/// # Errors
/// An error of `mount_setattr`, or of a path with a NUL byte.
pub fn set_mount_attributes(at: &Path, attributes: u64) -> io::Result<()> {
    let path = CString::new(at.as_os_str().as_bytes())?;
    let more = libc::mount_attr {
        attr_set: attributes,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    // SAFETY: the kernel reads the path, and of the attributes as many bytes as it is told there are.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::AT_RECURSIVE,
            &raw const more,
            size_of::<libc::mount_attr>(),
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests;
