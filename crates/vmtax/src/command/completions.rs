//! Shell completion: the script that a shell loads, and the answers when it asks at each Tab. Values are those of this host:
//! running VMs, recordings, QEMUs and kernels in the cache, beside workloads, metrics and files.

use super::print;
use super::report::stored_headline;
use crate::cli::Cli;
use crate::fault::Fault;
use clap::builder::ValueHint;
use clap::{Arg, Command, CommandFactory};
use clap_complete::Shell;
use clap_complete::engine::{
    ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use clap_complete::env::{CompleteEnv, Shells};
use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use vmtax_model::{Metric, WorkloadName};

/// Variable of the environment by which a script asks, with the shell's name.
const VARIABLE: &str = "VMTAX_COMPLETE";

/// zsh runs the file `_vmtax` at the first Tab, and only calls the function that it defines from the second on.
const ZSH_FIRST_TAB: &str = "[[ $funcstack[1] != _vmtax ]] || _clap_dynamic_completer_vmtax\n";

/// Prints the script of a shell.
pub fn completions(shell: Shell) -> Result<ExitCode, Fault> {
    let shells = Shells::builtins();
    let mut script = Vec::new();
    if let Some(adapter) = shells.completer(&shell.to_string()) {
        adapter
            .write_registration(VARIABLE, "vmtax", "vmtax", "vmtax", &mut script)
            .map_err(|e| Fault::file("writing the completion script", e))?;
    }
    if shell == Shell::Zsh {
        script.extend_from_slice(ZSH_FIRST_TAB.as_bytes());
    }
    print(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}

/// Answers a shell that asks for completions, which ends the program; returns where none asks.
pub fn answer_shell() {
    CompleteEnv::with_factory(|| with_values(Cli::command()))
        .var(VARIABLE)
        .bin("vmtax")
        .completer("vmtax")
        .complete();
}

/// The command with candidates for each value that this host has several of.
fn with_values(command: Command) -> Command {
    command.mut_args(with_value).mut_subcommands(with_values)
}

fn with_value(arg: Arg) -> Arg {
    let names = arg.get_value_names().unwrap_or_default();
    let names = names.iter().flat_map(|name| name.split('|'));
    let mut values: Vec<Values> = names.filter_map(Values::of).collect();
    if arg.get_value_hint() != ValueHint::Unknown && !values.contains(&Values::Paths) {
        values.push(Values::Paths);
    }
    if values.is_empty() {
        return arg;
    }
    arg.add(ArgValueCompleter::new(move |current: &OsStr| {
        candidates(&values, current)
    }))
}

/// Candidates of these values that begin with what was typed. A recording is a directory, too: it is named once.
fn candidates(values: &[Values], current: &OsStr) -> Vec<CompletionCandidate> {
    let typed = current.to_string_lossy();
    let mut named = BTreeSet::new();
    let all = values.iter().flat_map(|values| values.all(current));
    let fit = all.filter(|candidate| {
        let value = candidate.get_value().to_str().unwrap_or_default();
        let is_fit = !value.is_empty() && value.starts_with(&*typed) && is_plain(value);
        is_fit && named.insert(value.trim_end_matches('/').to_owned())
    });
    fit.collect()
}

/// Returns true if a shell takes a text as one word, and vmtax as no option. bash inserts a candidate as it stands: the name
/// of a stranger's VM or file must not become a command.
fn is_plain(value: &str) -> bool {
    let is_plain = |c: char| c.is_alphanumeric() || "._+:@/,=%-".contains(c);
    !value.starts_with('-') && value.chars().all(is_plain)
}

/// Values of an argument, by the name that help has for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Values {
    Vms,
    Recordings,
    Workloads,
    Metrics,
    Qemus,
    Kernels,
    Paths,
}

impl Values {
    fn of(name: &str) -> Option<Values> {
        match name {
            "VM" => Some(Values::Vms),
            "RECORDING" | "BASELINE" => Some(Values::Recordings),
            "WORKLOAD" => Some(Values::Workloads),
            "METRIC" => Some(Values::Metrics),
            "QEMU" => Some(Values::Qemus),
            "KERNEL" => Some(Values::Kernels),
            "CMD" | "PLAN" | "SRC" | "TEXT" => Some(Values::Paths),
            _ => None,
        }
    }

    fn all(self, current: &OsStr) -> Vec<CompletionCandidate> {
        match self {
            Values::Vms => vms(),
            Values::Recordings => recordings(),
            Values::Workloads => {
                let named = |name: &WorkloadName| {
                    with_help(name.as_str(), vmtax_workload::descriptor(*name).about)
                };
                WorkloadName::ALL.iter().map(named).collect()
            }
            Values::Metrics => {
                let named = |metric: &Metric| with_help(metric.id(), metric.label());
                Metric::ALL.iter().map(named).collect()
            }
            Values::Qemus => qemus(),
            Values::Kernels => kernels(),
            Values::Paths => PathCompleter::any().complete(current),
        }
    }
}

/// A candidate with a description, which zsh and fish show.
fn with_help(value: &str, help: &str) -> CompletionCandidate {
    CompletionCandidate::new(value).help(Some(vmtax_report::printable(help).into()))
}

/// Running VMs by name; by PID where the name is no word of a shell, or another VM's too.
fn vms() -> Vec<CompletionCandidate> {
    let vms = vmtax_vmm::running_vms();
    let mut named: BTreeMap<&str, usize> = BTreeMap::new();
    for name in vms.iter().filter_map(|vm| vm.name.as_deref()) {
        *named.entry(name).or_default() += 1;
    }
    let candidate = |vm: &vmtax_model::VmIdentity| {
        let name = vm.name.as_deref().unwrap_or_default();
        match is_plain(name) && named.get(name) == Some(&1) {
            true => with_help(name, &format!("PID {}", vm.pid)),
            false => with_help(&vm.pid.to_string(), name),
        }
    };
    vms.iter().map(candidate).collect()
}

/// The recordings in `--dir`, newest first, each with the first sentence of its report.
fn recordings() -> Vec<CompletionCandidate> {
    let entries = fs::read_dir(directory()).into_iter().flatten().flatten();
    let folders = entries.map(|entry| entry.path()).filter(|path| {
        let is_hidden = |name: &OsStr| name.to_string_lossy().starts_with('.');
        path.is_dir() && !path.file_name().is_none_or(is_hidden)
    });
    let mut folders: Vec<PathBuf> = folders.collect();
    folders.sort_by(|a, b| b.cmp(a));
    let candidate = |folder: &PathBuf| {
        let help = stored_headline(folder).unwrap_or_default();
        with_help(&folder.to_string_lossy(), &help)
    };
    folders.iter().map(candidate).collect()
}

/// The directory of recordings that the command line names so far.
fn directory() -> PathBuf {
    let words: Vec<String> = env::args_os()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let after_option = words
        .windows(2)
        .find(|pair| pair[0] == "--dir")
        .map(|pair| pair[1].as_str());
    let inside = || words.iter().find_map(|word| word.strip_prefix("--dir="));
    after_option.or_else(inside).unwrap_or("runs").into()
}

fn qemus() -> Vec<CompletionCandidate> {
    let cache = vmtax_guests::kernel::cache_dir();
    let found = cache.map(|cache| vmtax_guests::qemu::find(&cache));
    let candidate = |qemu: &vmtax_guests::qemu::Fetched| {
        with_help(&qemu.name(), &format!("QEMU {}", qemu.version))
    };
    found.unwrap_or_default().iter().map(candidate).collect()
}

fn kernels() -> Vec<CompletionCandidate> {
    let cache = vmtax_guests::kernel::cache_dir().ok();
    let found = vmtax_guests::kernel::find(cache.as_deref());
    let releases = found.kernels.iter().map(|kernel| &kernel.release);
    releases
        .map(|release| with_help(release, "guest kernel"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_shell_would_execute_is_no_candidate() {
        for hostile in [
            "a;id",
            "$(id)",
            "`id`",
            "a b",
            "a|b",
            "a&",
            "'",
            "\"",
            "a\nb",
            "\u{1b}[1m",
            "-x",
            "~",
            "*",
            "a>b",
            "#",
            "!x",
            "{a,b}",
        ] {
            assert!(!is_plain(hostile), "{hostile:?}");
        }
        for plain in [
            "web01",
            "runs/20261120T160100Z-quick",
            "5.2.0-bullseye",
            "größe",
            "a,b=c",
            "vm:1@host",
        ] {
            assert!(is_plain(plain), "{plain:?}");
        }
    }

    #[test]
    fn every_value_is_asked_for_by_some_argument() {
        fn names(command: &Command, found: &mut Vec<String>) {
            let of_arg = command.get_arguments().filter_map(Arg::get_value_names);
            let all = of_arg.flatten().flat_map(|name| name.split('|'));
            found.extend(all.map(str::to_owned));
            command
                .get_subcommands()
                .for_each(|inner| names(inner, found));
        }
        let mut found = Vec::new();
        names(&Cli::command(), &mut found);
        for name in [
            "VM",
            "RECORDING",
            "BASELINE",
            "WORKLOAD",
            "METRIC",
            "QEMU",
            "KERNEL",
            "CMD",
            "PLAN",
            "SRC",
            "TEXT",
        ] {
            assert!(Values::of(name).is_some(), "{name}");
            assert!(
                found.iter().any(|known| known == name),
                "{name}: of no argument"
            );
        }
    }
}
