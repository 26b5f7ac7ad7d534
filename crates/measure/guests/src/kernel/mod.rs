//! Guest kernels: found, fetched, checked, packed with their modules into an initramfs.
//!
//! A kernel is a bzImage and, unless all is built in, the folder of its modules. [`find`] looks where kernels already
//! are, [`given`] checks one that a person names, [`fetch`] has apt download one of the distribution without installing
//! it, and [`initramfs`] packs what a guest needs to boot straight into one program.

pub mod bzimage;
mod fetch;
mod initramfs;
mod modules;
mod vmlinux;

pub use crate::apt::cache_dir;
pub use crate::error::KernelError;
pub use fetch::{available, fetch, is_name, list_fetchable};
pub use initramfs::{Init, Packed, Purpose, initramfs};
pub use modules::{Modinfo, NotAModule, modinfo};
pub use vmlinux::unpack_vmlinux;

use crate::apt::version as release;
use crate::kernel::bzimage::NotBzImage;
use crate::kernel::initramfs::{WANTED, check};
use crate::kernel::modules::{Tree, module_name};
use crate::{FileError, ResultExt, names};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use vmtax_model::{KernelFacts, SourceOfKernel};

/// The kernels on this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FoundKernels {
    /// Usable, first choice first: the running one, then the cache's default, then the other cached ones, newest release
    /// first.
    pub kernels: Vec<KernelFacts>,
    /// Not usable, each with the reason and what fixes it.
    pub unusable: Vec<UnusableKernel>,
}

/// A kernel that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnusableKernel {
    /// Path of its image, or of the folder that should have it.
    pub path: PathBuf,
    /// Reason why it cannot be used, and what fixes that.
    pub reason: String,
}

/// Looks for the running kernel in `/boot` and `/lib/modules`, then for those in `cache`, if there is one.
///
/// A kernel that may not be read (Ubuntu's `/boot` for an ordinary user) or that cannot serve a guest is told among the
/// unusable ones.
pub fn find(cache: Option<&Path>) -> FoundKernels {
    let release = rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned();
    in_order(running(Path::new("/"), &release), cache)
}

fn in_order(running: Result<KernelFacts, UnusableKernel>, cache: Option<&Path>) -> FoundKernels {
    let FoundKernels {
        mut kernels,
        mut unusable,
    } = cache.map(cached).unwrap_or_default();
    let default = cache.and_then(|cache| default_release(cache, &kernels));
    kernels.sort_by_key(|kernel| Some(&kernel.release) != default.as_ref());
    match running {
        Ok(kernel) => kernels.insert(0, kernel),
        // One that is not installed matters where no other kernel is there.
        Err(kernel) if !kernel.path.exists() && !kernels.is_empty() => {}
        Err(kernel) => unusable.insert(0, kernel),
    }
    FoundKernels { kernels, unusable }
}

/// The link in the cache to the kernel that guests boot where none is named.
const DEFAULT: &str = "default-kernel";

/// Prefix of links to the kernels that were fetched from a suite, whose name follows.
const OF_SUITE: &str = "kernel-of-";

/// The release that a link in the cache names.
fn linked(cache: &Path, link: &str) -> Option<String> {
    let target = fs::read_link(cache.join(link)).ok()?;
    Some(target.file_name()?.to_str()?.to_owned())
}

/// Has a link in the cache name this release.
fn link(cache: &Path, link: &str, release: &str) -> Result<(), KernelError> {
    let new = cache.join(format!(".{link}-{}", std::process::id()));
    let link = cache.join(link);
    // In one step: another process may be looking.
    let linked = std::os::unix::fs::symlink(Path::new("kernels").join(release), &new);
    Ok(linked
        .and_then(|()| fs::rename(&new, &link))
        .writing(&link)?)
}

/// The cached kernel that was fetched from this suite last.
pub(crate) fn of_suite(cache: &Path, suite: &str) -> Option<KernelFacts> {
    let release = linked(cache, &format!("{OF_SUITE}{suite}"))?;
    cached(cache)
        .kernels
        .into_iter()
        .find(|kernel| kernel.release == release)
}

/// Remembers what a suite's kernel is.
pub(crate) fn set_suite(cache: &Path, suite: &str, release: &str) -> Result<(), KernelError> {
    link(cache, &format!("{OF_SUITE}{suite}"), release)
}

