//! Sources of a test guest that people give: a VM's name, a file, a command line.

use super::drives::read_images;
use super::{Twin, TwinError, command_line, domain, edit_domain, paste};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use vmtax_model::{Manager, VmSettings, shell_words, without_secrets};
use vmtax_vmm::qemu::arguments::{Arguments, path_of};
use vmtax_vmm::qemu::libvirt::{domain_xml as stored, domain_xml_of};
use vmtax_vmm::{FindError, Monitor, Vm};

/// The twin of what `like` is: a QEMU command line, a file with one or with a domain's XML, or a VM by what people call it; of its
/// disk of that name, else of the first. Nothing of the original is changed.
///
/// # Errors
/// [`TwinError`] where there is no such VM, file or disk, or it is not of x86.
pub fn twin(like: &str, disk: Option<&str>) -> Result<Twin, TwinError> {
    let shown = without_secrets(like);
    let mut twin = if let Some(line) = paste::line(like)? {
        line.twin(disk)?
    } else if Path::new(like).is_file() {
        let text = text_of(Path::new(like))?;
        let mut twin = match paste::xml(&text) {
            Some(xml) => domain::read(xml, disk)?,
            None => match paste::line(&text)? {
                Some(line) => line.twin(disk)?,
                None => domain::read(&text, disk)?,
            },
        };
        twin.source += &format!(" of {shown}");
        twin
    } else {
        of_vm(like, disk)?
    };
    keep_trusted_program(&mut twin);
    read_images(&mut twin);
    twin.shorten_lines();
    Ok(twin)
}

/// Root executes no QEMU that a file or another user's process names, where other users can change it.
fn keep_trusted_program(twin: &mut Twin) {
    let Some(program) = twin.qemu.take() else {
        return;
    };
    match vmtax_trust::untrusted(&program, vmtax_trust::Owner::Root) {
        Ok(None) => twin.qemu = Some(program),
        Ok(Some(why)) => twin.lacks(format!(
            "QEMU {}: {why}; --qemu uses it anyway",
            program.display()
        )),
        Err(why) => twin.lacks(format!("QEMU {}: {why}", program.display())),
    }
}

/// The text of a file, without its secrets.
fn text_of(path: &Path) -> Result<String, TwinError> {
    let failed = |source| TwinError::File {
        file: path.to_path_buf(),
        source,
    };
    std::fs::File::open(path)
        .and_then(read_text)
        .map_err(failed)
}

/// The twin of a VM that runs, else of a domain of libvirt that does not.
fn of_vm(name: &str, disk: Option<&str>) -> Result<Twin, TwinError> {
    let vm = match Vm::find(name) {
        Ok(vm) => vm,
        Err(found @ (FindError::NoVms | FindError::Unknown { .. })) => {
            return match stored(name) {
                Ok(xml) => domain::read(&xml, disk),
                Err(libvirt) => Err(TwinError::NoVm {
                    name: without_secrets(name).into_owned(),
                    found,
                    libvirt: libvirt.monitor_reason(),
                }),
            };
        }
        Err(other) => return Err(TwinError::Find(other)),
    };
    of_running(&vm, disk)
}

