//! Fetches the distribution's kernel into the cache, without installing it.

use crate::apt::{Apt, AptError, Fetch, version as release};
use crate::file_error::ResultExt;
use crate::kernel::error::KernelError;
use crate::kernel::find::{cached, home, in_layout, keep_default, set_default};
use std::fs;
use std::path::{Path, PathBuf};
use vmtax_model::{KernelFacts, SourceOfKernel};

/// Packages that stand for the distribution's current kernel: Debian's generic one; Ubuntu's, the smaller first.
const CURRENT: [&str; 3] = ["linux-image-amd64", "linux-image-virtual", "linux-image-generic"];

/// Gives the kernel `version`, from `cache` or else fetched with apt into it; without a version the distribution's
/// current one. `version` is a release or its beginning (6.12, 6.1.0-35): the newest that matches.
///
/// The distribution's current one becomes the default of guests; any other only where there is none yet.
///
/// Nothing is installed and no root is needed. The system's package lists are used as they are; when they are empty or
/// out of date, private ones are fetched from the system's sources, whose signatures apt checks. `say` gets a line for
/// each step. One fetch runs at a time per cache; a killed one leaves nothing that looks like a kernel, and its
/// remains are swept by the next.
///
/// # Errors
/// When there is no apt, no such version, no network, no room, or what was fetched is no usable kernel.
pub fn fetch(version: Option<&str>, cache: &Path, say: &mut dyn FnMut(&str)) -> Result<KernelFacts, KernelError> {
    let kernel = get(version, cache, say)?;
    match version {
        None => set_default(cache, &kernel.release)?,
        Some(_) => keep_default(cache, &kernel.release)?,
    }
    Ok(kernel)
}

fn get(version: Option<&str>, cache: &Path, say: &mut dyn FnMut(&str)) -> Result<KernelFacts, KernelError> {
    if let Some(version) = version {
        if !release::is_plausible(version) {
            return Err(KernelError::BadVersion { version: version.into() });
        }
        if let Some(kernel) = in_cache(cache, version) {
            return Ok(kernel);
        }
    }
    let fetch = Fetch::begin(&cache.join("kernels"), "a kernel", say)?;
    let apt = Apt::new(fetch.work())?;

    say("asking apt for a kernel");
    let (release, packages) = match download(&apt, version, cache, say) {
        Err(KernelError::Apt(AptError::Failed { .. }) | KernelError::NotOffered { .. }) => {
            say("apt's package lists are empty or out of date: fetching current ones for this use only");
            let failed = apt.update()?;
            // When nothing is offered after a failed update, its reason is the one to tell.
            download(&apt, version, cache, say).map_err(|why| match (why, failed) {
                (KernelError::NotOffered { .. }, Some(failed)) => failed.into(),
                (why, _) => why,
            })?
        }
        other => other?,
    };
    match packages {
        // Another fetch had it, or it was there all along.
        None => in_layout(&home(cache, &release), &release, SourceOfKernel::Cache),
        Some(packages) => {
            say(&format!("unpacking Linux {release}"));
            unpack(&apt, &packages, &fetch, &release, &home(cache, &release))
        }
    }
}

/// Releases that apt offers, newest first, by the system's package lists as they are.
///
/// # Errors
/// When there is no apt.
pub fn list_fetchable() -> Result<Vec<String>, KernelError> {
    let work = tempfile::tempdir().writing(std::env::temp_dir())?;
    offered(&Apt::new(work.path())?)
}

/// The newest cached kernel that `version` means.
fn in_cache(cache: &Path, version: &str) -> Option<KernelFacts> {
    cached(cache).0.into_iter().find(|kernel| release::matches(&kernel.release, version))
}

