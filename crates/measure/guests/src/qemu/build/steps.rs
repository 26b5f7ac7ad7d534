//! Patch, configure, make.

use super::Recipe;
use super::source::find;
use crate::ResultExt;
use crate::error::QemuError;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::available_parallelism;

/// One target, with what guests here are given and nothing else: a fifth of the time that all takes. Debug information is for
/// names of functions.
const WORDS: [&str; 16] = [
    "--target-list=x86_64-softmmu",
    "--disable-docs",
    "--without-default-features",
    "--enable-tcg",
    "--enable-kvm",
    "--enable-virtfs",
    "--enable-linux-aio",
    "--enable-linux-io-uring",
    "--enable-attr",
    "--enable-cap-ng",
    "--enable-slirp",
    "--enable-vhost-user",
    "--enable-trace-backends=log",
    "--enable-debug-info",
    "--disable-install-blobs",
    "--disable-werror",
];
/// Packages of Debian and Ubuntu that a build needs, each with what shows that it is there: a program, or a file of
/// /usr.
const NEEDS: [(&str, &[&str]); 16] = [
    ("gcc", &["cc"]),
    ("ninja-build", &["ninja"]),
    ("make", &["make"]),
    ("python3", &["python3"]),
    ("pkg-config", &["pkg-config", "pkgconf"]),
    ("flex", &["flex"]),
    ("bison", &["bison"]),
    ("meson", &["meson"]),
    ("libglib2.0-dev", &["include/glib-2.0/glib.h"]),
    ("libpixman-1-dev", &["include/pixman-1/pixman.h"]),
    ("libfdt-dev", &["include/libfdt.h"]),
    ("libaio-dev", &["include/libaio.h"]),
    ("liburing-dev", &["include/liburing.h"]),
    ("libattr1-dev", &["include/attr/attributes.h"]),
    ("libcap-ng-dev", &["include/cap-ng.h"]),
    ("libslirp-dev", &["include/slirp/libslirp.h"]),
];
/// The target, as ninja and as QEMU's older makefiles name it.
const PROGRAM: [&str; 2] = ["qemu-system-x86_64", "x86_64-softmmu/qemu-system-x86_64"];

/// Applies the patches, each whole or not at all.
pub fn patch(recipe: &Recipe, work: &Work, say: &mut dyn FnMut(&str)) -> Result<(), QemuError> {
    for (number, given) in recipe.patches.iter().enumerate() {
        say(&format!("applying {given}"));
        let file = work.source.with_file_name(format!("{number}.patch"));
        write(&file, &Recipe::patch(given)?)?;
        for more in [&["--dry-run"][..], &[]] {
            let mut command = Command::new("patch");
            command
                .args(["-p1", "--batch", "--forward"])
                .args(more)
                .arg("--input")
                .arg(&file);
            if !run(command.current_dir(&work.source), &work.log, "patch")? {
                return Err(QemuError::PatchFails {
                    given: given.clone(),
                    said: decisive(&work.log),
                });
            }
        }
    }
    Ok(())
}

/// Runs QEMU's configure, with those of [`WORDS`] that it knows.
pub fn configure(recipe: &Recipe, work: &Work, say: &mut dyn FnMut(&str)) -> Result<(), QemuError> {
    say("configuring it");
    let program = work.source.join("configure");
    let help = Command::new(&program)
        .arg("--help")
        .current_dir(&work.build)
        .stdin(Stdio::null())
        .output();
    let help = help
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default();
    let mut command = Command::new(&program);
    command
        .args(WORDS.iter().filter(|word| is_known(word, &help)))
        .args(&recipe.configure);
    if run(command.current_dir(&work.build), &work.log, "configure")? {
        return Ok(());
    }
    Err(failed("configure", work))
}

/// Returns true if configure's help names an option, or the feature that it enables or disables.
fn is_known(word: &str, help: &str) -> bool {
    let option = word.split('=').next().unwrap_or(word);
    let feature = option
        .trim_start_matches("--enable-")
        .trim_start_matches("--disable-");
    help.contains(option) || help.split_whitespace().any(|known| known == feature)
}

/// Builds the program, on every CPU.
pub fn make(work: &Work, say: &mut dyn FnMut(&str)) -> Result<PathBuf, QemuError> {
    let jobs = available_parallelism().map_or(1, usize::from);
    say(&format!(
        "building on {jobs} CPUs, which takes minutes; the log is {}",
        work.log.display()
    ));
    let ninja = work.build.join("build.ninja").exists();
    let program = if ninja { "ninja" } else { "make" };
    let mut command = Command::new(program);

    command.arg(format!("-j{jobs}")).current_dir(&work.build);
    if ninja {
        command.arg(PROGRAM[0]);
    }
    if !run(&mut command, &work.log, program)? {
        return Err(failed("make", work));
    }
    let mut built = PROGRAM.iter().map(|name| work.build.join(name));
    built
        .find(|path| path.is_file())
        .ok_or_else(|| QemuError::NotBuilt {
            log: work.log.clone(),
            what: "no qemu-system-x86_64".into(),
        })
}

