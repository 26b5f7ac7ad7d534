//! tracefs: where it is, instances of our own in it, and what these hand out, as the kernel wrote it.

use crate::{ProbeError, TraceClock, read_number};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, fsconfig_create, fsmount, fsopen, mount,
};
use rustix::process::geteuid;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use vmtax_model::{LOCKDOWN_FILE, is_tracing_locked_down};

/// Where every kernel since 4.1 has a folder to mount it on.
const USUAL: &str = "/sys/kernel/tracing";
/// The PID namespace of the first process. Source: Linux, `include/uapi/linux/nsfs.h`, `PID_NS_INIT_INO`.
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";
/// Before all names of ours, so that another user's are never touched.
pub(crate) const PREFIX: &str = "vmtax-";
/// Time that removing an instance waits for its other readers.
const REMOVE_TIMEOUT: Duration = Duration::from_millis(500);

/// Mounts tracefs where it is usual, for a guest whose first process we are; nothing when it is there already.
///
/// # Errors
/// When the kernel has no tracefs.
pub fn mount_tracefs() -> Result<(), ProbeError> {
    if attached().is_some() {
        return Ok(());
    }
    mount("tracefs", USUAL, "tracefs", MountFlags::empty(), None)
        .map_err(|e| ProbeError::system(format!("mounting tracefs on {USUAL}"), e.into()))
}

/// Where tracefs is mounted; where it is not, and we may, one that no folder shows and that goes with this process.
///
/// # Errors
/// When there is none that we may mount: [`ProbeError::NoTracefs`], [`ProbeError::NotPermitted`]; when what it says of
/// threads would not be understood: [`ProbeError::OtherPidNamespace`]; where nobody may use it:
/// [`ProbeError::LockedDown`].
pub fn tracefs() -> Result<PathBuf, ProbeError> {
    if !is_first_pid_namespace() {
        return Err(ProbeError::OtherPidNamespace);
    }
    if is_tracing_locked_down(&fs::read_to_string(LOCKDOWN_FILE).unwrap_or_default()) {
        return Err(ProbeError::LockedDown);
    }
    attached()
        .or_else(unattached)
        .ok_or_else(|| match geteuid().is_root() {
            true => ProbeError::NoTracefs,
            // Once it is mounted, only root may use it.
            false => ProbeError::NotPermitted {
                file: USUAL.into(),
                source: Errno::PERM.into(),
            },
        })
}

/// Returns true where the kernel's own files have the PIDs that this process sees.
pub(crate) fn is_first_pid_namespace() -> bool {
    fs::read_link("/proc/self/ns/pid").map_or(true, |namespace| {
        namespace == Path::new(FIRST_PID_NAMESPACE)
    })
}

fn attached() -> Option<PathBuf> {
    mounted(&fs::read_to_string("/proc/mounts").unwrap_or_default())
}

fn unattached() -> Option<PathBuf> {
    static OURS: OnceLock<Option<OwnedFd>> = OnceLock::new();
    let ours = OURS.get_or_init(|| mounted_nowhere("tracefs"));
    ours.as_ref()
        .map(|mount| PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd())))
}

/// A file system of a kind, mounted in no folder: gone when this is.
pub(crate) fn mounted_nowhere(kind: &str) -> Option<OwnedFd> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC).ok()?;
    fsconfig_create(context.as_fd()).ok()?;
    let (flags, attributes) = (FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty());
    fsmount(context.as_fd(), flags, attributes).ok()
}

fn mounted(mounts: &str) -> Option<PathBuf> {
    let mut places = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let place = words.nth(1)?;
        (words.next()? == "tracefs").then(|| PathBuf::from(place))
    });
    let first = places.next()?;
    // The automatic mount below debugfs may come first; the usual one is as good.
    let usual = places.find(|place| place == Path::new(USUAL));
    Some(usual.unwrap_or(first))
}

/// An instance: a trace buffer with settings of its own, apart from everybody else's. Removed on drop.
#[derive(Debug)]
pub(crate) struct Instance {
    folder: PathBuf,
    /// `tracing_on`, held open: the kernel does not remove an instance in use. `None` only while it is being removed.
    switch: Option<File>,
}

