//! Sources of a test guest that people give: a VM's name, a file, a command line.

use super::definition::Twin;
use super::error::TwinError;
use super::xml::without_secrets;
use super::{command_line, domain_xml, image};
use crate::vm::Vm;
use crate::vmm::qemu::arguments::path_of;
use crate::vmm::qemu::libvirt::{domain_xml as stored, domain_xml_of};
use crate::{FindError, MachineError};
use std::io::Read;
use std::path::{Path, PathBuf};
use vmtax_model::{Manager, VmSettings};

/// Programs that decide on which CPUs, with which priority or within which limits QEMU runs.
const WRAPPERS: [&str; 9] = [
    "cgexec",
    "chrt",
    "ionice",
    "nice",
    "numactl",
    "prlimit",
    "schedtool",
    "systemd-run",
    "taskset",
];
/// Those that change nothing of its speed.
const SILENT_WRAPPERS: [&str; 6] = ["env", "exec", "nohup", "setsid", "sudo", "time"];
/// A longer file is no domain.
const MAX_XML: u64 = 4 << 20;

/// The twin of what `like` is: a QEMU command line, a file with one or with a domain's XML, or a VM by what people call it; of its
/// disk of that name, else of the first. Nothing of the original is changed.
///
/// # Errors
/// [`TwinError`] where there is no such VM, file or disk, or it is not of x86.
pub fn twin(like: &str, disk: Option<&str>) -> Result<Twin, TwinError> {
    let mut twin = if let Some(line) = Line::of(like)? {
        line.twin(disk)?
    } else if Path::new(like).is_file() {
        let text = text_of(Path::new(like))?;
        // XML has quotes of its own.
        let is_xml = text
            .trim_start_matches('\u{feff}')
            .trim_start()
            .starts_with('<');
        let line = if is_xml {
            None
        } else {
            Line::of(&last_start(&text))?
        };
        let mut twin = match line {
            Some(line) => line.twin(disk)?,
            None => domain_xml::read(&text, disk)?,
        };
        twin.source += &format!(" of {like}");
        twin
    } else {
        of_vm(like, disk)?
    };
    keep_trusted_program(&mut twin);
    image::add(&mut twin);
    twin.domain_xml = twin.domain_xml.take().map(|xml| without_secrets(&xml));
    Ok(twin)
}

/// A QEMU command line as people have it.
pub(crate) struct Line {
    /// The words from QEMU's program on.
    pub words: Vec<String>,
    /// Programs before it that decide where and how QEMU runs.
    pub wrappers: Vec<String>,
}

impl Line {
    /// Reads a line; `None` for any other.
    pub fn of(text: &str) -> Result<Option<Line>, TwinError> {
        let mut wrappers = words(text)?;
        let is_wrapper = |word: &String| {
            let name = command_line::file_name(word);
            WRAPPERS.contains(&name) || SILENT_WRAPPERS.contains(&name) || is_assignment(word)
        };
        let begin = wrappers
            .iter()
            .position(|word| command_line::is_program(word));
        let Some(begin) = begin.filter(|at| *at == 0 || wrappers.first().is_some_and(is_wrapper))
        else {
            return Ok(None);
        };
        let words = wrappers.split_off(begin);
        if words.len() < 2 {
            return Ok(None);
        }
        match words.iter().find_map(|word| variable(word)) {
            Some(name) => Err(TwinError::Variable(name.to_owned())),
            None => Ok(Some(Line { words, wrappers })),
        }
    }

    fn twin(&self, disk: Option<&str>) -> Result<Twin, TwinError> {
        let mut twin = command_line::read(&self.words, disk)?;
        for name in self.deciding_wrappers() {
            twin.lacks(format!("{name} before QEMU"));
        }
        Ok(twin)
    }

    /// The programs before QEMU that decide where and how it runs.
    pub fn deciding_wrappers(&self) -> impl Iterator<Item = &str> {
        let names = self
            .wrappers
            .iter()
            .map(|word| command_line::file_name(word));
        names.filter(|name| WRAPPERS.contains(name))
    }
}

/// Returns true for `NAME=VALUE`, which sets a variable of QEMU's environment.
fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    })
}

