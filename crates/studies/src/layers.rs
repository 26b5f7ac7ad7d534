//! Where the time of a block request goes, layer by layer.

use crate::analysis::StudyError;
use crate::options::{
    CommonOptions, FioOptions, LazyHost, OptionsError, RunningVmOptions, StudyOptions,
    WorkloadArguments, plan_file, root_share, variants, with_help,
};
use crate::reproduce::{Check, Evidence, Tested};
use clap::Args;
use vmtax_findings::{
    ClaimUnit, ClaimVerdict, Estimate, LayerColumn, LayerFindings, Verdict, VmLayers,
};
use vmtax_layers::LayersError;
use vmtax_model::{
    DeviceClass, FEWEST_ROUNDS, HostFacts, Interval, KvmClass, Layer, Machine, Missing, Plan,
    Probes, Study, Variant, VmStudy, WorkloadSpec,
};
use vmtax_recording::Recording;
use vmtax_workload::CheckedPlan;

/// Requests of a trial. Four trials a turn, two of them observed: six rounds follow 12,000 requests.
const REQUESTS: u64 = 1000;

/// Round trips of a trial, likewise.
const ROUND_TRIPS: u64 = 1000;

/// Time for which each job of fio runs in a trial, s: the trace of a fast disk's requests is some 100 MiB.
const FIO_S: f64 = 1.0;

/// A class of the guest's devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Device {
    /// A virtio-blk disk: block requests
    Disk,
    /// A virtio-net card: requests to an echo server on the host, and its responses
    Net,
}

/// The options of `vmtax layers`.
#[derive(Debug, Args)]
#[command(
    mut_arg(
        "machine",
        with_help(
            "Guests, comma separated: kvm or tcg: a Linux guest; micro-kvm or micro-tcg: a small test guest without an operating system. native (this host) is always measured for reference [default: micro-kvm and kvm; micro-tcg or tcg in place of one that this host cannot run]"
        )
    ),
    mut_arg("vm", |vm| vm.conflicts_with_all(["what", "vary", "set"])),
    after_help = "vmtax boots the guest for the measurement. As root it traces every layer, otherwise the guest's layers and QEMU's trace events; the \
report lists what is missing.
With --vm the requests of a running VM are traced instead, from the host only, as root: from the virtqueue kick through QEMU \
and the host's block layer to the interrupt, by disk and by request type (read, write, flush). To add the guest's \
own layers, run `vmtax agent observe` in the guest at the same time and give its file to `vmtax report --guest-trace FILE`; or let --guest-vmtax do both through QEMU's guest agent. \
With --device net the packets that pass its taps are traced instead: transmitted ones from the virtqueue kick to the host's stack, received ones from there to the interrupt.
The workload of vmtax's own guest is block I/O to a separate disk: bs=4K, rw=read|write|randread|randwrite (default read), \
iodepth=1..32 (default 1), count=1000. `vmtax agent run disk --help-options` lists all options (`agent` is the part of vmtax that runs in a guest).
With --fio the host's fio runs your job in the guest and natively, in a sandbox. The report compares both completion latencies (clat) and shows which layers cause the difference. \
time=SECONDS: duration of each job (default 1; 0: the job's own).
With --device net it is a round trip over the network: from the guest's system call through its stack, the virtqueue, QEMU, its backend and \
the host's stack to an echo server, and back. Options: protocol=udp|tcp (default udp), size=64, count=1000.
--vary and --set take, with --device net: backend=tap|user|passt|vhost-user and the properties of QEMU's virtio-net-pci (tx=timer, mrg_rxbuf, host_tso4 ...); with --device disk: aio, cache, iothread, throttling.LIMIT, drive.KEY, and every property of QEMU's \
virtio-blk-pci (ioeventfd, num-queues, queue-size ...).

Examples:
  vmtax layers
  vmtax layers rw=randread iodepth=32 --vary iothread=off,on
  vmtax layers --vary aio=threads,native,io_uring --set cache=none
  vmtax layers --machine micro-kvm
  vmtax layers --fio job.fio --section reads
  vmtax layers --device net
  vmtax layers --device net protocol=tcp size=1K
  vmtax layers --device net --vary backend=tap,user,passt
  vmtax layers --vm web01 --duration 30s
  vmtax layers --vm web01 --device net
  vmtax layers --vm web01 --guest-vmtax /root/vmtax"
)]
pub struct LayersOptions {
    /// Options of the workload as OPTION=VALUE, or a plan (.toml)
    #[arg(value_name = "OPTION=VALUE|PLAN")]
    what: Vec<String>,
    /// The guest's device to trace: disk (virtio-blk, block requests) or net (virtio-net, requests to an echo
    /// server on the host, and its responses)
    #[arg(
        long,
        value_name = "DEVICE",
        value_enum,
        hide_possible_values = true,
        default_value = "disk"
    )]
    device: Device,
    #[command(flatten)]
    fio: FioOptions,
    /// Compare device configurations: KEY=VALUE,VALUE,...; if repeated, every combination
    #[arg(long, value_name = "KEY=LIST")]
    vary: Vec<String>,
    /// Device options for all variants: KEY=VALUE[,KEY=VALUE...]; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    #[command(flatten)]
    common: CommonOptions,
    #[command(flatten)]
    running: RunningVmOptions,
    /// Also trace inside the guest: path of the vmtax binary in the guest, started through QEMU's guest agent
    #[arg(
        long,
        value_name = "PATH",
        requires = "vm",
        help_heading = "Running VM"
    )]
    guest_vmtax: Option<String>,
    /// Trace a running VM without uprobes in the VMM, by its system calls on its disks' files or its taps
    #[arg(
        long,
        requires = "vm",
        conflicts_with = "guest_vmtax",
        help_heading = "Running VM"
    )]
    no_probes: bool,
}

