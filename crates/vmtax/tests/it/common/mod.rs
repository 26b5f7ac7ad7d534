//! Common parts of the binary's tests: a [`Place`] to run it in, which checks at its end that nothing is left.

pub mod boot_guest;
mod guest;
mod plant;
mod process;
mod vms;

pub use guest::{
    START_AGENT, agent_device, copy, fake_qemu, fast_guest, has_agent, kernel, kvm_guest_options,
    lock, qemu, shared_folder, shared_recording, wrapped_qemu,
};
pub use plant::{
    DELAY_MS, ELSEWHERE_NS, LIMIT_MS, PACKET_DELAY_NS, PLANTED_NS, compiled, escaping_qemu,
    interrupt_delaying_qemu, known_program, layers_plan, packet_delaying_qemu, passt,
    passt_with_vhost_user, path_with_delaying_passt, planting_qemu, read_delaying_qemu,
};
pub use process::{
    Outcome, Process, Running, Signal, processes, send, terminal, traces_of, tracing,
};
pub use vms::{Busy, Domain, Ends, Libvirt, Quota, until, until_near, virsh};
pub use vmtax_model::testing::skipped;

use serde_json::Value;
use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// After the program ended, in whatever way, nothing of it may be there any longer than this.
const AFTERMATH: Duration = Duration::from_secs(15);

/// The program under test: the one that is shipped, where `VMTAX_RELEASE` names it. That is also every guest's `/init`.
pub fn binary() -> &'static str {
    static BINARY: LazyLock<String> = LazyLock::new(|| {
        let release = std::env::var("VMTAX_RELEASE");
        release.unwrap_or_else(|_| env!("CARGO_BIN_EXE_vmtax").to_owned())
    });
    &BINARY
}

pub fn is_root() -> bool {
    rustix::process::getuid().is_root()
}

/// The share methods by which a guest of this user can have the host's files.
pub fn root_methods() -> &'static [&'static str] {
    if is_root() {
        &["9p", "virtiofs"]
    } else {
        &["9p"]
    }
}

/// A folder of its own for a test: recordings, temporary files, what the test puts there.
pub struct Place {
    folder: tempfile::TempDir,
    /// Every program started here: control groups carry its id.
    pub(crate) started: RefCell<Vec<u32>>,
}

