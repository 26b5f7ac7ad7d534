//! Consoles of a guest, serial and virtio, that QEMU or virtlogd writes to a file, which can be read without taking them
//! from anybody; and the failure of its kernel that their text has last. The guest writes it, so it may say anything.

use super::arguments::{Arguments, Properties};
use super::libvirt::running_domain_xml;
use crate::vm::open_files::{OpenFile, opened_as};
use roxmltree::Document;
use rustix::fs::{Mode, OFlags, open};
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use vmtax_model::{FailureKind, KernelFailure, Managed, Manager};
use vmtax_observe::counters::started;

/// Longest text that is read at the end of a console, bytes.
const MAX_TEXT: u64 = 64 << 10;
/// More consoles are not read.
const MAX_CONSOLES: usize = 8;
/// A guest that panicked writes to no console: not even to another one so much later, s.
const MAX_LATER: u64 = 60;
/// QEMU's names of descriptors that were passed to it; it closes those of its command line and keeps copies.
const FDSET: &str = "/dev/fdset";
/// Devices of the guest on which its kernel may have a console.
const DEVICES: [&str; 5] = [
    "isa-serial",
    "pci-serial",
    "usb-serial",
    "virtconsole",
    "sclpconsole",
];

/// A console with the file that has its text.
#[derive(Debug)]
pub struct Console {
    /// Path in QEMU's arguments or libvirt's XML.
    name: PathBuf,
    /// Path by which it is opened from here.
    path: PathBuf,
    /// Version of the file that was read last, with the failure at its end.
    known: Option<(Version, Option<FailureLine>)>,
}

/// Time of a file's last change and its size, which another text changes.
type Version = (SystemTime, u64);

/// The consoles of a QEMU among the files that it has open. Where libvirt passed their descriptors to QEMU, which are pipes to
/// virtlogd, `managed` names the domain whose XML names the files.
pub(crate) fn consoles(
    pid: i32,
    arguments: &Arguments,
    files: &[OpenFile],
    managed: Option<&Managed>,
) -> Vec<Console> {
    let (passed, named): (Vec<PathBuf>, Vec<PathBuf>) = console_files(arguments)
        .into_iter()
        .partition(|name| name.starts_with(FDSET));
    let console = |name: PathBuf| {
        let path = opened_as(files, pid, &name).first()?.path.clone();
        is_regular(&path).then(|| Console::at(name, path))
    };
    let mut all: Vec<Console> = named.into_iter().filter_map(console).collect();
    if let Some(managed) =
        managed.filter(|managed| !passed.is_empty() && managed.manager == Manager::Libvirt)
    {
        let xml = running_domain_xml(pid, managed).unwrap_or_default();
        let files = files_of_domain(&xml).into_iter();
        all.extend(files.map(|path| Console::at(path.clone(), path)));
    }
    all.truncate(MAX_CONSOLES);
    all
}

/// The failure of the guest's kernel that its consoles have last: a panic before anything else. What was written before the
/// process began is another VM's.
pub fn kernel_failure(pid: i32, consoles: &mut [Console]) -> Option<KernelFailure> {
    let age = process_age(pid)?;
    let read: Vec<(u64, Option<KernelFailure>)> =
        consoles.iter_mut().filter_map(Console::read).collect();
    let newest = read.iter().map(|(age_s, _)| *age_s).min()?;
    let counts = |failure: &KernelFailure| {
        failure.age_s <= age
            && (failure.kind != FailureKind::Panic
                || failure.age_s.saturating_sub(newest) <= MAX_LATER)
    };
    let failures = read
        .into_iter()
        .filter_map(|(_, failure)| failure)
        .filter(counts);
    failures.min_by_key(|failure| (failure.kind != FailureKind::Panic, failure.age_s))
}

impl Console {
    /// Makes a console that was not read yet.
    fn at(name: PathBuf, path: PathBuf) -> Console {
        Console {
            name,
            path,
            known: None,
        }
    }