impl Instance {
    /// Makes one that records nothing yet, stamps with `clock`, and keeps the oldest events when full.
    /// On a kernel that serves us `alone` it also leaves tasks' names alone, which costs at each switch of tasks.
    pub fn create(
        root: &Path,
        name: &str,
        buffer_kib: u32,
        alone: bool,
        clock: TraceClock,
    ) -> Result<Instance, ProbeError> {
        let instance = if alone {
            without_names(root, || Instance::make(root, name))
        } else {
            Instance::make(root, name)
        }?;
        instance.switch_to(false)?;
        instance
            .write("trace_clock", clock.name())
            .map_err(|e| match e {
                ProbeError::System { source, .. }
                    if source.raw_os_error() == Some(libc::EINVAL) =>
                {
                    ProbeError::NoTsc
                }
                e => e,
            })?;
        instance.write("options/overwrite", "0")?;
        instance.write("buffer_size_kb", &buffer_kib.max(1).to_string())?;
        Ok(instance)
    }

    fn make(root: &Path, name: &str) -> Result<Instance, ProbeError> {
        let folder = root.join("instances").join(name);
        // Without the instance's name, which is another each time: the same problem is reported once.
        fs::create_dir(&folder)
            .map_err(|e| ProbeError::file("making an instance in", &root.join("instances"), e))?;
        let mut instance = Instance {
            folder,
            switch: None,
        };
        let switch = instance.path("tracing_on");
        let open = OpenOptions::new()
            .write(true)
            .open(&switch)
            .map_err(|e| ProbeError::file("opening", &switch, e))?;
        instance.switch = Some(open);
        Ok(instance)
    }

    /// Lets events be recorded, or not.
    pub fn switch_to(&self, on: bool) -> Result<(), ProbeError> {
        let Some(mut switch) = self.switch.as_ref() else {
            return Ok(());
        };
        switch
            .rewind()
            .and_then(|()| switch.write_all(if on { b"1" } else { b"0" }))
            .map_err(|e| ProbeError::file("writing", &self.folder.join("tracing_on"), e))
    }

    /// Writes one of the instance's files, replacing what it holds.
    pub fn write(&self, file: &str, text: &str) -> Result<(), ProbeError> {
        let path = self.folder.join(file);
        let file = OpenOptions::new().write(true).truncate(true).open(&path);
        let written = file.and_then(|mut f| f.write_all(text.as_bytes()));
        written.map_err(|e| ProbeError::file("writing", &path, e))
    }

    /// The path of one of the instance's files.
    pub fn path(&self, file: &str) -> PathBuf {
        self.folder.join(file)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.switch = None;
        remove(&self.folder);
    }
}

/// An instance inherits this option from the top level when it is made, and has no file of its own for it.
fn without_names<T>(root: &Path, make: impl FnOnce() -> T) -> T {
    let option = root.join("options/record-cmd");
    let before = fs::read_to_string(&option);
    let _ = fs::write(&option, "0");
    let made = make();
    if let Ok(before) = before {
        let _ = fs::write(&option, before);
    }
    made
}

/// Removes an instance that nobody uses; waits a moment for those who just read it. Says whether it is gone.
pub(crate) fn remove(instance: &Path) -> bool {
    let deadline = Instant::now() + REMOVE_TIMEOUT;
    loop {
        match rustix::fs::rmdir(instance) {
            Err(Errno::BUSY) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(10))
            }
            Ok(()) | Err(Errno::NOENT) => return true,
            Err(_) => return false,
        }
    }
}

/// Takes a file's name and the next bytes of it.
pub type Sink<'s> = &'s mut dyn FnMut(&str, &[u8]) -> io::Result<()>;

/// No event's description is longer.
const DESCRIPTION: usize = 64 << 10;
/// So many bytes are handed on at once.
const PIECE: usize = 1 << 20;

/// The files that say how pages and events are laid out.
pub(crate) fn layouts(
    root: &Path,
    events: &[(String, String)],
    clock: TraceClock,
    sink: Sink<'_>,
) -> Result<(), ProbeError> {
    let mut copy = |from: &str, to: &str| {
        let path = root.join("events").join(from);
        let bytes = whole(&path).map_err(|e| ProbeError::file("reading", &path, e))?;
        sink(to, &bytes).map_err(saving)
    };
    copy("header_page", "header_page")?;
    for (system, name) in events {
        copy(
            &format!("{system}/{name}/format"),
            &format!("formats/{system}.{name}"),
        )?;
    }
    sink("clock", format!("{}\n", clock.name()).as_bytes()).map_err(saving)
}

