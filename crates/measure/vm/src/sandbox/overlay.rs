//! The host's files for a native command whose writes are discarded: an overlay over each writable file system, in a mount
//! namespace of its own.

use crate::MachineError;
use crate::sandbox::mounts::root_mounts;
use crate::sandbox::mounts::{self, below};
use rustix::fd::AsRawFd;
use rustix::fs::{Mode, OFlags, StatVfsMountFlags, open, statvfs};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive, unmount};
use rustix::process::{chdir, geteuid, pivot_root};
use serde::{Deserialize, Serialize};
use std::ffi::CString;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use vmtax_model::OWN;
use vmtax_workload::set_mount_attributes;

/// Directories that an ordinary user writes to, besides the home directory and the working directory.
const TEMPORARY: [&str; 2] = ["/tmp", "/var/tmp"];
/// Each user's own in a guest, too.
const SHARED_MEMORY: &str = "/dev/shm";

/// Writes that are discarded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Discard {
    /// A folder for the layers of written files; whoever ends the process removes it.
    pub layers: PathBuf,
    /// The working directory of the command.
    pub directory: PathBuf,
    /// Directories in which written files stay.
    pub kept: Vec<PathBuf>,
}

impl Discard {
    /// Gives this process, and what it starts, the host's files below layers that take what is written. Root has all of them;
    /// an ordinary user, whose namespace keeps mounts together, those of the working directory, of the home folder and for
    /// temporary files, and can only read others.
    ///
    /// # Errors
    /// [`MachineError::NoOverlay`] where the kernel refuses, or the working directory would not be covered.
    pub fn enter(&self) -> Result<(), MachineError> {
        let failed = |source| MachineError::NoOverlay { source };
        // Before the namespace, in which all other users are one.
        let is_own =
            fs::metadata(&self.directory).is_ok_and(|facts| facts.uid() == geteuid().as_raw());
        mounts::own(Path::new("/")).map_err(|error| match error {
            MachineError::ReadOnly { source, .. } => failed(source),
            other => other,
        })?;
        let root = self.layers.join("root");
        fs::create_dir_all(&root).map_err(failed)?;
        let mut layers = Layers {
            folder: self.layers.clone(),
            made: 0,
        };
        let mut made = self.put_at(&root, &mut layers, is_own);
        if made.is_err() {
            // A file system that takes no layers, as another overlay; memory does, at most half of it.
            let _ = unmount(&root, UnmountFlags::DETACH);
            let (folder, mode) = (&layers.folder, Some(c"mode=0700"));
            mount("tmpfs", folder, "tmpfs", MountFlags::empty(), mode)
                .map_err(|e| failed(e.into()))?;
            fs::create_dir_all(&root).map_err(failed)?;
            made = self.put_at(&root, &mut layers, is_own);
        }
        made.map_err(failed)?;
        for folder in &self.kept {
            mount_bind_recursive(folder, below(&root, folder)).map_err(|e| failed(e.into()))?;
        }
        // A memory of its own, if there is one: who shares memory does so with what the command starts.
        let _ = mount(
            "tmpfs",
            below(&root, Path::new(SHARED_MEMORY)),
            "tmpfs",
            MountFlags::NOSUID,
            Some(c"mode=1777"),
        );
        change_root(&root).map_err(|e| failed(e.into()))
    }

    /// `is_own`: whether the working directory belongs to the user.
    fn put_at(&self, root: &Path, layers: &mut Layers, is_own: bool) -> io::Result<()> {
        if geteuid().is_root() && whole(root, layers).is_ok() {
            return Ok(());
        }
        while unmount(root, UnmountFlags::DETACH).is_ok() {}
        self.folders(root, layers, is_own)
    }

    /// All files read-only, and layers on the folders that the user writes to.
    fn folders(&self, root: &Path, layers: &mut Layers, is_own: bool) -> io::Result<()> {
        mount_bind_recursive("/", root)?;
        set_mount_attributes(root, libc::MOUNT_ATTR_RDONLY)?;
        bind_own(root)?;
        let home = std::env::var_os("HOME").map(PathBuf::from).into_iter();
        let folders = home
            .chain(TEMPORARY.map(PathBuf::from))
            .chain([self.directory.clone()]);
        let mut covered: Vec<PathBuf> = Vec::new();
        let mut last = None;
        for folder in folders.filter_map(|folder| folder.canonicalize().ok()) {
            // In another user's folder nothing can be made below a layer of a folder above it.
            let apart = folder == self.directory && !is_own;
            let known = !apart && covered.iter().any(|other| folder.starts_with(other));
            if known || folder == Path::new("/") || OWN.iter().any(|own| folder.starts_with(own)) {
                continue;
            }
            match layers.overlay(&folder, &below(root, &folder)) {
                Ok(()) => covered.push(folder),
                Err(error) => last = Some(error),
            }
        }
        let directory = self.directory.canonicalize()?;
        match last {
            Some(error) if !covered.iter().any(|folder| directory.starts_with(folder)) => {
                Err(error)
            }
            _ => Ok(()),
        }
    }
}

