//! Finds programs, runs one that may be anything, and works beside other work.
//!
//! A program that is run has a timeout, a bounded output, and no terminal. It is in a session of its own, so
//! that neither it nor what it starts finds the terminal of vmtax at `/dev/tty`: virsh starts an agent of polkit there.

use crate::raw;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::fs::{Access, access};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, kill_process_group};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::{Builder, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// Where system programs are that an ordinary user's PATH leaves out.
const BEYOND_PATH: [&str; 9] = [
    "/usr/local/bin",
    "/usr/bin",
    "/bin",
    "/usr/local/sbin",
    "/usr/sbin",
    "/sbin",
    "/usr/libexec",
    "/usr/lib/qemu",
    "/usr/local/libexec",
];

/// The first executable file of that name in PATH or in the system's folders for programs (`/usr/sbin`, `/usr/libexec`, …).
pub fn find_program(name: &str) -> Option<PathBuf> {
    folders()
        .into_iter()
        .map(|folder| folder.join(name))
        .find(|path| path.is_file() && is_executable(path))
}

/// The folders of PATH and those beyond, each once.
pub(crate) fn folders() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    merged(&path)
}

/// An empty or relative entry of PATH means the current folder: not followed, it depends on where one stands.
fn merged(path: &OsStr) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = Vec::new();
    for folder in std::env::split_paths(path).chain(BEYOND_PATH.map(PathBuf::from)) {
        if folder.is_absolute() && !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    folders
}

/// Returns true if this user may execute the file.
pub(crate) fn is_executable(path: &Path) -> bool {
    access(path, Access::EXEC_OK).is_ok()
}

/// Returns true if this user may write there.
pub(crate) fn is_writable(path: &Path) -> bool {
    access(path, Access::WRITE_OK).is_ok()
}

/// More than any help text of QEMU (its device list is 30 KiB).
const MAX_OUTPUT: usize = 1 << 20;
/// Interval at which a caller is asked whether to go on.
const STOP_INTERVAL: Duration = Duration::from_millis(100);

/// Output of a program, both streams together, and its end.
#[derive(Debug)]
pub struct Answer {
    /// True if it ended with status 0.
    pub success: bool,
    /// Standard output and standard error, in the order written.
    pub text: String,
}

/// Output of a program by stream, and its end.
#[derive(Debug)]
pub struct Output {
    /// True if it ended with status 0.
    pub success: bool,
    /// Text of standard output.
    pub stdout: String,
    /// Text of standard error.
    pub stderr: String,
}

/// Runs `program` and waits for its end, at most `limit`: see [`ask_command`].
pub fn ask(program: &Path, arguments: &[&str], limit: Duration) -> io::Result<Option<Answer>> {
    let mut command = Command::new(program);
    command.args(arguments);
    ask_command(command, limit)
}

/// Runs a command and waits for its end, at most `limit`.
///
/// It gets a session of its own, whose process group is killed when the timeout ends: `Ok(None)`.
///
/// # Errors
/// Where it cannot be started.
pub fn ask_command(command: Command, limit: Duration) -> io::Result<Option<Answer>> {
    ask_command_unless(command, limit, &|| false)
}

/// Runs a command as [`ask_command`] does, and also kills it as soon as `is_stopped` returns true.
///
/// # Errors
/// Where it cannot be started.
pub fn ask_command_unless(
    mut command: Command,
    limit: Duration,
    is_stopped: &dyn Fn() -> bool,
) -> io::Result<Option<Answer>> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
    command.stdout(writer.try_clone()?).stderr(writer);
    let ended = run(command, [reader], limit, is_stopped)?;
    Ok(ended.map(|(success, [text])| Answer { success, text }))
}

/// Runs a command as [`ask_command`] does, and keeps its two streams apart: what it prints on standard error is no part of an
/// answer on standard output.
///
/// # Errors
/// Where it cannot be started.
pub fn ask_streams(mut command: Command, limit: Duration) -> io::Result<Option<Output>> {
    let (output, stdout) = pipe_with(PipeFlags::CLOEXEC)?;
    let (errors, stderr) = pipe_with(PipeFlags::CLOEXEC)?;
    command.stdout(stdout).stderr(stderr);
    let ended = run(command, [output, errors], limit, &|| false)?;
    Ok(ended.map(|(success, [stdout, stderr])| Output {
        success,
        stdout,
        stderr,
    }))
}

