//! What a command costs on each machine.

use crate::analysis::Analysis;
use crate::options::values::mebibytes;
use crate::options::{CommonOptions, OptionsError, StudyOptions, share_variant, with_help};
use crate::reproduce::{Check, Evidence, Tested};
use clap::Args;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use vmtax_analysis::FEWEST_ROUNDS;
use vmtax_host::find_program;
use vmtax_model::{
    CommandLayers, CommandSpec, ExecFindings, Forward, HostFacts, MetricPattern, Net, Plan, Study, Variant,
    WorkloadName, WorkloadSpec,
};
use vmtax_recording::Recording;
use vmtax_report::{Report, ReportError};
use vmtax_workload::CheckedPlan;

/// A command may take as long as it takes.
const TIMEOUT_S: u32 = 86_400;
/// The scratch disk where its requests are to be followed and no size is given: a sparse file.
const SCRATCH_MIB: u32 = 4096;

/// The options of `vmtax exec`.
#[derive(Debug, Args)]
#[command(
    mut_arg("timeout", with_help("Timeout of a run: 90s, 10m, 2h [default: 24h]")),
    after_help = "In a guest the command has the host's files, the same working directory, user, environment, limits and input;
what it writes there goes into a layer that is thrown away. Natively it runs as it does without vmtax.
What it prints comes through as it comes; the report goes to standard error. The exit status is the command's,
124 where its time was over, 125 where vmtax failed, 126 or 127 where it cannot be run. docs/exec.md says more.

Examples:
  vmtax exec --shell 'make clean && make -j2'
  vmtax exec --metric 'latency:lower=took (\\S+) ms' -- ./benchmark
  vmtax exec -t
  vmtax exec --rounds 1 --machine tcg -- tar cf /dev/null /usr/share/doc
  vmtax exec --cpus 2 --memory 2048 -- sysbench cpu run
  vmtax exec --layers --scratch 8192 -- ./import.sh big.csv
  vmtax exec --json -- ./test.sh > report.json"
)]
pub struct ExecOptions {
    /// The program and its arguments
    #[arg(last = true, required_unless_present_any = ["shell", "terminal"], value_name = "CMD")]
    command: Vec<OsString>,
    /// A shell command instead of a program: 'a && b'
    #[arg(long, value_name = "LINE", conflicts_with = "command")]
    shell: Option<String>,
    /// Allocate a terminal for the command, on one guest machine, once; without a command it is your shell
    #[arg(short, long, conflicts_with = "json")]
    terminal: bool,
    /// Shell command run once per machine after boot, not measured; what it leaves running stays
    #[arg(long, value_name = "LINE")]
    setup: Option<String>,
    /// Shell command run before each measured run
    #[arg(long, value_name = "LINE")]
    prepare: Option<String>,
    /// Shell command run after each measured run
    #[arg(long, value_name = "LINE")]
    cleanup: Option<String>,
    /// How guests are given the host's files: 9p or virtiofs with options, as `vmtax share` has them
    /// [default: virtiofs,cache=always for root where virtiofsd is there, else 9p,msize=512000,cache=loose,multidevs=remap]
    #[arg(long, value_name = "METHOD")]
    root: Option<String>,
    /// A folder that guests share with the host, to be written to: what they write there stays
    #[arg(long, value_name = "DIR")]
    write: Vec<PathBuf>,
    /// Keep what guests write on a disk of this size, which goes with them, instead of in half of their memory
    #[arg(long, value_name = "SIZE", value_parser = mebibytes)]
    scratch: Option<u32>,
    /// Give guests a network: QEMU's own, by which they reach what this host reaches
    #[arg(long, value_name = "KIND")]
    net: Option<Net>,
    /// Have a TCP port of this host's loopback address lead to a guest's
    #[arg(long, value_name = "HOST:GUEST", requires = "net")]
    forward: Vec<Forward>,
    /// A figure in what the command prints, beside those of known tools: REGEX's first group is the number; NAME:higher
    /// or NAME:lower says which way is better
    #[arg(long = "metric", value_name = "NAME=REGEX")]
    metrics: Vec<MetricPattern>,
    /// Run the command once more in each guest, and follow its requests to the scratch disk through guest, QEMU and host
    /// [default of --scratch then: 4096]
    #[arg(long, conflicts_with = "terminal")]
    layers: bool,
    /// Run the command once more in each guest, and write a profile of its QEMU into that run's folder
    #[arg(long, conflicts_with = "terminal")]
    profile: bool,
    #[command(flatten)]
    common: CommonOptions,
}