    /// The file's age, s, and the failure at its end.
    fn read(&mut self) -> Option<(u64, Option<KernelFailure>)> {
        let data = fs::metadata(&self.path)
            .ok()
            .filter(|data| data.is_file())?;
        let changed = data.modified().ok()?;
        let version = (changed, data.len());
        let known = self.known.as_ref();
        if known.is_none_or(|(known, _)| *known != version) {
            self.known = Some((version, last_failure(&tail(&self.path)?)));
        }
        let age_s = changed.elapsed().map_or(0, |age| age.as_secs());
        let (_, found) = self.known.as_ref()?;
        let failure = |found: &FailureLine| KernelFailure {
            kind: found.kind,
            line: found.line.clone(),
            file: self.name.clone(),
            age_s,
        };
        Some((age_s, found.as_ref().map(failure)))
    }
}

/// The end of a regular file. Nothing else is read, and opening it does not wait.
fn tail(path: &Path) -> Option<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let mut file = File::from(open(path, flags, Mode::empty()).ok()?);
    let data = file.metadata().ok().filter(fs::Metadata::is_file)?;
    let mut text = Vec::new();
    file.seek(SeekFrom::Start(data.len().saturating_sub(MAX_TEXT)))
        .ok()?;
    file.take(data.len().min(MAX_TEXT))
        .read_to_end(&mut text)
        .ok()?;
    Some(text)
}

fn is_regular(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|data| data.is_file())
}

/// Time since a process began, s, rounded up.
fn process_age(pid: i32) -> Option<u64> {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let began = started(pid)? / rustix::param::clock_ticks_per_second().max(1);
    Some((now.tv_sec as u64).saturating_sub(began))
}

/// The files of serial and virtio consoles that a command line names: `-serial file:PATH`, `-chardev file,path=…`, `logfile=…` of
/// any character device of a console.
fn console_files(arguments: &Arguments) -> Vec<PathBuf> {
    let mut ids: Vec<String> = Vec::new();
    let mut files: Vec<PathBuf> = Vec::new();
    for (option, value) in arguments.options() {
        match option {
            "serial" | "virtioconsole" => {
                let value = value.strip_prefix("mon:").unwrap_or(value);
                match (value.strip_prefix("chardev:"), value.strip_prefix("file:")) {
                    (Some(id), _) => ids.push(id.to_owned()),
                    (None, Some(path)) => files.push(path.into()),
                    (None, None) => {
                        files.extend(Properties::parse(value).get("logfile").map(PathBuf::from))
                    }
                }
            }
            "device" => {
                let device = Properties::parse(value);
                let driver = device.first("driver").unwrap_or_default();
                let chardev = device.get("chardev").filter(|_| DEVICES.contains(&driver));
                ids.extend(chardev.map(str::to_owned));
            }
            _ => {}
        }
    }
    for chardev in arguments.properties("chardev") {
        let is_file = chardev.first("backend") == Some("file");
        let id = chardev.get("id");
        if id.is_some_and(|id| ids.iter().any(|known| known == id)) {
            files.extend(chardev.get("path").filter(|_| is_file).map(PathBuf::from));
            files.extend(chardev.get("logfile").map(PathBuf::from));
        }
    }
    files
}

/// The files of `<serial>` and `<console>` in a domain's XML: `<log file='…'/>`, `<source path='…'/>` of the type `file`.
fn files_of_domain(xml: &str) -> Vec<PathBuf> {
    let Ok(document) = Document::parse(xml) else {
        return Vec::new();
    };
    let is_console =
        |node: &roxmltree::Node<'_, '_>| ["serial", "console"].contains(&node.tag_name().name());
    let mut files: Vec<PathBuf> = Vec::new();
    for console in document.descendants().filter(is_console) {
        let is_file = console.attribute("type") == Some("file");
        let named = console
            .children()
            .filter_map(|child| match child.tag_name().name() {
                "log" => child.attribute("file"),
                "source" if is_file => child.attribute("path"),
                _ => None,
            });
        files.extend(named.map(PathBuf::from).filter(|path| path.is_absolute()));
    }
    // The first serial device is the first console, too.
    files.sort();
    files.dedup();
    files
}