/// Runs a command whose streams are pipes to these readers; whether it succeeded, and what each reader read.
fn run<const N: usize>(
    command: Command,
    readers: [OwnedFd; N],
    limit: Duration,
    is_stopped: &dyn Fn() -> bool,
) -> io::Result<Option<(bool, [String; N])>> {
    let end = &End {
        deadline: Instant::now() + limit,
        is_stopped,
    };
    let mut child = {
        // The command keeps copies of the writing ends: they go with this block, else the pipes would never end.
        let mut command = command;
        command.env("LC_ALL", "C").stdin(Stdio::null());
        raw::in_own_session(&mut command);
        // This thread waits for its end.
        raw::end_with_this_thread(&mut command);
        command.spawn()?
    };
    let ended = read_until(&readers, end).and_then(|texts| {
        let Some(texts) = texts else { return Ok(None) };
        let success = wait_until(&mut child, end)?;
        Ok(success.map(|success| (success, texts)))
    });
    if !matches!(ended, Ok(Some(_))) {
        if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            // It fails only when nothing is left to kill.
            let _ = kill_process_group(group, Signal::KILL);
        }
        child.wait()?;
    }
    ended
}

/// When a command is killed.
struct End<'a> {
    deadline: Instant,
    is_stopped: &'a dyn Fn() -> bool,
}

impl End<'_> {
    /// Returns the time to wait before asking again; `None` once the end has come.
    fn left(&self) -> Option<Duration> {
        let left = self
            .deadline
            .checked_duration_since(Instant::now())
            .filter(|_| !(self.is_stopped)());
        left.map(|left| left.min(STOP_INTERVAL))
    }
}

/// Reads until the end of every pipe; `None` where `end` comes first.
fn read_until<const N: usize>(
    readers: &[OwnedFd; N],
    end: &End<'_>,
) -> io::Result<Option<[String; N]>> {
    let mut outputs = [(); N].map(|()| Vec::new());
    let mut is_open = [true; N];
    let mut buffer = [0; 16384];
    while is_open.contains(&true) {
        let Some(left) = end.left() else {
            return Ok(None);
        };
        let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
        let open: Vec<usize> = (0..N).filter(|reader| is_open[*reader]).collect();
        let mut fds: Vec<PollFd<'_>> = open
            .iter()
            .map(|reader| PollFd::new(&readers[*reader], PollFlags::IN))
            .collect();
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let ready = open
            .iter()
            .zip(&fds)
            .filter(|(_, fd)| !fd.revents().is_empty())
            .map(|(reader, _)| *reader);
        for reader in ready {
            let n = rustix::io::retry_on_intr(|| rustix::io::read(&readers[reader], &mut buffer))?;
            is_open[reader] = n > 0;
            // What is too much is still read, so that the program can end by itself.
            let output: &mut Vec<u8> = &mut outputs[reader];
            output.extend_from_slice(&buffer[..n.min(MAX_OUTPUT - output.len())]);
        }
    }
    Ok(Some(outputs.map(|output| {
        String::from_utf8_lossy(&output).into_owned()
    })))
}

