//! The programs of the host that a share method needs, and the images that they make from the tree, for guests that are
//! given a disk.

use crate::MachineError;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;
use vmtax_host::find_program;
use vmtax_model::{ImageFacts, Share, ShareMethod, shell_line};

/// Makes ext4 images: of a disk, and of the tree that an NFS server exports.
const EXT4: Program = Program {
    name: "mkfs.ext4",
    packages: "e2fsprogs",
    arch: "e2fsprogs",
};
/// Tells clients of NFS version 3 the ports of the server.
const PORTMAPPER: Program = Program {
    name: "rpcbind",
    packages: "rpcbind",
    arch: "rpcbind",
};

/// A program with the packages that have it: Debian's, which Fedora has by the same names, and Arch's.
struct Program {
    name: &'static str,
    packages: &'static str,
    arch: &'static str,
}

impl Program {
    /// Returns the path; an error has the command that installs it.
    fn find(&self, method: ShareMethod, find: Find<'_>) -> Result<PathBuf, MachineError> {
        let Program {
            name,
            packages,
            arch,
        } = self;
        // On Fedora no other package has it.
        let fedora = packages.split('`').next().unwrap_or_default();
        let lacking = || {
            MachineError::NoShare(format!(
                "share={method} needs {name}, which is not installed: `apt-get install {packages}` (Fedora: `dnf install {fedora}`; Arch: `pacman -S {arch}`)"
            ))
        };
        find(name).ok_or_else(lacking)
    }
}

/// Finds a program by its name.
type Find<'a> = &'a dyn Fn(&str) -> Option<PathBuf>;

/// The program that serves or makes what is shared. QEMU itself serves 9p.
fn main_program(method: ShareMethod) -> Option<Program> {
    Some(match method {
        ShareMethod::NineP => return None,
        ShareMethod::Virtiofs => {
            let packages = "virtiofsd` or, on Debian 12, `apt-get install qemu-system-common";
            Program {
                name: "virtiofsd",
                packages,
                arch: "virtiofsd",
            }
        }
        ShareMethod::Nfs3 | ShareMethod::Nfs4 => Program {
            name: "ganesha.nfsd",
            packages: "nfs-ganesha nfs-ganesha-vfs",
            arch: "nfs-ganesha",
        },
        ShareMethod::Disk => EXT4,
        ShareMethod::Erofs => Program {
            name: "mkfs.erofs",
            packages: "erofs-utils",
            arch: "erofs-utils",
        },
        ShareMethod::Squashfs => Program {
            name: "mksquashfs",
            packages: "squashfs-tools",
            arch: "squashfs-tools",
        },
    })
}

/// Path of the program that serves or makes what is shared; `None` for 9p, which QEMU serves.
///
/// # Errors
/// [`MachineError::NoShare`] with what installs it, or that `share.server` is no file.
pub fn share_program(share: &Share) -> Result<Option<PathBuf>, MachineError> {
    program(share, &find_program)
}

fn program(share: &Share, find: Find<'_>) -> Result<Option<PathBuf>, MachineError> {
    let Some(program) = main_program(share.method) else {
        return Ok(None);
    };
    let Some(named) = share.option("server").map(PathBuf::from) else {
        return program.find(share.method, find).map(Some);
    };
    if named.is_file() {
        return Ok(Some(named));
    }
    let (path, name) = (named.display(), program.name);
    Err(MachineError::NoShare(format!(
        "share.server={path} is not a file: give the path of {name}"
    )))
}

/// Path of the port mapper that the server of a share needs; `None` where it needs none.
///
/// # Errors
/// [`MachineError::NoShare`] with what installs it.
pub fn portmapper_program(share: &Share) -> Result<Option<PathBuf>, MachineError> {
    portmapper(share, &find_program)
}

fn portmapper(share: &Share, find: Find<'_>) -> Result<Option<PathBuf>, MachineError> {
    match share.method {
        ShareMethod::Nfs3 => PORTMAPPER.find(share.method, find).map(Some),
        _ => Ok(None),
    }
}

/// Checks that this user may share a tree by this method.
///
/// # Errors
/// [`MachineError::NoShare`] where only root may.
pub fn check_rights(share: &Share) -> Result<(), MachineError> {
    let why = match share.method {
        _ if rustix::process::geteuid().is_root() => return Ok(()),
        ShareMethod::Nfs3 | ShareMethod::Nfs4 => {
            "needs root: nfs-ganesha opens files by kernel handles, which only root may do"
        }
        _ if share.option("security-model") == Some("passthrough") => {
            "with share.security-model=passthrough sets the owners of files, which only root may do: run as root, or use \
             mapped-xattr"
        }
        _ => return Ok(()),
    };
    Err(MachineError::NoShare(format!(
        "share={} {why}",
        share.method
    )))
}

/// Checks that this user on this host can share so: the rights, and all programs that it takes.
///
/// # Errors
/// [`MachineError::NoShare`] with the first that is missing, and what installs it.
pub fn check_share(share: &Share) -> Result<(), MachineError> {
    check_rights(share)?;
    check_programs(share, &find_program)
}

fn check_programs(share: &Share, find: Find<'_>) -> Result<(), MachineError> {
    program(share, find)?;
    portmapper(share, find)?;
    if matches!(share.method, ShareMethod::Nfs3 | ShareMethod::Nfs4) {
        EXT4.find(share.method, find)?;
    }
    Ok(())
}

/// Room to write in on a disk that can be written: taken only when it is.
const SPARE: u64 = 1 << 30;
const INODES_SPARE: u64 = 65_536;

