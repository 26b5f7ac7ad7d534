//! The programs of the host that a share method needs.

use super::server::check_rights;
use crate::MachineError;
use std::path::PathBuf;
use vmtax_host::find_program;
use vmtax_model::{Share, ShareMethod};

/// Makes ext4 images: of a disk, and of the tree that an NFS server exports.
const EXT4: Program = Program {
    name: "mkfs.ext4",
    packages: "e2fsprogs",
};
/// Tells clients of NFS version 3 the ports of the server.
const PORTMAPPER: Program = Program {
    name: "rpcbind",
    packages: "rpcbind",
};

/// A program with the Debian packages that have it.
struct Program {
    name: &'static str,
    packages: &'static str,
}

impl Program {
    /// Returns the path; an error has the command that installs it.
    fn find(&self, method: ShareMethod, find: Find<'_>) -> Result<PathBuf, MachineError> {
        let Program { name, packages } = self;
        let lacking = || {
            MachineError::NoShare(format!(
                "share={method} needs {name}, which is not installed: `apt-get install {packages}`"
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
            }
        }
        ShareMethod::Nfs3 | ShareMethod::Nfs4 => Program {
            name: "ganesha.nfsd",
            packages: "nfs-ganesha nfs-ganesha-vfs",
        },
        ShareMethod::Disk => EXT4,
        ShareMethod::Erofs => Program {
            name: "mkfs.erofs",
            packages: "erofs-utils",
        },
        ShareMethod::Squashfs => Program {
            name: "mksquashfs",
            packages: "squashfs-tools",
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
            "share=nfs4 needs ganesha.nfsd, which is not installed: `apt-get install nfs-ganesha nfs-ganesha-vfs`"
        );
        assert!(
            message_for(ShareMethod::Nfs4, "mkfs.ext4").ends_with("`apt-get install e2fsprogs`")
        );
        assert!(
            message_for(ShareMethod::Nfs3, "rpcbind").contains("rpcbind, which is not installed")
        );
        assert!(
            message_for(ShareMethod::Erofs, "mkfs.erofs")
                .ends_with("`apt-get install erofs-utils`")
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
