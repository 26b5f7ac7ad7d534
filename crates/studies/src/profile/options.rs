//! The options of `vmtax profile`, and the plans that they mean; profiles of the guests of other plans.

use crate::options::values::{duration, duration_or_zero, milliseconds};
use crate::options::{
    CommonOptions, LazyHost, MEMORY_HELP, OF_A_GUEST, OptionsError, StudyOptions, VCPUS_HELP,
    named_workloads, on_host, plan_file, share_variant, with_help,
};
use clap::Args;
use std::path::PathBuf;
use vmtax_model::{
    CommandSpec, CountBy, Inside, KvmClass, Machine, Plan, Probes, ProfileSettings, Study, Tree,
    Variant, WithCommand,
};
use vmtax_vmm::Vm;
use vmtax_workload::{CheckedPlan, Preset};

/// For how long a process is profiled where nothing else is asked for, s.
const PROCESS_S: f64 = 10.0;
/// Files of a shared tree where nothing says more.
const FILES: u64 = 1000;
const SHARE: &str = "9p,cache=loose";
/// A guest of vmtax's own may be stopped: it serves nobody.
const OWN_STOP_LIMIT_MS: u64 = 1000;
/// Bytes copied of a guest's stacks: workloads' own are shallow.
const GUEST_STACK: u32 = 8192;

/// Options of a workload's run besides those of its guest: a process that runs has its own.
const OF_A_RUN: [&str; 4] = ["guest_hz", "syscalls", "share", "workload"];

/// The options of `vmtax profile`.
#[derive(Debug, Args)]
#[command(
    mut_arg("rounds", |rounds| rounds.hide(true)),
    mut_arg("seed", |seed| seed.hide(true)),
    mut_arg("cpus", with_help(VCPUS_HELP)),
    mut_arg("memory", with_help(MEMORY_HELP)),
    mut_arg("machine", with_help("The guest for a workload: kvm or tcg: a Linux guest; micro-kvm or micro-tcg: a small test guest without an operating system [default: kvm if usable, else tcg]")),
    after_help = "--vm and --pid attach to a running process, including in a container, without a restart or frame pointers; as an ordinary user, \
to your own processes. As root, VM exits of a KVM guest are counted by reason, device and address, and \
avoidable ones are reported with a fix. Ctrl-C stops sampling and prints the report.
With a workload, vmtax boots a guest of its own, runs the workload once and profiles its QEMU; in this case \
Ctrl-C exits with status 130.
The options of Measurement, Guest and Workload apply to a workload, not to --vm and --pid. The recording holds flame graphs (SVG). See docs/profile.md.

Examples:
  vmtax profile --vm web01
  vmtax profile --pid 1234 --duration 30s --hz 999
  vmtax profile --pid 1234 --symbols build/qemu-system-x86_64
  vmtax profile disk count=2000
  vmtax profile --qemu 5.2 open-fids count=20000
  vmtax profile diff BEFORE AFTER
  vmtax profile import perf.data"
)]
pub struct ProfileOptions {
    /// A workload with its options, or a plan (a TOML file, as `vmtax run --dry-run` prints it), run once in a new guest
    #[arg(value_name = "WORKLOAD|PLAN")]
    workload: Vec<String>,
    /// Running VM to profile: PID, libvirt domain or UUID, Proxmox ID, QMP socket, unique part of its name; a libvirt domain
    /// stays tainted (custom-monitor) until it is shut off
    #[arg(long, value_name = "VM", conflicts_with_all = OF_A_GUEST, conflicts_with_all = OF_A_RUN, conflicts_with_all = ["pid"])]
    vm: Option<String>,
    /// Process to profile: a QEMU, or any other
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..), conflicts_with_all = OF_A_GUEST, conflicts_with_all = OF_A_RUN)]
    pid: Option<i32>,
    /// How long to sample: 30s, 5m [default: 10s; a workload: as long as it runs]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    duration: Option<f64>,
    /// Samples per second of each running thread
    #[arg(long, value_name = "N", default_value_t = ProfileSettings::HZ, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    hz: u32,
    /// Wall-clock samples per second of each thread: whether it runs, and where it waits; 0 for none
    #[arg(long, value_name = "N", default_value_t = ProfileSettings::WALL_HZ, value_parser = clap::value_parser!(u32).range(0..=1000))]
    wall_hz: u32,
    /// Stop each thread for its wall-clock samples: adds the stacks of running threads and the vCPUs' registers. After
    /// a stop longer than MAX, stopping is disabled for the rest of the run [default: off; without MAX: 5ms]. For guests that
    /// vmtax boots itself this is always on, with MAX 1s
    #[arg(long, value_name = "MAX", num_args = 0..=1, require_equals = true, default_missing_value = "5ms", value_parser = duration)]
    stop_threads: Option<f64>,
    /// Trace scheduler events and system calls for this time first, as root; 0 for none
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration_or_zero)]
    trace_duration: f64,
    /// Bytes of stack copied with each sample
    #[arg(long, value_name = "BYTES", default_value_t = ProfileSettings::STACK, value_parser = clap::value_parser!(u32).range(1024..=65_000))]
    stack: u32,
    /// Unstripped binary of the program, for function names
    #[arg(long, value_name = "FILE")]
    symbols: Option<PathBuf>,
    /// Samples per second in the guest, using its kernel's perf_events; 0 for none
    #[arg(long, help_heading = "Workload", value_name = "N", default_value_t = ProfileSettings::HZ, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    guest_hz: u32,
    /// Count the guest's system calls, with BPF where its kernel has it; BY is call (default) or process
    #[arg(long, help_heading = "Workload", value_name = "BY", num_args = 0..=1, require_equals = true, default_missing_value = "call", value_parser = count_by)]
    syscalls: Option<CountBy>,
    /// How the host shares the directory of a file workload with the guest, as in `vmtax share` [default: 9p,cache=loose]
    #[arg(long, help_heading = "Workload", value_name = "METHOD")]
    share: Option<String>,
    #[command(flatten)]
    common: CommonOptions,
}

