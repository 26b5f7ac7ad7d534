//! A QEMU built from source: the distribution's, or a tree of one's own, with patches.
//!
//! A build works in a folder of its own, `builds/NAME` of the cache, which stays while it is not done: what was interrupted
//! goes on from there. What comes out of it is a folder beside those of fetched QEMUs, and is found like them.

mod source;
mod steps;

use crate::apt::{Fetch, is_suite, version};
use crate::error::QemuError;
use crate::qemu::fetch::start;
use crate::qemu::{BINARY, Fetched, fetched, find, is_version, shelf};
use crate::{ResultExt, clear, entries};
pub use source::Recipe;
use source::Source;
#[cfg(test)]
pub(crate) use source::find as find_program;
use std::fs;
use std::path::{Path, PathBuf};
use steps::{Work, write};

/// Unpacked source, objects with debug information, program.
const ROOM: u64 = 1_200_000_000;
/// The file that says what a QEMU was built from, and with what a build was begun.
const RECIPE: &str = "recipe";

/// Builds what `recipe` says, unless it was built from the same already. Nothing is installed, no root is needed, and a tree of
/// one's own is only read. `say` gets a line for each step.
///
/// # Errors
/// When there is no such source, a patch does not apply, or configure or the compiler fail: then with the decisive lines of
/// what they said, the path of all of it, and the packages that are missing.
pub fn build(
    recipe: &Recipe,
    cache: &Path,
    say: &mut dyn FnMut(&str),
) -> Result<Fetched, QemuError> {
    let source = Source::from_word(&recipe.source)?;
    let what = recipe.text()?;
    let label = recipe.label(&source);
    if let Some(built) = built_before(cache, &source, &label, &what) {
        say("built before from the same");
        return Ok(built);
    }
    let builds = cache.join("builds");
    let fetch = Fetch::begin(&builds, "or building a QEMU", say)?;
    if let Some(built) = built_before(cache, &source, &label, &what) {
        return Ok(built);
    }
    let folder = match &source {
        Source::Offered { wanted } => builds.join(format!("{wanted}-{label}")),
        Source::Tree { .. } => builds.join(&label),
    };
    let work = begin(&folder, &source, recipe, &what, say)?;
    if !work.unpacked.exists() {
        fetch.need(ROOM)?;
        clear(&work.source)?;
        let from = source.put(&work.source, &fetch, say)?;
        steps::patch(recipe, &work, say)?;
        write(&work.unpacked, &from)?;
    } else if let Source::Tree { .. } = source {
        write(&work.unpacked, &source.put(&work.source, &fetch, say)?)?;
    }
    if !work.configured.exists() {
        clear(&work.build)?;
        fs::create_dir_all(&work.build).writing(&work.build)?;
        steps::configure(recipe, &work, say)?;
        write(&work.configured, "")?;
    }
    let program = steps::make(&work, say)?;
    let home = settle(&program, &work, &fetch, cache, &label, &what)?;
    if let Source::Offered { .. } = source {
        clear(&folder)?;
    }
    fetched(&home).ok_or_else(|| QemuError::NotBuilt {
        log: work.log,
        what: "no program".into(),
    })
}

/// A build of the same recipe from the same source. Of a distribution's source the version that was asked for counts.
fn built_before(cache: &Path, source: &Source, label: &str, what: &str) -> Option<Fetched> {
    let same = |qemu: &Fetched| {
        let path = shelf(cache).join(qemu.name()).join(RECIPE);
        let text = fs::read_to_string(path).unwrap_or_default();
        let Some((from, rest)) = text.split_once('\n') else {
            return false;
        };
        rest == what
            && match source {
                Source::Offered { wanted } => {
                    from.split(' ').next() == Some(wanted)
                        || (is_version(wanted) && version::matches(&qemu.version, wanted))
                }
                Source::Tree { .. } => source.identity().is_ok_and(|now| now == from),
            }
    };
    find(cache)
        .into_iter()
        .find(|qemu| qemu.suite == label && same(qemu))
}

/// The folder of a build: as an earlier one with the same recipe left it, else empty.
fn begin(
    folder: &Path,
    source: &Source,
    recipe: &Recipe,
    what: &str,
    say: &mut dyn FnMut(&str),
) -> Result<Work, QemuError> {
    let begun = folder.join(RECIPE);
    let work = Work {
        source: folder.join("source"),
        build: folder.join("build"),
        log: folder.join("build.log"),
        unpacked: folder.join("unpacked"),
        configured: folder.join("configured"),
    };
    // Where patches were applied, files of a tree that changed cannot be put over them.
    let patched_tree = matches!(source, Source::Tree { .. }) && !recipe.patches.is_empty();
    let what = format!("{}\n{what}", recipe.source);
    let usable = match fs::read_to_string(&work.unpacked) {
        Ok(from) if patched_tree => source.identity()? == from,
        _ => true,
    };
    if usable && fs::read_to_string(&begun).is_ok_and(|text| text == what) {
        say(&format!("going on with the build in {}", folder.display()));
    } else {
        clear(folder)?;
        fs::create_dir_all(folder).writing(folder)?;
        write(&begun, &what)?;
    }
    Ok(work)
}

/// Makes a QEMU's folder of the program and moves it into the cache in one step.
fn settle(
    program: &Path,
    work: &Work,
    fetch: &Fetch,
    cache: &Path,
    label: &str,
    what: &str,
) -> Result<PathBuf, QemuError> {
    let ready = fetch.work().join("ready");
    let (binary, firmware) = (ready.join(BINARY), ready.join("root/share/qemu"));
    for folder in [binary.parent().unwrap_or(&ready), &firmware, &shelf(cache)] {
        fs::create_dir_all(folder).writing(folder)?;
    }
    steps::strip(program, &binary)?;
    // A release has them, a distribution's source does not.
    let paths = entries(&work.source.join("pc-bios")).map(|entry| entry.path());
    let is_firmware = |path: &PathBuf| {
        path.extension()
            .is_some_and(|end| end == "bin" || end == "rom")
    };
    for path in paths.filter(is_firmware) {
        let to = firmware.join(path.file_name().unwrap_or_default());
        fs::copy(&path, &to).writing(&to)?;
    }
    let version = start(&ready, label, LAUNCHER)?;
    let from = fs::read_to_string(&work.unpacked).reading(&work.unpacked)?;
    write(&ready.join(RECIPE), &format!("{from}\n{what}"))?;
    let home = shelf(cache).join(format!("{version}-{label}"));
    if !is_suite(label) || !is_version(&version) {
        return Err(QemuError::NotBuilt {
            log: work.log.clone(),
            what: format!("version '{version}'"),
        });
    }
    fetch.settle(&ready, &home)?;
    Ok(home)
}

/// Script that starts the built QEMU with its own firmware first, then that of the system's packages.
const LAUNCHER: &str = "#!/bin/sh
# A QEMU built by `vmtax build qemu`; the file recipe says from what.
home=$(dirname -- \"$(readlink -f -- \"$0\")\")
exec \"$home/root/bin/qemu-system-x86_64\" -L \"$home/root/share/qemu\" \\
    -L /usr/share/qemu -L /usr/share/seabios -L /usr/lib/ipxe/qemu \"$@\"
";

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