/// The variable of a shell that a word has.
fn variable(word: &str) -> Option<&str> {
    let (at, _) = word.match_indices('$').find(|(at, _)| {
        let next = word[at + 1..].bytes().next();
        next.is_some_and(|b| b.is_ascii_alphabetic() || b"_{(".contains(&b))
    })?;
    let name = &word[at + 1..];
    let is_end = |c: char| !c.is_ascii_alphanumeric() && !"_{(".contains(c);
    let end = name.find(is_end).unwrap_or(name.len());
    Some(&word[at..at + 1 + end])
}

/// The command line in a file: without lines of comment; of libvirt's log of a domain the last.
pub(crate) fn last_start(text: &str) -> String {
    let started = text.rsplit_once(": starting up libvirt version");
    let of_start = |(_, rest): (&str, &'_ str)| {
        rest.split_once('\n')
            .map_or("", |(_, rest)| rest)
            .to_owned()
    };
    let Some(log) = started.map(of_start) else {
        let lines = text
            .lines()
            .filter(|line| !line.trim_start().starts_with('#'));
        return lines.map(|line| format!("{line}\n")).collect();
    };
    let mut lines = String::new();
    for line in log.lines() {
        lines += &format!("{line}\n");
        if !line.ends_with('\\') {
            break;
        }
    }
    lines
}

/// Root executes no QEMU that a file or another user's process names, where other users can change it.
fn keep_trusted_program(twin: &mut Twin) {
    let Some(program) = twin.qemu.take() else {
        return;
    };
    match vmtax_trust::untrusted(&program, vmtax_trust::Owner::Root) {
        Ok(None) => twin.qemu = Some(program),
        Ok(Some(why)) => twin.lacks(format!(
            "QEMU {}: {why}; --qemu uses it all the same",
            program.display()
        )),
        Err(why) => twin.lacks(format!("QEMU {}: {why}", program.display())),
    }
}

fn text_of(path: &Path) -> Result<String, TwinError> {
    let failed = |source| TwinError::File {
        file: path.to_path_buf(),
        source,
    };
    let mut text = String::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(MAX_XML).read_to_string(&mut text))
        .map_err(failed)?;
    Ok(text)
}

/// The twin of a VM that runs, else of a domain of libvirt that does not.
fn of_vm(name: &str, disk: Option<&str>) -> Result<Twin, TwinError> {
    let vm = match Vm::find(name) {
        Ok(vm) => vm,
        Err(found @ (FindError::NoVms | FindError::Unknown { .. })) => {
            return match stored(name) {
                Ok(xml) => domain_xml::read(&xml, disk),
                Err(libvirt) => {
                    let libvirt = match libvirt {
                        MachineError::Monitor(why) => why,
                        other => other.to_string(),
                    };
                    Err(TwinError::NoVm {
                        name: name.to_owned(),
                        found,
                        libvirt,
                    })
                }
            };
        }
        Err(other) => return Err(TwinError::Find(other)),
    };
    of_running(&vm, disk)
}

fn of_running(vm: &Vm, disk: Option<&str>) -> Result<Twin, TwinError> {
    let pid = vm.pid();
    let arguments = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let arguments: Vec<String> = arguments
        .split(|b| *b == 0)
        .map(|argument| String::from_utf8_lossy(argument).into_owned())
        .collect();
    let managed = vm.managed();
    let is_libvirt = managed
        .as_ref()
        .is_some_and(|managed| managed.manager == Manager::Libvirt);
    let domain = managed
        .as_ref()
        .filter(|_| is_libvirt)
        .and_then(|managed| domain_xml_of(pid, managed).ok());
    let mut twin = match &domain {
        // What QEMU was started with has the CPU and the machine as a whole; the domain its limits and its disks' names.
        Some((running, stored)) => {
            let mut twin = domain_xml::read(running, disk)?;
            if let Ok(started) = command_line::read(&arguments, None) {
                twin.machine_type = started.machine_type.or(twin.machine_type);
                twin.cpu_model = started.cpu_model.or(twin.cpu_model);
                twin.not_twinned
                    .retain(|line| !line.starts_with("CPU model host-model"));
            }
            twin.domain_xml = Some(stored.clone());
            twin
        }
        None => {
            let mut twin = command_line::read(&arguments, disk)?;
            add_live(&mut twin, &vm.settings(false));
            twin.source = vm
                .name()
                .map_or_else(|| "VM".to_owned(), |name| format!("VM {name}"));
            if managed.is_some() && vm.monitor().is_none_or(crate::Monitor::taints) {
                twin.lacks(
                    "limits and caches that were set while it runs: its monitor is its manager's",
                );
            }
            twin
        }
    };
    twin.source += &format!(" (PID {pid})");
    // In a container the path is another file's.
    let program = vm.binary().filter(|path| path.is_file());
    twin.qemu = program
        .clone()
        .filter(|path| seen_from_here(pid, path) == *path);
    if let Some(program) = program.filter(|_| twin.qemu.is_none()) {
        twin.lacks(format!(
            "QEMU {}: that of a container; --qemu names one",
            program.display()
        ));
    }
    twin.is_kvm = vm
        .accelerator()
        .map(|accelerator| accelerator == vmtax_model::Accelerator::Kvm)
        .or(twin.is_kvm);
    twin.disk.file = twin.disk.file.take().map(|file| seen_from_here(pid, &file));
    Ok(twin)
}