/// Reads a file in one call and with room for all: `header_page` gives nothing to a second one (`fs::read` begins with a
/// small one).
fn whole(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; DESCRIPTION];
    let mut file = File::open(path)?;
    let length = file.read(&mut bytes)?;
    bytes.truncate(length);
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Every CPU's pages, those that are there by now. The last of each may be partly filled.
pub(crate) fn pages(kind: &str, instance: &Instance, sink: Sink<'_>) -> Result<(), ProbeError> {
    let page = page_size(instance);
    let mut piece = Vec::with_capacity(PIECE);
    for cpu in cpus(instance)? {
        let name = format!("{kind}.cpu{cpu}.raw");
        let path = instance.path(&format!("per_cpu/cpu{cpu}/trace_pipe_raw"));
        let reading = |e: Errno| ProbeError::file("reading", &path, e.into());
        let raw = rustix::fs::open(&path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty())
            .map_err(reading)?;
        sink(&name, &[]).map_err(saving)?;
        loop {
            let begin = piece.len();
            piece.resize(begin + page, 0);
            let read = match rustix::io::read(&raw, &mut piece[begin..]) {
                Err(Errno::INTR) => Some(0),
                Ok(0) | Err(Errno::AGAIN) => None,
                read => Some(read.map_err(reading)?),
            };
            piece.truncate(begin + read.unwrap_or(0));
            if read.is_none() || piece.len() + page > PIECE {
                sink(&name, &piece).map_err(saving)?;
                piece.clear();
            }
            if read.is_none() {
                break;
            }
        }
    }
    Ok(())
}

/// Every CPU's statistics.
pub(crate) fn stats(kind: &str, instance: &Instance, sink: Sink<'_>) -> Result<(), ProbeError> {
    for cpu in cpus(instance)? {
        let path = instance.path(&format!("per_cpu/cpu{cpu}/stats"));
        let stats = fs::read_to_string(&path).map_err(|e| ProbeError::file("reading", &path, e))?;
        sink("stats", format!("{kind}.cpu{cpu}\n{stats}").as_bytes()).map_err(saving)?;
    }
    Ok(())
}

/// Numbers of the CPUs that have a buffer, in order.
fn cpus(instance: &Instance) -> Result<Vec<u32>, ProbeError> {
    let path = instance.path("per_cpu");
    let entries = fs::read_dir(&path)
        .map_err(|e| ProbeError::file("reading", &path, e))?
        .flatten();
    let number = |name: &str| name.strip_prefix("cpu")?.parse().ok();
    let mut cpus: Vec<u32> = entries
        .filter_map(|entry| number(entry.file_name().to_str()?))
        .collect();
    cpus.sort_unstable();
    Ok(cpus)
}

/// Since Linux 6.8 a page of the buffer may be several of the CPU's.
fn page_size(instance: &Instance) -> usize {
    match read_number::<usize>(instance.path("buffer_subbuf_size_kb")) {
        Some(kib) => kib.clamp(4, 1024) << 10,
        None => rustix::param::page_size(),
    }
}

fn saving(source: io::Error) -> ProbeError {
    ProbeError::system("saving the trace", source)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmtax_model::testing::{again_in_pid_namespace, handed_over};

    #[test]
    fn lockdown_closes_traces_in_its_strictest_mode_alone() {
        let modes = [
            "none integrity [confidentiality]\n",
            "none [integrity] confidentiality\n",
            "",
        ];
        assert_eq!(modes.map(is_tracing_locked_down), [true, false, false]);
    }

    #[test]
    fn the_usual_mount_is_preferred() {
        let below = "tracefs /sys/kernel/debug/tracing tracefs rw 0 0\n";
        assert_eq!(
            mounted(below).unwrap(),
            Path::new("/sys/kernel/debug/tracing")
        );
        assert_eq!(
            mounted(&format!("{below}tracefs {USUAL} tracefs rw 0 0\n")).unwrap(),
            Path::new(USUAL)
        );
        assert_eq!(
            mounted("tmpfs /tracefs tmpfs rw 0 0\nsysfs /sys sysfs rw\n"),
            None
        );
        assert_eq!(mounted("tracefs"), None);
    }

    #[test]
    fn in_a_pid_namespace_no_trace_is_begun_and_the_reason_said() {
        if handed_over().is_some() {
            assert!(matches!(tracefs(), Err(ProbeError::OtherPidNamespace)));
        } else if !matches!(tracefs(), Err(ProbeError::OtherPidNamespace)) {
            again_in_pid_namespace(Path::new("")).unwrap();
        }
    }
}
