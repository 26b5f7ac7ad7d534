//! Fetches a suite's QEMU into the cache, without installing it.

use crate::ResultExt;
use crate::apt::{Apt, AptError, Archive, Fetch, Package, is_suite, known, version, with_version};
use crate::qemu::error::QemuError;
use crate::qemu::name::{is_version, upstream};
use crate::qemu::unpack::unpack;
use crate::qemu::{Fetched, named, shelf};
use std::path::Path;

/// The package with QEMU for x86, in Debian and Ubuntu.
const PACKAGE: &str = "qemu-system-x86";
/// Room that packages need while those that are kept are picked out, as a multiple of their download size.
const UNPACKED: u64 = 6;

/// Gives the QEMU that `wanted` means, a version or its beginning (5.2) or a suite (bullseye), from `cache` or else fetched
/// with apt into it: the newest that matches.
///
/// Nothing is installed and no root is needed. The suite is looked for in the archive of the system's own sources; its lists
/// are fetched for this use only, and apt checks their signatures. `say` gets a line for each step. One fetch runs at a time
/// per cache; a killed one leaves nothing that looks like a QEMU, and its remains are swept by the next.
///
/// # Errors
/// When there is no apt, no such version or suite, no network, no room, or what was fetched does not run.
pub fn fetch(wanted: &str, cache: &Path, say: &mut dyn FnMut(&str)) -> Result<Fetched, QemuError> {
    if !is_version(wanted) && !is_suite(wanted) {
        return Err(QemuError::BadName {
            name: wanted.into(),
        });
    }
    if let Some(qemu) = named(cache, wanted) {
        return Ok(qemu);
    }
    let fetch = Fetch::begin(&shelf(cache), "a QEMU", say)?;
    // Another fetch may have had it.
    if let Some(qemu) = named(cache, wanted) {
        return Ok(qemu);
    }
    let apt = Apt::new(fetch.work())?;
    let archive = apt.archive()?;
    let suite = choose(&apt, &archive, wanted, say)?;
    let packages = needed(&apt, &suite)?;
    let bytes: u64 = packages.iter().map(|package| package.size).sum();
    fetch.need(bytes * UNPACKED)?;
    say(&format!(
        "downloading QEMU of {suite} with its libraries, {} packages ({:.0} MB)",
        packages.len(),
        mb(bytes)
    ));
    let exact: Vec<String> = packages
        .iter()
        .map(|p| format!("{}={}", p.name, p.version))
        .collect();
    let files = apt.download(&exact)?;
    say("unpacking it");
    let qemu = unpack(&apt, &files, &fetch, &suite, cache)?;
    if is_version(wanted) && !version::matches(&qemu.version, wanted) {
        return Err(QemuError::NotOffered {
            version: wanted.into(),
            offered: vec![offer(&qemu.version, &suite)],
        });
    }
    Ok(qemu)
}

/// The suites that are known to have a QEMU and their versions, where these stay as they were released.
///
/// # Errors
/// When there is no apt, or its sources name no archive of a distribution.
pub fn available() -> Result<Vec<(&'static str, Option<&'static str>)>, QemuError> {
    let work = tempfile::tempdir().writing(std::env::temp_dir())?;
    let archive = Apt::new(work.path())?.archive()?;
    Ok(known(archive.distribution)
        .iter()
        .map(|suite| (suite.name, suite.qemu))
        .collect())
}

/// The suite to fetch from; afterwards apt looks there.
pub(crate) fn choose(
    apt: &Apt,
    archive: &Archive,
    wanted: &str,
    say: &mut dyn FnMut(&str),
) -> Result<String, QemuError> {
    let known = known(archive.distribution);
    let ask = if is_version(wanted) {
        with_version(known, |suite| suite.qemu, wanted)
    } else {
        vec![wanted]
    };
    say(&format!("asking {} for its QEMU", ask.join(", ")));
    let failed = apt.look_in(archive, &ask)?;
    let offers: Vec<(String, String)> = apt
        .versions(PACKAGE)?
        .into_iter()
        .map(|(suite, package)| (suite, upstream(&package).to_owned()))
        .filter(|(suite, _)| ask.contains(&suite.as_str()))
        .collect();
    // A package's version may be shorter than QEMU's own, and longer than what is wanted.
    let fits = |has: &str| {
        !is_version(wanted) || version::matches(has, wanted) || version::matches(wanted, has)
    };
    let best = offers
        .iter()
        .filter(|(_, has)| fits(has))
        .max_by(|(_, a), (_, b)| version::compare(a, b));
    match (best, failed) {
        (Some((suite, _)), _) => {
            if ask.len() > 1 {
                // What the others have must not be mixed in.
                apt.look_in(archive, &[suite])?;
            }
            Ok(suite.clone())
        }
        // One suite of several may be on no mirror; when nothing was offered, that is the reason to tell.
        (None, Some(failed)) if offers.is_empty() => Err(failed.into()),
        (None, _) if !is_version(wanted) => Err(QemuError::NoQemu {
            suite: wanted.into(),
        }),
        (None, _) => {
            let released = known
                .iter()
                .filter_map(|suite| Some(offer(suite.qemu?, suite.name)));
            let asked = offers.iter().map(|(suite, has)| offer(has, suite));
            Err(QemuError::NotOffered {
                version: wanted.into(),
                offered: released.chain(asked).collect(),
            })
        }
    }
}

/// Returns the packages that a QEMU needs to run: its own, those that it names as needed, and the libraries of all
/// these. Packages that are needed only to install them are left out.
fn needed(apt: &Apt, suite: &str) -> Result<Vec<Package>, QemuError> {
    let all = apt.with_dependencies(PACKAGE, suite)?;
    let Some(qemu) = all.iter().find(|package| package.name == PACKAGE).cloned() else {
        return Err(AptError::Failed {
            command: "apt-cache show".into(),
            said: format!("nothing of {PACKAGE}"),
        }
        .into());
    };
    let is_needed =
        |p: &Package| p.is_library || p.name == PACKAGE || qemu.depends.contains(&p.name);
    Ok(all.into_iter().filter(is_needed).collect())
}

fn offer(version: &str, suite: &str) -> String {
    format!("{version} ({suite})")
}

fn mb(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

#[cfg(test)]
#[path = "fetch_tests.rs"]
mod tests;
