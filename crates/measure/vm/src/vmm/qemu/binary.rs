//! The program that a process runs, and whether it is QEMU, whatever its file name.

use super::arguments::{Arguments, is_loader, path_of};
use std::fs;
use std::path::{Path, PathBuf};

/// Options that no other program has in this spelling, of which each QEMU with a guest is given one.
const OPTIONS: [&str; 8] = [
    "machine",
    "M",
    "accel",
    "enable-kvm",
    "nodefaults",
    "blockdev",
    "drive",
    "smp",
];

/// The program that a process runs, as what was named may be a script around it. Through a loader of its own, which then is
/// what the process runs, it is one of the files that the process maps.
pub(crate) fn binary(pid: i32) -> Option<PathBuf> {
    let exe = fs::read_link(format!("/proc/{pid}/exe"));
    if exe.as_ref().is_ok_and(|exe| !is_loader(exe)) {
        return exe.ok();
    }
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let named: Vec<PathBuf> = Arguments::of(pid)
        .all()
        .map(|argument| path_of(pid, Path::new(argument)))
        .collect();
    let named: Vec<PathBuf> = named
        .iter()
        .filter_map(|path| fs::canonicalize(path).ok())
        .collect();
    mapped_program(&maps, &named).or(exe.ok())
}

/// The file of that program for this process, which may see no such path or another file there by now.
pub(crate) fn file(pid: i32) -> Option<PathBuf> {
    let (exe, program) = (PathBuf::from(format!("/proc/{pid}/exe")), binary(pid)?);
    let is_exe = fs::read_link(&exe).is_ok_and(|linked| linked == program);
    Some(if is_exe { exe } else { path_of(pid, &program) })
}

/// Returns true if a process runs QEMU. Not its tools (`qemu-nbd`), not libvirt's daemon (`virtqemud`), not `sudo` or
/// `timeout`, which have the command line of the QEMU that they start.
pub(crate) fn runs_qemu(pid: i32) -> bool {
    let is_named = |path: &Path| {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        name.starts_with(b"qemu-system-") || name.starts_with(b"qemu-kvm")
    };
    let binary = binary(pid);
    binary.as_deref().is_some_and(is_named) || {
        let arguments = Arguments::of(pid);
        let starts_one = arguments
            .all()
            .skip(1)
            .any(|argument| is_named(Path::new(argument)));
        let is_given = |option: &&&str| arguments.options().any(|(given, _)| given == **option);
        !starts_one && OPTIONS.iter().filter(is_given).count() > 1
    }
}

/// The first file whose code is mapped that is named as QEMU's usually are, or that the command line names. A command line also
/// names the guest's kernel, which is mapped without execute permission.
fn mapped_program(maps: &str, named: &[PathBuf]) -> Option<PathBuf> {
    // Five columns, then the path, which may have blanks.
    let is_code = |line: &&str| {
        line.split_whitespace()
            .nth(1)
            .is_some_and(|rights| rights.contains('x'))
    };
    let mut paths = maps
        .lines()
        .filter(is_code)
        .filter_map(|line| Some(Path::new(&line[line.find('/')?..])));
    let is_program = |path: &&Path| {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        !is_loader(path) && (name.starts_with(b"qemu-") || named.iter().any(|named| named == path))
    };
    paths.find(is_program).map(Path::to_path_buf)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_behind_its_loader() {
        let maps = "7f00-7f01 r--p 00000000 fe:00 12 /c/root/libc/ld-linux-x86-64.so.2\n\
                    7f02-7f03 rw-p 00000000 00:00 0 \n\
                    7f04-7f05 r-xp 00000000 fe:00 13 /c c/root/bin/qemu-system-x86_64\n";
        assert_eq!(
            mapped_program(maps, &[]),
            Some(PathBuf::from("/c c/root/bin/qemu-system-x86_64"))
        );
        let other = "7f00-7f01 r-xp 00000000 fe:00 12 /usr/bin/other\n";
        assert_eq!(mapped_program(other, &[]), None);
        assert_eq!(
            mapped_program(other, &["/usr/bin/other".into()]),
            Some("/usr/bin/other".into())
        );
        let kernel = "7e00-7e01 r--p 00000000 fe:00 14 /boot/vmlinux\n";
        let named = ["/boot/vmlinux".into(), "/usr/bin/other".into()];
        assert_eq!(
            mapped_program(&[kernel, other].concat(), &named),
            Some("/usr/bin/other".into())
        );
        let own = std::process::id() as i32;
        assert_eq!(binary(own).unwrap(), std::env::current_exe().unwrap());
        assert_eq!(file(own), Some(format!("/proc/{own}/exe").into()));
        assert!(!runs_qemu(own));
    }
}
