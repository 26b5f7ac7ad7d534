//! Serial and virtio consoles of a guest that QEMU or virtlogd writes to a file, which can be read without taking them from anybody.

use super::arguments::{Arguments, Properties, path_of};
use super::console_text::{FailureLine, last_failure};
use super::libvirt::running_domain_xml;
use crate::vm::open_files::OpenFile;
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
pub(crate) struct Console {
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
        let at = path_of(pid, &name);
        let path = files.iter().find(|file| file.is_at(&at))?.path.clone();
        is_regular(&path).then_some(Console {
            name,
            path,
            known: None,
        })
    };
    let mut all: Vec<Console> = named.into_iter().filter_map(console).collect();
    if let Some(managed) =
        managed.filter(|managed| !passed.is_empty() && managed.manager == Manager::Libvirt)
    {
        let xml = running_domain_xml(pid, managed).unwrap_or_default();
        all.extend(files_of_domain(&xml).into_iter().map(|path| Console {
            name: path.clone(),
            path,
            known: None,
        }));
    }
    all.truncate(MAX_CONSOLES);
    all
}

/// The failure of the guest's kernel that its consoles have last: a panic before anything else. What was written before the
/// process began is another VM's.
pub(crate) fn kernel_failure(pid: i32, consoles: &mut [Console]) -> Option<KernelFailure> {
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
    /// The file's age, s, and the failure at its end.
    fn read(&mut self) -> Option<(u64, Option<KernelFailure>)> {
        let data = fs::metadata(&self.path)
            .ok()
            .filter(|data| data.is_file())?;
        let changed = data.modified().ok()?;
        let version = (changed, data.len());
        if self
            .known
            .as_ref()
            .is_none_or(|(known, _)| *known != version)
        {
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
                let is_console = device
                    .first("driver")
                    .is_some_and(|driver| DEVICES.contains(&driver));
                ids.extend(
                    device
                        .get("chardev")
                        .filter(|_| is_console)
                        .map(str::to_owned),
                );
            }
            _ => {}
        }
    }
    for chardev in arguments.properties("chardev") {
        let is_file = chardev.first("backend") == Some("file");
        if chardev
            .get("id")
            .is_some_and(|id| ids.iter().any(|known| known == id))
        {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::open_files::open_files;
    use std::io::Write;
    use std::time::Duration;

    fn of(line: &str) -> Vec<PathBuf> {
        console_files(&Arguments::from_line(line))
    }

    fn paths(all: &[&str]) -> Vec<PathBuf> {
        all.iter().map(PathBuf::from).collect()
    }

    #[test]
    fn consoles_that_write_a_file_are_named_in_four_forms() {
        assert_eq!(of("q -serial file:/a,b"), paths(&["/a,b"]));
        assert_eq!(
            of("q -chardev file,id=c,path=/a -serial chardev:c"),
            paths(&["/a"])
        );
        let logged = "q -chardev pty,id=c,logfile=/l -device {\"driver\":\"isa-serial\",\"chardev\":\"c\",\"id\":\"s\"}";
        assert_eq!(of(logged), paths(&["/l"]));
        assert_eq!(of("q -serial unix:/s,server=on,logfile=/l"), paths(&["/l"]));
        assert_eq!(
            of("q -chardev socket,id=v,path=/sock,logfile=v.log -device virtconsole,chardev=v"),
            paths(&["v.log"])
        );
        assert_eq!(
            of(
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
            Console {
                name: path.clone(),
                path,
                known: None,
            }
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
}
