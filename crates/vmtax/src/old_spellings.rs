//! Former spellings of options and commands: rewritten before the command line is parsed, each with a line that says what to
//! write now. They go one version after the one in which they changed.

use std::ffi::OsString;

struct OldSpelling {
    /// The former option or command.
    old: &'static str,
    /// What to write now.
    new: &'static str,
    /// The command that has it; `None` for all.
    command: Option<&'static str>,
}

const fn option(old: &'static str, new: &'static str) -> OldSpelling {
    OldSpelling {
        old,
        new,
        command: None,
    }
}

const fn word(command: &'static str, old: &'static str, new: &'static str) -> OldSpelling {
    OldSpelling {
        command: Some(command),
        ..option(old, new)
    }
}

const OLD_SPELLINGS: &[OldSpelling] = &[
    option("--machines", "--machine"),
    option("--guest", "--machine"),
    option("--deadline", "--timeout"),
    option("--boot-deadline", "--boot-timeout"),
    option("--seconds", "--duration"),
    option("--time", "--duration"),
    option("--kernel-args", "--kernel-arg"),
    option("--append", "--kernel-arg"),
    option("--out", "--output"),
    option("--html", "--output"),
    option("--runs", "--dir"),
    option("--detect", "--min-effect"),
    option("--ladder", "--range"),
    option("--rungs", "--steps"),
    option("--pieces", "--segments"),
    word("profile", "--events", "--trace-duration"),
    word("case", "case", "reproduce"),
    word("compare", "usual", "default"),
];

/// Commands that only the program itself starts, by the arguments of this version.
pub const INTERNAL: [&str; 2] = ["watchdog", "jail"];

/// A command line as it is written now.
#[derive(Debug, PartialEq, Eq)]
pub struct Rewritten {
    /// The arguments, the program's name first.
    pub args: Vec<OsString>,
    /// A line for each former spelling that was rewritten.
    pub lines: Vec<String>,
}

/// Rewrites former spellings, up to `--`: behind it stands a command of the user's.
///
/// # Errors
/// A message for `--runs N`, which other tools take as a number of repetitions.
pub fn rewrite(args: Vec<OsString>) -> Result<Rewritten, String> {
    let command = args
        .get(1)
        .and_then(|arg| arg.to_str())
        .unwrap_or_default()
        .to_owned();
    let mut rewritten = Rewritten {
        args,
        lines: Vec::new(),
    };
    if INTERNAL.contains(&command.as_str()) {
        return Ok(rewritten);
    }
    let end = rewritten
        .args
        .iter()
        .position(|arg| arg == "--")
        .unwrap_or(rewritten.args.len());
    for at in 1..end {
        let Some(arg) = rewritten.args[at].to_str() else {
            continue;
        };
        let (name, value) = arg
            .split_once('=')
            .map_or((arg, None), |(name, value)| (name, Some(value)));
        let is_here = |s: &&OldSpelling| s.old == name && s.command.is_none_or(|c| c == command);
        let Some(OldSpelling { old, new, .. }) = OLD_SPELLINGS.iter().find(is_here) else {
            continue;
        };
        if *old == "--runs" {
            let folder =
                value.or_else(|| rewritten.args.get(at + 1).and_then(|next| next.to_str()));
            if let Some(count) =
                folder.filter(|f| !f.is_empty() && f.bytes().all(|b| b.is_ascii_digit()))
            {
                return Err(format!(
                    "--runs was a folder and is now --dir: write --rounds {count} to repeat, --dir {count} for a folder"
                ));
            }
        }
        let line = format!("vmtax: {old} is now {new}");
        let now = value.map_or_else(|| (*new).to_owned(), |value| format!("{new}={value}"));
        rewritten.args[at] = now.into();
        if !rewritten.lines.contains(&line) {
            rewritten.lines.push(line);
        }
    }
    Ok(rewritten)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory;

    fn rewritten(line: &str) -> Result<(String, Vec<String>), String> {
        let Rewritten { args, lines } = rewrite(line.split(' ').map(OsString::from).collect())?;
        let args: Vec<String> = args
            .into_iter()
            .map(|arg| arg.into_string().unwrap())
            .collect();
        Ok((args.join(" "), lines))
    }

    #[test]
    fn former_spellings_are_rewritten_with_a_line_each() {
        let (args, lines) =
            rewritten("vmtax run --machines native --runs=x --runs y --quick -- --machines")
                .unwrap();
        assert_eq!(
            args,
            "vmtax run --machine native --dir=x --dir y --quick -- --machines"
        );
        assert_eq!(
            lines,
            [
                "vmtax: --machines is now --machine",
                "vmtax: --runs is now --dir"
            ]
        );
        assert_eq!(
            rewritten("vmtax case list").unwrap().0,
            "vmtax reproduce list"
        );
        assert_eq!(
            rewritten("vmtax compare usual aio=native").unwrap().0,
            "vmtax compare default aio=native"
        );
        assert_eq!(
            rewritten("vmtax run usual").unwrap(),
            ("vmtax run usual".to_owned(), Vec::new())
        );
        let internal = "vmtax watchdog --runs 10";
        assert_eq!(rewritten(internal).unwrap().0, internal);
    }

    #[test]
    fn runs_with_a_number_is_refused() {
        for line in ["vmtax run --runs 10", "vmtax run --runs=10 cpu"] {
            assert!(
                rewritten(line).unwrap_err().contains("write --rounds 10"),
                "{line}"
            );
        }
        assert!(rewritten("vmtax list --runs 10x").is_ok());
    }

    /// A former spelling that a command still took would be rewritten away, and a new one that none has is no help.
    #[test]
    fn what_is_written_now_exists_and_what_was_written_does_not() {
        fn collect(command: &clap::Command) -> Vec<String> {
            let own = command
                .get_arguments()
                .filter_map(|a| Some(format!("--{}", a.get_long()?)));
            let mut names: Vec<String> = own.chain([command.get_name().to_owned()]).collect();
            names.extend(command.get_subcommands().flat_map(collect));
            names
        }
        let names = collect(&Cli::command());
        for spelling in OLD_SPELLINGS
            .iter()
            .filter(|s| s.command.is_none_or(|c| c == s.old))
        {
            assert!(
                names.iter().any(|name| name == spelling.new),
                "{}",
                spelling.new
            );
            assert!(
                !names.iter().any(|name| name == spelling.old),
                "{}",
                spelling.old
            );
        }
    }
}