impl Place {
    pub fn new() -> Place {
        let place = Place {
            folder: tempfile::tempdir().unwrap(),
            started: RefCell::default(),
        };
        // Programs in it are started by users whom QEMU runs as.
        fs::set_permissions(place.path(""), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(place.path("tmp")).unwrap();
        place
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn runs(&self) -> PathBuf {
        self.path("runs")
    }

    /// A file with this content.
    pub fn put(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    /// A shell script.
    pub fn script(&self, name: &str, body: &str) -> PathBuf {
        let path = self.put(name, format!("#!/bin/sh\n{body}\n"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// A command line of vmtax to be run here; `words` are split at blanks.
    pub fn vmtax(&self, words: &str) -> Start<'_> {
        self.program(binary()).words(words)
    }

    /// Returns a command line of vmtax as [`Place::vmtax`] does, run by a user without privileges, if the test runs as
    /// root.
    pub fn vmtax_as_ordinary_user(&self, words: &str) -> Start<'_> {
        if !is_root() {
            return self.vmtax(words);
        }
        let copy = self.path("vmtax");
        if !copy.exists() {
            // The build folder may be closed to others.
            fs::copy(binary(), &copy).unwrap();
            // As /tmp: what root makes here, nobody else can replace.
            for folder in [self.path(""), self.path("tmp")] {
                fs::set_permissions(folder, fs::Permissions::from_mode(0o1777)).unwrap();
            }
        }
        let nobody = self
            .program("setpriv")
            .words("--reuid=65534 --regid=65534 --clear-groups --");
        nobody.arg(copy).words(words)
    }

    /// `vmtax run` into [`Place::runs`].
    pub fn run(&self, words: &str) -> Start<'_> {
        self.vmtax("run").arg("--dir").arg(self.runs()).words(words)
    }

    /// Another program, held to the same.
    pub fn program(&self, program: impl AsRef<OsStr>) -> Start<'_> {
        Start::new(self, Command::new(program))
    }

    /// The folder of the only recording here.
    pub fn recording(&self) -> PathBuf {
        let mut runs: Vec<_> = fs::read_dir(self.runs())
            .into_iter()
            .flatten()
            .flatten()
            .collect();
        runs.retain(|entry| entry.file_name() != ".history");
        assert_eq!(runs.len(), 1, "recordings: {runs:?}");
        runs[0].path()
    }

    /// Returns the number of trials that are recorded so far.
    pub fn trials(&self) -> usize {
        files_below(&self.runs())
            .iter()
            .filter(|path| path.ends_with("trial.json"))
            .count()
    }

    /// The folder's name in command lines of processes, or their working folder.
    pub fn processes(&self) -> Vec<process::Process> {
        processes(self.folder.path())
    }

    /// The QEMU of a guest that runs here, if one does.
    pub fn vm(&self) -> Option<u32> {
        let is_vm =
            |process: &process::Process| vmtax_vmm::running().contains(&(process.pid as i32));
        self.processes()
            .into_iter()
            .find(is_vm)
            .map(|process| process.pid)
    }

    /// Returns everything that the program left behind: processes, control groups, temporary files of a run, loop
    /// devices.
    fn left(&self) -> Vec<String> {
        let mut left: Vec<String> = self
            .processes()
            .iter()
            .map(|p| format!("{} {}", p.pid, p.command))
            .collect();
        let files = files_below(self.folder.path());
        let kept = |path: &&PathBuf| {
            let parts: Vec<_> = path
                .strip_prefix(self.folder.path())
                .unwrap()
                .components()
                .collect();
            let is =
                |index: usize, name: &str| parts.get(index).is_some_and(|p| p.as_os_str() == name);
            // runs/RUN/scratch/…
            is(0, "tmp")
                || (is(0, "runs") && is(2, "scratch"))
                || path.extension().is_some_and(|e| e == "part")
        };
        left.extend(
            files
                .iter()
                .filter(kept)
                .map(|path| path.display().to_string()),
        );
        left.extend(self.groups().iter().map(|path| path.display().to_string()));
        let devices = fs::read_dir("/sys/block")
            .into_iter()
            .flatten()
            .flatten()
            .map(|e| e.path().join("loop/backing_file"));
        let files = devices.filter_map(|path| fs::read_to_string(path).ok());
        left.extend(files.filter(|file| Path::new(file).starts_with(self.folder.path())));
        left
    }

    /// The control groups of the programs that were started here.
    pub fn groups(&self) -> Vec<PathBuf> {
        let ours: Vec<String> = self
            .started
            .borrow()
            .iter()
            .map(|pid| format!("vmtax-{pid}-"))
            .collect();
        let is_ours = |path: &Path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            ours.iter().any(|prefix| name.starts_with(prefix))
        };
        let mut groups = folders_below(Path::new("/sys/fs/cgroup"));
        groups.retain(|path| is_ours(path));
        groups
    }

    /// Fails when something is left a while after the last program ended.
    pub fn nothing_is_left(&self) {
        let left = aftermath(|| self.left());
        assert!(left.is_empty(), "left behind:\n{}", left.join("\n"));
    }

    /// The processes that are left a while after they should have ended.
    pub fn processes_left(&self) -> Vec<Process> {
        aftermath(|| self.processes())
    }
}

/// Returns the items that are still there when `AFTERMATH` is over, or nothing as soon as all are gone.
fn aftermath<T>(left: impl Fn() -> Vec<T>) -> Vec<T> {
    let deadline = Instant::now() + AFTERMATH;
    loop {
        let left = left();
        if left.is_empty() || Instant::now() >= deadline {
            return left;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.nothing_is_left();
        }
    }
}

/// A program about to be started.
pub struct Start<'a> {
    place: &'a Place,
    command: Command,
    stdout: Option<Stdio>,
}

