//! Fetches a kernel of the distribution into the cache, without installing it.

use crate::ResultExt;
use crate::apt::{
    Apt, AptError, Fetch, check_suite, is_known, is_suite, known, released_versions, version,
    with_version,
};
use crate::error::KernelError;
use crate::kernel::{cached, home, in_layout, keep_default, of_suite, set_default, set_suite};
use std::path::{Path, PathBuf};
use vmtax_model::{KernelFacts, SourceOfKernel};

/// Room that packages need while image and modules are picked out, as a multiple of their download size.
const UNPACKED: u64 = 7;

/// Gives the kernel that `wanted` means, from `cache` or else fetched with apt into it: a release or its beginning (6.12,
/// 6.1.0-35), the newest that matches; or a suite (trixie), that suite's current one; when absent the distribution's
/// current one.
///
/// The distribution's current one becomes the default of guests; any other only where there is none yet.
///
/// Nothing is installed and no root is needed. For a release the system's package lists are used as they are; when they are
/// empty or out of date, private ones are fetched from the system's sources; when these have no such release, those of the
/// suite that was released with it, as for a suite. apt checks their signatures. `say` gets a line for each step. One fetch
/// runs at a time per cache; a killed one leaves nothing that looks like a kernel, and its remains are swept by the next.
///
/// # Errors
/// When there is no apt, no such version or suite, no network, no room, or what was fetched is no usable kernel.
pub fn fetch(
    wanted: Option<&str>,
    cache: &Path,
    say: &mut dyn FnMut(&str),
) -> Result<KernelFacts, KernelError> {
    let kernel = get(wanted, cache, say)?;
    match wanted {
        None => set_default(cache, &kernel.release)?,
        Some(_) => keep_default(cache, &kernel.release)?,
    }
    if let Some(suite) = wanted.filter(|wanted| is_suite(wanted)) {
        set_suite(cache, suite, &kernel.release)?;
    }
    Ok(kernel)
}

/// Returns true if a word that names no file stands for a kernel that is in `cache` or could be fetched.
pub fn is_name(word: &str, cache: &Path) -> bool {
    version::is_plausible(word) || is_known(word) || in_cache(cache, word).is_some()
}

