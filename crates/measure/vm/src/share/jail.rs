//! A root folder of a server's own: the tree, copies of the server's own files, and nothing else. nfs-ganesha accepts file
//! handles and, in version 3, names with slashes from any client: they can only lead to files in this root. The tree is the
//! only file system of a disk in it, so a handle finds no file of the host, whoever opens it.

use crate::MachineError;
use crate::process::{spawn_command, status};
use crate::sandbox::mounts;
use crate::sandbox::rights::{Rights, RightsOfUser};
use crate::share::portmapper::Portmapper;
use crate::share::program_files::{program_files, without_links};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::pivot_root;
use rustix::thread::CapabilitySet;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fs, io};

/// Where the server sees the tree.
pub(crate) const TREE: &str = "/vmtax-tree";
/// Where it may write besides, a little: daemons have their sockets there.
const RUN: &str = "/run";
/// Where a host may have links to the folders of its programs and libraries.
const LINKS: [&str; 6] = ["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];
/// Those with which nfs-ganesha serves files as any user, by handles, and with as many descriptors as it asks for. Device
/// nodes can be made, and not be opened: all that is mounted is without devices.
const SERVING: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::MKNOD)
    .union(CapabilitySet::SYS_RESOURCE);
/// Files that libraries read, where they exist.
const LOOKED_UP: [&str; 8] = [
    "/etc/ld.so.cache",
    "/etc/netconfig",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/group",
    "/etc/protocols",
    "/etc/services",
    "/etc/localtime",
];

/// Contents of the server's root.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Jail {
    /// The file with ext4 that is its tree.
    pub image: PathBuf,
    /// True if nothing may be written to the tree.
    pub read_only: bool,
    /// An empty folder, which becomes its root.
    pub root: PathBuf,
    /// A file that it reads, where it is on the host.
    pub file: PathBuf,
    /// The program that it finds as its port mapper.
    pub portmapper: Option<PathBuf>,
}

/// The body of `vmtax jail`: runs the command in a jail, given as JSON, to its end; gives its exit status, 128 + n for
/// signal n. What is mounted ends with the last process that sees it.
///
/// # Errors
/// [`MachineError::System`] when the root cannot be made, as where loop devices or namespaces are not allowed.
pub fn jailed(jail: &str, command: &[String]) -> Result<i32, MachineError> {
    let mut jail: Jail = serde_json::from_str(jail)
        .map_err(|e| MachineError::system("reading the jail's settings", e))?;
    let (program, arguments) = command
        .split_first()
        .ok_or_else(|| MachineError::system("jail: no command", io::ErrorKind::InvalidInput))?;
    let found = |program: &Path| {
        without_links(program)
            .map_err(|e| MachineError::system(format!("looking for {}", program.display()), e))
    };
    let program = found(Path::new(program))?;
    jail.portmapper = jail.portmapper.as_deref().map(found).transpose()?;
    mounts::own(&jail.root)?;
    let made = jail.furnish(&program).and_then(|()| jail.enter());
    made.map_err(|e| MachineError::system("making the server's root folder", e))?;
    let _portmapper = jail
        .portmapper
        .as_deref()
        .map(Portmapper::start)
        .transpose()?;
    let user = RightsOfUser {
        capabilities: SERVING.bits(),
        ..RightsOfUser::default()
    };
    let rights = Rights {
        user: Some(user),
        no_set_id: false,
    };
    let ended = spawn_command(Command::new(&program), arguments, Some(&rights), None)?.wait();
    ended
        .map(status)
        .map_err(|e| MachineError::system(format!("waiting for {}", program.display()), e))
}

impl Jail {
    /// A path of the server's, as it is seen from outside.
    fn at(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    fn furnish(&self, program: &Path) -> io::Result<()> {
        let small = MountFlags::NOSUID | MountFlags::NODEV;
        mount("tmpfs", &self.root, "tmpfs", small, c"mode=755,size=256M")?;
        for file in program_files(
            [Some(program), self.portmapper.as_deref()]
                .into_iter()
                .flatten(),
        )? {
            self.copy(&file)?;
        }
        // Last: nothing is written over a link, which may lead to the host's own folder.
        for path in LINKS
            .map(Path::new)
            .into_iter()
            .filter(|path| path.is_symlink())
        {
            std::os::unix::fs::symlink(fs::read_link(path)?, self.at(path))?;
        }
        for path in LOOKED_UP
            .map(Path::new)
            .into_iter()
            .filter(|path| path.is_file())
        {
            self.copy(path)?;
        }
        for folder in [TREE, RUN].map(Path::new) {
            fs::create_dir_all(self.at(folder))?;
        }
        // What there is to serve: nfs-ganesha asks no other way.
        fs::write(
            self.at(Path::new("/etc/mtab")),
            format!("tree {TREE} ext4 rw 0 0\n"),
        )?;
        let is_in_run = self.file.starts_with(RUN);
        if !is_in_run {
            self.copy(&self.file)?;
        }
        mounts::set(
            &self.root,
            libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV,
        )?;
        mount(
            "tmpfs",
            self.at(Path::new(RUN)),
            "tmpfs",
            small,
            c"mode=755,size=16M",
        )?;
        if is_in_run {
            self.copy(&self.file)?;
        }
        self.mount_image()
    }

    /// A file of the host's.
    fn copy(&self, file: &Path) -> io::Result<()> {
        let to = self.at(file);
        fs::create_dir_all(to.parent().unwrap_or(&self.root))?;
        fs::copy(file, to).map(drop)
    }

    /// By mount(8), which finds a free loop device, and has the kernel free it when the last who sees it has ended.
    fn mount_image(&self) -> io::Result<()> {
        let options = if self.read_only {
            "loop,nosuid,nodev,ro"
        } else {
            "loop,nosuid,nodev"
        };
        let mut mount = Command::new("mount");
        mount
            .args(["-n", "-t", "ext4", "-o", options])
            .arg(&self.image)
            .arg(self.at(Path::new(TREE)));
        let status = mount.stdin(Stdio::null()).status()?;
        if status.success() {
            Ok(())
        } else {
            Err(io::Error::other(format!(
                "mounting the tree by a loop device: mount: {status}"
            )))
        }
    }

    /// The host's root is not even mounted any more.
    fn enter(&self) -> io::Result<()> {
        std::env::set_current_dir(&self.root)?;
        pivot_root(".", ".")?;
        unmount(".", UnmountFlags::DETACH)?;
        std::env::set_current_dir("/")
    }
}
