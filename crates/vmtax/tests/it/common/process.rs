//! A program under test while it runs, and what came out; a terminal for it, and traces of it in tracefs.

pub use rustix::process::Signal;

use super::Place;
use rustix::process::{Pid, kill_process};
use std::fs::{self, File};
use std::os::fd::FromRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tempfile::NamedTempFile;

/// A program that was started; it does not outlive this value.
pub struct Running<'a> {
    place: &'a Place,
    child: Child,
    began: Instant,
    limit: Duration,
    command: String,
    // Files and no pipes: what a killed program started may hold its streams open.
    stdout: NamedTempFile,
    stderr: NamedTempFile,
}

/// Result of a program: exit status, output and duration.
#[derive(Debug)]
pub struct Outcome {
    command: String,
    /// `None` when a signal ended it.
    pub status: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    pub took: Duration,
}

impl<'a> Running<'a> {
    pub(super) fn start(
        place: &'a Place,
        mut command: Command,
        stdout: Option<Stdio>,
        limit: Duration,
    ) -> Self {
        let [out, err] = [(); 2].map(|()| NamedTempFile::new().unwrap());
        command
            .stdout(stdout.unwrap_or_else(|| out.reopen().unwrap().into()))
            .stderr(err.reopen().unwrap());
        let text = format!("{command:?}");
        let child = command.spawn().unwrap_or_else(|e| panic!("{text}: {e}"));
        place.started.borrow_mut().push(child.id());
        Running {
            place,
            child,
            began: Instant::now(),
            limit,
            command: text,
            stdout: out,
            stderr: err,
        }
    }

    /// Waits until this holds; fails when the program ended or it times out.
    pub fn until<T>(&mut self, what: &str, holds: impl Fn(&Place) -> Option<T>) -> T {
        loop {
            if let Some(found) = holds(self.place) {
                return found;
            }
            if self.child.try_wait().unwrap().is_some() || self.began.elapsed() > self.limit {
                panic!(
                    "{what}: never came about\n{}\n{}",
                    self.command,
                    read(&self.stderr)
                );
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until that many trials are recorded: then the next one of the same machine's turn is under way.
    pub fn until_trials(mut self, count: usize) -> Self {
        self.until("enough trials", |place| {
            (place.trials() >= count).then_some(())
        });
        self
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it does what it will do: past its start.
    pub fn settled(&self) {
        std::thread::sleep(Duration::from_millis(300));
    }

    pub fn signal(&self, signal: Signal) {
        send(self.child.id(), signal);
    }

    /// Waits for its end.
    pub fn outcome(mut self) -> Outcome {
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return self.ended(status);
            }
            if self.began.elapsed() > self.limit {
                panic!(
                    "not at its end after {:?}: {}\n{}",
                    self.limit,
                    self.command,
                    read(&self.stderr)
                );
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn ended(&self, status: ExitStatus) -> Outcome {
        Outcome {
            command: self.command.clone(),
            status: status.code(),
            stdout: read(&self.stdout),
            stderr: read(&self.stderr),
            took: self.began.elapsed(),
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Outcome {
    /// Fails unless it ended with this status.
    pub fn exits(self, status: i32) -> Outcome {
        assert_eq!(self.status, Some(status), "{self}");
        self
    }

    /// Fails unless its standard error holds this text, wherever its lines break.
    pub fn says(self, text: &str) -> Outcome {
        assert!(
            one_line(&self.stderr).contains(&one_line(text)),
            "no {text:?} in what it said\n{self}"
        );
        self
    }

    /// Fails unless its standard output holds this text, wherever its lines break.
    pub fn shows(self, text: &str) -> Outcome {
        assert!(
            one_line(&self.stdout).contains(&one_line(text)),
            "no {text:?} in what it printed\n{self}"
        );
        self
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Outcome {
            command,
            status,
            stdout,
            stderr,
            took,
        } = self;
        write!(
            f,
            "{command}\nstatus {status:?} after {took:?}\n--- stdout\n{stdout}\n--- stderr\n{stderr}"
        )
    }
}

/// Where a line breaks depends on how long a path or a number in it is.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn read(file: &NamedTempFile) -> String {
    String::from_utf8_lossy(&fs::read(file.path()).unwrap()).into_owned()
}

pub fn send(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), signal).unwrap();
}

/// A process of the system.
#[derive(Debug, Clone)]
pub struct Process {
    pub pid: u32,
    /// Arguments of the process, separated by blanks.
    pub command: String,
}

impl Process {
    /// A line of `/proc/PID/status`.
    pub fn status(&self, field: &str) -> String {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(field)?.strip_prefix(':').map(str::trim));
        line.unwrap_or_default().to_owned()
    }

    /// The QEMU itself, not the watchdog that names it too.
    pub fn is_qemu(&self) -> bool {
        let program = self.command.split(' ').next().unwrap_or_default();
        program.contains("qemu") && !self.command.contains(" watchdog ")
    }
}

/// Those whose arguments or working folder name this folder.
pub fn processes(folder: &Path) -> Vec<Process> {
    let own = std::process::id();
    let pids = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
    let named = |pid: u32| {
        let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        let here =
            fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(folder));
        (here || command.contains(folder.to_str()?)).then_some(Process { pid, command })
    };
    pids.filter(|&pid| pid != own).filter_map(named).collect()
}

/// A terminal of so many columns: the end to read, the end to write.
pub fn terminal(columns: u16) -> (File, File) {
    let (mut ours, mut theirs) = (-1, -1);
    let size = libc::winsize {
        ws_row: 24,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: both descriptors are written before they are read, the null pointers ask for defaults, and each
    // descriptor that came back has no other owner.
    unsafe {
        let made = libc::openpty(
            &mut ours,
            &mut theirs,
            std::ptr::null_mut(),
            std::ptr::null(),
            &size,
        );
        assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
        let ours = File::from_raw_fd(ours);
        // A program that had it, too, would keep its own terminal open.
        rustix::io::fcntl_setfd(&ours, rustix::io::FdFlags::CLOEXEC).unwrap();
        (ours, File::from_raw_fd(theirs))
    }
}

/// tracefs, also where nobody has mounted it.
pub fn tracing() -> PathBuf {
    vmtax_observe::tracefs().unwrap()
}

/// Returns the trace instances and probe definitions of the process `pid`.
pub fn traces_of(pid: u32) -> Vec<String> {
    let instances = fs::read_dir(tracing().join("instances"))
        .into_iter()
        .flatten()
        .flatten();
    let names = instances.map(|e| e.file_name().into_string().unwrap());
    let mut traces: Vec<String> = names
        .filter(|name| name.starts_with(&format!("vmtax-{pid}-")))
        .collect();
    let defined = fs::read_to_string(tracing().join("uprobe_events")).unwrap_or_default();
    traces.extend(
        defined
            .lines()
            .filter(|l| l.contains(&format!(":vmtax_{pid}_")))
            .map(str::to_owned),
    );
    traces
}