fn get(
    wanted: Option<&str>,
    cache: &Path,
    say: &mut dyn FnMut(&str),
) -> Result<KernelFacts, KernelError> {
    if let Some(wanted) = wanted {
        if !version::is_plausible(wanted) && !is_suite(wanted) {
            return Err(KernelError::BadName {
                name: wanted.into(),
            });
        }
        if let Some(kernel) = in_cache(cache, wanted) {
            return Ok(kernel);
        }
        if is_suite(wanted) {
            check_suite(wanted)?;
        }
    }
    let fetch = Fetch::begin(&cache.join("kernels"), "a kernel", say)?;
    let apt = Apt::new(fetch.work())?;
    let source = Source {
        apt: &apt,
        fetch: &fetch,
        cache,
    };
    let (release, files) = match wanted {
        Some(suite) if is_suite(suite) => source.of_suite(suite, say)?,
        version => source.of_version(version, say)?,
    };
    match files {
        // Another fetch had it, or it was there all along.
        None => in_layout(&home(cache, &release), &release, SourceOfKernel::Cache),
        Some(files) => {
            say(&format!("unpacking Linux {release}"));
            unpack(&apt, &files, &fetch, &release, &home(cache, &release))
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

/// The suites that are known to have a kernel and their versions, where these stay as they were released.
///
/// # Errors
/// When there is no apt, or its sources name no archive of a distribution.
pub fn available() -> Result<Vec<(&'static str, Option<&'static str>)>, KernelError> {
    Ok(released_versions(|suite| suite.kernel)?)
}

/// The newest cached kernel that a version means, or that a suite's name does.
fn in_cache(cache: &Path, wanted: &str) -> Option<KernelFacts> {
    if is_suite(wanted) {
        return of_suite(cache, wanted);
    }
    cached(cache)
        .kernels
        .into_iter()
        .find(|kernel| version::matches(&kernel.release, wanted))
}

/// A release, and the files of its packages; none when the cache has it already.
type Downloaded = (String, Option<Vec<PathBuf>>);

/// Source and destination of packages.
struct Source<'a> {
    apt: &'a Apt,
    fetch: &'a Fetch,
    cache: &'a Path,
}

impl Source<'_> {
    /// A version's newest release, without a version the distribution's current one: from the system's sources, else from
    /// the suites that may have that version.
    fn of_version(
        &self,
        version: Option<&str>,
        say: &mut dyn FnMut(&str),
    ) -> Result<Downloaded, KernelError> {
        say("asking apt for a kernel");
        match self.listed(version, say) {
            Err(KernelError::Apt(AptError::Failed { .. }) | KernelError::NotOffered { .. }) => {}
            other => return other,
        }
        say(
            "apt's package lists are empty, out of date or without it: fetching current ones for this use only",
        );
        let failed = self.apt.update()?;
        let lacking = match self.listed(version, say) {
            Err(lacking @ KernelError::NotOffered { .. }) => lacking,
            other => return other,
        };
        if let (Some(version), Ok(archive)) = (version, self.apt.archive()) {
            let suites = with_version(known(archive.distribution), |suite| suite.kernel, version);
            say(&format!("asking {} for Linux {version}", suites.join(", ")));
            // A suite that fails may have nothing to do with it.
            self.apt.look_in(&archive, &suites)?;
            match self.listed(Some(version), say) {
                Err(KernelError::NotOffered { .. }) => {}
                other => return other,
            }
        }
        // When nothing is offered after a failed update, its reason is the one to tell.
        Err(failed.map_or(lacking, KernelError::from))
    }

    /// The current release of a suite.
    fn of_suite(&self, suite: &str, say: &mut dyn FnMut(&str)) -> Result<Downloaded, KernelError> {
        let archive = self.apt.archive()?;
        say(&format!("asking {suite} for its kernel"));
        let failed = self.apt.look_in(&archive, &[suite])?;
        match (current_of(self.apt, suite)?, failed) {
            (Some(release), _) => self.download(release, say),
            (None, Some(failed)) => Err(failed.into()),
            (None, None) => Err(KernelError::NoKernel {
                suite: suite.into(),
            }),
        }
    }

    fn listed(
        &self,
        version: Option<&str>,
        say: &mut dyn FnMut(&str),
    ) -> Result<Downloaded, KernelError> {
        let release = match version {
            Some(version) => choose(self.apt, version)?,
            None => current(self.apt)?,
        };
        self.download(release, say)
    }

    fn download(
        &self,
        release: String,
        say: &mut dyn FnMut(&str),
    ) -> Result<Downloaded, KernelError> {
        if in_layout(&home(self.cache, &release), &release, SourceOfKernel::Cache).is_ok() {
            return Ok((release, None));
        }
        let Some((packages, bytes)) = of_release(self.apt, &release)? else {
            return Err(KernelError::NotOffered {
                version: release,
                offered: offered(self.apt)?,
            });
        };
        self.fetch.need(bytes * UNPACKED)?;
        say(&format!(
            "downloading {} ({:.0} MB)",
            packages.join(", "),
            bytes as f64 / 1e6
        ));
        let files = self.apt.download(&packages)?;
        Ok((release, Some(files)))
    }
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
    let modules = Some(usr).filter(|usr| usr.is_dir());
    let modules = modules.unwrap_or_else(|| root.join("lib/modules").join(release));
    // Debian since Linux 6.19 has the image among the modules.
    let among = Some(modules.join("vmlinuz")).filter(|among| among.is_file());
    let from = among.unwrap_or_else(|| root.join(&image));
    fetch.keep(&from, &ready.join(&image))?;
    fetch.keep(&modules, &ready.join("lib/modules").join(release))?;
    in_layout(&ready, release, SourceOfKernel::Cache)?;
    fetch.settle(&ready, home)?;
    in_layout(home, release, SourceOfKernel::Cache)
}

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
    let mut releases = packages.iter().filter_map(|name| release_of(name));
    releases.next().map(Into::into)
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

#[cfg(test)]
#[path = "fetch_tests.rs"]
mod tests;