impl<'a> Start<'a> {
    fn new(place: &'a Place, mut command: Command) -> Self {
        command
            .current_dir(place.folder.path())
            .env("TMPDIR", place.path("tmp"))
            .env_remove("COLUMNS")
            .stdin(Stdio::null());
        Start {
            place,
            command,
            stdout: None,
        }
    }

    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.command.arg(argument);
        self
    }

    /// Further arguments of QEMU.
    pub fn qemu_args(self, arguments: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        arguments.into_iter().fold(self, |start, argument| {
            start.arg(format!("--qemu-arg={}", argument.as_ref()))
        })
    }

    /// More arguments, split at blanks.
    pub fn words(mut self, words: &str) -> Self {
        self.command.args(words.split_whitespace());
        self
    }

    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    pub fn stdin(mut self, stdin: impl Into<Stdio>) -> Self {
        self.command.stdin(stdin);
        self
    }

    /// The program, and what it starts, has this file as the descriptor of this number.
    pub fn descriptor(mut self, file: &File, number: i32) -> Self {
        let descriptor = file.as_raw_fd();
        let duplicate = move || {
            // SAFETY: dup2 takes numbers alone.
            match unsafe { libc::dup2(descriptor, number) } {
                -1 => Err(std::io::Error::last_os_error()),
                _ => Ok(()),
            }
        };
        // SAFETY: between fork and exec dup2 alone is called, which may be.
        unsafe { self.command.pre_exec(duplicate) };
        self
    }

    /// Standard output goes there instead of into [`Outcome::stdout`].
    pub fn stdout(mut self, stdout: impl Into<Stdio>) -> Self {
        self.stdout = Some(stdout.into());
        self
    }

    /// Starts it; it is killed, and the test fails, when it runs longer than `seconds`.
    pub fn start(self, seconds: u64) -> Running<'a> {
        Running::start(
            self.place,
            self.command,
            self.stdout,
            Duration::from_secs(seconds),
        )
    }

    /// Runs it to its end, within a minute.
    pub fn outcome(self) -> Outcome {
        self.start(60).outcome()
    }

    /// Runs it to its end, which must be a good one.
    pub fn succeeds(self) -> Outcome {
        self.outcome().exits(0)
    }

    /// Runs it; it must say that it could not, with each of these.
    pub fn fails(self, with: &[&str]) -> Outcome {
        with.iter()
            .fold(self.outcome().exits(2), |outcome, text| outcome.says(text))
    }
}

pub fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e} in {text}"))
}

/// A figure of a report's JSON.
pub fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("no figure: {value}"))
}

/// Returns the number of requests that were not joined, for any reason, from `matched` in a report's JSON.
pub fn not_joined(matched: &Value) -> u64 {
    matched["rejected"]
        .as_array()
        .unwrap()
        .iter()
        .map(|reason| reason[1].as_u64().unwrap())
        .sum()
}

/// Counts the requests of a report's column with an interval that ends at the checkpoint `to`, in any state: a request
/// that was in two states within it counts twice.
pub fn passes(column: &Value, to: &str) -> u64 {
    let rows = column["rows"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|row| row["to"] == to);
    rows.filter_map(|row| row["count"].as_u64()).sum()
}

/// The trials of a report's JSON, in order.
pub fn trials(report: &Value) -> &Vec<Value> {
    report["trials"].as_array().unwrap()
}

pub fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for folder in std::iter::once(folder.to_path_buf()).chain(folders_below(folder)) {
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        files.extend(
            entries
                .map(|e| e.path())
                .filter(|path| !path.is_dir() || path.is_symlink()),
        );
    }
    files
}

fn folders_below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders: Vec<PathBuf> = entries
        .filter(|e| e.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|e| e.path())
        .collect();
    folders
        .into_iter()
        .flat_map(|f| {
            std::iter::once(f.clone())
                .chain(folders_below(&f))
                .collect::<Vec<_>>()
        })
        .collect()
}