/// Longest line that is kept, characters.
const MAX_LINE: usize = 160;
/// The kernel's first line of each boot.
const BANNER: &str = "Linux version ";
const PANIC: &str = "Kernel panic - not syncing";
/// After this line a kernel that panicked prints only that it reboots.
const END_OF_PANIC: &str = "---[ end Kernel panic";
const REBOOTS: &str = "Rebooting in ";
/// Prefixes of the kernel's messages on a lockup or a stall.
const PREFIXES: [&str; 3] = ["NMI watchdog: ", "watchdog: ", "rcu: "];
/// The second line of an oops.
const OOPS: &str = "Oops: ";
/// First lines of an oops, as `arch/x86/mm/fault.c` and `arch/x86/kernel/traps.c` have them.
const BUGS: [&str; 4] = [
    "BUG: unable to handle ",
    "BUG: kernel NULL pointer dereference",
    "general protection fault",
    "kernel BUG at ",
];

/// A failure with the kernel's line about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FailureLine {
    pub kind: FailureKind,
    /// Printable, without the kernel's time.
    pub line: String,
}

/// The failure that a console's text has last, of the last boot in it: none comes before a later `Linux version`. A panic counts
/// only while nothing else but the kernel that panicked has printed.
pub(super) fn last_failure(text: &[u8]) -> Option<FailureLine> {
    let text = String::from_utf8_lossy(text);
    let mut last = Boot::default();
    text.split(['\n', '\r'])
        .for_each(|line| last.read(&printable(line)));
    last.failure
}

/// State of the text of the current boot.
#[derive(Debug, Default)]
struct Boot {
    failure: Option<FailureLine>,
    /// The kernel's time of a panic, s.
    panicked: Option<f64>,
    /// The panic's last line was printed.
    is_over: bool,
}

impl Boot {
    fn read(&mut self, line: &str) {
        let (time, message) = message(line);
        let has_panicked = self
            .failure
            .as_ref()
            .is_some_and(|failure| failure.kind == FailureKind::Panic);
        // Another boot without its banner (`quiet`): its clock begins again, or something else than the kernel prints.
        let is_earlier = time
            .zip(self.panicked)
            .is_some_and(|(time, panicked)| time < panicked);
        let is_foreign =
            self.is_over && time.is_none() && !message.is_empty() && !message.starts_with(REBOOTS);
        if line.contains(BANNER) || (has_panicked && (is_earlier || is_foreign)) {
            *self = Boot::default();
            return self.failure_in(time, message);
        }
        if !has_panicked {
            self.failure_in(time, message);
        }
        self.is_over |= line.contains(END_OF_PANIC);
    }

    /// Keeps the failure that a message reports.
    fn failure_in(&mut self, time: Option<f64>, message: &str) {
        if let Some((_, after)) = message.split_once(PANIC) {
            let after = after.strip_suffix(" ]---").unwrap_or(after);
            (self.failure, self.panicked) = (
                Some(line(FailureKind::Panic, &format!("{PANIC}{after}"))),
                time,
            );
            return;
        }
        let bare = PREFIXES.iter().fold(message, |rest, prefix| {
            rest.strip_prefix(prefix).unwrap_or(rest)
        });
        let is_stall = bare.starts_with("INFO: rcu_") && bare.contains("detected stall");
        let is_lockup = bare.starts_with("BUG: soft lockup - CPU")
            || bare.contains("detected hard LOCKUP on cpu");
        let is_bug = BUGS.iter().any(|start| bare.starts_with(start));
        let is_known = self
            .failure
            .as_ref()
            .is_some_and(|failure| failure.kind == FailureKind::Oops);
        if is_stall || is_lockup {
            self.failure = Some(line(FailureKind::Lockup, message));
        } else if is_bug || (bare.starts_with(OOPS) && !is_known) {
            self.failure = Some(line(FailureKind::Oops, message));
        }
    }
}

fn line(kind: FailureKind, text: &str) -> FailureLine {
    FailureLine {
        kind,
        line: text.trim().chars().take(MAX_LINE).collect(),
    }
}

