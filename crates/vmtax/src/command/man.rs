//! `vmtax man`: a manual page for each command, made of its help. Examples and exit statuses are those of the text below its
//! options.

use crate::cli::{Cli, GROUPS};
use crate::fault::Fault;
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, roman};
use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::process::ExitCode;

/// Writes the pages into a directory.
pub fn man(directory: &Path) -> Result<ExitCode, Fault> {
    let failed = |e| {
        let directory = directory.display();
        Fault::file(format!("writing manual pages into {directory}"), e)
    };
    std::fs::create_dir_all(directory).map_err(failed)?;
    let mut root = Cli::command().disable_help_subcommand(true);
    root.build();
    write_pages(&root, &Common::of(&root), directory).map_err(failed)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the pages of a command and of its subcommands, except those that are hidden from help.
fn write_pages(command: &Command, common: &Common, directory: &Path) -> io::Result<()> {
    let shown = command.get_subcommands().filter(|c| !c.is_hide_set());
    for inner in shown {
        write_pages(inner, common, directory)?;
    }
    let file = directory.join(format!("{}.1", page_name(command)));
    std::fs::write(file, page(command, common)?)
}

/// Name of a command's page: vmtax-get-kernel.
fn page_name(command: &Command) -> &str {
    let name = command.get_display_name();
    name.unwrap_or_else(|| command.get_name())
}

/// Parts that pages of several commands have, from that of the program.
struct Common {
    /// Exit statuses: number, meaning.
    statuses: Vec<(String, String)>,
    commands: BTreeSet<String>,
}

impl Common {
    fn of(root: &Command) -> Common {
        let statuses = AfterHelp::of(root).statuses;
        let listed = statuses
            .iter()
            .find_map(|text| text.strip_prefix("Exit status: "));
        let entries = listed.unwrap_or_default().trim_end_matches('.').split(", ");
        let shown = root.get_subcommands().filter(|c| !c.is_hide_set());
        Common {
            statuses: entries
                .filter_map(|entry| entry.split_once(' '))
                .map(|(number, meaning)| (number.to_owned(), meaning.to_owned()))
                .collect(),
            commands: shown.map(|c| c.get_name().to_owned()).collect(),
        }
    }
}

fn page(command: &Command, common: &Common) -> io::Result<Vec<u8>> {
    let after = AfterHelp::of(command);
    let man = Man::new(command.clone())
        // No date, which is no reason to leave the field out.
        .date(" ")
        .source(concat!("vmtax ", env!("CARGO_PKG_VERSION")))
        .manual("User Commands");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    synopsis(command).to_writer(&mut page)?;
    man.render_description_section(&mut page)?;
    description(&after).to_writer(&mut page)?;
    if command.get_arguments().any(|arg| !arg.is_hide_set()) {
        man.render_options_section(&mut page)?;
    }
    if command.get_subcommands().any(|inner| !inner.is_hide_set()) {
        man.render_subcommands_section(&mut page)?;
    }
    for section in [
        examples(&after),
        exit_status(&after, common),
        files(command),
        see_also(command, common),
    ] {
        section.to_writer(&mut page)?;
    }
    Ok(page)
}

/// The command line, as help has it; the options have a section of their own.
fn synopsis(command: &Command) -> Roff {
    let usage = command.clone().render_usage().to_string();
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]);
    for line in usage.trim_start_matches("Usage:").lines() {
        roff.text([roman(line.trim())]).control("br", []);
    }
    roff
}

/// Text below a command's options.
#[derive(Debug, Default, PartialEq, Eq)]
struct AfterHelp {
    text: String,
    /// Paragraphs; a line of a table begins with blanks.
    prose: Vec<String>,
    examples: Vec<String>,
    /// Sentences about the exit status.
    statuses: Vec<String>,
}

impl AfterHelp {
    fn of(command: &Command) -> AfterHelp {
        let text = command.get_after_help().map(ToString::to_string);
        AfterHelp::parse(text.unwrap_or_default())
    }

