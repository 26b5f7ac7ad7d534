//! Packages that make up a kernel of Debian or Ubuntu, and the release that a version or a suite means.

use crate::apt::{Apt, version};
use crate::kernel::error::KernelError;

/// Packages that stand for the distribution's current kernel: Debian's generic one; Ubuntu's, the smaller first.
const CURRENT: [&str; 3] = [
    "linux-image-amd64",
    "linux-image-virtual",
    "linux-image-generic",
];

/// Names of the packages of one release, as far as a distribution has them. Debian's `linux-image` holds everything;
/// from Linux 6.19 on it only depends on the image's and the modules' packages. Ubuntu keeps the modules apart, and 9p
/// for one in the third of them.
const PARTS: [&str; 4] = [
    "linux-image",
    "linux-binary",
    "linux-modules",
    "linux-modules-extra",
];

/// The packages of a release that apt offers, and the length of their files, bytes; `None` where one that the image needs is
/// not there: an archive may drop modules before it drops their image.
pub(crate) fn of_release(
    apt: &Apt,
    release: &str,
) -> Result<Option<(Vec<String>, u64)>, KernelError> {
    let names = PARTS.map(|part| format!("{part}-{release}"));
    let mut needed = apt.depends(&names[0])?;
    needed.push(names[0].clone());
    let (mut packages, mut bytes) = (Vec::new(), 0);
    for package in names {
        match apt.size(&package)? {
            Some(size) => {
                bytes += size;
                packages.push(package);
            }
            None if needed.contains(&package) => return Ok(None),
            None => {}
        }
    }
    Ok(Some((packages, bytes)))
}

/// The release that the distribution's own meta package asks for.
pub(crate) fn current(apt: &Apt) -> Result<String, KernelError> {
    for package in CURRENT {
        if let Some(release) = release_among(&apt.depends(package)?) {
            return Ok(release);
        }
    }
    Err(KernelError::NotOffered {
        version: CURRENT.join(", "),
        offered: offered(apt)?,
    })
}

/// The release that a suite's meta package asks for; `None` where the suite has no such package. apt itself would prefer
/// the suite that backports are for.
pub(crate) fn current_of(apt: &Apt, suite: &str) -> Result<Option<String>, KernelError> {
    for package in CURRENT {
        let versions = apt
            .versions(package)?
            .into_iter()
            .filter(|(of, _)| of == suite)
            .map(|(_, version)| version);
        let Some(newest) = versions.max_by(|a, b| version::compare(a, b)) else {
            continue;
        };
        if let Some(release) = release_among(&apt.depends_of(package, &newest)?) {
            return Ok(Some(release));
        }
    }
    Ok(None)
}

fn release_among(packages: &[String]) -> Option<String> {
    packages
        .iter()
        .find_map(|name| release_of(name))
        .map(Into::into)
}

/// The newest downloadable release that `version` means; a flavour other than the generic one only by its full name.
pub(crate) fn choose(apt: &Apt, version: &str) -> Result<String, KernelError> {
    let mut offered = offered(apt)?;
    let fitting = offered
        .iter()
        .filter(|release| version::matches(release, version))
        .map(String::as_str);
    for release in std::iter::once(version).chain(fitting) {
        // An installed package may be long gone from the archive.
        if is_full(release) && of_release(apt, release)?.is_some() {
            return Ok(release.into());
        }
    }
    offered.retain(|release| !version::matches(release, version));
    Err(KernelError::NotOffered {
        version: version.into(),
        offered,
    })
}

/// Generic releases that apt knows, newest first.
pub(crate) fn offered(apt: &Apt) -> Result<Vec<String>, KernelError> {
    let names = apt.names("linux-image-")?;
    let mut releases: Vec<String> = names
        .iter()
        .filter_map(|name| release_of(name))
        .filter(|release| is_generic(release))
        .map(Into::into)
        .collect();
    releases.sort_by(|a, b| version::compare(b, a));
    releases.dedup();
    Ok(releases)
}

/// `linux-image-6.1.0-56-amd64` is of 6.1.0-56-amd64; a meta package such as linux-image-6.12-amd64 is of no release.
fn release_of(package: &str) -> Option<&str> {
    package
        .strip_prefix("linux-image-")
        .filter(|release| version::is_plausible(release) && is_full(release))
}

/// Returns true if a release has all its three numbers and a flavour, as a package's has.
fn is_full(release: &str) -> bool {
    let numbers = release
        .split('.')
        .take(3)
        .filter(|part| part.starts_with(|c: char| c.is_ascii_digit()))
        .count();
    numbers == 3 && release.contains('-')
}

/// Debian's and Ubuntu's kernels for any machine: drivers for everything that later work needs (9p, virtiofs, NFS).
fn is_generic(release: &str) -> bool {
    let without = |flavours: &[&str]| !flavours.iter().any(|flavour| release.contains(flavour));
    release.ends_with("-generic") || release.ends_with("-amd64") && without(&["-cloud-", "-rt-"])
}