/// MiB that an image of a tree of so many bytes and files takes at most, spare room aside.
pub fn image_mib(method: ShareMethod, bytes: u64, files: u64) -> u64 {
    let structures = match method {
        // Inode tables and the journal.
        ShareMethod::Disk => (files.saturating_add(INODES_SPARE))
            .saturating_mul(256)
            .saturating_add(96 << 20),
        _ => files.saturating_mul(64).saturating_add(1 << 20),
    };
    bytes
        .saturating_add(bytes / 10)
        .saturating_add(structures)
        .div_ceil(1 << 20)
}

/// Makes the image `out` of the tree `tree`, which has so many bytes and files, by `program`.
///
/// # Errors
/// [`MachineError::NoShare`] with what the program said.
pub fn make_image(
    share: &Share,
    program: &Path,
    tree: &Path,
    bytes: u64,
    files: u64,
    out: &Path,
) -> Result<ImageFacts, MachineError> {
    let began = Instant::now();
    let mut words = vec![program.display().to_string()];
    words.extend(image_arguments(share, tree, bytes, files, out)?);
    let run = Command::new(program)
        .args(&words[1..])
        .stdin(Stdio::null())
        .output();
    let failed = |said: &str| {
        MachineError::NoShare(format!(
            "share={}: {} failed: {}",
            share.method,
            shell_line(&words),
            said.trim()
        ))
    };
    let output = run.map_err(|e| failed(&e.to_string()))?;
    if !output.status.success() {
        return Err(failed(&String::from_utf8_lossy(&output.stderr)));
    }
    // A disk that is still on its way to the host's would be measured while it goes.
    let synced = File::open(out).and_then(|file| file.sync_all().and_then(|()| file.metadata()));
    let made = synced.map_err(|e| failed(&e.to_string()))?;
    Ok(ImageFacts {
        command: words,
        seconds: began.elapsed().as_secs_f64(),
        bytes: made.len(),
    })
}

/// The arguments of the program that makes the image; the file of a disk is made here.
fn image_arguments(
    share: &Share,
    tree: &Path,
    bytes: u64,
    files: u64,
    out: &Path,
) -> Result<Vec<String>, MachineError> {
    let (from, to) = (tree.display().to_string(), out.display().to_string());
    let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    Ok(match share.method {
        ShareMethod::Disk => {
            let size = (image_mib(share.method, bytes, files) << 20) + SPARE;
            let file = File::create(out).and_then(|file| file.set_len(size));
            file.map_err(|e| MachineError::system(format!("creating {to}"), e))?;
            let inodes = files.saturating_add(INODES_SPARE).max(size / 16_384);
            // Not lazily: the guest's kernel must not go on formatting while it is measured.
            let lazily = "lazy_itable_init=0,lazy_journal_init=0";
            owned(&[
                "-q",
                "-F",
                "-E",
                lazily,
                "-N",
                &inodes.to_string(),
                "-d",
                &from,
                &to,
            ])
        }
        ShareMethod::Erofs => {
            let compressed = share
                .option("compress")
                .map(|algorithm| format!("-z{algorithm}"));
            compressed.into_iter().chain([to, from]).collect()
        }
        _ => {
            let mut words = vec![&*from, &*to, "-noappend", "-no-progress", "-quiet"];
            match share.option("compress") {
                Some("none") => words.extend(["-noI", "-noD", "-noF", "-noX"]),
                Some(algorithm) => words.extend(["-comp", algorithm]),
                None => {}
            }
            owned(&words)
        }
    })
}

/// A copy of an image for one machine to write to, holes as holes.
pub(super) fn copy(from: &Path, to: &Path) -> Result<(), MachineError> {
    let failed =
        |e| MachineError::system(format!("copying {} to {}", from.display(), to.display()), e);
    let run = Command::new("cp")
        .args([
            "--sparse=always",
            "--reflink=auto",
            "--remove-destination",
            "--",
        ])
        .args([from, to])
        .output();
    let output = run.map_err(failed)?;
    if output.status.success() {
        Ok(())
    } else {
        Err(failed(std::io::Error::other(
            String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn lacking(method: ShareMethod, missing: &str) -> Option<String> {
        let find = |name: &str| (name != missing).then(|| PathBuf::from(name));
        let share = Share {
            method,
            options: BTreeMap::new(),
        };
        check_programs(&share, &find)
            .err()
            .map(|error| error.to_string())
    }

    #[test]
    fn a_method_names_the_package_of_the_program_that_it_lacks() {
        let message_for = |method, missing| lacking(method, missing).unwrap();
        assert_eq!(
            message_for(ShareMethod::Nfs4, "ganesha.nfsd"),
            "share=nfs4 needs ganesha.nfsd, which is not installed: `apt-get install nfs-ganesha nfs-ganesha-vfs` \
             (Fedora: `dnf install nfs-ganesha nfs-ganesha-vfs`; Arch: `pacman -S nfs-ganesha`)"
        );
        assert!(
            message_for(ShareMethod::Nfs4, "mkfs.ext4").contains("`apt-get install e2fsprogs`")
        );
        assert!(
            message_for(ShareMethod::Nfs3, "rpcbind").contains("rpcbind, which is not installed")
        );
        assert!(
            message_for(ShareMethod::Erofs, "mkfs.erofs")
                .contains("`apt-get install erofs-utils` (Fedora: `dnf install erofs-utils`; Arch")
        );
        assert!(message_for(ShareMethod::Virtiofs, "virtiofsd").contains("virtiofsd"));
        assert_eq!(
            (
                lacking(ShareMethod::Nfs4, "rpcbind"),
                lacking(ShareMethod::NineP, "mkfs.ext4")
            ),
            (None, None)
        );
    }
}