impl StudyOptions for LayersOptions {
    fn plan(&self, host: &LazyHost) -> Result<CheckedPlan, OptionsError> {
        let device = match self.device {
            Device::Disk => DeviceClass::Disk,
            Device::Net => DeviceClass::Net,
        };
        if device == DeviceClass::Net && self.guest_vmtax.is_some() {
            return OptionsError::usage(
                "--guest-vmtax traces the guest's disks alone: leave it out with --device net",
            );
        }
        if let Some(plan) = self.running.plan(VmStudy::VmLayers) {
            let mut plan = Plan::clone(&*plan?);
            if let Study::Vm(_, vm) = &mut plan.study {
                vm.guest_vmtax.clone_from(&self.guest_vmtax);
                vm.no_probes = self.no_probes;
                vm.device = device;
            }
            return Ok(CheckedPlan::new(plan)?);
        }
        let mut plan = match plan_file(&self.what)? {
            Some(_) if self.fio.is_given() => {
                return OptionsError::usage(
                    "--fio names the workload, and the plan has its own: give one of them",
                );
            }
            Some(plan) => plan,
            None if self.fio.is_given() => self.plan_of_fio()?,
            None => self.plan_of_words()?,
        };
        if let Some(machines) = self.common.measurement.with_native() {
            plan.machines = machines;
        }
        if !self.vary.is_empty() || !self.set.is_empty() {
            plan.variants = variants(&self.vary, &self.set)?;
        }
        if self.fio.is_given() {
            share_root(&mut plan.variants)?;
        }
        // A plan's file names its machines.
        let has_micro = plan.machines.is_empty() && self.suits_micro_guest(&plan.workloads)?;
        let default = |class: KvmClass| {
            let micro = class.micro_guests().iter().copied();
            let guests = micro.take(usize::from(has_micro));
            [Machine::NATIVE]
                .into_iter()
                .chain(guests)
                .chain([class.default_guest()])
                .collect()
        };
        self.common.complete_on(host, default, plan)
    }
}

impl LayersOptions {
    fn plan_of_words(&self) -> Result<Plan, OptionsError> {
        let mut work = match self.device {
            Device::Disk => vmtax_workload::requests(REQUESTS),
            Device::Net => vmtax_workload::round_trips(ROUND_TRIPS),
        };
        let arguments = WorkloadArguments::parse(&self.what)?;
        if let Some(other) = arguments.names.iter().find(|name| **name != work.name) {
            return OptionsError::usage(format!(
                "layers traces the requests of {} alone: leave {other} out",
                work.name
            ));
        }
        arguments.apply(std::slice::from_mut(&mut work))?;
        let (name, observed): (_, &[Probes]) = match self.device {
            Device::Disk => ("layers", &[Probes::Layers, Probes::Calls, Probes::Layers]),
            Device::Net => ("layers-net", &[Probes::Network, Probes::Network]),
        };
        Ok(Plan {
            study: Study::Layers,
            // The control on both sides of the observed, so that what drifts in a turn does not look like the probes.
            probes: [&[Probes::None], observed, &[Probes::None]].concat(),
            ..Plan::new(name, FEWEST_ROUNDS, Vec::new(), vec![work])
        })
    }

    /// Returns the plan of the host's fio, natively and in a Linux guest.
    fn plan_of_fio(&self) -> Result<Plan, OptionsError> {
        if self.device == Device::Net {
            return OptionsError::usage("--fio makes block requests: leave --device net out");
        }
        let time = match &self.what[..] {
            [] => Some(FIO_S),
            [word] => word.strip_prefix("time=").and_then(|s| s.parse().ok()),
            _ => None,
        };
        let Some(time) = time else {
            return OptionsError::usage(format!(
                "'{}' is not time=SECONDS, the one option beside --fio: write others into the job, and leave a workload out",
                self.what.join(" ").escape_default()
            ));
        };
        let jobs = self.fio.work(time)?.into_iter();
        Ok(Plan {
            study: Study::Layers,
            probes: vec![Probes::None, Probes::Layers, Probes::None],
            ..Plan::new(
                "layers-fio",
                FEWEST_ROUNDS,
                Vec::new(),
                jobs.map(|jobs| jobs.workload).collect(),
            )
        })
    }

