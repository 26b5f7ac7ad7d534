//! A QEMU that others started, asked through a monitor that its command line names and nobody uses.

use crate::MachineError;
use crate::outside;
use crate::qemu::monitor::Monitor;
use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// A monitor that somebody uses takes the connection and does not greet.
const PATIENCE: Duration = Duration::from_secs(2);

/// A running QEMU's monitor. Copies of it ask in turn.
#[derive(Debug, Clone)]
pub struct QemuMonitor(pub(crate) Monitor);

impl QemuMonitor {
    /// That of a process.
    ///
    /// # Errors
    /// [`MachineError::Monitor`] where its command line names none that answers.
    pub fn of(pid: i32) -> Result<QemuMonitor, MachineError> {
        let words = command_line(pid);
        let mut why = "its command line names no QMP socket".to_owned();
        for path in sockets(&words) {
            // As the process itself sees it.
            let seen = match path.strip_prefix("/") {
                Ok(below) => PathBuf::from(format!("/proc/{pid}/root")).join(below),
                Err(_) => PathBuf::from(format!("/proc/{pid}/cwd")).join(&path),
            };
            let connected = UnixStream::connect(&seen).map_err(|e| MachineError::Monitor(e.to_string()));
            match connected.and_then(|stream| Monitor::connect(stream, PATIENCE)) {
                Ok(monitor) => return Ok(QemuMonitor(monitor)),
                Err(error) => why = format!("{}: {error}", path.display()),
            }
        }
        Err(MachineError::Monitor(why))
    }

    /// What to do where a process has no monitor that answers.
    pub(crate) fn advice(pid: i32) -> String {
        advice(&command_line(pid)).to_owned()
    }

    /// Its memory tree, as `info mtree -f` prints it.
    ///
    /// # Errors
    /// [`MachineError::Monitor`].
    pub fn memory_tree(&self) -> Result<String, MachineError> {
        self.0.human("info mtree -f", None, PATIENCE)
    }

    /// The numbers of its guest's processors. Where some were plugged in later, there are gaps.
    ///
    /// # Errors
    /// [`MachineError::Monitor`].
    pub fn processors(&self) -> Result<Vec<u32>, MachineError> {
        let all = self.0.execute("query-cpus-fast", PATIENCE)?;
        let numbers = all.as_array().into_iter().flatten().filter_map(|cpu| cpu["cpu-index"].as_u64());
        Ok(numbers.filter_map(|number| u32::try_from(number).ok()).collect())
    }

    /// What a command for people prints about one of the guest's processors, by its number.
    ///
    /// # Errors
    /// [`MachineError::Monitor`], also for a processor that is not there.
    pub fn of_processor(&self, processor: u32, command: &str) -> Result<String, MachineError> {
        self.0.human(command, Some(processor), PATIENCE)
    }

    /// KVM's own counters of the guest's processors, summed up; empty where it is not KVM, or QEMU does not tell (it does
    /// since 7.1).
    pub fn kvm_counters(&self) -> BTreeMap<String, u64> {
        outside::kvm_counters(&self.0).unwrap_or_default()
    }
}

/// What to do where a process with this command line has no monitor that answers.
fn advice(words: &[String]) -> &'static str {
    // libvirt passes its own end of the socket as a file: there is no path to connect to.
    let is_inherited = |word: &String| word.starts_with("socket,") && word.contains(",fd=");
    if words.iter().any(is_inherited) {
        "its monitor is libvirt's: ask through `virsh qemu-monitor-command DOMAIN`"
    } else {
        "give it one that nobody else uses (-qmp unix:/run/NAME.qmp,server=on,wait=off)"
    }
}

/// A process's command line; empty where there is no such process.
fn command_line(pid: i32) -> Vec<String> {
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    words.split(|b| *b == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// The Unix sockets of QMP monitors that a command line names: `-qmp unix:PATH,…`, or `-chardev socket,id=ID,path=PATH`
/// with `-mon chardev=ID,mode=control`.
pub fn sockets(words: &[String]) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    let (mut chardevs, mut monitors) = (BTreeMap::new(), Vec::new());
    for pair in words.windows(2) {
        let options = options(&pair[1]);
        let of = |key: &str| options.iter().find_map(|o| o.strip_prefix(key)?.strip_prefix('=').map(str::to_owned));
        match pair[0].trim_start_matches('-') {
            "qmp" | "qmp-pretty" => {
                paths.extend(options.first().and_then(|o| o.strip_prefix("unix:")).map(PathBuf::from))
            }
            "chardev" if options.first().is_some_and(|kind| kind == "socket") => {
                chardevs.extend(of("id").zip(of("path")));
            }
            "mon" if of("mode").is_some_and(|mode| mode == "control") => {
                monitors.extend(of("chardev").or_else(|| options.first().cloned()));
            }
            _ => {}
        }
    }
    paths.extend(monitors.iter().filter_map(|id| chardevs.get(id)).map(PathBuf::from));
    paths
}

/// A word's options: between commas, of which two stand for one that is part of a value.
fn options(word: &str) -> Vec<String> {
    let mut options = vec![String::new()];
    let mut letters = word.chars().peekable();
    while let Some(letter) = letters.next() {
        match (letter, letters.peek()) {
            (',', Some(',')) => {
                letters.next();
            }
            (',', _) => {
                options.push(String::new());
                continue;
            }
            _ => {}
        }
        options.last_mut().into_iter().for_each(|last| last.push(letter));
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(line: &str) -> Vec<String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        sockets(&words).iter().map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn monitors_are_found_in_either_spelling() {
        assert_eq!(of("qemu -m 1G -qmp unix:/run/a,,b,server=on,wait=off"), ["/run/a,b"]);
        assert_eq!(of("qemu --chardev socket,id=c,path=q.sock,server=on -mon chardev=c,mode=control"), ["q.sock"]);
        assert_eq!(of("qemu -mon c,mode=control -chardev socket,path=/q,id=c"), ["/q"]);
        let none =
            ["qemu", "qemu -qmp", "qemu -qmp tcp:1:2", "qemu -chardev socket,id=c,path=/q -mon chardev=c", "-mon ,,"];
        assert!(none.iter().all(|line| of(line).is_empty()));
    }

    #[test]
    fn a_process_without_a_monitor_says_so() {
        let why = QemuMonitor::of(std::process::id() as i32).unwrap_err().to_string();
        assert!(why.contains("no QMP socket"), "{why}");
    }

    #[test]
    fn who_holds_the_monitor_is_named() {
        let of = |line: &str| advice(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        let libvirt = "qemu -chardev socket,id=charmonitor,fd=36,server=on -mon chardev=charmonitor,mode=control";
        assert!(of(libvirt).contains("virsh qemu-monitor-command") && !of(libvirt).contains("-qmp"));
        assert!(of("qemu -m 1G").contains("-qmp unix:"));
    }

    proptest! {
        #[test]
        fn any_command_line_is_survived(words in proptest::collection::vec("(-qmp|-mon|-chardev|[a-z=,:]{0,20})", 0..8)) {
            let _ = sockets(&words);
        }
    }
}
