//! Costs of a command on each machine.

use crate::analysis::Analysis;
use crate::options::values::mebibytes;
use crate::options::{
    CommonOptions, LazyHost, OptionsError, StudyOptions, check_metrics, command_here, root_share,
    with_help,
};
use crate::reproduce::{Check, Evidence, Tested};
use clap::Args;
use clap::builder::RangedU64ValueParser;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use vmtax_findings::{CommandLayers, ExecFindings};
use vmtax_model::{
    CommandSpec, FEWEST_ROUNDS, Forward, HostFacts, KvmClass, MetricPattern, Net, Plan, Study,
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
    help_template = "{about-with-newline}\n{usage-heading} {usage}\n\n\
The native run executes CMD on this host. What it writes to files is discarded,\nexcept with --write and --in-place.\n\n{all-args}{after-help}\n",
    mut_arg("timeout", with_help("Timeout of a run: 90s, 10m, 2h [default: 24h]")),
    mut_arg(
        "machine",
        with_help(
            "Where to run, comma separated: native (this host); kvm or tcg: a Linux guest [default: native and tcg, and kvm where it is usable]"
        )
    ),
    mut_arg(
        "rounds",
        with_help(
            "Rounds: CMD once on each machine, in random order; a 95 % confidence interval (CI) needs at least 6 [default: 6]"
        )
    ),
    after_help = "In a guest, CMD sees the host's files and has the same working directory, user, environment, limits and \
standard input; what it writes is discarded with the guest, except in the DIR of --write.
Every run's output goes to standard output, the report to standard error; with --json the other way round. A failure of CMD natively (without native: on the first machine) ends the run, except with --ignore-failure. \
The exit status is that of the first run that failed, else 0: 124 after a timeout, 125 if vmtax failed, 126 or 127 if the command cannot be started. See \
docs/exec.md.

Examples:
  vmtax exec -- sysbench cpu run
  vmtax exec --shell 'make clean && make -j2' --cpus 2 --memory 2G
  vmtax exec --machine kvm --layers --scratch 8G -- ./import.sh big.csv
  vmtax exec --warmup 1 --prepare 'make clean' -- make -j2
  vmtax exec --metric 'latency:lower=took (\\S+) ms' -- ./benchmark
  vmtax exec -t --machine kvm
  vmtax exec --ignore-failure --json -- ./test.sh > report.json"
)]
pub struct ExecOptions {
    /// Program and arguments
    #[arg(last = true, required_unless_present_any = ["shell", "terminal"], value_name = "CMD")]
    command: Vec<OsString>,
    /// A shell command instead of a program: 'a && b'
    #[arg(long, value_name = "LINE", conflicts_with = "command")]
    shell: Option<String>,
    /// Run once, in one guest, on a terminal; without a command, your shell
    #[arg(short, long, conflicts_with = "json")]
    terminal: bool,
    /// Shell command run once after each boot, not measured; servers that it starts keep running
    #[arg(long, value_name = "LINE")]
    setup: Option<String>,
    /// Shell command run before each measured run, not measured; CMD sees what it writes, which is discarded after the run
    #[arg(long, value_name = "LINE")]
    prepare: Option<String>,
    /// Shell command run after each measured run, not measured; what it writes is discarded, too
    #[arg(long, value_name = "LINE")]
    cleanup: Option<String>,
    /// Warm-up runs, not measured: before each measured run, natively and in each guest, CMD runs N times, with --prepare and --cleanup
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true, conflicts_with = "terminal", value_parser = RangedU64ValueParser::<u32>::new().range(0..=1000))]
    warmup: u32,
    /// How guests mount the host's files: 9p or virtiofs with options, as in `vmtax share` [default: virtiofs,cache=always as
    /// root with virtiofsd, else 9p,msize=512000,cache=loose,multidevs=remap]
    #[arg(long, value_name = "METHOD")]
    root: Option<String>,
    /// Keep what CMD writes below DIR, natively and from guests
    #[arg(long, value_name = "DIR")]
    write: Vec<PathBuf>,
    /// Run CMD natively without the overlayfs that discards its writes: keep them on this host
    #[arg(long)]
    in_place: bool,
    /// Continue if CMD fails, and count its failing runs; otherwise the first failure on the baseline (native, else the first
    /// machine) ends the run
    #[arg(long)]
    ignore_failure: bool,
    /// Scratch disk for what guests write: 4G; a plain number is MiB [default: a tmpfs of half their memory; with --layers: 4G]
    #[arg(long, value_name = "SIZE", value_parser = mebibytes)]
    scratch: Option<u32>,
    /// Network of the guests: user, for QEMU's user-mode network (slirp) [default: no network]
    #[arg(long, value_name = "KIND")]
    net: Option<Net>,
    /// Forward TCP port HOST of 127.0.0.1 to port GUEST of the guest; may be repeated
    #[arg(long, value_name = "HOST:GUEST", requires = "net")]
    forward: Vec<Forward>,
    /// Extract a metric from the output: REGEX's first group is the number; NAME:higher or NAME:lower tells which is better
    #[arg(long = "metric", value_name = "NAME=REGEX")]
    metrics: Vec<MetricPattern>,
    /// Run once more in each guest and trace its requests to the scratch disk by layer; with --net, one more run traces
    /// its network packets
    #[arg(long, conflicts_with = "terminal")]
    layers: bool,
    /// Run once more in each guest and profile its QEMU, into a recording of its own
    #[arg(long, conflicts_with = "terminal")]
    profile: bool,
    #[command(flatten)]
    common: CommonOptions,
}