/// A line without control characters and escape sequences of a terminal.
fn printable(line: &str) -> String {
    let mut text = String::new();
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter == '\u{1b}' && letters.next_if_eq(&'[').is_some() {
            // Parameters, then a letter.
            while letters
                .next_if(|c| ('\u{20}'..='\u{3f}').contains(c))
                .is_some()
            {}
            letters.next_if(|c| ('\u{40}'..='\u{7e}').contains(c));
        } else if !letter.is_control() {
            text.push(letter);
        }
    }
    text.trim().to_owned()
}

/// The kernel's time of a line, s, as in `[   12.345678]`, and the message after it; the whole line where it has none.
fn message(line: &str) -> (Option<f64>, &str) {
    for (at, _) in line.match_indices('[') {
        let Some((inside, after)) = line[at + 1..].split_once(']') else {
            break;
        };
        let is_number = inside.contains('.')
            && inside
                .trim()
                .bytes()
                .all(|b| b.is_ascii_digit() || b == b'.');
        if let Some(time) = inside.trim().parse().ok().filter(|_| is_number) {
            return (Some(time), without_caller(after.trim_start()));
        }
    }
    (None, line)
}

/// A message without the thread or CPU that printed it, as in `[    T1]` (`CONFIG_PRINTK_CALLER`).
fn without_caller(message: &str) -> &str {
    let caller = message
        .strip_prefix('[')
        .and_then(|rest| rest.split_once(']'));
    match caller {
        Some((caller, after)) if caller.trim().starts_with(['T', 'C']) => after.trim_start(),
        _ => message,
    }
}

