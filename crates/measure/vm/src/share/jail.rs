//! A root folder of a server's own: the tree, copies of the server's own files, and nothing else. nfs-ganesha accepts file
//! handles and, in version 3, names with slashes from any client: they can only lead to files in this root. The tree is the
//! only file system of a disk in it, so a handle finds no file of the host, whoever opens it.

use crate::MachineError;
use crate::process::{spawn, spawn_command, status};
use crate::sandbox::mounts;
use crate::sandbox::rights::{Rights, RightsOfUser};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::{Pid, Signal, kill_process_group, pivot_root};
use rustix::thread::CapabilitySet;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, io};
use vmtax_workload::set_mount_attributes;

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
    made.map_err(|e| MachineError::system("making the server's root directory", e))?;
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
    fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    fn furnish(&self, program: &Path) -> io::Result<()> {
        let small = MountFlags::NOSUID | MountFlags::NODEV;
        mount("tmpfs", &self.root, "tmpfs", small, c"mode=755,size=256M")?;
        self.copy_files(program)?;
        for folder in [TREE, RUN] {
            fs::create_dir_all(self.at(folder))?;
        }
        // What there is to serve: nfs-ganesha asks no other way.
        fs::write(self.at("/etc/mtab"), format!("tree {TREE} ext4 rw 0 0\n"))?;
        let is_in_run = self.file.starts_with(RUN);
        if !is_in_run {
            self.copy(&self.file)?;
        }
        let closed = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
        set_mount_attributes(&self.root, closed)?;
        mount("tmpfs", self.at(RUN), "tmpfs", small, c"mode=755,size=16M")?;
        if is_in_run {
            self.copy(&self.file)?;
        }
        self.mount_image()
    }

    /// Copies the files of the programs, and those that libraries read.
    fn copy_files(&self, program: &Path) -> io::Result<()> {
        let programs = [Some(program), self.portmapper.as_deref()];
        for file in program_files(programs.into_iter().flatten())? {
            self.copy(&file)?;
        }
        // Last: nothing is written over a link, which may lead to the host's own folder.
        let links = LINKS.map(Path::new).into_iter();
        for path in links.filter(|path| path.is_symlink()) {
            std::os::unix::fs::symlink(fs::read_link(path)?, self.at(path))?;
        }
        let looked_up = LOOKED_UP.map(Path::new).into_iter();
        for path in looked_up.filter(|path| path.is_file()) {
            self.copy(path)?;
        }
        Ok(())
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
            .arg(self.at(TREE));
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

/// Where a port mapper is met.
const PORTMAPPER_SOCKET: &str = "/run/rpcbind.sock";
/// It takes a tenth of a second.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// rpcbind. Ended when dropped.
pub(crate) struct Portmapper(Child);

impl Portmapper {
    /// In this process's network and root; gives it when it can be asked.
    pub fn start(program: &Path) -> Result<Portmapper, MachineError> {
        let mut started = Portmapper(spawn(&program.display().to_string(), &["-f".to_owned()])?);
        let failed = |source| {
            MachineError::system(
                format!("waiting for {} at {PORTMAPPER_SOCKET}", program.display()),
                source,
            )
        };
        let deadline = Instant::now() + START_TIMEOUT;
        while !Path::new(PORTMAPPER_SOCKET).exists() {
            if let Some(status) = started.0.try_wait().map_err(failed)? {
                return Err(failed(io::Error::other(format!("it ended with {status}"))));
            }
            if Instant::now() > deadline {
                return Err(failed(io::ErrorKind::TimedOut.into()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(started)
    }
}

impl Drop for Portmapper {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        let _ = self.0.wait();
    }
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