/// As `--syscalls` has it.
fn count_by(text: &str) -> Result<CountBy, String> {
    match text {
        "call" => Ok(CountBy::Call),
        "process" => Ok(CountBy::Process),
        _ => Err("write call or process".to_owned()),
    }
}

impl StudyOptions for ProfileOptions {
    fn plan(&self, host: &LazyHost) -> Result<CheckedPlan, OptionsError> {
        let of_vm = self.vm.as_deref().map(vmtax_vmm::find).transpose()?;
        if let Some(mut process) = of_vm.or(self.pid.map(vmtax_vmm::process_identity)) {
            let limit = self
                .stop_threads
                .map(|seconds| milliseconds(seconds).max(1));
            let settings = self.settings(Some(self.duration.unwrap_or(PROCESS_S)), limit);
            let program = Vm::program_of(process.pid);
            let title = format!("{program}-{}", process.pid);
            process.name.get_or_insert(program);
            return Ok(CheckedPlan::new(attached(
                ProfileSettings {
                    process: Some(process),
                    ..settings
                },
                &title,
            ))?);
        }
        if self.workload.is_empty() {
            return OptionsError::usage(
                "no process to profile: name it with --vm (`vmtax vms` lists the VMs) or --pid, or a \
                 workload to run in a guest, as in `vmtax profile -- disk`",
            );
        }
        self.plan_of_workload(host)
    }
}

impl ProfileOptions {
    /// One guest, one workload, once.
    fn plan_of_workload(&self, host: &LazyHost) -> Result<CheckedPlan, OptionsError> {
        let rounds = self.common.measurement.rounds;
        if rounds.is_some_and(|rounds| rounds != 1) {
            return OptionsError::usage(
                "profile runs a workload once: leave --rounds out; `vmtax run` and `vmtax compare` have rounds",
            );
        }
        let plan = match plan_file(&self.workload)? {
            Some(_) if self.share.is_some() => {
                return OptionsError::usage(
                    "a plan's file says itself how its tree is shared: leave --share out",
                );
            }
            Some(plan) => plan,
            None => self.plan_of_words()?,
        };
        if plan.workloads.len() != 1 || plan.range().is_some() || plan.variants.len() > 1 {
            return OptionsError::usage(
                "profile runs one workload once in one guest: name one workload, as in `vmtax profile -- disk`",
            );
        }
        on_host(host, |class| self.plan_in_guest(plan.clone(), class))
    }

    /// Returns the plan of a workload in a guest on a host with such a KVM.
    fn plan_in_guest(&self, plan: Plan, class: KvmClass) -> Result<CheckedPlan, OptionsError> {
        let machine = self.machine(class.default_guest())?;
        let study = Study::Profile(WithCommand {
            settings: self.settings(self.duration, Some(OWN_STOP_LIMIT_MS)),
            command: plan.command().cloned().map(Box::new),
        });
        // The micro-guest has no kernel that could sample.
        let probes = match machine.has_kernel() {
            true => vec![inside(self.guest_hz, self.syscalls)],
            false => plan.probes.clone(),
        };
        self.common.complete(Plan {
            rounds: 1,
            study,
            machines: vec![machine],
            probes,
            ..plan
        })
    }