/// The image of a VM in a container lies elsewhere.
fn seen_from_here(pid: i32, file: &Path) -> PathBuf {
    let inside = path_of(pid, file);
    let is_same = || {
        use std::os::unix::fs::MetadataExt;
        let (a, b) = (file.metadata().ok()?, inside.metadata().ok()?);
        Some((a.dev(), a.ino()) == (b.dev(), b.ino()))
    };
    if is_same() == Some(true) || !inside.exists() {
        file.to_path_buf()
    } else {
        inside
    }
}

/// Takes over the disk's limits that were set while the VM runs, as the monitor reports them.
fn add_live(twin: &mut Twin, settings: &VmSettings) {
    let is_disk = |disk: &&vmtax_model::DiskSettings| Some(&disk.file) == twin.disk.file.as_ref();
    let Some(disk) = settings.disks.iter().find(is_disk) else {
        return;
    };
    let limits = disk.limits.clone().unwrap_or_default();
    twin.disk
        .set
        .retain(|key, _| !key.starts_with("throttling."));
    let kinds = ["total", "read", "write"];
    let mut set = |unit: &str, end: &str, values: &[u64; 3]| {
        for (kind, value) in kinds.iter().zip(values).filter(|(_, value)| **value > 0) {
            twin.disk
                .set(&format!("throttling.{unit}-{kind}{end}"), value.to_string());
        }
    };
    set("iops", "", &limits.requests_per_s);
    set("bps", "", &limits.bytes_per_s);
    set("iops", "-max", &limits.burst_requests_per_s);
    set("bps", "-max", &limits.burst_bytes_per_s);
    // The length of a burst that there is not is 1 s.
    if limits.burst_requests_per_s.iter().any(|burst| *burst > 0) {
        set("iops", "-max-length", &limits.burst_requests_s);
    }
    if limits.burst_bytes_per_s.iter().any(|burst| *burst > 0) {
        set("bps", "-max-length", &limits.burst_bytes_s);
    }
    if limits.request_size > 0 {
        twin.disk
            .set("throttling.iops-size", limits.request_size.to_string());
    }
}