/// The suites whose kernel is this cached release, by name.
pub fn suites(cache: &Path, release: &str) -> Vec<String> {
    let names = names(cache).filter(|name| linked(cache, name).as_deref() == Some(release));
    let mut suites: Vec<String> = names
        .filter_map(|name| Some(name.strip_prefix(OF_SUITE)?.to_owned()))
        .collect();
    suites.sort();
    suites
}

/// The release that guests boot where none is named: the one that was set, else of those in the cache the one that was
/// fetched first, so that a further one changes nothing.
fn default_release(cache: &Path, cached: &[KernelFacts]) -> Option<String> {
    let fetched = |kernel: &&KernelFacts| {
        fs::metadata(home(cache, &kernel.release))
            .and_then(|m| m.modified())
            .ok()
    };
    let is_there = |release: &String| cached.iter().any(|kernel| kernel.release == *release);
    linked(cache, DEFAULT).filter(is_there).or_else(|| {
        cached
            .iter()
            .min_by_key(fetched)
            .map(|kernel| kernel.release.clone())
    })
}

/// Has guests boot this cached release where no kernel is named.
pub(crate) fn set_default(cache: &Path, release: &str) -> Result<(), KernelError> {
    link(cache, DEFAULT, release)
}

/// Sets the default where none is set: the kernel that it was until now, else this release.
pub(crate) fn keep_default(cache: &Path, release: &str) -> Result<(), KernelError> {
    let mut kernels = cached(cache).kernels;
    kernels.retain(|kernel| kernel.release != release);
    match default_release(cache, &kernels) {
        _ if linked(cache, DEFAULT).is_some() => Ok(()),
        before => set_default(cache, before.as_deref().unwrap_or(release)),
    }
}

/// Checks a kernel that a person names, and finds its modules.
///
/// `modules` may be the folder of the release, the `lib/modules` above it, or the root of an unpacked package. Without
/// it they are looked for beside the image (as in an unpacked package), then in `/lib/modules`; when there are none,
/// everything is taken to be built in.
///
/// # Errors
/// When the image is neither an x86-64 bzImage nor a vmlinux with a PVH note, or not whole, the modules are of another
/// release, or virtio is missing.
pub fn given(image: &Path, modules: Option<&Path>) -> Result<KernelFacts, KernelError> {
    let release = read_image(image)?;
    let modules = match modules {
        Some(dir) => Some(named_modules(image, &release, dir)?),
        None => modules_beside(image, &release),
    };
    let kernel = KernelFacts {
        image: image.into(),
        modules,
        release,
        source: SourceOfKernel::Given,
    };
    check(&kernel)?;
    Ok(kernel)
}

/// Where a cached release lies; below it stand `boot/vmlinuz-RELEASE` and `lib/modules/RELEASE`.
pub(crate) fn home(cache: &Path, release: &str) -> PathBuf {
    cache.join("kernels").join(release)
}

/// Kernels in the cache, newest release first, and what is there but cannot be used.
pub(crate) fn cached(cache: &Path) -> FoundKernels {
    let mut found = FoundKernels::default();
    // No folder means that nothing was fetched yet.
    let names = names(&cache.join("kernels")).filter(|name| !name.starts_with('.'));
    let mut releases: Vec<String> = names.collect();
    releases.sort_by(|a, b| release::compare(b, a));
    for release in releases {
        let home = home(cache, &release);
        match in_layout(&home, &release, SourceOfKernel::Cache) {
            Ok(kernel) => found.kernels.push(kernel),
            Err(why) => found.unusable.push(UnusableKernel {
                reason: format!("{why}. To fetch it again: rm -r {}", home.display()),
                path: home,
            }),
        }
    }
    found
}