/// Waits for the end of a program, which may close its output and stay; whether it succeeded, `None` where `end` comes first.
fn wait_until(child: &mut Child, end: &End<'_>) -> io::Result<Option<bool>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status.success()));
        }
        if end.left().is_none() {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Work that was begun beside other work, also where no more threads may be started (`ulimit -u`, a cgroup's pids.max).
pub(crate) enum Begun<'scope, T> {
    /// It goes on in a thread.
    Running(ScopedJoinHandle<'scope, T>),
    /// There was no thread for it: it was done at once.
    Done(T),
}

impl<T> Begun<'_, T> {
    /// Returns the work's result; `None` if it panicked.
    pub fn result(self) -> Option<T> {
        match self {
            Begun::Running(thread) => thread.join().ok(),
            Begun::Done(result) => Some(result),
        }
    }
}

/// Begins work in a thread of its own if one can be started.
pub(crate) fn begin<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl Fn() -> T + Copy + Send + 'scope,
) -> Begun<'scope, T> {
    match Builder::new().spawn_scoped(scope, work) {
        Ok(thread) => Begun::Running(thread),
        Err(_) => Begun::Done(work()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_comes_first_and_each_folder_once() {
        let folders = merged(OsStr::new("/opt/q/bin::relative:/usr/bin:/opt/q/bin"));
        assert_eq!(
            folders[..2],
            [PathBuf::from("/opt/q/bin"), PathBuf::from("/usr/bin")]
        );
        assert_eq!(
            folders
                .iter()
                .filter(|f| f.as_os_str() == "/usr/bin")
                .count(),
            1
        );
        assert!(folders.contains(&PathBuf::from("/usr/sbin")));
        assert!(folders.iter().all(|f| f.is_absolute()));
    }

    #[test]
    fn finds_programs_and_only_those() {
        assert!(find_program("sh").is_some());
        assert_eq!(find_program("no-such-program-of-vmtax"), None);
    }

    fn shell(script: &str, limit: Duration) -> io::Result<Option<Answer>> {
        ask(Path::new("/bin/sh"), &["-c", script], limit)
    }

    #[test]
    fn both_streams_and_the_status_come_back() {
        let answer = shell("echo out; echo err >&2; exit 3", Duration::from_secs(5))
            .unwrap()
            .unwrap();
        assert_eq!(
            (answer.text.as_str(), answer.success),
            ("out\nerr\n", false)
        );
    }

    #[test]
    fn the_streams_are_kept_apart_where_that_is_asked_for() {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "echo err >&2; echo out; exec 2>&-; echo more"]);
        let output = ask_streams(command, Duration::from_secs(5))
            .unwrap()
            .unwrap();
        assert_eq!(
            (&*output.stdout, &*output.stderr, output.success),
            ("out\nmore\n", "err\n", true)
        );
    }

    #[test]
    fn a_program_is_in_a_session_of_its_own_without_a_terminal() {
        // Field 6 of /proc/PID/stat is the session, field 7 the controlling terminal.
        let answer = shell(
            "read -r line </proc/$$/stat; set -- $line; echo $(($6 - $$)) $7",
            Duration::from_secs(5),
        );
        assert_eq!(answer.unwrap().unwrap().text, "0 0\n");
    }

    #[test]
    fn a_program_that_stays_is_killed_with_its_children() {
        let start = Instant::now();
        // A length of sleep that no other run of this test has.
        let marker = format!("3737.{}", std::process::id());
        let script = format!("sleep {marker} & sleep {marker}");
        assert!(
            shell(&script, Duration::from_millis(200))
                .unwrap()
                .is_none()
        );
        assert!(start.elapsed() < Duration::from_secs(3));
        std::thread::sleep(Duration::from_millis(100));
        let line = format!("sleep\0{marker}\0").into_bytes();
        let left = std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
            std::fs::read(entry.path().join("cmdline")).is_ok_and(|found| found == line)
        });
        assert!(!left, "a child outlived its group");
    }

    #[test]
    fn a_program_that_closes_its_output_and_stays_is_killed() {
        assert!(
            shell("exec >&- 2>&-; sleep 60", Duration::from_millis(200))
                .unwrap()
                .is_none()
        );
    }

    #[test]
    fn a_program_is_killed_as_soon_as_its_caller_stops() {
        for script in ["sleep 60", "exec >&- 2>&-; sleep 60"] {
            let start = Instant::now();
            let mut command = Command::new("/bin/sh");
            command.args(["-c", script]);
            let is_stopped = || start.elapsed() > Duration::from_millis(200);
            assert!(
                ask_command_unless(command, Duration::from_secs(60), &is_stopped)
                    .unwrap()
                    .is_none()
            );
            assert!(start.elapsed() < Duration::from_secs(5), "{script}");
        }
    }

    #[test]
    fn endless_output_is_bounded() {
        assert!(
            shell("exec yes", Duration::from_millis(300))
                .unwrap()
                .is_none()
        );
        let answer = shell("head -c 3000000 /dev/zero", Duration::from_secs(5))
            .unwrap()
            .unwrap();
        assert_eq!(answer.text.len(), MAX_OUTPUT);
    }
}