impl StudyOptions for ExecOptions {
    fn plan(&self, host: &HostFacts) -> Result<CheckedPlan, OptionsError> {
        let words = self.words()?;
        let mut default = host.default_machines();
        if self.terminal {
            default = vec![host.default_guest()];
        }
        let machines = self.common.measurement.machine.clone().unwrap_or(default);
        let rounds = if self.terminal { 1 } else { FEWEST_ROUNDS };
        let workload = WorkloadSpec::new(WorkloadName::Exec);
        let plan = self.common.complete(Plan {
            timeout_s: TIMEOUT_S,
            variants: vec![root_share(self.root.as_deref())?],
            study: Study::Exec(Box::new(CommandSpec {
                setup: self.setup.clone(),
                prepare: self.prepare.clone(),
                cleanup: self.cleanup.clone(),
                write: self.write.iter().map(|folder| canonical(folder)).collect::<Result<_, _>>()?,
                scratch_mib: self.scratch.or(self.layers.then_some(SCRATCH_MIB)),
                layers: self.layers,
                net: self.net,
                forward: self.forward.clone(),
                metrics: self.metrics.clone(),
                ..CommandSpec::new(
                    words.clone(),
                    std::env::current_dir().map_err(|e| OptionsError::file("the working directory", e))?,
                )
            })),
            ..Plan::new(&name(&words), rounds, machines, vec![workload])
        })?;
        if self.terminal && (plan.rounds != 1 || !matches!(plan.machines[..], [machine] if machine.is_guest())) {
            return OptionsError::usage(
                "-t is for one guest machine and one round: leave --rounds out, and name one guest with --machine",
            );
        }
        Ok(plan)
    }

    fn is_profiled(&self) -> bool {
        self.profile
    }

    fn has_terminal(&self) -> bool {
        self.terminal
    }
}

impl ExecOptions {
    fn words(&self) -> Result<Vec<String>, OptionsError> {
        if let Some(line) = &self.shell {
            return Ok(CommandSpec::shell(line));
        }
        if self.command.is_empty() {
            return Ok(vec![std::env::var("SHELL").unwrap_or_else(|_| "/bin/sh".to_owned())]);
        }
        let text = |(i, word): (usize, &OsString)| match word.to_str() {
            Some(text) => Ok(text.to_owned()),
            None => OptionsError::usage(format!(
                "word {i} of the command is not UTF-8, which a plan cannot hold: put it into a script"
            )),
        };
        self.command.iter().enumerate().map(text).collect()
    }
}

/// The folder itself, whatever leads to it.
fn canonical(folder: &Path) -> Result<PathBuf, OptionsError> {
    let failed = |e| OptionsError::file(format!("--write {}", folder.display()), e);
    let path = folder.canonicalize().map_err(failed)?;
    if path.is_dir() { Ok(path) } else { Err(failed(io::ErrorKind::NotADirectory.into())) }
}

/// What names the recording: `exec-make`.
fn name(words: &[String]) -> String {
    let program = words.first().map(Path::new).and_then(Path::file_name).unwrap_or_default().to_string_lossy();
    let plain: String =
        program.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')).take(40).collect();
    if plain.is_empty() { "exec".to_owned() } else { format!("exec-{plain}") }
}

/// How guests are given the host's root: as it was measured to be fastest of what is here (docs/exec.md), if nothing else
/// is asked for.
pub(crate) fn root_share(asked: Option<&str>) -> Result<Variant, OptionsError> {
    // An ordinary user's is in a user namespace, where the host's owners are not distinguished.
    let is_served = || rustix::process::geteuid().is_root() && find_program("virtiofsd").is_some();
    let method = match asked {
        Some(method) => method,
        None if is_served() => "virtiofs,cache=always",
        None => "9p,msize=512000,cache=loose,multidevs=remap",
    };
    Ok(Variant { name: String::new(), ..share_variant(method)? })
}

pub(crate) struct Exec<'a> {
    recording: &'a Recording,
    findings: ExecFindings,
    /// What its guests asked of their disks, where that was observed.
    requests: Option<CommandLayers>,
}

impl<'a> Exec<'a> {
    pub(crate) fn of(recording: &'a Recording) -> Exec<'a> {
        let findings = vmtax_analysis::exec(&recording.plan, &recording.host, &recording.trials);
        let observed = recording.plan.command().is_some_and(|command| command.layers);
        let trials = recording.trials.iter().map(|t| (t, recording.trial_folder(t.number)));
        let requests = observed.then(|| vmtax_layers::command(&recording.plan, trials));
        Exec { recording, findings, requests }
    }
}

impl Analysis for Exec<'_> {
    fn report(&self) -> Report<'_> {
        vmtax_report::exec::report(self.recording, &self.findings, self.requests.as_ref())
    }

    fn json(&self) -> Result<String, ReportError> {
        vmtax_report::exec::json(self.recording, &self.findings, self.requests.as_ref())
    }

    fn evidence(&self) -> &dyn Evidence {
        &self.findings
    }

    fn layers_report(&self) -> Option<Report<'_>> {
        let layers = &self.requests.as_ref()?.layers;
        (!layers.columns.is_empty()).then(|| vmtax_report::layers::report(self.recording, layers))
    }

    fn command_status(&self) -> Option<i32> {
        self.findings.status()
    }
}

impl Evidence for ExecFindings {
    fn test(&self, check: &Check, host: &HostFacts) -> Option<Tested> {
        let Check::Printed { of, name, machine, at_least } = check else { return None };
        let row = self.printed.iter().find(|row| row.of == *of && row.name == *name);
        let column = row.and_then(|row| row.machines.iter().find(|c| c.machine == *machine));
        let overhead = column.and_then(|c| c.overhead.as_ref());
        Some(
            overhead
                .map_or_else(|| Tested::absent(*machine, host), |overhead| Tested::at_least(overhead.ratio, *at_least)),
        )
    }
}
