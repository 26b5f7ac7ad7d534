//! A job of fio, from the text of a job file or a command line to the file that fio reads. That file is made of what was understood
//! and of nothing else, so that fio cannot read in a text what this reader did not.

use super::command_line;
use super::error::{FioError, named};
use super::options::{self, Rule};
use super::section::{FioOption, Section, is_read, plain_name, size};
use crate::BlockWork;
use std::collections::BTreeSet;
use std::fmt::Write;
use vmtax_model::shell_line;

/// A longer line is two for fio.
const MAX_LINE: usize = 2048;
/// More sections are no job that one person wrote.
const MAX_JOBS: usize = 256;
/// More options, each as often as it is one of a job's, are not kept in memory.
const MAX_OPTIONS: usize = 1 << 16;
/// The longest job as a command line, bytes: it is an argument of a process.
const MAX_LENGTH: usize = 60 << 10;
/// Group of options for the jobs behind it.
const GLOBAL: &str = "global";

/// Jobs as fio is to run them: each option is one that may run, and each job has those of the groups before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FioJob {
    sections: Vec<Section>,
}

/// What somebody pasted, read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FioPaste {
    /// Jobs to run.
    pub job: FioJob,
    /// Differences from what was pasted, a line each.
    pub notes: Vec<String>,
}

impl FioPaste {
    /// Reads a job file's text or a command line; of its jobs that of `section` alone, if one is named.
    ///
    /// # Errors
    /// [`FioError`] by the line or option at fault.
    pub fn read(text: &str, section: Option<&str>) -> Result<FioPaste, FioError> {
        let mut notes = Vec::new();
        let sections = match command_line::is_command_line(text) {
            true => command_line::sections(text, &mut notes)?,
            false => sections_of_file(text)?,
        };
        let mut jobs = with_globals(sections, section)?;
        if let Some(name) = section {
            let names: Vec<&str> = jobs.iter().map(|job| job.name.as_str()).collect();
            let known = format!("it has {}", names.join(", ").escape_default());
            jobs.retain(|job| job.name == name);
            if jobs.is_empty() {
                let asked = Some(name.escape_default().to_string());
                return Err(FioError::NoSection { asked, known });
            }
        }
        if jobs.is_empty() {
            let known = "give one, as [reads] in a job file or --name=reads in a command line";
            return Err(FioError::NoSection {
                asked: None,
                known: known.to_owned(),
            });
        }
        if jobs.len() > MAX_JOBS {
            let count = format!("{} sections, {MAX_JOBS} are the limit", jobs.len());
            return Err(FioError::TooLarge(count));
        }
        for job in &mut jobs {
            check_section(job, &mut notes)?;
        }
        let mut known = BTreeSet::new();
        notes.retain(|note| known.insert(note.clone()));
        let job = FioJob { sections: jobs };
        let length = job.command_line().len();
        if length > MAX_LENGTH {
            let size = format!("{length} bytes of options, {MAX_LENGTH} are the limit");
            return Err(FioError::TooLarge(size));
        }
        Ok(FioPaste { job, notes })
    }
}

/// The sections of a job file.
fn sections_of_file(text: &str) -> Result<Vec<Section>, FioError> {
    let mut sections: Vec<Section> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let fault = |why| {
            let line = number + 1;
            Err(FioError::Line { line, why })
        };
        if line.len() > MAX_LINE {
            return fault("it is longer than 2048 bytes: shorten it");
        }
        // A comment begins anywhere.
        let line = line.split([';', '#']).next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        if let Some(name) = line.strip_prefix('[') {
            let Some(name) = name.strip_suffix(']') else {
                return fault("a section is written [name]: close it");
            };
            let name = plain_name(name);
            sections.push(Section {
                name,
                ..Section::default()
            });
            continue;
        }
        if let Some(file) = line.strip_prefix("include") {
            let file = file.trim();
            return Err(FioError::refused(
                "include",
                file,
                "it names another file: paste what is in it",
            ));
        }
        let Some(section) = sections.last_mut() else {
            return fault("an option before the first section: write [name] above it");
        };
        section.options.push(FioOption::of(line));
    }
    Ok(sections)
}

/// Returns true for the name of a group, which begins so.
fn is_global(name: &str) -> bool {
    let begin = name.get(..GLOBAL.len());
    begin.is_some_and(|begin| begin.eq_ignore_ascii_case(GLOBAL))
}

/// The jobs, each with the options of the groups that stand before it; where one is wanted, the others without any.
///
/// # Errors
/// [`FioError::TooLarge`] for more options than a job can have that is run.
fn with_globals(sections: Vec<Section>, wanted: Option<&str>) -> Result<Vec<Section>, FioError> {
    let (mut globals, mut jobs) = (Vec::new(), Vec::new());
    let mut count = 0;
    for mut section in sections {
        if is_global(&section.name) {
            // Each job has a name of its own.
            section.options.retain(|option| option.name != "name");
            globals.append(&mut section.options);
        } else if jobs.len() <= MAX_JOBS {
            let own = std::mem::take(&mut section.options);
            if wanted.is_some_and(|name| name != section.name) {
                jobs.push(section);
                continue;
            }
            count += globals.len() + own.len();
            if count > MAX_OPTIONS {
                let count = format!("more than {MAX_OPTIONS} options");
                return Err(FioError::TooLarge(count));
            }
            section.options = globals.iter().cloned().chain(own).collect();
            jobs.push(section);
        }
    }
    Ok(jobs)
}

