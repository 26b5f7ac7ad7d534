//! The tools: each is a command of vmtax with fixed options, some of its arguments, and `--json`. What a tool and its arguments mean
//! is taken from the command's own help.

use crate::cli::{Allowed, Cli};
use clap::{Arg, Command, CommandFactory};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;
use vmtax_mcp::{Form, Parameter, Tool};
use vmtax_recording::State;

/// Longest observation of a call; a longer one is the command's.
const MAX_DURATION: Duration = Duration::from_secs(600);
/// Duration of an observation by default, as of the commands.
const DURATION: Duration = Duration::from_secs(10);
/// Time of a call besides its observation: the host's facts, the analysis, the page.
const BESIDE_OBSERVATION: Duration = Duration::from_secs(120);

/// A command that is a tool.
#[derive(Debug)]
pub(super) struct Offer {
    command: &'static str,
    /// Options of every call.
    fixed: &'static [&'static str],
    /// Arguments that a client gives, by their names in the command's definition.
    arguments: &'static [&'static str],
    /// Arguments without which there is no call.
    required: &'static [&'static str],
    effects: &'static str,
    /// True if a call makes a recording.
    is_recorded: bool,
}

const READS: &str = "Reads only.";
const CHANGES_NOTHING: &str = "Reads counters for the duration: changes nothing in the VM, and taints no libvirt domain. Writes a recording.";
const OBSERVES: &str = "Observes the VM for the duration: changes no setting. Below level 2 or without root it observes less, and says so. Above level 0 \
it sets QEMU's latency histograms, removes them at the end, and taints a libvirt domain until that is shut off. Writes a recording.";
const TRACES: &str = "Observes the VM for the duration, as root for most of it: changes no setting, and taints a libvirt domain until that is \
shut off. Writes a recording.";

/// Tools that change and taint nothing.
const DEFAULT: [Offer; 4] = [
    Offer {
        command: "vms",
        fixed: &[],
        arguments: &[],
        required: &[],
        effects: READS,
        is_recorded: false,
    },
    Offer {
        command: "list",
        fixed: &[],
        arguments: &[],
        required: &[],
        effects: READS,
        is_recorded: false,
    },
    Offer {
        command: "report",
        fixed: &[],
        arguments: &["recording"],
        required: &[],
        effects: READS,
        is_recorded: false,
    },
    Offer {
        command: "diagnose",
        fixed: &["--level=0"],
        arguments: &["vm", "duration"],
        required: &["vm"],
        effects: CHANGES_NOTHING,
        is_recorded: true,
    },
];

/// Tools of `--allow observe`; one replaces that of the same name.
const OBSERVE: [Offer; 3] = [
    Offer {
        command: "diagnose",
        fixed: &[],
        arguments: &["vm", "duration", "level"],
        required: &["vm"],
        effects: OBSERVES,
        is_recorded: true,
    },
    Offer {
        command: "profile",
        fixed: &[],
        arguments: &["vm", "duration"],
        required: &["vm"],
        effects: TRACES,
        is_recorded: true,
    },
    Offer {
        command: "layers",
        fixed: &[],
        arguments: &["vm", "duration", "device"],
        required: &["vm"],
        effects: TRACES,
        is_recorded: true,
    },
];

/// Arguments whose values are numbers.
const NUMBERS: [&str; 1] = ["level"];

/// A tool that this server has, with the command that answers.
#[derive(Debug)]
pub(super) struct OfferedTool {
    pub tool: Tool,
    offer: Offer,
    command: Command,
}

/// A call, ready to run.
#[derive(Debug)]
pub(super) struct Call {
    /// Arguments of the program.
    pub words: Vec<OsString>,
    /// Time within which it has to end.
    pub limit: Duration,
    /// Directory of the recording that it makes.
    pub recording: Option<PathBuf>,
}

/// Returns the tools of a server.
pub(super) fn tools(allowed: Option<Allowed>) -> Vec<OfferedTool> {
    let more = allowed.map(|Allowed::Observe| OBSERVE);
    let more: Vec<Offer> = more.into_iter().flatten().collect();
    let is_replaced = |offer: &Offer| more.iter().any(|other| other.command == offer.command);
    let mut offers: Vec<Offer> = DEFAULT.into_iter().filter(|o| !is_replaced(o)).collect();
    offers.extend(more);
    let commands = Cli::command();
    let offered = |offer: Offer| {
        let command = commands.find_subcommand(offer.command)?.clone();
        Some(OfferedTool::new(offer, command))
    };
    offers.into_iter().filter_map(offered).collect()
}