/// Length of the line of the failure that a console's text has last, 0 without one, for fuzzing.
///
/// # Panics
/// If the line is longer than it may be, or has control characters.
pub fn read_console(text: &[u8]) -> usize {
    let Some(found) = last_failure(text) else {
        return 0;
    };
    let count = found.line.chars().count();
    assert!(
        count <= MAX_LINE && !found.line.chars().any(char::is_control),
        "{:?}",
        found.line
    );
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::open_files::open_files;
    use proptest::prelude::*;
    use std::io::Write;
    use std::time::Duration;

    fn files(line: &str) -> Vec<PathBuf> {
        console_files(&Arguments::from_line(line))
    }

    fn paths(all: &[&str]) -> Vec<PathBuf> {
        all.iter().map(PathBuf::from).collect()
    }

    #[test]
    fn consoles_that_write_a_file_are_named_in_four_forms() {
        assert_eq!(files("q -serial file:/a,b"), paths(&["/a,b"]));
        assert_eq!(
            files("q -chardev file,id=c,path=/a -serial chardev:c"),
            paths(&["/a"])
        );
        let logged = "q -chardev pty,id=c,logfile=/l -device {\"driver\":\"isa-serial\",\"chardev\":\"c\",\"id\":\"s\"}";
        assert_eq!(files(logged), paths(&["/l"]));
        assert_eq!(
            files("q -serial unix:/s,server=on,logfile=/l"),
            paths(&["/l"])
        );
        assert_eq!(
            files("q -chardev socket,id=v,path=/sock,logfile=v.log -device virtconsole,chardev=v"),
            paths(&["v.log"])
        );
        assert_eq!(
            files(
                "q -serial mon:stdio -serial pty -chardev file,id=d,path=/d -device isa-debugcon,chardev=d"
            ),
            paths(&[])
        );
    }

    #[test]
    fn libvirts_xml_names_the_files_of_its_consoles() {
        let xml = "<domain><devices><serial type='pty'><source path='/dev/pts/3'/><log file='/l' append='on'/></serial>\
                   <console type='pty'><log file='/l'/></console><serial type='file'><source path='/f'/></serial>\
                   <channel type='file'><source path='/c'/></channel></devices></domain>";
        assert_eq!(files_of_domain(xml), paths(&["/f", "/l"]));
        assert_eq!(files_of_domain("no xml"), paths(&[]));
    }

    /// A console of this process at a file that it has open.
    fn own(path: &Path) -> Vec<Console> {
        let pid = std::process::id() as i32;
        let line = format!("q -serial file:{}", path.display());
        consoles(
            pid,
            &Arguments::from_line(&line),
            &open_files(pid).unwrap(),
            None,
        )
    }

    #[test]
    fn a_file_is_read_where_qemu_has_it_open_and_again_when_it_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("console");
        fs::write(&path, "").unwrap();
        assert!(own(&path).is_empty(), "it is not open");
        let mut file = File::options().append(true).open(&path).unwrap();
        let mut all = own(&path);
        let pid = std::process::id() as i32;
        assert_eq!(kernel_failure(pid, &mut all), None);
        file.write_all(&vec![b'\n'; 70 << 10]).unwrap();
        file.write_all(b"Kernel panic - not syncing: a\n").unwrap();
        let found = kernel_failure(pid, &mut all).unwrap();
        assert_eq!(
            (&*found.line, &found.file),
            ("Kernel panic - not syncing: a", &path)
        );
        assert!(found.age_s < 60, "{found:?}");
        file.write_all(b"Linux version 6.1\n").unwrap();
        assert_eq!(kernel_failure(pid, &mut all), None);
        file.write_all(b"Kernel panic - not syncing: b\n").unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(1 << 30))
            .unwrap();
        assert_eq!(
            kernel_failure(pid, &mut all),
            None,
            "older than the process"
        );
    }

    #[test]
    fn what_is_no_regular_file_is_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            rustix::fs::FileType::Fifo,
            Mode::RWXU,
            0,
        )
        .unwrap();
        let _open = File::options().read(true).write(true).open(&fifo).unwrap();
        assert!(own(&fifo).is_empty());
        assert_eq!((tail(&fifo), tail(Path::new("/dev/tty"))), (None, None));
    }

    #[test]
    fn a_console_written_later_excludes_a_panic_on_another() {
        let folder = tempfile::tempdir().unwrap();
        let console = |name: &str, text: &str, age: u64| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            File::options()
                .append(true)
                .open(&path)
                .unwrap()
                .set_modified(SystemTime::now() - Duration::from_secs(age))
                .unwrap();
            Console::at(path.clone(), path)
        };
        // The first process began with the host.
        let failure_kind = |panic: u64, other: u64| {
            let mut all = [
                console("a", "Kernel panic - not syncing: a\n", panic),
                console("b", "Oops: 0002 [#1]\n", other),
            ];
            kernel_failure(1, &mut all).map(|found| found.kind)
        };
        assert_eq!(
            (failure_kind(8, 1), failure_kind(120, 1)),
            (Some(FailureKind::Panic), Some(FailureKind::Oops))
        );
    }

    const PANICKED: &str = "[    0.000000] Linux version 6.1.0 (gcc)\r\n[    1.2] Freeing memory\r\n\
        [    2.500000] Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000100\r\n\
        [    2.500100] CPU: 0 PID: 1 Comm: init Not tainted 6.1.0\r\n[    2.6] Kernel Offset: disabled\r\n\
        [    2.600000] ---[ end Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000100 ]---\r\n";

    fn last(text: &str) -> Option<(FailureKind, String)> {
        last_failure(text.as_bytes()).map(|found| (found.kind, found.line))
    }

    fn panic(line: &str) -> Option<(FailureKind, String)> {
        Some((FailureKind::Panic, line.to_owned()))
    }

    #[test]
    fn a_panic_is_the_last_boots() {
        let expected =
            panic("Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000100");
        assert_eq!(last(PANICKED), expected);
        assert_eq!(
            last(&format!("{PANICKED}[    2.7] Rebooting in 5 seconds..\n\n")),
            expected
        );
        assert_eq!(
            last(&format!("{PANICKED}{PANICKED}")),
            expected,
            "the second boot panics, too"
        );
        for later in [
            "[    0.000000] Linux version 6.1.0\n",
            "[    0.100000] x86/cpu: a warning of a quiet boot\n",
            "\u{1b}c\u{1b}[?7lSeaBIOS (version 1.16)\n",
            "web01 login: ",
        ] {
            assert_eq!(last(&format!("{PANICKED}{later}")), None, "{later}");
        }
    }

    #[test]
    fn a_panic_is_found_without_times_in_a_cut_text_and_behind_a_prompt() {
        let bare = "Kernel panic - not syncing: VFS: Unable to mount root fs";
        assert_eq!(last(bare), panic(bare));
        assert_eq!(
            last(&format!("login: [  7.1][    T1] {bare}\nCall Trace:\n")),
            panic(bare)
        );
        assert_eq!(
            last(&format!("[ 7.1] ---[ end {bare} ]---\n")),
            panic(bare),
            "the text begins in it"
        );
        assert_eq!(last("kernel panic? no\nLinux version 6.1\n"), None);
    }

    #[test]
    fn lockups_stalls_and_oopses_are_kept_until_the_next_boot() {
        let assert_failure = |text: &str, kind: FailureKind, line: &str| {
            assert_eq!(last(text), Some((kind, line.to_owned())))
        };
        let soft = "watchdog: BUG: soft lockup - CPU#0 stuck for 22s! [a:1]";
        assert_failure(
            &format!("[ 9.0] {soft}\n[ 9.1] Modules linked in:\n"),
            FailureKind::Lockup,
            soft,
        );
        assert_failure(
            "BUG: soft lockup - CPU#3 stuck for 9s!",
            FailureKind::Lockup,
            "BUG: soft lockup - CPU#3 stuck for 9s!",
        );
        for stall in [
            "rcu: INFO: rcu_sched self-detected stall on CPU",
            "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
            "watchdog: Watchdog detected hard LOCKUP on cpu 1",
        ] {
            assert_failure(
                &format!("[ 1.0][   C2] {stall}\r\n"),
                FailureKind::Lockup,
                stall,
            );
        }
        let bug = "BUG: kernel NULL pointer dereference, address: 0000000000000008";
        assert_failure(
            &format!("[ 3.0] {bug}\n[ 3.0] #PF: error_code\n[ 3.0] Oops: 0002 [#1] SMP\n"),
            FailureKind::Oops,
            bug,
        );
        assert_failure("Oops: 0002 [#1]", FailureKind::Oops, "Oops: 0002 [#1]");
        assert_eq!(last(&format!("{bug}\nLinux version 6\n")), None);
        assert_eq!(
            last("[ 1.0] traps: a[7] general protection fault ip:0\n"),
            None,
            "of a program"
        );
        let panicked = format!("{bug}\nKernel panic - not syncing: Fatal exception\n{soft}\n");
        assert_eq!(
            last(&panicked),
            panic("Kernel panic - not syncing: Fatal exception")
        );
    }

    #[test]
    fn what_a_terminal_would_obey_is_left_out_and_a_line_has_an_end() {
        let text = format!(
            "Kernel panic - not syncing: \u{1b}[31mred\u{7}\u{9b}2J{}",
            "x".repeat(999)
        );
        let (_, line) = last(&text).unwrap();
        assert!(
            line.starts_with("Kernel panic - not syncing: red2J") && line.len() == MAX_LINE,
            "{line}"
        );
        assert_eq!(
            last_failure(b"\xff\xfeKernel panic - not syncing\x00: a"),
            last_failure(b"Kernel panic - not syncing: a")
        );
    }

    proptest! {
        #[test]
        fn any_text_gives_a_bounded_printable_line(
            parts in proptest::collection::vec(
                r"(Kernel panic - not syncing|---\[ end |\[ +[0-9]{1,3}\.[0-9]\]|Linux version |BUG: soft lockup - CPU|Oops: |\[|\]|\r|\n|.{0,20})",
                0..40,
            ),
        ) {
            read_console(parts.concat().as_bytes());
        }

        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            read_console(&bytes);
        }

        /// Nothing that a boot printed counts after the next one's first line.
        #[test]
        fn a_later_boot_ends_it(before in r"(Kernel panic - not syncing|Oops: |\n|.{0,9}){0,20}") {
            prop_assert_eq!(last(&format!("{before}\nLinux version 6.1\nok\n")), None);
        }
    }
}