/// Leaves each option of a job that may run, its last value alone; says what is left out.
fn check_section(job: &mut Section, notes: &mut Vec<String>) -> Result<(), FioError> {
    let mut kept: Vec<FioOption> = Vec::new();
    for option in std::mem::take(&mut job.options) {
        let FioOption { name, value } = &option;
        if name == "name" {
            if !is_global(value.trim()) {
                job.name = plain_name(value);
            }
            continue;
        }
        if name.is_empty()
            || value
                .chars()
                .any(|c| c.is_control() || matches!(c, ';' | '#'))
        {
            return Err(FioError::refused(
                name,
                value,
                "an option is NAME=VALUE without ; and #, which begin a comment",
            ));
        }
        match options::rule(name) {
            None => return Err(FioError::Unknown(named(name, value))),
            Some(Rule::Refused(why)) => {
                return Err(FioError::refused(
                    name,
                    value,
                    format!("{why}; leave it out"),
                ));
            }
            Some(Rule::LeftOut) => continue,
            Some(Rule::Mapped(why)) => {
                options::check_value(name, value)?;
                notes.push(format!("{}: {why}", named(name, value)));
                continue;
            }
            Some(Rule::Kept) => options::check_value(name, value)?,
        }
        kept.retain(|other| other.name != *name);
        kept.push(option);
    }
    job.options = kept;
    Ok(())
}

impl FioJob {
    /// The jobs as arguments of fio, in one line; read again they are the same.
    pub fn command_line(&self) -> String {
        let words = self.sections.iter().flat_map(|section| {
            let name = format!("--name={}", section.name);
            let options = section.options.iter().map(|option| {
                let FioOption { name, value } = option;
                match value.as_str() {
                    "" => format!("--{name}"),
                    value => format!("--{name}={value}"),
                }
            });
            [name].into_iter().chain(options)
        });
        shell_line(&words.collect::<Vec<_>>())
    }

    /// The file that fio reads: each job on `disk`, for `seconds` if they are more than 0.
    pub(crate) fn file(&self, disk: &str, bytes: u64, seconds: f64) -> String {
        let mut text = String::new();
        for section in &self.sections {
            let _ = writeln!(text, "[{}]", section.name);
            let too_large = section.size_over(bytes).is_some();
            for FioOption { name, value } in &section.options {
                let is_time = seconds > 0.0 && options::TIMES.contains(&name.as_str());
                if is_time {
                    continue;
                }
                if name == "size" && too_large {
                    // From an offset on the disk has less, which fio itself finds; some options need a size.
                    if !section.has_offset() {
                        let _ = writeln!(text, "size={bytes}");
                    }
                    continue;
                }
                let _ = match value.as_str() {
                    // Of its flags fio's output has those with a value alone.
                    "" if options::is_flag(name) => writeln!(text, "{name}=1"),
                    "" => writeln!(text, "{name}"),
                    value => writeln!(text, "{name}={value}"),
                };
            }
            let _ = writeln!(text, "filename={disk}\nallow_file_create=0\nfallocate=none");
            if seconds > 0.0 {
                let ms = (seconds * 1e3).ceil();
                let _ = writeln!(text, "runtime={ms}ms\ntime_based=1");
            }
        }
        text
    }

    /// Differences of a run on a disk of `bytes` for `seconds`, a line each.
    pub fn differences(&self, bytes: u64, seconds: f64) -> Vec<String> {
        let mut notes: Vec<String> = Vec::new();
        let mut add = |note: String| {
            if !notes.contains(&note) {
                notes.push(note);
            }
        };
        for section in &self.sections {
            if let Some(size) = section.size_over(bytes) {
                let mib = bytes >> 20;
                add(format!(
                    "size={size}: the measured disk has {mib} MiB, and all of it is used"
                ));
            }
            if seconds > 0.0 && section.get("runtime").is_none() {
                add(format!(
                    "no runtime: each job runs for {seconds} s, over its size again and again"
                ));
            }
            if let Some(verify) = section.unverified().filter(|_| seconds > 0.0) {
                add(format!(
                    "verify={verify}: fio writes for all of {seconds} s and reads nothing back; verify_backlog=N has it read back each N writes"
                ));
            }
            let times = options::TIMES.iter().filter(|_| seconds > 0.0);
            for name in times {
                if let Some(value) = section.get(name).filter(|_| *name != "time_based") {
                    add(format!("{name}={value}: each job runs for {seconds} s"));
                }
            }
        }
        notes
    }

    /// The first option by which a job may write to the disk, with its value; `None` where all only read.
    pub(crate) fn writing_option(&self) -> Option<String> {
        let mut directions = self.sections.iter().filter_map(|section| section.get("rw"));
        directions.find(|rw| !is_read(rw)).map(|rw| named("rw", rw))
    }

    /// Returns true if a job has a rate: its requests a second then say nothing of the disk.
    pub fn is_rated(&self) -> bool {
        let mut sections = self.sections.iter();
        sections.any(|section| section.get("rate").or(section.get("rate_iops")).is_some())
    }

    /// Summary of its requests: the largest block, all that may be in flight at a time.
    pub fn work(&self) -> BlockWork {
        let is = |section: &Section, has: fn(&str) -> bool| section.get("rw").is_some_and(has);
        let blocks = self.sections.iter().map(|section| {
            let text = section.get("bs").unwrap_or_default();
            size(text.split([',', '-']).next().unwrap_or_default()).unwrap_or(4096)
        });
        let depths = self.sections.iter().map(Section::depth);
        let mut random = self.sections.iter();
        let mut writes = self.sections.iter();
        BlockWork {
            block: blocks.max().unwrap_or(4096),
            random: random.any(|section| is(section, |rw| rw.starts_with("rand"))),
            write: writes.any(|section| is(section, |rw| !matches!(rw, "read" | "randread"))),
            depth: depths.fold(0, u32::saturating_add),
            time_ns: 0,
            count: 0,
        }
    }
}

#[cfg(test)]
mod tests;