impl OfferedTool {
    fn new(offer: Offer, command: Command) -> OfferedTool {
        let about = command.get_about().map(ToString::to_string);
        let arguments = offer
            .arguments
            .iter()
            .filter_map(|id| argument(&command, id));
        let parameters = arguments.map(|arg| parameter(arg, &offer)).collect();
        let tool = Tool {
            name: offer.command.to_owned(),
            description: format!("{}. {}", about.unwrap_or_default(), offer.effects),
            is_read_only: !offer.is_recorded,
            parameters,
        };
        OfferedTool {
            tool,
            offer,
            command,
        }
    }

    /// The call with these checked values. A recording is one of `dir`; a new one has the directory `new` in it.
    ///
    /// # Errors
    /// A sentence for people: a recording elsewhere, an observation that is too long.
    pub fn call(
        &self,
        values: &BTreeMap<String, String>,
        dir: &Path,
        new: &str,
    ) -> Result<Call, String> {
        let mut words: Vec<OsString> = vec![self.offer.command.into(), "--json".into()];
        words.extend(self.offer.fixed.iter().map(Into::into));
        let recording = self.offer.is_recorded.then(|| dir.join(new));
        match &recording {
            Some(recording) => {
                words.push("--quiet".into());
                words.push(option("--output", recording));
            }
            None if self.offer.command != "vms" => words.push(option("--dir", dir)),
            None => {}
        }
        let mut positional = Vec::new();
        for (name, value) in values {
            let value = match name.as_str() {
                "recording" => recording_in(dir, value)?.into_os_string(),
                _ => value.into(),
            };
            let long = argument(&self.command, name).and_then(Arg::get_long);
            match long {
                // In one word: whatever the value is, it is this option's.
                Some(long) => words.push(option(&format!("--{long}"), value)),
                None => positional.push(value),
            }
        }
        if self.offer.arguments.contains(&"recording") && positional.is_empty() {
            positional.push(newest_in(dir)?.into_os_string());
        }
        words.push("--".into());
        words.extend(positional);
        let observed = match values.get("duration") {
            Some(text) => duration(text)?,
            None => DURATION,
        };
        Ok(Call {
            words,
            limit: observed + BESIDE_OBSERVATION,
            recording,
        })
    }
}

fn argument<'a>(command: &'a Command, id: &str) -> Option<&'a Arg> {
    command.get_arguments().find(|arg| arg.get_id() == id)
}

fn parameter(arg: &Arg, offer: &Offer) -> Parameter {
    let id = arg.get_id().as_str();
    let help = arg.get_help().map(ToString::to_string);
    let default = arg.get_default_values().first();
    let default = default.map_or(String::new(), |value| {
        format!(" [default: {}]", value.to_string_lossy())
    });
    let values = arg.get_possible_values();
    let form = match NUMBERS.contains(&id) {
        true => Form::Number,
        false if values.is_empty() => Form::Text,
        false => Form::OneOf(values.iter().map(|v| v.get_name().to_owned()).collect()),
    };
    Parameter {
        name: id.to_owned(),
        description: help.unwrap_or_default() + &default,
        form,
        is_required: offer.required.contains(&id),
    }
}

/// An option with its value, in one word.
fn option(name: &str, value: impl Into<OsString>) -> OsString {
    let mut word = OsString::from(name);
    word.push("=");
    word.push(value.into());
    word
}

/// Duration of an observation, as the commands take it, up to the longest of a call.
fn duration(text: &str) -> Result<Duration, String> {
    let seconds = vmtax_studies::duration(text).map_err(|why| format!("duration: {why}"))?;
    match Duration::from_secs_f64(seconds) {
        duration if duration <= MAX_DURATION => Ok(duration),
        _ => Err(
            "duration is longer than 10m, the most of a call: run the command itself".to_owned(),
        ),
    }
}

/// The directory of a recording that `list` names, by its path or its name; no link leads out of `dir`.
fn recording_in(dir: &Path, name: &str) -> Result<PathBuf, String> {
    let none = |_| {
        let dir = dir.display();
        format!("{dir} has no recording of that name: list names all")
    };
    let named = match name.contains('/') {
        true => PathBuf::from(name),
        false => dir.join(name),
    };
    let dir = dir.canonicalize().map_err(none)?;
    let recording = named.canonicalize().map_err(none)?;
    match recording.parent() == Some(&dir) {
        true => Ok(recording),
        false => Err(format!(
            "recording is not in {}, the server's --dir: list names those that are",
            dir.display()
        )),
    }
}

