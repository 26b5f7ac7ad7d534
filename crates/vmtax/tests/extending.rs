//! The examples of docs/extending.md: each is a patch. All are applied to a copy of the tree, and the program is built
//! from it with the tests of what they add, so that the page cannot fall behind the code.

// Helpers fail by panic too.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A section of the page with its patches.
struct Example {
    heading: String,
    patches: Vec<String>,
    /// How many files of code the section says that it takes: `Files: N`.
    files: usize,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn examples(page: &str) -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    let mut patch: Option<String> = None;
    for line in page.lines() {
        match (&mut patch, line) {
            (Some(_), "```") => examples.last_mut().unwrap().patches.extend(patch.take()),
            (Some(text), line) => *text += &format!("{line}\n"),
            (None, "```diff") => patch = Some(String::new()),
            (None, line) => {
                if let Some(heading) = line.strip_prefix("## ") {
                    examples.push(Example { heading: heading.to_owned(), patches: Vec::new(), files: 0 });
                } else if let Some(files) = line.strip_prefix("Files: ") {
                    let count = files.chars().take_while(char::is_ascii_digit).collect::<String>();
                    examples.last_mut().unwrap().files = count.parse().unwrap();
                }
            }
        }
    }
    examples
}

/// The files of code that a patch touches: not documentation.
fn touched(patch: &str) -> BTreeSet<&str> {
    let names = patch.lines().filter_map(|line| line.strip_prefix("+++ b/"));
    names.filter(|name| !name.ends_with(".md")).collect()
}

#[test]
fn the_examples_apply_and_build() {
    let root = root();
    let page = fs::read_to_string(root.join("docs/extending.md")).unwrap();
    let examples = examples(&page);
    let tree = Path::new(env!("CARGO_TARGET_TMPDIR")).join("extending");
    let _ = fs::remove_dir_all(&tree);
    fs::create_dir_all(&tree).unwrap();
    let copied = ["crates", "docs", "fuzz", "Cargo.toml", "Cargo.lock", ".cargo"];
    let copy = Command::new("cp").arg("-rp").args(copied).arg(&tree).current_dir(&root).status().unwrap();
    assert!(copy.success());

    let mut applied = 0;
    for Example { heading, patches, files } in &examples {
        let touched: BTreeSet<&str> = patches.iter().flat_map(|patch| touched(patch)).collect();
        assert_eq!(touched.len(), *files, "{heading}: its patches touch {touched:?}");
        for patch in patches {
            let mut command = Command::new("patch");
            command.args(["-p1", "--fuzz=2", "--no-backup-if-mismatch"]).current_dir(&tree);
            let mut running = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            running.stdin.take().unwrap().write_all(patch.as_bytes()).unwrap();
            let output = running.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success(), "{heading}: the patch does not apply: {said}\n{patch}");
            applied += 1;
        }
    }
    assert!(applied >= 5, "the page has {applied} patches");

    // What this test was built from is shared: its target folder, and with it the profile.
    let target =
        Path::new(env!("CARGO_TARGET_TMPDIR")).ancestors().find(|folder| folder.join("CACHEDIR.TAG").is_file());
    let target = target.unwrap();
    let profile = (!cfg!(debug_assertions)).then_some("--release");
    let cargo = |subcommand: &str, arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO"));
        command.args([subcommand, "--locked"]).args(profile).args(arguments).current_dir(&tree);
        command.env("CARGO_TARGET_DIR", target).env("CARGO_INCREMENTAL", "0");
        let output = command.stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "cargo {subcommand}: {said}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    cargo("check", &["--package", "vmtax"]);
    let tests = cargo("test", &["--package", "vmtax-rules", "--lib", "--", "long_tail"]);
    assert!(!tests.contains(" 0 passed"), "the rule of the page has no test: {tests}");
    fs::remove_dir_all(&tree).unwrap();
}