/// The root and each file system mounted on it, with a layer where it can be written to. What means nothing but on this
/// host (`/proc`, `/dev`) stays as it is.
fn whole(root: &Path, layers: &mut Layers) -> io::Result<()> {
    let found = root_mounts().map_err(|e| io::Error::other(e.to_string()))?;
    layers.overlay(Path::new("/"), root)?;
    bind_own(root)?;
    let mut followed: Vec<&Path> = found.followed.iter().map(PathBuf::as_path).collect();
    // A mount before what is mounted in it.
    followed.sort_by_key(|path| path.components().count());
    for path in followed {
        let writable =
            statvfs(path).is_ok_and(|facts| !facts.f_flag.contains(StatVfsMountFlags::RDONLY));
        if !path.is_dir() || !writable || layers.overlay(path, &below(root, path)).is_err() {
            read_only(path, &below(root, path))?;
        }
    }
    let is_own = |path: &&PathBuf| OWN.iter().any(|own| path.starts_with(own));
    for path in found.kernels.iter().filter(|path| !is_own(path)) {
        mount_bind_recursive(path, below(root, path))?;
    }
    // One of these may be closed to root, or its server gone.
    found
        .refused
        .iter()
        .for_each(|(path, _)| read_only(path, &below(root, path)).unwrap_or_default());
    Ok(())
}

/// The folders that a guest has of its own, as they are on the host.
fn bind_own(root: &Path) -> io::Result<()> {
    for path in OWN.map(Path::new).into_iter().filter(|path| path.is_dir()) {
        mount_bind_recursive(path, below(root, path))?;
    }
    Ok(())
}

/// Mounts a file or folder at another place, where nothing can be written to it.
fn read_only(from: &Path, at: &Path) -> io::Result<()> {
    mount_bind(from, at)?;
    set_mount_attributes(at, libc::MOUNT_ATTR_RDONLY)
}

/// Makes the mount `root` the root of this namespace.
fn change_root(root: &Path) -> rustix::io::Result<()> {
    chdir(root)?;
    // Both at one place: the former root is below the new one until it is taken off.
    pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    chdir("/")
}

/// Where written files go.
struct Layers {
    folder: PathBuf,
    made: usize,
}

impl Layers {
    /// Mounts the folder `lower` at `at`, with a layer of its own above.
    fn overlay(&mut self, lower: &Path, at: &Path) -> io::Result<()> {
        self.made += 1;
        let folder = self.folder.join(self.made.to_string());
        let (upper, work) = (folder.join("upper"), folder.join("work"));
        fs::create_dir_all(&upper)?;
        fs::create_dir_all(&work)?;
        // The top of an overlay has its upper folder's owner and mode.
        let (facts, own) = (fs::metadata(lower)?, fs::metadata(&upper)?);
        if (facts.uid(), facts.gid()) != (own.uid(), own.gid()) {
            // Another user's folder stays another's: who runs the command may not give files away.
            let _ = chown(&upper, Some(facts.uid()), Some(facts.gid()));
        }
        fs::set_permissions(&upper, Permissions::from_mode(facts.mode() & 0o7777))?;
        let flags = statvfs(lower)?.f_flag;
        let pass = [
            (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
            (StatVfsMountFlags::NODEV, MountFlags::NODEV),
            (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        ];
        let flags = pass
            .iter()
            .filter(|(has, _)| flags.contains(*has))
            .fold(MountFlags::empty(), |all, (_, f)| all | *f);
        // By descriptors: a path may hold what separates options.
        let path = |path: &Path| {
            open(
                path,
                OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
                Mode::empty(),
            )
        };
        let (lower, upper, work) = (path(lower)?, path(&upper)?, path(&work)?);
        let [lower, upper, work] =
            [&lower, &upper, &work].map(|fd| format!("/proc/self/fd/{}", fd.as_raw_fd()));
        // In a user namespace a layer's attributes are the user's own.
        let own_attributes = if geteuid().is_root() {
            ""
        } else {
            ",userxattr"
        };
        let options = format!("lowerdir={lower},upperdir={upper},workdir={work}{own_attributes}");
        Ok(mount(
            "overlay",
            at,
            "overlay",
            flags,
            Some(CString::new(options)?.as_c_str()),
        )?)
    }
}
