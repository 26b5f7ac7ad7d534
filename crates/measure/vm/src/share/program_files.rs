//! Files of this host that programs need to run: themselves, their libraries, and the plugins that they open by name.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Files that programs open when they run, below a directory of their libraries: nfs-ganesha's file system, the
/// libraries that name its users, and those that the C library opens for users and for threads that end.
const OPENED: [&str; 5] = [
    "ganesha/libfsalvfs.so",
    "libnfsidmap/nsswitch.so",
    "libnfsidmap/static.so",
    "libnss_files.so.2",
    "libgcc_s.so.1",
];

/// The files, each in the folder that it is really in: none of their paths leads over a link but the last part.
///
/// # Errors
/// Where ldd cannot be run or a folder cannot be resolved.
pub(super) fn program_files<'a>(
    programs: impl Iterator<Item = &'a Path>,
) -> io::Result<BTreeSet<PathBuf>> {
    let mut all = BTreeSet::new();
    for program in programs {
        add(program, &mut all)?;
    }
    let folders: BTreeSet<PathBuf> = all
        .iter()
        .filter_map(|file| Some(file.parent()?.to_path_buf()))
        .collect();
    for plugin in folders
        .iter()
        .flat_map(|folder| OPENED.map(|name| folder.join(name)))
        .filter(|file| file.is_file())
    {
        add(&plugin, &mut all)?;
    }
    Ok(all)
}

fn add(program: &Path, all: &mut BTreeSet<PathBuf>) -> io::Result<()> {
    all.insert(without_links(program)?);
    // By the linker itself, which knows the paths that it searches. It fails for a program without libraries.
    let listed = Command::new("ldd")
        .arg(program)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output();
    let listed = listed.map_err(|e| {
        io::Error::new(
            e.kind(),
            format!("running ldd for {}: {e}", program.display()),
        )
    })?;
    for library in libraries(&String::from_utf8_lossy(&listed.stdout)) {
        all.insert(without_links(library)?);
    }
    Ok(())
}

/// The paths in ldd's lines: "libc.so.6 => /lib/libc.so.6 (0x7f…)", "/lib64/ld-linux-x86-64.so.2 (0x7f…)".
fn libraries(listed: &str) -> impl Iterator<Item = &Path> {
    let path = |line| str::split_whitespace(line).find(|word| word.starts_with('/'));
    listed.lines().filter_map(path).map(Path::new)
}

/// The path of a file whose folder is named without links.
///
/// # Errors
/// Where the folder is not there.
pub(super) fn without_links(file: &Path) -> io::Result<PathBuf> {
    let (Some(folder), Some(name)) = (file.parent(), file.file_name()) else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{} is no file", file.display()),
        ));
    };
    Ok(folder.canonicalize()?.join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_those_that_have_a_path() {
        let listed = "\tlinux-vdso.so.1 (0x00007f26b9577000)\n\
                      \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f26b919f000)\n\
                      \tlibgone.so.1 => not found\n\
                      \t/lib64/ld-linux-x86-64.so.2 (0x00007f26b9579000)\n";
        let found: Vec<&Path> = libraries(listed).collect();
        assert_eq!(
            found,
            [
                "/lib/x86_64-linux-gnu/libc.so.6",
                "/lib64/ld-linux-x86-64.so.2"
            ]
            .map(Path::new)
        );
        assert_eq!(libraries("\tstatically linked\n").count(), 0);
    }

    #[test]
    fn a_program_has_its_libraries_and_no_link_in_their_folders() {
        let files = program_files([Path::new("/bin/sh")].into_iter()).unwrap();
        assert!(
            files.iter().any(|file| file.ends_with("libc.so.6")),
            "{files:?}"
        );
        assert!(
            files.iter().all(
                |file| file.parent().unwrap().canonicalize().unwrap() == file.parent().unwrap()
            )
        );
    }
}