/// The directory of the newest recording in `dir` that can be opened; no link leads out of `dir`.
fn newest_in(dir: &Path) -> Result<PathBuf, String> {
    let mut listings = vmtax_recording::list(dir).map_err(|error| error.to_string())?;
    listings.retain(|listing| !matches!(listing.state, State::Damaged { .. }));
    let folders = listings.iter().rev().map(|listing| &listing.folder);
    let mut inside = folders.filter_map(|f| recording_in(dir, &f.to_string_lossy()).ok());
    let none = || format!("no recordings in {}: diagnose makes one", dir.display());
    inside.next().ok_or_else(none)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn named(allowed: Option<Allowed>, name: &str) -> OfferedTool {
        let mut found = tools(allowed);
        found.retain(|offered| offered.tool.name == name);
        found.pop().unwrap()
    }

    #[test]
    fn tools_and_arguments_are_those_of_commands() {
        let names = |allowed| -> Vec<String> {
            let tools = tools(allowed).into_iter();
            tools.map(|offered| offered.tool.name).collect()
        };
        assert_eq!(names(None), ["vms", "list", "report", "diagnose"]);
        let all = ["vms", "list", "report", "diagnose", "profile", "layers"];
        assert_eq!(names(Some(Allowed::Observe)), all);
        for offered in tools(None).iter().chain(&tools(Some(Allowed::Observe))) {
            let OfferedTool { tool, offer, .. } = offered;
            let parameters: Vec<&str> = tool.parameters.iter().map(|p| p.name.as_str()).collect();
            assert_eq!(parameters, offer.arguments, "{}", tool.name);
            let described = tool.parameters.iter().all(|p| !p.description.is_empty());
            assert!(described && !tool.description.is_empty(), "{}", tool.name);
        }
        let device = &named(Some(Allowed::Observe), "layers").tool.parameters[2];
        let devices = Form::OneOf(vec!["disk".to_owned(), "net".to_owned()]);
        assert_eq!(device.form, devices);
    }

    #[test]
    fn what_a_client_gives_is_never_an_option() {
        let tool = named(None, "diagnose");
        let arguments = json!({"vm": "web01; rm", "duration": "5s"});
        let values = tool.tool.check(arguments.as_object().unwrap()).unwrap();
        let call = tool.call(&values, Path::new("runs"), "new").unwrap();
        let words = [
            "diagnose",
            "--json",
            "--level=0",
            "--quiet",
            "--output=runs/new",
            "--duration=5s",
            "--",
            "web01; rm",
        ];
        assert_eq!(call.words, words);
        let tool = named(Some(Allowed::Observe), "profile");
        let values = [("vm".to_owned(), "a=b --pid".to_owned())].into();
        let call = tool.call(&values, Path::new("runs"), "new").unwrap();
        assert_eq!(call.words[4..], ["--vm=a=b --pid", "--"]);
    }

    #[test]
    fn every_call_is_bounded_in_time() {
        let tool = named(None, "diagnose");
        for (duration, is_accepted) in [
            ("10m", true),
            ("11m", false),
            ("1000000000000000000s", false),
            ("1e308h", false),
            ("0", false),
            ("NaN", false),
            ("5 s; reboot", false),
        ] {
            let values = [("duration".to_owned(), duration.to_owned())].into();
            let call = tool.call(&values, Path::new("runs"), "new");
            assert_eq!(call.is_ok(), is_accepted, "{duration}: {call:?}");
        }
    }

    #[test]
    fn a_recording_is_one_of_the_directory() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("runs");
        for folder in ["runs/first", "elsewhere"] {
            std::fs::create_dir_all(place.path().join(folder)).unwrap();
        }
        std::os::unix::fs::symlink(place.path().join("elsewhere"), dir.join("link")).unwrap();
        let first = dir.join("first").canonicalize().unwrap();
        let path = |name: &str| dir.join(name).to_str().unwrap().to_owned();
        assert_eq!(recording_in(&dir, "first"), Ok(first.clone()));
        assert_eq!(recording_in(&dir, &path("first")), Ok(first));
        for hostile in [
            "link",
            "..",
            ".",
            "none",
            "/etc",
            "/",
            &path("../elsewhere"),
            &path("first/.."),
        ] {
            assert!(recording_in(&dir, hostile).is_err(), "{hostile}");
        }
    }
}
