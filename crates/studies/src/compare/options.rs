//! The options of `vmtax compare`, and the plan that they mean.

use super::sides::{name_workload_options, of_all, sides, suits_one_boot};
use crate::options::values::{duration, fraction, seconds};
use crate::options::{
    GuestSettings, LazyHost, MEMORY_HELP, MeasurementOptions, OptionsError, PINNING_HELP,
    StudyOptions, VCPUS_HELP, argv_of_exec, command_here, complete, first_workload,
    named_workloads, on_host, root_share, with_help,
};
use clap::Args;
use std::fs;
use std::path::{Path, PathBuf};
use vmtax_findings::Thresholds;
use vmtax_model::{
    CommandSpec, Compare, KvmClass, Machine, Plan, Probes, Study, Variant, WithCommand,
    WorkloadName, WorkloadSpec,
};
use vmtax_workload::{CheckedPlan, Preset};

/// The smallest difference that matters, where nothing else is asked for.
const MIN_EFFECT: f64 = 0.02;
const BUDGET_S: u32 = 600;
const ROUNDS: u32 = 40;
const REPEATS: u32 = 3;
/// Where no workload is named.
const DEFAULT: [WorkloadName; 4] = [
    WorkloadName::Cpu,
    WorkloadName::Memory,
    WorkloadName::Syscalls,
    WorkloadName::Disk,
];

/// The options of `vmtax compare`.
#[derive(Debug, Args)]
#[command(
    mut_arg(
        "machine",
        with_help(
            "Guest: kvm or tcg: a Linux guest; micro-kvm or micro-tcg: a small test guest without an operating system. A single one applies to all variants; in a comma-separated list each is a variant [default: kvm if usable, else tcg]"
        )
    ),
    mut_arg(
        "rounds",
        with_help(
            "Maximum number of rounds; stops earlier once every result is conclusive [default: 40]"
        )
    ),
    mut_arg("cpus", with_help(VCPUS_HELP)),
    mut_arg("memory", with_help(MEMORY_HELP)),
    mut_arg("pinning", with_help(PINNING_HELP)),
    after_help = "A variant is a list of settings: qemu, kernel, modules, kernel-args, qemu-args, cpu-model, \
machine-type, firmware, machine, cpus, memory-mib, pinning, cpu-flag.FLAG, accel.PROPERTY, memory-backend.PROPERTY, kernel-arg.NAME, share and share.OPTION, host.halt-poll-ns, host.thp, \
host.governor (restored afterwards), name, an option of the workload (bs=4K, disk.bs=4K), or a setting of the disk as in `vmtax layers`. A comma \
in a value is doubled (,,), as for QEMU.
Metrics are analysed after each round, until every metric has a conclusive result or --budget is used up; intervals are corrected for these \
interim analyses. `exec CMD ARGS` compares your own command by its wall time and CPU seconds.
With --check the exit status is 1 if a metric is worse than in the baseline's recording by more than its threshold, 3 if no metric could be tested: docs/compare.md.