impl StudyOptions for ExecOptions {
    fn plan(&self, host: &LazyHost) -> Result<CheckedPlan, OptionsError> {
        let words = self.words()?;
        check_metrics(&self.metrics)?;
        let default = |class: KvmClass| match self.terminal {
            true => vec![class.default_guest()],
            false => class.default_machines(),
        };
        let rounds = if self.terminal { 1 } else { FEWEST_ROUNDS };
        let machines = self.common.measurement.machine.clone().unwrap_or_default();
        let workload = WorkloadSpec::new(WorkloadName::Exec);
        let variants = vec![root_share(self.root.as_deref())?];
        let write = self.write.iter().map(|folder| canonical(folder));
        let write = write.collect::<Result<_, _>>()?;
        let plan = Plan {
            timeout_s: TIMEOUT_S,
            variants,
            study: Study::Exec(Box::new(CommandSpec {
                setup: self.setup.clone(),
                prepare: self.prepare.clone(),
                cleanup: self.cleanup.clone(),
                warmup: self.warmup,
                write,
                in_place: self.in_place,
                ignore_failure: self.ignore_failure,
                scratch_mib: self.scratch.or(self.layers.then_some(SCRATCH_MIB)),
                layers: self.layers,
                net: self.net,
                forward: self.forward.clone(),
                metrics: self.metrics.clone(),
                ..command_here(&words)?
            })),
            ..Plan::new(&name(&words), rounds, machines, vec![workload])
        };
        let plan = self.common.complete_on(host, default, plan)?;
        if self.terminal
            && (plan.rounds != 1 || !matches!(plan.machines[..], [machine] if machine.is_guest()))
        {
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
            return Ok(vec![
                std::env::var("SHELL").unwrap_or_else(|_| "/bin/sh".to_owned()),
            ]);
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
    if path.is_dir() {
        Ok(path)
    } else {
        Err(failed(io::ErrorKind::NotADirectory.into()))
    }
}

/// Returns the name of the recording, as `exec-make`.
fn name(words: &[String]) -> String {
    let program = words
        .first()
        .map(Path::new)
        .and_then(Path::file_name)
        .unwrap_or_default()
        .to_string_lossy();
    let plain: String = program
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
        .take(40)
        .collect();
    match plain.as_str() {
        "" => "exec".to_owned(),
        plain => format!("exec-{plain}"),
    }
}

pub(crate) struct Exec<'a> {
    recording: &'a Recording,
    findings: ExecFindings,
    /// Requests of its guests to their disks, where these were observed.
    requests: Option<CommandLayers>,
}

impl<'a> Exec<'a> {
    pub(crate) fn new(recording: &'a Recording) -> Exec<'a> {
        let findings = vmtax_analysis::exec(&recording.plan, &recording.host, &recording.trials);
        let command = recording.plan.command();
        let observed = command.is_some_and(|command| command.layers);
        let trials = recording.trials.iter();
        let trials = trials.map(|t| (t, recording.trial_folder(t.number)));
        let requests =
            observed.then(|| vmtax_layers::command(&recording.plan, &recording.host, trials));
        Exec {
            recording,
            findings,
            requests,
        }
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
        let Check::Printed {
            of,
            name,
            machine,
            at_least,
        } = check
        else {
            return None;
        };
        let row = self
            .printed
            .iter()
            .find(|row| row.of == *of && row.name == *name);
        let column = row.and_then(|row| row.machines.iter().find(|c| c.machine == *machine));
        let overhead = column.and_then(|c| c.overhead.as_ref());
        Some(Tested::overhead(overhead, *machine, *at_least, host))
    }
}
