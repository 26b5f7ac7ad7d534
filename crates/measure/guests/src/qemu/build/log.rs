//! Output of a build, and the lines of it that matter.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};

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
pub fn run(command: &mut Command, log: &Path) -> io::Result<bool> {
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
    let text = fs::read(log)
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_default();
    let last = text.lines().collect::<Vec<_>>();
    let begin = last
        .iter()
        .rposition(|line| line.starts_with("$ "))
        .map_or(0, |at| at + 1);
    let said: Vec<&str> = last[begin..]
        .iter()
        .map(|line| line.trim_end())
        .filter(|line| !line.is_empty())
        .collect();
    let mut chosen: Vec<&str> = Vec::new();
    for line in said
        .iter()
        .filter(|line| DECISIVE.iter().any(|word| line.contains(word)))
    {
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
            run(
                Command::new("sh").args(["-c", "echo old error: no; exit 0"]),
                &log
            )
            .unwrap()
        );
        let script = "echo fine; echo 'a.c:3:1: error: expected ;' >&2; echo 'a.c:3:1: error: expected ;'; echo more; exit 1";
        assert!(!run(Command::new("sh").args(["-c", script]), &log).unwrap());
        assert_eq!(decisive(&log), "a.c:3:1: error: expected ;");
        assert!(!run(Command::new("sh").args(["-c", "seq 20; exit 2"]), &log).unwrap());
        assert_eq!(decisive(&log), "13\n14\n15\n16\n17\n18\n19\n20");
        assert!(run(&mut Command::new("/nowhere/at/all"), &log).is_err());
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