Examples:
  vmtax compare --qemu 7.2 --qemu 10.0 cpu syscalls disk
  vmtax compare --qemu 7.2 --qemu 10.0 -- exec make -j2
  vmtax compare aio=threads aio=native --set cache=none disk bs=64K
  vmtax compare default kernel-args=mitigations=off syscalls
  vmtax compare bs=4K bs=64K -- disk
  vmtax compare runs/20261120T160100Z-quick runs/20261121T160100Z-quick
  vmtax compare --check runs/20261120T160100Z-quick --junit check.xml"
)]
pub struct CompareOptions {
    /// Variants (the first is the baseline): KEY=VALUE[,KEY=VALUE...] or `default`; then workloads with their options
    /// [default: cpu memory syscalls disk]; or recordings
    #[arg(value_name = "VARIANT|WORKLOAD|RECORDING")]
    variants: Vec<String>,
    /// A variant with this QEMU; repeat for each. Given once with two or more VARIANTs, it applies to all of them
    #[arg(long, value_name = "QEMU")]
    qemu: Vec<String>,
    /// A variant with this guest kernel: a file, or a kernel version or Debian suite that `vmtax get kernel` fetches;
    /// repeat for each. Given once with two or more VARIANTs, it applies to all of them
    #[arg(long, value_name = "KERNEL")]
    kernel: Vec<String>,
    /// Settings of all variants: KEY=VALUE[,KEY=VALUE...]; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Smallest difference that matters: 2%, or 0.02 [default: 2%]
    #[arg(long, value_name = "FRACTION", value_parser = fraction)]
    min_effect: Option<f64>,
    /// Time limit of all rounds: 90s, 10m, 2h; a round in progress is completed [default: 10m]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    budget: Option<u32>,
    /// Runs of each workload per boot of a guest [default: 3; for exec: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=32))]
    repeats: Option<u32>,
    /// One boot of the guest per round, in which the variants take turns (A B B A); they may differ only in options of
    /// workloads and attributes of the disk's request queue (block-queue.) [default where only these differ, and the
    /// workloads leave no files, warm caches or dirty pages in the guest]
    #[arg(long, conflicts_with = "fresh_boots")]
    one_boot: bool,
    /// A fresh boot of the guest for each variant in each round, even where one boot would do
    #[arg(long)]
    fresh_boots: bool,
    /// Duration of each time-limited workload: 500ms, 5s; `syscalls` divides it among its calls
    #[arg(long, value_name = "TIME", value_parser = duration)]
    duration: Option<f64>,
    /// For exec CMD: continue if CMD fails, and count its failing runs; otherwise its first failure in the baseline
    /// ends the run
    #[arg(long)]
    ignore_failure: bool,
    /// For the workload `disk`: also trace its requests, to show which layers differ
    #[arg(long)]
    layers: bool,
    /// Profile the QEMU of each variant in one more run, with a differential flame graph; takes exactly one workload
    #[arg(long)]
    profile: bool,
    /// Regression check against this recording: its plan is run again, unless a RECORDING to check is given; exit
    /// status 1 if a metric is worse by more than its threshold
    #[arg(long, value_name = "BASELINE", help_heading = "Regression check", conflicts_with_all = ["qemu", "kernel", "set", "one_boot", "fresh_boots"])]
    check: Option<PathBuf>,
    /// Thresholds of each metric, and the confidence level (TOML) [default: 5 % worse, at 95 % confidence]
    #[arg(
        long,
        value_name = "FILE",
        help_heading = "Regression check",
        requires = "check"
    )]
    thresholds: Option<PathBuf>,
    /// Write the check's result as JUnit XML
    #[arg(
        long,
        value_name = "FILE",
        help_heading = "Regression check",
        requires = "check"
    )]
    pub junit: Option<PathBuf>,
    /// Write the check's result as a Markdown table
    #[arg(
        long,
        value_name = "FILE",
        help_heading = "Regression check",
        requires = "check"
    )]
    pub markdown: Option<PathBuf>,
    /// Print GitHub workflow annotations too
    #[arg(long, help_heading = "Regression check", requires = "check")]
    pub github: bool,
    #[command(flatten)]
    measurement: MeasurementOptions,
    #[command(flatten)]
    settings: GuestSettings,
}

impl StudyOptions for CompareOptions {
    fn plan(&self, host: &LazyHost) -> Result<CheckedPlan, OptionsError> {
        on_host(host, |class| self.plan_with(class))
    }

    fn is_profiled(&self) -> bool {
        self.profile
    }
}

impl CompareOptions {
    /// Returns the plan on a host with such a KVM.
    fn plan_with(&self, class: KvmClass) -> Result<CheckedPlan, OptionsError> {
        let (words, what) = self.variants.split_at(self.end_of_variants());
        let named: Vec<String> = match self.measurement.machine.as_deref() {
            Some(several @ [_, _, ..]) => several.iter().map(ToString::to_string).collect(),
            _ => Vec::new(),
        };
        let lists = [
            ("qemu", &self.qemu[..]),
            ("kernel", &self.kernel),
            ("machine", &named),
        ];
        let mut variants = sides(words, &lists, &self.set)?;
        let machine = match self.measurement.machine.as_deref() {
            Some([one]) => *one,
            _ => class.default_guest(),
        };
        let machines = machines_of(&mut variants, machine)?;
        let command = match argv_of_exec(what) {
            Some(argv) => Some(self.command(argv, &mut variants)?),
            None => None,
        };
        let workloads = self.workloads(what, &machines, command.as_deref())?;
        let probes = self.probes(command.as_deref());
        name_workload_options(&mut variants, &workloads)?;
        let settings = Compare {
            min_effect: self.min_effect(),
            budget_s: Some(self.budget.unwrap_or(BUDGET_S)),
            one_boot: false,
        };
        let study = Study::Compare(WithCommand { settings, command });
        let mut plan = Plan {
            variants,
            probes,
            study,
            ..Plan::new("compare", ROUNDS, machines, workloads)
        };
        let one_boot = self.one_boot || (!self.fresh_boots && suits_one_boot(&plan));
        if let Study::Compare(compare) = &mut plan.study {
            compare.settings.one_boot = one_boot;
        }
        let of_all = |key| of_all(words, &lists, key).map(PathBuf::from);
        (plan.guest.qemu, plan.guest.kernel) = (of_all("qemu"), of_all("kernel"));
        complete(&self.measurement, &self.settings, plan)
    }