/// The words of a line as a shell has them: quotes, and backslashes before any character; also before the end of a line.
pub(super) fn words(line: &str) -> Result<Vec<String>, TwinError> {
    let (mut all, mut word): (Vec<String>, Option<String>) = (Vec::new(), None);
    let mut letters = line.chars();
    let mut quote = None;
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(open), letter) if letter == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => match letters.next() {
                Some('\n') => {}
                // Between double quotes it stands for itself before most.
                Some(next) if quote.is_some() && !matches!(next, '"' | '\\' | '$' | '`') => {
                    word.get_or_insert_default().extend(['\\', next]);
                }
                Some(next) => word.get_or_insert_default().push(next),
                None => {}
            },
            (None, blank) if blank.is_whitespace() => all.extend(word.take()),
            (_, letter) => word.get_or_insert_default().push(letter),
        }
    }
    if quote.is_some() {
        return Err(TwinError::Quote);
    }
    all.extend(word);
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use vmtax_model::shell_line;

    #[test]
    fn a_line_is_read_as_a_shell_reads_it() {
        let read =
            words("qemu  -m 1G \\\n -append 'a b' -device '{\"a\": 1}' \"x\\\"y\\n\" ''").unwrap();
        assert_eq!(
            read,
            [
                "qemu",
                "-m",
                "1G",
                "-append",
                "a b",
                "-device",
                "{\"a\": 1}",
                "x\"y\\n",
                ""
            ]
        );
        assert!(matches!(words("qemu 'x"), Err(TwinError::Quote)));
    }

    fn read_line(text: &str) -> Result<Twin, TwinError> {
        Line::of(text).and_then(|line| line.unwrap().twin(None))
    }

    #[test]
    fn what_stands_before_qemu_is_named_where_it_decides_how_it_runs() {
        let line = "exec env A=b /usr/bin/taskset -c 4,5 chrt -f 50 qemu-system-x86_64 -m 1G -drive file=/a,if=virtio,format=raw";
        let twin = read_line(line).unwrap();
        assert_eq!(twin.memory_mib, 1024);
        let of_wrappers: Vec<&str> = twin
            .not_twinned
            .iter()
            .filter_map(|line| line.strip_suffix(" before QEMU"))
            .collect();
        assert_eq!(of_wrappers, ["taskset", "chrt"]);
        assert!(Line::of("web01 kvm").unwrap().is_none());
    }

    #[test]
    fn a_variable_without_its_value_is_named() {
        let refused = |word: &str| {
            let line = format!("qemu-system-x86_64 -m {word} -drive file=/a,if=virtio");
            read_line(&line).unwrap_err().to_string()
        };
        assert!(refused("$MEMORY").contains("has $MEMORY,"));
        assert!(
            refused("${M}G").contains("has ${M,") && refused("$(free)").contains("has $(free,")
        );
        assert!(read_line("qemu-system-x86_64 -append cost=5$ -drive file=/a,if=virtio").is_ok());
    }

    #[test]
    fn a_command_line_is_read_from_a_file_and_from_libvirts_log() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("vm");
        let put = |text: &str| {
            std::fs::write(&file, text).unwrap();
            twin(file.to_str().unwrap(), None)
        };
        let of_script = put(
            "#!/bin/sh\n# as `qm showcmd` prints it\n/usr/bin/kvm \\\n  -smp 2 \\\n  -drive file=/a,if=virtio,format=raw\n",
        );
        assert_eq!(of_script.unwrap().cpus, 2);
        let log = "2026-01-01 00:00:00.000+0000: starting up libvirt version: 9.0.0, qemu version: 7.2\n/usr/bin/kvm -smp 2\n\
                   2026-01-02 00:00:00.000+0000: starting up libvirt version: 9.0.0, qemu version: 7.2\nLC_ALL=C \\\nHOME='/a b' \\\n\
                   /usr/bin/qemu-system-x86_64 \\\n-smp 3 \\\n-drive file=/a,if=virtio,format=raw\n2026-01-02 00:00:01.000+0000: it's up\n";
        assert_eq!(put(log).unwrap().cpus, 3);
    }

    #[test]
    fn root_runs_no_qemu_that_others_can_change() {
        use std::os::unix::fs::{MetadataExt, PermissionsExt};
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("qemu-system-x86_64");
        std::fs::write(&program, "").unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o777)).unwrap();
        let mut twin = Twin {
            qemu: Some(program.clone()),
            ..Twin::default()
        };
        keep_trusted_program(&mut twin);
        let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
        assert_eq!(
            (twin.qemu.is_none(), twin.not_twinned.len()),
            (is_root, usize::from(is_root)),
            "{twin:?}"
        );
    }

    #[test]
    fn an_unknown_vm_is_an_error_that_lists_what_is_accepted() {
        let why = twin("/nonexistent/domain.xml", None)
            .unwrap_err()
            .to_string();
        assert!(why.contains("/nonexistent/domain.xml"), "{why}");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.xml");
        std::fs::write(&file, "no xml").unwrap();
        let why = twin(file.to_str().unwrap(), None).unwrap_err().to_string();
        assert!(why.contains("virsh dumpxml"), "{why}");
    }

    proptest! {
        #[test]
        fn what_a_shell_would_print_is_read_as_it_was(all in proptest::collection::vec("[ -~]{0,10}", 1..6)) {
            prop_assert_eq!(words(&shell_line(&all)).unwrap(), all);
        }

        #[test]
        fn any_text_is_survived(text in ".{0,80}") {
            let _ = crate::read_twin(&text);
        }
    }
}