    /// Returns true if the micro-guest can do the work: it runs no fio, has one request under way at a time; its network is a tap alone, and it
    /// knows no TCP.
    fn suits_micro_guest(&self, workloads: &[WorkloadSpec]) -> Result<bool, OptionsError> {
        let ([work], false) = (workloads, self.fio.is_given()) else {
            return Ok(false);
        };
        if self.device == Device::Disk {
            return Ok(vmtax_workload::block_work(work)?.depth == 1);
        }
        let round_trips = vmtax_workload::round_trip_work(work)?;
        let is_usual =
            self.vary.is_empty() && self.set.is_empty() && rustix::process::geteuid().is_root();
        Ok(is_usual && !round_trips.is_tcp && round_trips.connections == 1)
    }
}

/// Gives guests the host's root, where its fio is, unless a variant names a share itself.
fn share_root(variants: &mut [Variant]) -> Result<(), OptionsError> {
    let root = root_share(None)?.set;
    let without = variants.iter_mut().filter(|v| v.get("share").is_none());
    without.for_each(|variant| variant.set.extend(root.clone()));
    Ok(())
}

/// Requests by layer, of the recording's observed trials.
pub(crate) fn findings(recording: &Recording) -> Result<LayerFindings, StudyError> {
    let trials = recording.trials.iter();
    let trials = trials.map(|t| (t, recording.trial_folder(t.number)));
    vmtax_layers::findings(&recording.plan, &recording.host, trials).map_err(
        |error| match recording.damaged.first() {
            // It was observed, but cannot be read.
            Some(first) if matches!(error, LayersError::Unobserved) => StudyError::Damaged {
                folder: recording.folder.clone(),
                first: first.clone(),
            },
            _ => error.into(),
        },
    )
}

/// The requests of a VM that runs already, as its host traced them.
pub(crate) fn of_vm(recording: &Recording) -> Result<VmLayers, StudyError> {
    Ok(vmtax_layers::vm(
        &recording.trial_folder(0),
        &recording.host,
    )?)
}

/// No published result claims anything of a VM that runs already.
impl Evidence for VmLayers {}

impl Evidence for LayerFindings {
    fn test(&self, check: &Check, _: &HostFacts) -> Option<Tested> {
        Some(match check {
            Check::Share { layers, at_least } => {
                let Some(column) = self.columns.iter().find(|c| c.machine.has_kernel()) else {
                    return Some(Tested::untestable("no guest was observed"));
                };
                if let Some(Missing { what, why, .. }) = column.missing.first() {
                    let why = format!("not every layer was seen: {what}: {why}");
                    return Some(Tested::untestable(why));
                }
                let share = share(column, layers);
                Tested::within(share, ClaimUnit::Percent, Some(*at_least), None)
            }
            Check::Faster { variant } => {
                let difference = self.differences.iter().find(|d| d.variant == *variant);
                let Some(difference) = difference else {
                    return Some(Tested::no_value(variant));
                };
                let (verdict, why) = match difference.comparison.verdict {
                    Verdict::Faster => (ClaimVerdict::Reproduced, "of the baseline's latency"),
                    Verdict::Slower => (ClaimVerdict::NotReproduced, "of the baseline's latency"),
                    _ => (ClaimVerdict::Inconclusive, "the interval contains ×1"),
                };
                let measured = difference.comparison.ratio;
                // A higher latency is the bound's other side.
                let times = Tested::within(measured, ClaimUnit::Ratio, None, Some(1.0)).times;
                Tested {
                    times,
                    ..Tested::decided(Some(measured), ClaimUnit::Ratio, verdict, why)
                }
            }
            _ => return None,
        })
    }
}

/// The share that layers have of a request's time, percent. Its interval lies between the ends of those of the rows' means:
/// these layers at their least beside the others at their most, and the other way round.
fn share(column: &LayerColumn, layers: &[Layer]) -> Estimate {
    let rows = |own: bool| {
        let rows = column.rows.iter();
        rows.filter(move |row| layers.contains(&row.layer) == own)
    };
    let sum = |own: bool, end: fn(&Interval) -> f64| {
        let ends = rows(own).map(|row| row.mean.interval.as_ref().map(end));
        ends.sum::<Option<f64>>()
    };
    let percent =
        |own: f64, others: f64| 100.0 * own / (own + others + column.unexplained_ns.max(0.0));
    let ends = || {
        let low = percent(sum(true, |i| i.low)?, sum(false, |i| i.high)?);
        let high = percent(sum(true, |i| i.high)?, sum(false, |i| i.low)?);
        let coverage = rows(true)
            .chain(rows(false))
            .filter_map(|row| Some(row.mean.interval?.coverage));
        Some(Interval {
            low,
            high,
            coverage: coverage.reduce(f64::min)?,
        })
    };
    Estimate {
        median: rows(true).map(|row| row.percent).sum(),
        interval: ends(),
    }
}
