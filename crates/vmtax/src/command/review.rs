//! `vmtax review`: known costs in texts that people paste.

use super::{print, style};
use crate::cli::ReviewArgs;
use crate::fault::Fault;
use std::path::Path;
use std::process::ExitCode;
use vmtax_model::number::counted;
use vmtax_model::{
    ExitReportRow, FioOutput, Manager, VmConfiguration, shell_line, shell_path, without_secrets,
};
use vmtax_report::{Origin, Review};
use vmtax_rules::Evidence;

pub fn review(args: &ReviewArgs) -> Result<ExitCode, Fault> {
    let mut pasted = Pasted::default();
    for given in &args.texts {
        pasted.add(given)?;
    }
    let evidence = Evidence {
        configuration: pasted.configuration.as_ref(),
        like: pasted.like(),
        exit_report: &pasted.exits,
        fio: &pasted.fio,
        ..Evidence::default()
    };
    let review = Review {
        known: vmtax_rules::known_in_texts(&evidence),
        advice: vmtax_rules::review(&evidence),
        texts: pasted.texts.clone(),
        notes: pasted.notes.clone(),
        origin: Origin {
            vmtax: env!("CARGO_PKG_VERSION").to_owned(),
            started: jiff::Timestamp::now().to_string(),
            command: shell_line(&command(args)),
        },
    };
    let report = vmtax_report::review(&review);
    let text = match args.format.as_deref() {
        Some("json") => vmtax_report::plain_json(&review.advice)? + "\n",
        Some("text") | None => report.terminal(style(), false),
        Some("md") => report.markdown_details(),
        Some(other) => report.in_format(other).unwrap_or_default(),
    };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The command, without the texts in it, which may have keys.
fn command(args: &ReviewArgs) -> Vec<String> {
    let word = |given: &String| {
        let given = given.as_str();
        if is_file(given) { given } else { "TEXT" }.to_owned()
    };
    let program = ["vmtax", "review"].map(str::to_owned);
    program
        .into_iter()
        .chain(args.texts.iter().map(word))
        .collect()
}

/// Returns true for a file and for `-`, the standard input.
fn is_file(given: &str) -> bool {
    given == "-" || Path::new(given).exists()
}

/// Texts that were read, by their kinds.
#[derive(Default)]
struct Pasted {
    /// Each text, by what it is.
    texts: Vec<String>,
    /// Parts of the texts that were not read.
    notes: Vec<String>,
    configuration: Option<VmConfiguration>,
    /// The file that the configuration is in.
    file: Option<String>,
    exits: Vec<ExitReportRow>,
    fio: Vec<FioOutput>,
}

impl Pasted {
    /// Argument of `vmtax tune --like` for the configuration; `None` where no test guest can have its disk. A test guest has its disk in a local file.
    fn like(&self) -> Option<&str> {
        let vm = self.configuration.as_ref()?;
        let has_file = vm.disks.iter().any(|disk| disk.network_storage.is_none());
        has_file.then(|| match vm.manager {
            Some(Manager::Proxmox) => "\"$(qm showcmd VMID)\"",
            _ => self.file.as_deref().unwrap_or("TEXT"),
        })
    }

    /// Reads a file, the standard input (`-`) or a command line.
    fn add(&mut self, given: &str) -> Result<(), Fault> {
        let is_file = is_file(given);
        let (text, name) = if is_file {
            (read(given)?, given.to_owned())
        } else {
            let text = vmtax_configuration::read_text(given.as_bytes());
            let name = match self.texts.len() {
                0 => "the argument".to_owned(),
                earlier => format!("argument {}", earlier + 1),
            };
            let text = text.map_err(|e| Fault::Usage(format!("{name}: {e}")))?;
            (text, name)
        };
        let described = |what: &str| format!("{what} in {name}");
        let jobs = vmtax_runner::fio_jobs(&text);
        let exits = vmtax_runner::exit_report(&text);
        if !exits.is_empty() {
            self.texts.push(described("perf kvm stat report"));
            self.exits = exits;
        } else if !jobs.is_empty() {
            self.texts.push(described("fio's output"));
            self.fio.push(FioOutput { source: name, jobs });
        } else {
            let found = vmtax_configuration::configuration(&text)
                .map_err(|why| Fault::Usage(format!("{name}: {why}")))?;
            let Some(found) = found else {
                return Err(unknown(given, is_file));
            };
            if let Some(earlier) = &self.configuration {
                return Err(Fault::Usage(format!(
                    "{name} has a second VM ({}) beside {}: review one VM at a time",
                    found.source, earlier.source
                )));
            }
            if found.further_lines > 0 {
                let lines = counted(found.further_lines as u64, "more QEMU command line");
                let verb = if found.further_lines == 1 {
                    "was"
                } else {
                    "were"
                };
                self.notes
                    .push(format!("{lines} in {name} {verb} ignored."));
            }
            self.texts.push(described(&found.source));
            self.file = shell_path(given).filter(|_| is_file && given != "-");
            self.configuration = Some(found);
        }
        Ok(())
    }
}

fn unknown(given: &str, is_file: bool) -> Fault {
    let what = if is_file {
        format!("{given}:")
    } else {
        let shown = without_secrets(given);
        format!(
            "'{}': not a file, and",
            shown.chars().take(60).collect::<String>()
        )
    };
    Fault::Usage(format!(
        "{what} not a supported text: QEMU command line, libvirt XML or log, Proxmox configuration, output of fio or of \
         `perf kvm stat report`"
    ))
}

/// Reads a file or the standard input, without its secrets.
fn read(given: &str) -> Result<String, Fault> {
    let text = if given == "-" {
        vmtax_configuration::read_text(std::io::stdin())
    } else {
        std::fs::File::open(given).and_then(vmtax_configuration::read_text)
    };
    text.map_err(|source| Fault::file(format!("reading {given}"), source))
}
