//! The options of `vmtax compare`, and the plan that they mean.

use super::sides::sides;
use crate::options::values::{duration, fraction, seconds};
use crate::options::{
    GuestSettings, MeasurementOptions, OptionsError, StudyOptions, complete, first_workload, named_workloads, with_help,
};
use clap::Args;
use std::fs;
use std::path::{Path, PathBuf};
use vmtax_model::{Compare, HostFacts, Machine, Plan, Probes, Study, Thresholds, WorkloadName};
use vmtax_workload::{CheckedPlan, Preset};

/// The smallest difference that matters, where nothing else is asked for.
const MIN_EFFECT: f64 = 0.02;
const BUDGET_S: u32 = 600;
const ROUNDS: u32 = 40;
const REPEATS: u32 = 3;
/// Where no workload is named.
const DEFAULT: [WorkloadName; 4] =
    [WorkloadName::Cpu, WorkloadName::Memory, WorkloadName::Syscalls, WorkloadName::Seqread];

/// The options of `vmtax compare`.
#[derive(Debug, Args)]
#[command(
    mut_arg(
        "machine",
        with_help(
            "The guest of variants that name none, or several as a variant each: kvm, tcg, micro-kvm, micro-tcg [default: kvm where it runs guest kernels, else tcg]"
        )
    ),
    mut_arg("rounds", with_help("Repetitions at most; it stops earlier when every metric is decided [default: 40]")),
    after_help = "KEY of a side: qemu, kernel (with modules), kernel-args, qemu-args, cpu-model, machine-type, firmware, machine,
cpus, memory-mib, share and share.OPTION, host.halt-poll-ns, host.thp, host.governor (set, read back, restored),
name, or any setting of the disk as `vmtax layers` has them. A comma in a value is written twice.
It stops when all is decided, or the budget is spent; these interim analyses are part of what the intervals promise.
With --check it ends with 1 where a metric is worse than in the baseline's recording: docs/compare.md.

Examples:
  vmtax compare --qemu 7.2 --qemu 10.0 -- cpu syscalls seqread
  vmtax compare aio=threads aio=native aio=io_uring --set cache=none --min_effect 5% -- seqread
  vmtax compare default kernel-args=mitigations=off -- syscalls
  vmtax compare runs/20261120T160100Z-quick runs/20261121T160100Z-quick
  vmtax compare --check runs/20261120T160100Z-quick --junit check.xml"
)]
pub struct CompareOptions {
    /// Variants, the first is the baseline: KEY=VALUE[,KEY=VALUE...] or `default`; then workloads with their options
    /// [default: cpu memory syscalls seqread]; or folders of recordings
    #[arg(value_name = "VARIANT|WORKLOAD|RECORDING")]
    variants: Vec<String>,
    /// A side with this QEMU; given for each side
    #[arg(long, value_name = "QEMU")]
    qemu: Vec<String>,
    /// A side with this guest kernel: a file, or a release as `vmtax get kernel` takes it
    #[arg(long, value_name = "KERNEL")]
    kernel: Vec<String>,
    /// Set this on every side: KEY=VALUE
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// The smallest difference that matters: 2%, or 0.02 [default: 2%]
    #[arg(long, value_name = "FRACTION", value_parser = fraction)]
    min_effect: Option<f64>,
    /// Time budget: no round begins after it: 90s, 10m, 2h [default: 10m]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    budget: Option<u32>,
    /// How often a guest runs each workload in its turn [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=32))]
    repeats: Option<u32>,
    /// Duration of each trial that is bounded by time; the calls of `syscalls` share it
    #[arg(long, value_name = "TIME", value_parser = duration)]
    duration: Option<f64>,
    /// Follow seqread's requests too: by which layers the sides differ
    #[arg(long)]
    layers: bool,
    /// Profile each side's QEMU in one more run, and draw by which functions the sides differ; of one workload
    #[arg(long)]
    profile: bool,
    /// Measure this recording's plan again, or take the recording given as SIDE, and end with 1 where a metric is worse by
    /// more than it may be
    #[arg(long, value_name = "BASELINE", conflicts_with_all = ["qemu", "kernel", "set"])]
    check: Option<PathBuf>,
    /// By how much each metric may be worse, and the required confidence (TOML) [default: 5 %, at 95 % confidence]
    #[arg(long, value_name = "FILE", requires = "check")]
    thresholds: Option<PathBuf>,
    /// Write the check as JUnit XML
    #[arg(long, value_name = "FILE", requires = "check")]
    pub junit: Option<PathBuf>,
    /// Write the check as a Markdown table
    #[arg(long, value_name = "FILE", requires = "check")]
    pub markdown: Option<PathBuf>,
    /// Print the check as annotations of GitHub's workflows too
    #[arg(long, requires = "check")]
    pub github: bool,
    #[command(flatten)]
    measurement: MeasurementOptions,
    #[command(flatten)]
    settings: GuestSettings,
}