    /// Returns the machine of the guest: the one that is named, else the default.
    fn machine(&self, usual: Machine) -> Result<Machine, OptionsError> {
        let machine = match self.common.measurement.machine.as_deref() {
            None => usual,
            Some([one]) => *one,
            Some(_) => {
                return OptionsError::usage(
                    "profile runs a workload in one guest: name one with --machine",
                );
            }
        };
        if !machine.is_guest() {
            return OptionsError::usage(format!(
                "{machine} is no guest: choose kvm, tcg, micro-kvm or micro-tcg with --machine; `vmtax profile --pid` \
                 profiles a process of the host"
            ));
        }
        if !machine.has_kernel() && self.syscalls.is_some() {
            return OptionsError::usage(format!(
                "{machine} has no system calls: choose tcg or kvm with --machine"
            ));
        }
        Ok(machine)
    }

    fn plan_of_words(&self) -> Result<Plan, OptionsError> {
        let workloads = named_workloads(&self.workload, Preset::Default, [], None)?;
        let plan = Plan::new("profile", 1, Vec::new(), workloads);
        let Some(shared) = plan.workloads.iter().find(|w| w.name.needs_share()) else {
            return match self.share {
                Some(_) => OptionsError::usage(
                    "--share is for a workload that works in a tree: leave it out",
                ),
                None => Ok(plan),
            };
        };
        let files = vmtax_workload::check(shared)?
            .room(0)
            .known_names
            .max(FILES);
        let tree = Some(Tree {
            files,
            bytes: files.saturating_mul(Tree::SMALL),
            path: None,
        });
        let variants = vec![share_variant(self.share.as_deref().unwrap_or(SHARE))?];
        Ok(Plan {
            tree,
            variants,
            ..plan
        })
    }

    /// Returns the settings of the sampling for so many seconds; `None`: as long as it runs. `stop_limit_ms` is the longest stop
    /// of a thread.
    fn settings(&self, seconds: Option<f64>, stop_limit_ms: Option<u64>) -> ProfileSettings {
        ProfileSettings {
            time_ms: seconds.map(|seconds| milliseconds(seconds).max(1)),
            hz: self.hz,
            wall_hz: self.wall_hz,
            stop_limit_ms,
            events_ms: milliseconds(self.trace_duration),
            stack: self.stack,
            symbols: self.symbols.clone(),
            ..ProfileSettings::default()
        }
    }
}

/// A plan that observes what is there already; `of` names it.
pub fn attached(settings: ProfileSettings, of: &str) -> Plan {
    let plain: String = of
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '_' {
                c
            } else {
                '-'
            }
        })
        .take(48)
        .collect();
    let study = Study::Profile(WithCommand {
        settings,
        command: None,
    });
    Plan {
        study,
        ..Plan::new(&format!("profile-{plain}"), 1, Vec::new(), Vec::new())
    }
}

/// Returns the probes that sample a guest with a kernel from its inside, at `hz` samples per second; none where `hz`
/// is 0 and no calls are counted.
fn inside(hz: u32, calls: Option<CountBy>) -> Probes {
    let inside = Inside {
        hz,
        stack: GUEST_STACK,
        calls,
    };
    if hz == 0 && calls.is_none() {
        Probes::None
    } else {
        Probes::Inside(inside)
    }
}

/// A profile of each of the plan's guests, named by its side or machine: its trial once more, so that no sampling is in a
/// figure.
pub fn profiles_of_guests(plan: &Plan) -> Vec<(String, Plan)> {
    let guests = plan.columns().into_iter();
    let guests = guests.filter(|(machine, _)| machine.is_guest());
    let profile = |(machine, side): (Machine, &str)| {
        let name = match side {
            "" => machine.as_str(),
            side => side,
        };
        (name.to_owned(), profile_of_guest(plan, machine, side))
    };
    guests.map(profile).collect()
}

/// The profile of one of the plan's guests.
fn profile_of_guest(plan: &Plan, machine: Machine, side: &str) -> Plan {
    let settings = ProfileSettings {
        stop_limit_ms: Some(OWN_STOP_LIMIT_MS),
        // Which functions differ is asked for; events would take the first second of a short command.
        events_ms: 0,
        ..ProfileSettings::default()
    };
    // One observer of requests or of QEMU at a time.
    let command = plan.command().map(|command| {
        Box::new(CommandSpec {
            layers: false,
            ..command.clone()
        })
    });
    let probes = match machine.has_kernel() {
        true => inside(ProfileSettings::HZ, None),
        false => Probes::None,
    };
    let number = plan.variants.iter().position(|v| v.name == side);
    let mut variants = Vec::new();
    if let Some(number) = number {
        let mut variant = plan.variants[number].clone();
        // Options of workloads are the plan's own now.
        variant
            .set
            .retain(|key, _| Variant::workload_option(key).is_none());
        variants.push(variant);
    }
    Plan {
        name: format!("{}-profile", plan.name),
        study: Study::Profile(WithCommand { settings, command }),
        machines: vec![machine],
        variants,
        probes: vec![probes],
        workloads: number.map_or_else(|| plan.workloads.clone(), |n| plan.workloads_of(n)),
        rounds: 1,
        ..plan.clone()
    }
}