/// Chooses a release and downloads its packages; no packages when the cache has it already.
fn download(
    apt: &Apt,
    version: Option<&str>,
    cache: &Path,
    say: &mut dyn FnMut(&str),
) -> Result<(String, Option<Vec<PathBuf>>), KernelError> {
    let release = match version {
        Some(version) => choose(apt, version)?,
        None => current(apt)?,
    };
    if in_layout(&home(cache, &release), &release, SourceOfKernel::Cache).is_ok() {
        return Ok((release, None));
    }
    // Ubuntu keeps the modules apart, and 9p for one in the second package.
    let mut packages = vec![format!("linux-image-{release}")];
    let mut bytes = apt.size(&packages[0])?.unwrap_or(0);
    for more in [format!("linux-modules-{release}"), format!("linux-modules-extra-{release}")] {
        if let Some(size) = apt.size(&more)? {
            bytes += size;
            packages.push(more);
        }
    }
    say(&format!("downloading {} ({:.0} MB)", packages.join(", "), bytes as f64 / 1e6));
    let files = apt.download(&packages)?;
    Ok((release, Some(files)))
}

/// The release that the distribution's own meta package asks for.
fn current(apt: &Apt) -> Result<String, KernelError> {
    for package in CURRENT {
        let images = apt.depends(package)?;
        if let Some(release) = images.iter().filter_map(|name| release_of(name)).next() {
            return Ok(release.into());
        }
    }
    Err(KernelError::NotOffered { version: CURRENT.join(", "), offered: offered(apt)? })
}

/// The newest downloadable release that `version` means; a flavour other than the generic one only by its full name.
fn choose(apt: &Apt, version: &str) -> Result<String, KernelError> {
    let offered = offered(apt)?;
    let fitting = offered.iter().filter(|release| release::matches(release, version)).map(String::as_str);
    for release in std::iter::once(version).chain(fitting) {
        // An installed package may be long gone from the archive.
        if is_full(release) && apt.size(&format!("linux-image-{release}"))?.is_some() {
            return Ok(release.into());
        }
    }
    Err(KernelError::NotOffered { version: version.into(), offered })
}

/// Generic releases that apt knows, newest first.
fn offered(apt: &Apt) -> Result<Vec<String>, KernelError> {
    let names = apt.names("linux-image-")?;
    let mut releases: Vec<String> = names
        .iter()
        .filter_map(|name| release_of(name))
        .filter(|release| is_generic(release))
        .map(Into::into)
        .collect();
    releases.sort_by(|a, b| release::compare(b, a));
    releases.dedup();
    Ok(releases)
}

/// `linux-image-6.1.0-56-amd64` is of 6.1.0-56-amd64; a meta package such as linux-image-6.12-amd64 is of no release.
fn release_of(package: &str) -> Option<&str> {
    package.strip_prefix("linux-image-").filter(|release| release::is_plausible(release) && is_full(release))
}

/// Whether a release has all its three numbers and a flavour, as a package's has.
fn is_full(release: &str) -> bool {
    let numbers = release.split('.').take(3).filter(|part| part.starts_with(|c: char| c.is_ascii_digit())).count();
    numbers == 3 && release.contains('-')
}

/// Debian's and Ubuntu's kernels for any machine: drivers for everything that later work needs (9p, virtiofs, NFS).
fn is_generic(release: &str) -> bool {
    let without = |flavours: &[&str]| !flavours.iter().any(|flavour| release.contains(flavour));
    release.ends_with("-generic") || release.ends_with("-amd64") && without(&["-cloud-", "-rt-"])
}

/// Unpacks packages and moves the image and its modules, which is all that is kept, to `home` in one step.
fn unpack(
    apt: &Apt,
    packages: &[PathBuf],
    fetch: &Fetch,
    release: &str,
    home: &Path,
) -> Result<KernelFacts, KernelError> {
    let (root, ready) = (fetch.work().join("root"), fetch.work().join("ready"));
    for package in packages {
        apt.unpack(package, &root)?;
    }
    let image = format!("boot/vmlinuz-{release}");
    let usr = root.join("usr/lib/modules").join(release);
    let modules = if usr.is_dir() { usr } else { root.join("lib/modules").join(release) };
    for (from, to) in [(root.join(&image), ready.join(&image)), (modules, ready.join("lib/modules").join(release))] {
        let folder = to.parent().unwrap_or(&ready);
        fs::create_dir_all(folder).writing(folder)?;
        fs::rename(&from, &to).reading(&from)?;
    }
    in_layout(&ready, release, SourceOfKernel::Cache)?;
    fetch.settle(&ready, home)?;
    in_layout(home, release, SourceOfKernel::Cache)
}

#[cfg(test)]
#[path = "fetch_tests.rs"]
mod tests;