impl StudyOptions for CompareOptions {
    fn plan(&self, host: &HostFacts) -> Result<CheckedPlan, OptionsError> {
        let (words, what) = self.variants.split_at(first_workload(&self.variants));
        let several = self.measurement.machine.as_deref().filter(|list| list.len() > 1).unwrap_or_default();
        let mut variants =
            sides(words, &[("qemu", &self.qemu), ("kernel", &self.kernel), ("machine", &names(several))], &self.set)?;
        let machine = match self.measurement.machine.as_deref() {
            Some([one]) => *one,
            _ => host.default_guest(),
        };
        let mut machines: Vec<Machine> = Vec::new();
        for variant in &variants {
            let own = variant.get("machine").map_or(Ok(machine), str::parse)?;
            if !own.is_guest() {
                return OptionsError::usage("native is no side: `vmtax run` compares guests with it");
            }
            if !machines.contains(&own) {
                machines.push(own);
            }
        }
        if machines.len() > 1 {
            for variant in &mut variants {
                variant.set.entry("machine".to_owned()).or_insert_with(|| machine.to_string());
            }
        }
        let mut workloads = named_workloads(what, Preset::Quick, DEFAULT, self.duration)?;
        if machines.iter().any(|m| !m.has_kernel()) && what.is_empty() {
            workloads.retain(|w| w.name == WorkloadName::Seqread);
        }
        if self.layers && workloads.iter().any(|w| w.name != WorkloadName::Seqread) {
            return OptionsError::usage("--layers follows the requests of seqread alone: write `-- seqread`");
        }
        if self.profile && workloads.len() != 1 {
            return OptionsError::usage("--profile is of one workload: name it, as in `-- seqread`");
        }
        let mut probes = vec![Probes::None; self.repeats.unwrap_or(REPEATS) as usize];
        probes.extend(self.layers.then_some(Probes::Layers));
        let study =
            Study::Compare(Compare { min_effect: self.min_effect(), budget_s: Some(self.budget.unwrap_or(BUDGET_S)) });
        let plan = Plan { variants, probes, study, ..Plan::new("compare", ROUNDS, machines, workloads) };
        complete(&self.measurement, &self.settings, plan)
    }

    fn is_profiled(&self) -> bool {
        self.profile
    }
}

/// What is compared.
#[derive(Debug)]
pub enum Compared {
    /// The sides of a plan that is carried out.
    Sides,
    /// Recordings, with the first one.
    Recordings(Vec<PathBuf>),
    /// A recording, or the same plan carried out again where it is `None`, with a baseline's.
    WithBaseline {
        /// The baseline's recording.
        baseline: PathBuf,
        /// The recording that is checked.
        now: Option<PathBuf>,
    },
}

impl CompareOptions {
    /// What is compared.
    ///
    /// # Errors
    /// For recordings beside sides, and too many or too few recordings.
    pub fn compared(&self) -> Result<Compared, OptionsError> {
        let recordings: Vec<PathBuf> = match &self.check {
            Some(_) => self.variants.iter().map(PathBuf::from).collect(),
            None => self.variants.iter().filter(|s| is_recording(s)).map(PathBuf::from).collect(),
        };
        match (&self.check, recordings.len()) {
            (Some(baseline), 0 | 1) => {
                Ok(Compared::WithBaseline { baseline: baseline.clone(), now: recordings.into_iter().next() })
            }
            (Some(_), _) => OptionsError::usage("--check takes one recording to be checked, or none to measure anew"),
            (None, 0) => Ok(Compared::Sides),
            (None, n) if n < self.variants.len() + self.qemu.len() + self.kernel.len() => OptionsError::usage(
                "recordings can only be compared with recordings: give folders alone, or sides alone",
            ),
            (None, 1) => OptionsError::usage("a comparison takes two sides: name another recording"),
            (None, _) => Ok(Compared::Recordings(recordings)),
        }
    }

    /// The smallest difference that matters, as a share.
    pub fn min_effect(&self) -> f64 {
        self.min_effect.unwrap_or(MIN_EFFECT)
    }

    /// By how much metrics may be worse.
    ///
    /// # Errors
    /// For a file that cannot be read, or holds no thresholds.
    pub fn thresholds(&self) -> Result<Thresholds, OptionsError> {
        let Some(file) = &self.thresholds else { return Ok(Thresholds::default()) };
        let text =
            fs::read_to_string(file).map_err(|e| OptionsError::file(format!("reading {}", file.display()), e))?;
        Thresholds::from_toml(&text).map_err(|e| OptionsError::Usage(format!("{}: {e}", file.display())))
    }

    /// A baseline's plan, to be carried out again.
    ///
    /// # Errors
    /// For one with a command of the user's.
    pub fn plan_again(&self, baseline: &Plan) -> Result<CheckedPlan, OptionsError> {
        if baseline.command().is_some() {
            return OptionsError::usage(
                "a command's recording is not measured again by --check: run it with `vmtax exec`, and name that recording too",
            );
        }
        complete(&self.measurement, &self.settings, baseline.clone())
    }
}

/// A side that is a folder was measured before.
fn is_recording(side: &str) -> bool {
    !side.contains('=') && (side.contains('/') || Path::new(side).is_dir())
}

fn names(machines: &[Machine]) -> Vec<String> {
    machines.iter().map(ToString::to_string).collect()
}