    /// Where the workloads begin. An option of a workload before its name is of all variants, unless there are no two variants
    /// without it: then it is one.
    fn end_of_variants(&self) -> usize {
        let first = first_workload(&self.variants);
        let listed = self.qemu.len()
            + self.kernel.len()
            + self.measurement.machine.as_ref().map_or(0, Vec::len);
        if first + listed > 1 {
            return first;
        }
        let is_workload = |word: &String| word.parse::<WorkloadName>().is_ok();
        self.variants.iter().position(is_workload).unwrap_or(first)
    }

    /// Returns the workloads that `what` names, else the usual ones that run on these machines.
    fn workloads(
        &self,
        what: &[String],
        machines: &[Machine],
        command: Option<&CommandSpec>,
    ) -> Result<Vec<WorkloadSpec>, OptionsError> {
        let mut workloads = match command {
            Some(_) => vec![WorkloadSpec::new(WorkloadName::Exec)],
            None => named_workloads(what, Preset::Quick, DEFAULT, self.duration)?,
        };
        if machines.iter().any(|m| !m.has_kernel()) && what.is_empty() {
            workloads.retain(|w| w.name == WorkloadName::Disk);
        }
        if self.layers && workloads.iter().any(|w| w.name != WorkloadName::Disk) {
            return OptionsError::usage(
                "--layers traces the requests of the workload disk alone: write `-- disk`",
            );
        }
        if self.profile && workloads.len() != 1 {
            return OptionsError::usage("--profile is of one workload: name it, as in `-- disk`");
        }
        Ok(workloads)
    }

    /// Returns the probes of a boot's runs: none in each of the repetitions, then those of the layers.
    fn probes(&self, command: Option<&CommandSpec>) -> Vec<Probes> {
        let usual = if command.is_some() { 1 } else { REPEATS };
        let mut probes = vec![Probes::None; self.repeats.unwrap_or(usual) as usize];
        probes.extend(self.layers.then_some(Probes::Layers));
        probes
    }

    /// The command of `exec CMD ARGS`; guests get the host's files unless a variant shares them in its own way.
    fn command(
        &self,
        argv: &[String],
        variants: &mut [Variant],
    ) -> Result<Box<CommandSpec>, OptionsError> {
        if argv.is_empty() {
            return OptionsError::usage(
                "name the command, as in `vmtax compare --qemu 7.2 --qemu 10.0 -- exec make -j2`",
            );
        }
        let root = root_share(None)?;
        for variant in variants.iter_mut().filter(|v| v.get("share").is_none()) {
            variant.set.extend(root.set.clone());
        }
        Ok(Box::new(CommandSpec {
            ignore_failure: self.ignore_failure,
            ..command_here(argv)?
        }))
    }
}

/// Returns the machines of all variants, the default of those that name none; where there are several, each variant then names its
/// own.
fn machines_of(variants: &mut [Variant], usual: Machine) -> Result<Vec<Machine>, OptionsError> {
    let mut machines: Vec<Machine> = Vec::new();
    for variant in variants.iter() {
        let own = variant.get("machine").map_or(Ok(usual), str::parse)?;
        if !own.is_guest() {
            return OptionsError::usage(
                "native is not a variant of a guest: `vmtax run` compares guests with it",
            );
        }
        if !machines.contains(&own) {
            machines.push(own);
        }
    }
    if machines.len() > 1 {
        for variant in variants {
            variant
                .set
                .entry("machine".to_owned())
                .or_insert_with(|| usual.to_string());
        }
    }
    Ok(machines)
}

/// Things that a command line compares.
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
    /// Returns the things that are compared.
    ///
    /// # Errors
    /// For recordings beside sides, and too many or too few recordings.
    pub fn compared(&self) -> Result<Compared, OptionsError> {
        let recordings = self.variants.iter();
        let recordings = recordings.filter(|side| self.check.is_some() || is_recording(side));
        let recordings: Vec<PathBuf> = recordings.map(PathBuf::from).collect();
        match (&self.check, recordings.len()) {
            (Some(baseline), 0 | 1) => Ok(Compared::WithBaseline {
                baseline: baseline.clone(),
                now: recordings.into_iter().next(),
            }),
            (Some(_), _) => OptionsError::usage(
                "--check takes one recording to be checked, or none to measure again",
            ),
            (None, 0) => Ok(Compared::Sides),
            (None, n) if n < self.variants.len() + self.qemu.len() + self.kernel.len() => {
                OptionsError::usage(
                    "recordings can only be compared with recordings: give either recordings or variants",
                )
            }
            (None, 1) => {
                OptionsError::usage("a comparison takes two variants: name another recording")
            }
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
        let Some(file) = &self.thresholds else {
            return Ok(Thresholds::default());
        };
        let text = fs::read_to_string(file)
            .map_err(|e| OptionsError::file(format!("reading {}", file.display()), e))?;
        Thresholds::from_toml(&text)
            .map_err(|e| OptionsError::Usage(format!("{}: {e}", file.display())))
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
