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
mod tests {
    use super::*;
    use crate::qemu::{is_built, named};
    use std::os::unix::fs::PermissionsExt;

    const CONFIGURE: &str = "#!/bin/sh
case $1 in --help) echo 'usage'; echo '  --target-list=LIST'; echo '  --disable-docs'; echo '  kvm  KVM support'; exit ;; esac
echo \"$*\" >words
[ -e \"$(dirname \"$0\")/old\" ] && { echo 'ERROR: glib-2.56 gthread-2.0 is required to compile QEMU' >&2; exit 1; }
src=$(cd \"$(dirname \"$0\")\" && pwd)
printf 'qemu-system-x86_64: %s/says.sh\\n\\t@echo compiling\\n\\t@sh %s/says.sh check\\n\\tcp %s/says.sh $@ && chmod +x $@\\n' \\
    \"$src\" \"$src\" \"$src\" >Makefile
";
    const SAYS: &str =
        "#!/bin/sh\nif [ \"$1\" = check ]; then exit 0; fi\necho QEMU emulator version 9.9.1\n";
    const BROKEN: &str =
        "#!/bin/sh\necho \"says.c:7:1: error: expected ';' before '}' token\" >&2\nexit 1\n";
    const PATCH: &str = "--- a/says.sh\n+++ b/says.sh\n@@ -1,3 +1,3 @@\n #!/bin/sh\n if [ \"$1\" = check ]; then exit 0; fi\n\
     -echo QEMU emulator version 9.9.1\n+echo QEMU emulator version 9.9.2\n";

    /// A tree, a cache, and what was said.
    struct Site {
        dir: tempfile::TempDir,
    }

    impl Site {
        fn new() -> Site {
            let site = Site {
                dir: tempfile::tempdir().unwrap(),
            };
            fs::create_dir_all(site.path("my qemu")).unwrap();
            site.put("my qemu/configure", CONFIGURE);
            fs::set_permissions(
                site.path("my qemu/configure"),
                fs::Permissions::from_mode(0o755),
            )
            .unwrap();
            site.put("my qemu/says.sh", SAYS);
            site.put("fast.patch", PATCH);
            site
        }

        fn path(&self, below: &str) -> PathBuf {
            self.dir.path().join(below)
        }

        fn put(&self, below: &str, text: &str) {
            fs::write(self.path(below), text).unwrap();
        }

        fn recipe(&self, patches: &[&str], configure: &[&str]) -> Recipe {
            Recipe {
                source: self.path("my qemu").display().to_string(),
                patches: patches
                    .iter()
                    .map(|p| self.path(p).display().to_string())
                    .collect(),
                configure: configure.iter().map(|&word| word.to_owned()).collect(),
            }
        }

        fn build(&self, recipe: &Recipe) -> (Result<Fetched, String>, String) {
            let mut said = String::new();
            let built = build(recipe, &self.path("cache"), &mut |line| {
                said.push_str(&format!("{line}\n"))
            });
            (built.map_err(|e| e.to_string()), said)
        }
    }

    #[test]
    fn what_is_built_has_a_name_and_is_built_once() {
        let site = Site::new();
        let recipe = site.recipe(&[], &["--extra=1"]);
        let (built, said) = site.build(&recipe);
        let built = built.unwrap();
        assert_eq!(built.name(), "9.9.1-built-my-qemu-extra-1");
        assert!(
            said.contains("configuring") && said.contains("building on"),
            "{said}"
        );
        // Those words that configure knows, and one's own.
        let words = fs::read_to_string(site.path("cache/builds/built-my-qemu-extra-1/build/words"))
            .unwrap();
        assert_eq!(
            words,
            "--target-list=x86_64-softmmu --disable-docs --enable-kvm --extra=1\n"
        );
        // By its label or whole name, not by a version that a fetched one may have too.
        let cache = site.path("cache");
        assert_eq!(
            named(&cache, "built-my-qemu-extra-1").as_ref(),
            Some(&built)
        );
        assert_eq!(named(&cache, &built.name()).as_ref(), Some(&built));
        assert_eq!(named(&cache, "9.9"), None);

        let (again, said) = site.build(&recipe);
        assert_eq!(
            (again.unwrap(), said.as_str()),
            (built, "built before from the same\n")
        );
        // The tree was only read.
        assert_eq!(fs::read_dir(site.path("my qemu")).unwrap().count(), 2);
    }

    #[test]
    fn a_tree_that_changed_is_built_on() {
        let site = Site::new();
        let recipe = site.recipe(&[], &[]);
        site.build(&recipe).0.unwrap();
        site.put("my qemu/says.sh", &SAYS.replace("9.9.1", "9.10.0"));
        let (built, said) = site.build(&recipe);
        assert_eq!(built.unwrap().name(), "9.10.0-built-my-qemu");
        assert!(
            said.contains("going on") && !said.contains("configuring"),
            "{said}"
        );
    }

    #[test]
    fn patches_change_the_copy_alone() {
        let site = Site::new();
        let recipe = site.recipe(&["fast.patch"], &[]);
        let (built, _) = site.build(&recipe);
        assert_eq!(built.unwrap().name(), "9.9.2-built-my-qemu-fast");
        assert_eq!(
            fs::read_to_string(site.path("my qemu/says.sh")).unwrap(),
            SAYS
        );
        // Another text of the patch is another build, and so is another tree: from the start.
        site.put("fast.patch", &PATCH.replace("9.9.2", "9.9.3"));
        assert_eq!(site.build(&recipe).0.unwrap().version, "9.9.3");
        site.put("my qemu/more", "");
        let (built, said) = site.build(&recipe);
        assert_eq!(built.unwrap().version, "9.9.3");
        assert!(said.contains("configuring"), "{said}");

        site.put("my qemu/says.sh", &SAYS.replace("9.9.1", "1.0"));
        let error = site.build(&recipe).0.unwrap_err();
        assert!(
            error.contains("fast.patch does not apply") && error.contains("FAILED"),
            "{error}"
        );
        // Nothing of it is applied.
        let copy = site.path("cache/builds/built-my-qemu-fast/source/says.sh");
        assert!(fs::read_to_string(copy).unwrap().contains("1.0"));
    }

    #[test]
    fn a_failure_is_told_with_its_decisive_lines_and_goes_on_once_it_is_fixed() {
        let site = Site::new();
        let recipe = site.recipe(&[], &[]);
        site.put("my qemu/says.sh", BROKEN);
        let (failed, _) = site.build(&recipe);
        let error = failed.unwrap_err();
        assert!(
            error.starts_with("make failed:\nsays.c:7:1: error: expected ';'"),
            "{error}"
        );
        let log = site.path("cache/builds/built-my-qemu/build.log");
        assert!(error.contains(&log.display().to_string()), "{error}");
        assert!(fs::read_to_string(log).unwrap().contains("compiling"));
        assert_eq!(find(&site.path("cache")), []);

        site.put("my qemu/says.sh", SAYS);
        let (built, said) = site.build(&recipe);
        assert_eq!(built.unwrap().version, "9.9.1");
        assert!(
            said.contains("going on") && !said.contains("configuring"),
            "{said}"
        );

        site.put("my qemu/old", "");
        let error = site.build(&site.recipe(&[], &["--again"])).0.unwrap_err();
        assert!(
            error.contains("configure failed:\nERROR: glib-2.56"),
            "{error}"
        );
    }

    #[test]
    fn what_was_cut_off_while_it_was_unpacked_is_begun_anew() {
        let site = Site::new();
        let recipe = site.recipe(&[], &[]);
        site.put("my qemu/says.sh", BROKEN);
        site.build(&recipe).0.unwrap_err();
        let folder = site.path("cache/builds/built-my-qemu");
        fs::remove_file(folder.join("unpacked")).unwrap();
        fs::write(folder.join("source/remains"), "").unwrap();
        site.put("my qemu/says.sh", SAYS);
        site.build(&recipe).0.unwrap();
        assert!(!folder.join("source/remains").exists());
    }

    #[test]
    fn what_is_no_source_and_no_patch_is_named() {
        let site = Site::new();
        for source in ["../7.2", "", "UPPER", "/"] {
            let recipe = Recipe {
                source: source.into(),
                patches: vec![],
                configure: vec![],
            };
            let error = site.build(&recipe).0.unwrap_err();
            assert!(
                error.contains("nor a version, such as 7.2"),
                "{source}: {error}"
            );
        }
        let error = site
            .build(&site.recipe(&["none.patch"], &[]))
            .0
            .unwrap_err();
        assert!(
            error.contains("none.patch") && error.contains("9p-list"),
            "{error}"
        );
    }

    #[test]
    fn labels_can_be_folders_and_names() {
        let site = Site::new();
        let long: Vec<String> = (0..20)
            .map(|i| format!("--enable-thing-{i}=Ünicode/../x"))
            .collect();
        let recipe = Recipe {
            configure: long,
            ..site.recipe(&["fast.patch"], &[])
        };
        let source = Source::from_word(&recipe.source).unwrap();
        let label = recipe.label(&source);
        assert!(is_suite(&label) && is_built(&label), "{label}");
        let other = Recipe {
            configure: recipe.configure[1..].to_vec(),
            ..recipe.clone()
        };
        assert_ne!(other.label(&source), label);
        assert!(!is_built("bullseye") && !is_built("builtin") && is_built("built"));
    }
}