    fn parse(text: String) -> AfterHelp {
        let mut parts = AfterHelp::default();
        let mut paragraph = String::new();
        let mut is_example = false;
        for line in text.lines() {
            let is_table = line.starts_with("  ");
            let is_continued = !paragraph.is_empty() && !paragraph.ends_with(['.', ':']);
            if is_example && is_table {
                parts.examples.push(line.trim_start().to_owned());
            } else if is_continued && !line.is_empty() && !is_table {
                paragraph = format!("{paragraph} {line}");
            } else {
                parts.add(&std::mem::take(&mut paragraph));
                is_example = line == "Examples:";
                match is_table {
                    true => parts.prose.push(line.to_owned()),
                    false if is_example => {}
                    false => line.clone_into(&mut paragraph),
                }
            }
        }
        parts.add(&paragraph);
        AfterHelp { text, ..parts }
    }

    /// Adds a paragraph, its sentences about the exit status apart.
    fn add(&mut self, paragraph: &str) {
        let is_status = |sentence: &&str| sentence.to_lowercase().contains("exit status");
        let (statuses, others): (Vec<&str>, Vec<&str>) =
            paragraph.split_inclusive(". ").partition(is_status);
        self.statuses
            .extend(statuses.iter().map(|text| text.trim_end().to_owned()));
        let others = others.concat();
        if !others.trim().is_empty() {
            self.prose.push(others.trim_end().to_owned());
        }
    }
}

/// The paragraphs of a description after the first. Rows of a table are not filled.
fn description(after: &AfterHelp) -> Roff {
    let mut roff = Roff::new();
    let mut is_filled = true;
    for line in &after.prose {
        let row = line.strip_prefix("  ");
        if row.is_some() == is_filled {
            roff.control(if is_filled { "nf" } else { "fi" }, []);
            is_filled = !is_filled;
        }
        if row.is_none() {
            roff.control("PP", []);
        }
        roff.text([roman(row.unwrap_or(line))]);
    }
    if !is_filled {
        roff.control("fi", []);
    }
    roff
}

/// Command lines, not filled.
fn examples(after: &AfterHelp) -> Roff {
    let mut roff = Roff::new();
    if after.examples.is_empty() {
        return roff;
    }
    roff.control("SH", ["EXAMPLES"]).control("nf", []);
    for line in &after.examples {
        roff.text([roman(line.as_str())]);
    }
    roff.control("fi", []);
    roff
}

/// Renders the statuses of the command itself, then those of all commands.
fn exit_status(after: &AfterHelp, common: &Common) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["EXIT STATUS"]);
    let own: Vec<&String> = after
        .statuses
        .iter()
        .filter(|text| !text.starts_with("Exit status: "))
        .collect();
    for text in &own {
        roff.text([roman(text.as_str())]);
    }
    if !own.is_empty() {
        roff.control("PP", []).text([roman("Otherwise:")]);
    }
    for (number, meaning) in &common.statuses {
        roff.control("TP", [])
            .text([bold(number.as_str())])
            .text([roman(meaning.as_str())]);
    }
    roff
}

/// A file or directory that commands use.
struct UsedFile {
    path: &'static str,
    what: &'static str,
    is_used: fn(&Command) -> bool,
}

const FILES: &[UsedFile] = &[
    UsedFile {
        path: "runs/",
        what: "Recordings, each a directory with its report.html. --dir names another directory.",
        is_used: |command| has_argument(command, "dir"),
    },
    UsedFile {
        path: "runs/.history/",
        what: "Metrics of runs, as Parquet files, for vmtax history.",
        is_used: |command| has_argument(command, "dir"),
    },
    UsedFile {
        path: "$XDG_CACHE_HOME/vmtax/, ~/.cache/vmtax/",
        what: "Guest kernels and QEMUs that vmtax get downloaded or vmtax build built.",
        is_used: |command| {
            has_argument(command, "qemu")
                || ["vmtax-get", "vmtax-build"]
                    .iter()
                    .any(|name| page_name(command).starts_with(name))
        },
    },
    UsedFile {
        path: "/run/vmtax/, for an ordinary user $XDG_RUNTIME_DIR/vmtax/",
        what: "Settings of running VMs that are changed now, each with the value to restore.",
        is_used: |command| ["top", "diagnose", "tune", "undo"].contains(&command.get_name()),
    },
];