/// The kernel `release` of the system whose root is `root`.
fn running(root: &Path, release: &str) -> Result<KernelFacts, UnusableKernel> {
    let image = image_in(root, release);
    in_layout(root, release, SourceOfKernel::Running).map_err(|why| {
        let reason = match why {
            KernelError::File(FileError { path, source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                let missing = if path == image { "there is no such file".to_owned() } else { format!("there is no {}", path.display()) };
                format!("{missing}; it belongs to the running kernel, Linux {release}. Fetch the distribution's kernel with `vmtax get kernel`, or give one with --kernel")
            }
            why => why.to_string(),
        };
        UnusableKernel { path: image, reason }
    })
}

/// A kernel where packages put it below `root`.
pub(crate) fn in_layout(
    root: &Path,
    release: &str,
    source: SourceOfKernel,
) -> Result<KernelFacts, KernelError> {
    let image = image_in(root, release);
    let found = read_image(&image)?;
    if found != release {
        return Err(KernelError::OtherVersion {
            image,
            release: found,
            dir: root.join("lib/modules"),
            found: release.into(),
        });
    }
    let modules = root.join("lib/modules").join(release);
    fs::metadata(&modules).reading(&modules)?;
    let kernel = KernelFacts {
        image,
        modules: Some(modules),
        release: release.into(),
        source,
    };
    check(&kernel)?;
    Ok(kernel)
}

/// Debian and Ubuntu keep images in `/boot`; Fedora also, readable by all, beside the modules.
fn image_in(root: &Path, release: &str) -> PathBuf {
    let boot = root.join(format!("boot/vmlinuz-{release}"));
    let beside = root.join("lib/modules").join(release).join("vmlinuz");
    if File::open(&boot).is_err() && beside.is_file() {
        beside
    } else {
        boot
    }
}

fn read_image(path: &Path) -> Result<String, KernelError> {
    let metadata = fs::metadata(path).reading(path)?;
    if !metadata.is_file() {
        let source = io::Error::new(io::ErrorKind::InvalidInput, "not a regular file");
        return Err(source).reading(path)?;
    }
    let mut head = Vec::new();
    let file = File::open(path).reading(path)?;
    file.take(bzimage::HEAD)
        .read_to_end(&mut head)
        .reading(path)?;
    let not = |why| KernelError::NotAKernel {
        path: path.into(),
        why,
    };
    if vmlinux::is_elf(&head) && metadata.len() <= vmlinux::MAX_BYTES {
        return vmlinux::release(&fs::read(path).reading(path)?).map_err(not);
    }
    let header = bzimage::parse(&head).map_err(not)?;
    if metadata.len() < header.size {
        return Err(not(NotBzImage::Truncated {
            have: metadata.len(),
            need: header.size,
        }));
    }
    Ok(header.release)
}

/// Where a folder that holds `release` may keep it: itself a `lib/modules`, or the root of a package.
const BELOW: [&str; 3] = ["", "lib/modules", "usr/lib/modules"];

/// Finds the modules of `release` in the folder that `--modules` names.
fn named_modules(image: &Path, release: &str, dir: &Path) -> Result<PathBuf, KernelError> {
    fs::read_dir(dir).reading(dir)?;
    let other = |dir: &Path, found: String| KernelError::OtherVersion {
        image: image.into(),
        release: release.into(),
        dir: dir.into(),
        found,
    };
    let inner = BELOW
        .iter()
        .map(|below| dir.join(below).join(release))
        .find(|path| is_tree(path));
    if let Some(tree) = inner.or_else(|| is_tree(dir).then(|| dir.to_path_buf())) {
        return match Tree::open(&tree)?.release(&WANTED)? {
            Some(found) if found != release => Err(other(&tree, found)),
            _ => Ok(tree),
        };
    }
    let others = BELOW.iter().flat_map(|below| trees_in(&dir.join(below)));
    let others = others.collect::<Vec<_>>().join(", ");
    if !others.is_empty() {
        return Err(other(dir, others));
    }
    Err(KernelError::NoModules {
        dir: dir.into(),
        release: release.into(),
    })
}

/// Looks for the modules of an image given alone: its own folder (Fedora), the package around it, the system.
fn modules_beside(image: &Path, release: &str) -> Option<PathBuf> {
    let image = fs::canonicalize(image).unwrap_or_else(|_| image.into());
    let folder = image.parent()?;
    let own = folder.ends_with(release).then(|| folder.to_path_buf());
    let around = [Some(folder), folder.parent(), Some(Path::new("/"))];
    let around = around
        .into_iter()
        .flatten()
        .flat_map(|root| BELOW.iter().map(|below| root.join(below).join(release)));
    own.into_iter().chain(around).find(|path| is_tree(path))
}

fn trees_in(dir: &Path) -> Vec<String> {
    names(dir).filter(|name| is_tree(&dir.join(name))).collect()
}

/// Returns true if this is the folder of one kernel's modules, not one above it.
fn is_tree(dir: &Path) -> bool {
    if dir.join("kernel").is_dir() || dir.join("modules.builtin").is_file() {
        return true;
    }
    names(dir).any(|name| module_name(&name).is_some())
}

#[cfg(test)]
#[path = "find_tests.rs"]
mod tests;