/// The program with the names of its functions, without the rest of its debug information.
pub fn strip(program: &Path, to: &Path) -> Result<(), QemuError> {
    let mut command = Command::new("strip");
    command
        .args(["--strip-debug", "-o"])
        .arg(to)
        .arg(program)
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    if command.status().is_ok_and(|status| status.success()) {
        return Ok(());
    }
    Ok(fs::copy(program, to).map(drop).writing(to)?)
}

fn run(command: &mut Command, log: &Path, program: &'static str) -> Result<bool, QemuError> {
    match run_logged(command, log) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound && program != "configure" => {
            let package = NEEDS
                .iter()
                .find(|(_, shown)| shown.contains(&program))
                .map_or(program, |(name, _)| name);
            Err(QemuError::NoTool { program, package })
        }
        ran => Ok(ran.writing(log)?),
    }
}

fn failed(step: &'static str, work: &Work) -> QemuError {
    QemuError::BuildFails {
        step,
        said: decisive(&work.log),
        log: work.log.clone(),
        missing: missing(),
    }
}

/// Packages of [`NEEDS`] that are not there.
fn missing() -> Vec<&'static str> {
    let is_there = |shown: &&str| match shown.contains('/') {
        true => ["/usr", "/usr/local"].iter().any(|root| {
            let multiarch = shown.replacen("include/", "include/x86_64-linux-gnu/", 1);
            Path::new(root).join(shown).exists() || Path::new(root).join(multiarch).exists()
        }),
        false => find(shown).is_some(),
    };
    NEEDS
        .iter()
        .filter(|(_, shown)| !shown.iter().any(is_there))
        .map(|(package, _)| *package)
        .collect()
}

/// Where a build is under way.
pub(super) struct Work {
    pub source: PathBuf,
    pub build: PathBuf,
    pub log: PathBuf,
    /// Files that say how far it came.
    pub unpacked: PathBuf,
    pub configured: PathBuf,
}

pub(super) fn write(path: &Path, text: &str) -> Result<(), QemuError> {
    Ok(fs::write(path, text).writing(path)?)
}

/// Lines of a log that a person reads.
const LINES: usize = 8;
const LONGEST: usize = 240;
/// Parts of lines that name the cause of a failure.
const DECISIVE: [&str; 7] = [
    "error:",
    "ERROR",
    "undefined reference",
    "FAILED",
    "not found",
    "No such file",
    "cannot find",
];

/// Runs a program to its end, adding what it says to the log; whether it succeeded.
pub fn run_logged(command: &mut Command, log: &Path) -> io::Result<bool> {
    let mut file = File::options().create(true).append(true).open(log)?;
    writeln!(file, "$ {command:?}")?;
    let status = command
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .status()?;
    Ok(status.success())
}

/// The lines of the log's last command that decide; its last lines, where none does.
pub fn decisive(log: &Path) -> String {
    let bytes = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    let command = lines.iter().rposition(|line| line.starts_with("$ "));
    let said = lines[command.map_or(0, |at| at + 1)..].iter();
    let said: Vec<&str> = said
        .map(|line| line.trim_end())
        .filter(|line| !line.is_empty())
        .collect();
    let mut chosen: Vec<&str> = Vec::new();
    let decides = |line: &&&str| DECISIVE.iter().any(|word| line.contains(word));
    for line in said.iter().filter(decides) {
        if chosen.len() < LINES && !chosen.contains(line) {
            chosen.push(line);
        }
    }
    if chosen.is_empty() {
        chosen = said[said.len().saturating_sub(LINES)..].to_vec();
    }
    let short = |line: &&str| line.chars().take(LONGEST).collect::<String>();
    chosen.iter().map(short).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_decisive_lines_are_of_the_last_command() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        assert!(
            run_logged(
                Command::new("sh").args(["-c", "echo old error: no; exit 0"]),
                &log
            )
            .unwrap()
        );
        let script = "echo fine; echo 'a.c:3:1: error: expected ;' >&2; echo 'a.c:3:1: error: expected ;'; echo more; exit 1";
        assert!(!run_logged(Command::new("sh").args(["-c", script]), &log).unwrap());
        assert_eq!(decisive(&log), "a.c:3:1: error: expected ;");
        assert!(!run_logged(Command::new("sh").args(["-c", "seq 20; exit 2"]), &log).unwrap());
        assert_eq!(decisive(&log), "13\n14\n15\n16\n17\n18\n19\n20");
        assert!(run_logged(&mut Command::new("/nowhere/at/all"), &log).is_err());
        assert_eq!(decisive(&dir.path().join("none")), "");
    }

    proptest! {
        #[test]
        fn any_log_is_survived(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let dir = tempfile::tempdir().unwrap();
            let log = dir.path().join("log");
            fs::write(&log, [b"$ x\n".as_slice(), &bytes].concat()).unwrap();
            prop_assert!(decisive(&log).lines().count() <= LINES);
        }
    }
}