fn has_argument(command: &Command, id: &str) -> bool {
    command.get_arguments().any(|arg| arg.get_id() == id)
}

/// The files that a command uses; on the program's own page all.
fn files(command: &Command) -> Roff {
    let is_root = page_name(command) == "vmtax";
    let mut used = FILES
        .iter()
        .filter(|file| is_root || (file.is_used)(command))
        .peekable();
    let mut roff = Roff::new();
    if used.peek().is_some() {
        roff.control("SH", ["FILES"]);
    }
    for file in used {
        roff.control("TP", [])
            .text([bold(file.path)])
            .text([roman(file.what)]);
    }
    roff
}

/// Programs beside vmtax, with their sections.
const OTHERS: &[(&str, &str)] = &[
    ("qemu-system-x86_64", "1"),
    ("virsh", "1"),
    ("perf", "1"),
    ("trace-cmd", "1"),
    ("fio", "1"),
];

/// The commands of the same group, and those that the command's help names.
fn see_also(command: &Command, common: &Common) -> Roff {
    let name = page_name(command);
    let own = name.strip_prefix("vmtax-").unwrap_or_default();
    let top = own.split('-').next().unwrap_or_default();
    let text = AfterHelp::of(command).text;
    let group = GROUPS.iter().find(|(_, names)| names.contains(&top));
    let is_related = |other: &&String| {
        let in_group = group.is_some_and(|(_, names)| names.contains(&other.as_str()));
        *other != own && (in_group || text.contains(&format!("`vmtax {other}")))
    };
    let mut pages: Vec<(String, &str)> = Vec::new();
    if name == "vmtax" {
        let others = OTHERS
            .iter()
            .map(|(name, section)| ((*name).to_owned(), *section));
        pages.extend(others);
    } else {
        pages.push(("vmtax".to_owned(), "1"));
        let related = common.commands.iter().filter(is_related);
        pages.extend(related.map(|other| (format!("vmtax-{other}"), "1")));
    }
    let last = pages.len() - 1;
    let listed = pages.into_iter().enumerate();
    let inlines: Vec<Inline> = listed
        .flat_map(|(at, (name, section))| {
            let end = if at == last { "" } else { ", " };
            [bold(name), roman(format!("({section}){end}"))]
        })
        .collect();
    let mut roff = Roff::new();
    roff.control("SH", ["SEE ALSO"]).text(inlines);
    roff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_below_the_options_is_taken_apart() {
        let text = "One. The exit status is 1 if\nit failed. Two.\nThree:\n  a  first\n\nExamples:\n  vmtax a\n    more\n\nExit status: 0 done,\n2 not.";
        let parts = AfterHelp::parse(text.to_owned());
        assert_eq!(parts.prose, ["One. Two.", "Three:", "  a  first"]);
        assert_eq!(parts.examples, ["vmtax a", "more"]);
        assert_eq!(
            parts.statuses,
            [
                "The exit status is 1 if it failed.",
                "Exit status: 0 done, 2 not."
            ]
        );
    }

    #[test]
    fn exit_statuses_of_all_commands_are_those_of_the_help() {
        let mut root = Cli::command();
        root.build();
        let statuses = Common::of(&root).statuses;
        let numbers: Vec<&str> = statuses.iter().map(|(number, _)| number.as_str()).collect();
        assert_eq!(numbers, ["0", "1", "2", "130"]);
    }
}
