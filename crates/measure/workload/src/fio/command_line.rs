//! fio's command line, as people paste it: `sudo fio --name=a --rw=randread …`.

use super::error::{FioError, named};
use super::options;
use super::section::{FioOption, Section, plain_name};
use std::path::Path;
use vmtax_model::shell_words;

/// Returns true if a text is a command line rather than a job file: it has no section, and fio's name or an option in it.
pub(super) fn is_command_line(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim_start);
    let mut words = text.split_whitespace();
    !lines.any(|line| line.starts_with('['))
        && words.any(|word| is_fio(word) || word.trim_start_matches(['\'', '"']).starts_with("--"))
}

/// Returns true for the program, by whatever path.
fn is_fio(word: &str) -> bool {
    Path::new(word)
        .file_name()
        .is_some_and(|name| name == "fio")
}

/// The sections of a command line: options before the first `--name` are for all behind it.
pub(super) fn sections(text: &str, notes: &mut Vec<String>) -> Result<Vec<Section>, FioError> {
    let failed = |why: String| Err(FioError::CommandLine(why));
    let Some(words) = shell_words(text) else {
        return failed(
            "the fio command line has a quote that is never closed: close it".to_owned(),
        );
    };
    let global = Section {
        name: "global".to_owned(),
        ..Section::default()
    };
    let mut sections = vec![global];
    let mut words = fios_own(&words, notes).iter().peekable();
    while let Some(word) = words.next() {
        // getopt_long_only takes one dash, too.
        let Some(option) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')) else {
            let word = named(word, "");
            return failed(format!(
                "'{word}' in the fio command line is no option: give a job file itself, as --fio FILE"
            ));
        };
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, value.to_owned()),
            None if options::is_flag(option) => (option, String::new()),
            // Another word has its value.
            None => match words.next_if(|next| !next.starts_with("--")) {
                Some(value) => (option, value.clone()),
                None => (option, String::new()),
            },
        };
        if name == "section" {
            return failed("--section in the fio command line names a section of a job file: give the file as --fio FILE".to_owned());
        }
        if !options::is_of_output(name) {
            add(&mut sections, name, &value);
        }
    }
    Ok(sections)
}

/// The words between fio's name and the end of its command; says what else there is.
fn fios_own<'a>(words: &'a [String], notes: &mut Vec<String>) -> &'a [String] {
    let mut own = words;
    if let Some(at) = own.iter().position(|word| is_fio(word)) {
        if at > 0 {
            let before = named(&own[..at].join(" "), "");
            notes.push(format!("{before}: left out, it stands before fio"));
        }
        own = &own[at + 1..];
    }
    // A pipe, a redirection, another command.
    let ends = |word: &String| {
        word.trim_start_matches(['1', '2'])
            .starts_with(['|', '>', '<', '&', ';'])
    };
    if let Some(at) = own.iter().position(ends) {
        let behind = named(&own[at..].join(" "), "");
        notes.push(format!(
            "{behind}: left out, it stands behind fio's options"
        ));
        own = &own[..at];
    }
    own
}

/// Adds an option to the last section; a name begins one.
fn add(sections: &mut Vec<Section>, name: &str, value: &str) {
    if name == "name" {
        sections.push(Section {
            name: plain_name(value),
            ..Section::default()
        });
    } else if let Some(section) = sections.last_mut() {
        section.options.push(FioOption {
            name: options::canonical(name).to_owned(),
            value: value.trim().to_owned(),
        });
    }
}