/// The twin of a running VM, by its domain where libvirt manages it, else by what it was started with.
fn of_running(vm: &Vm, disk: Option<&str>) -> Result<Twin, TwinError> {
    let pid = vm.pid();
    let arguments: Vec<String> = Arguments::of(pid).all().map(str::to_owned).collect();
    let managed = vm.managed();
    let of_libvirt = managed
        .as_ref()
        .filter(|managed| managed.manager == Manager::Libvirt);
    let mut twin = match of_libvirt.and_then(|managed| domain_xml_of(pid, managed).ok()) {
        Some((running, stored)) => of_domain(&running, stored, &arguments, disk)?,
        None => {
            let mut twin = command_line::read(&arguments, disk)?;
            add_live(&mut twin, &vm.settings(false));
            twin.source = vm
                .name()
                .map_or_else(|| "VM".to_owned(), |name| format!("VM {name}"));
            if managed.is_some() && vm.monitor().is_none_or(Monitor::taints) {
                twin.lacks(
                    "limits and caches that were set at run time: only the VM's manager can ask its monitor",
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
            "QEMU {}: it is in a container; --qemu selects another",
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

/// The twin of a running domain. What QEMU was started with has the CPU and the machine as a whole; the domain its limits and its
/// disks' names.
fn of_domain(
    running: &str,
    stored: String,
    arguments: &[String],
    disk: Option<&str>,
) -> Result<Twin, TwinError> {
    let mut twin = domain::read(running, disk)?;
    if let Ok(started) = command_line::read(arguments, None) {
        twin.machine_type = started.machine_type.or(twin.machine_type);
        twin.cpu_model = started.cpu_model.or(twin.cpu_model);
        twin.not_twinned
            .retain(|line| !line.starts_with("CPU model host-model"));
    }
    twin.domain_xml = Some(stored);
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

/// Reads a text as the command line and as the XML of a VM, for fuzzing: returns the number of a disk's settings.
pub fn read_twin(text: &str) -> usize {
    let settings_count = |twin: Result<Twin, TwinError>| twin.map_or(0, |twin| twin.disk.set.len());
    let edited = edit_domain(
        text,
        "vda",
        &[("cache".to_owned(), "none".to_owned())].into(),
    );
    if let Some(edit) = &edited {
        assert!(
            roxmltree::Document::parse(&edit.xml).is_ok(),
            "an edit broke {text}"
        );
    }
    let words = shell_words(text).unwrap_or_default();
    let line = paste::line(text).ok().flatten();
    settings_count(domain::read(paste::xml(text).unwrap_or(text), None))
        + settings_count(command_line::read(&words, None))
        + line.map_or(0, |line| settings_count(line.twin(None)))
}

/// A longer text is no configuration, and no report that anybody pastes; bytes.
const MAX_TEXT: u64 = 4 << 20;

/// Reads a text in UTF-8 or UTF-16, without its secrets; the arguments of a process (`/proc/PID/cmdline`) as a shell has them.
///
/// # Errors
/// Where it cannot be read, is longer than 4 MiB, or is in another encoding.
pub fn read_text(reader: impl Read) -> io::Result<String> {
    let mut bytes = Vec::new();
    reader.take(MAX_TEXT + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_TEXT {
        return Err(io::Error::other(
            "it is longer than 4 MiB: give only the part about one VM",
        ));
    }
    let text = match bytes.as_slice() {
        // Redirection in PowerShell writes it.
        [0xff, 0xfe, rest @ ..] => utf16(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => utf16(rest, u16::from_be_bytes),
        _ => String::from_utf8(bytes).ok(),
    };
    let text = text.map(|text| paste::printed_arguments(&text).unwrap_or(text));
    let text = text.filter(|text| !text.contains('\0')).ok_or_else(|| {
        io::Error::other(
            "it is neither UTF-8 nor UTF-16 text: `iconv -f ENCODING -t UTF-8` converts it",
        )
    })?;
    Ok(without_secrets(&text).into_owned())
}

/// Decodes UTF-16; `None` for other bytes.
fn utf16(bytes: &[u8], unit: impl Fn([u8; 2]) -> u16) -> Option<String> {
    let units: Vec<u16> = bytes
        .chunks_exact(2)
        .map(|pair| unit([pair[0], pair[1]]))
        .collect();
    let is_whole = bytes.len() % 2 == 0;
    String::from_utf16(&units).ok().filter(|_| is_whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
    fn of_many_settings_that_a_test_guest_lacks_the_first_are_listed() {
        let drive: String = (0..300_000).map(|n| format!(",a{n}=1")).collect();
        let line = format!("qemu-kvm -m 1G -drive file=/nonexistent/a,if=virtio{drive}");
        let lacks = twin(&line, None).unwrap().not_twinned;
        assert_eq!(lacks[0], "option a0 of the disk's image");
        assert_eq!(
            (lacks.len(), lacks[1000].as_str()),
            (1001, "299002 more settings")
        );
        let disk = |n: usize| {
            let source = ["file", "network"][n % 2];
            format!("<disk type='{source}'><target dev='vd{n}'/></disk>")
        };
        let disks: String = (0..30_000).map(disk).collect();
        let xml = format!("<domain type='kvm'><name>a</name><devices>{disks}</devices></domain>");
        assert_eq!(domain::read(&xml, Some("vd2")).unwrap().disk.name, "vd2");
        let why = domain::read(&xml, Some("x")).unwrap_err().to_string();
        assert!(why.ends_with("and 14980 more"), "{why}");
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
        fn any_text_is_survived(text in ".{0,80}") {
            let _ = crate::read_twin(&text);
        }
    }

    #[test]
    fn each_encoding_is_read_or_refused() {
        let text = "qemu-kvm -name gr\u{fc}n -m 1G";
        let units = || text.encode_utf16();
        let little: Vec<u8> = [0xff, 0xfe]
            .into_iter()
            .chain(units().flat_map(u16::to_le_bytes))
            .collect();
        let big: Vec<u8> = [0xfe, 0xff]
            .into_iter()
            .chain(units().flat_map(u16::to_be_bytes))
            .collect();
        for bytes in [text.as_bytes(), &little, &big] {
            assert_eq!(read_text(bytes).unwrap(), text);
        }
        let latin1: Vec<u8> = text.chars().map(|c| c as u8).collect();
        for bytes in [
            &latin1[..],
            &little[..little.len() - 1],
            &little[2..],
            b"a\0b",
        ] {
            let why = read_text(bytes).unwrap_err().to_string();
            assert!(why.contains("iconv"), "{why}");
        }
        let why = read_text(std::io::repeat(b'a')).unwrap_err().to_string();
        assert!(why.contains("4 MiB"), "{why}");
        assert!(
            !read_text(&b"qemu -spice password=s3cret"[..])
                .unwrap()
                .contains("s3cret")
        );
        assert_eq!(
            read_text(&b"qemu-kvm\0-m\x001G\0-spice\0password=s3cret,port=1\0"[..]).unwrap(),
            "qemu-kvm -m 1G -spice password=SECRET-REMOVED,port=1"
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = read_text(&bytes[..]);
        }
    }
}
