//! The options of a tuning of a guest, and the plan that they mean.

use super::candidates::{Settings, TuneTarget, candidates, defaults, uncovered, untried};
use super::like;
use crate::options::{
    CommonOptions, FioOptions, LazyHost, OptionsError, argv_of_exec, command_here, duration,
    named_workloads, on_host, root_share, settings,
};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use vmtax_configuration::{Twin, twin};
use vmtax_model::{
    ChangeCost, CommandSpec, Guest, GuestCandidate, GuestTuneSpec, HostFacts, KvmClass, Machine,
    Metric, NotTried, Pinning, Plan, QemuFacts, Study, Tree, Variant, WithCommand, WorkloadName,
    WorkloadSpec,
};
use vmtax_workload::{BlockWork, CheckedPlan, Preset, block_work, fio_requests};

/// Time of all measurements, s.
const DURATION_S: f64 = 900.0;
/// Time for which a workload runs in each boot, s.
const SLICE_S: f64 = 1.0;
/// The disk that a command's writes go to: a sparse file.
const SCRATCH_MIB: u32 = 4096;
/// The tree of workloads of a share.
const TREE: Tree = Tree {
    files: 200,
    bytes: 200 * Tree::SMALL + (8 << 20),
    path: None,
};

/// What `vmtax tune` takes for a guest that it boots.
#[derive(Debug, Args)]
pub struct GuestTuneOptions {
    /// Without --vm: the workload to tune for, with its options, or exec CMD ARGS; vmtax boots test guests to run it
    /// [default: disk rw=randread]
    #[arg(value_name = "WORKLOAD", conflicts_with = "vm")]
    words: Vec<String>,
    /// Start from the configuration of this VM, which itself is not touched: a running VM, a libvirt domain, a file with
    /// its XML, or a QEMU command line in quotes. The test guest has empty disks of the same size and format
    #[arg(long, value_name = "VM|XML|CMD", conflicts_with = "vm")]
    like: Option<String>,
    /// Disk of that VM to tune: vda, or the ID of its device [default: the first]
    #[arg(long, value_name = "DISK", requires = "like")]
    disk: Option<String>,
    #[command(flatten)]
    fio: FioOptions,
    /// Settings to start with instead of QEMU's defaults: KEY=VALUE[,KEY=VALUE...], as a variant of `vmtax compare`; may
    /// be repeated
    #[arg(long, value_name = "KEY=VALUE", conflicts_with = "vm")]
    from: Vec<String>,
    /// Also try settings that lose data when the host crashes (cache=unsafe) or weaken the guest's security (mitigations=off)
    #[arg(long = "unsafe", conflicts_with = "vm")]
    risks_data: bool,
    /// For exec CMD: continue if CMD fails, and count its failing runs; otherwise its first failure ends the run
    #[arg(long, conflicts_with = "vm")]
    ignore_failure: bool,
    /// For the workload `disk`, if a change is kept: trace the requests of the guest without and with it in one more run, to show
    /// which layer's time changed
    #[arg(long, conflicts_with = "vm")]
    pub(crate) layers: bool,
    #[command(flatten)]
    common: CommonOptions,
}

impl GuestTuneOptions {
    /// The plan of a tuning.
    ///
    /// # Errors
    /// [`OptionsError`] for several workloads or machines, a metric that the workload does not give, and settings of another form.
    pub(crate) fn plan(
        &self,
        host: &LazyHost,
        how: &Measuring,
    ) -> Result<CheckedPlan, OptionsError> {
        if self.common.measurement.rounds.is_some() {
            return OptionsError::usage("`tune` takes no --rounds: limit it with --duration");
        }
        if self.fio.is_given() && !self.words.is_empty() {
            return OptionsError::usage("--fio names the workload: leave the other one out");
        }
        let job = self.fio.work(how.slice.unwrap_or(SLICE_S))?;
        let workload = match (&job, self.argv()) {
            (Some(job), _) => job.workload.clone(),
            (None, Some(_)) => WorkloadSpec::new(WorkloadName::Exec),
            (None, None) => self.workload(how.slice)?,
        };
        let is_rated = job.as_ref().is_some_and(|job| job.is_rated);
        let metric = metric(&workload, how.metric.as_deref(), is_rated)?;
        self.check_workload(workload.name)?;
        let work = requests(&workload)?;
        let allowed = how.allowed();
        let named = self.named(&allowed)?;
        let twin_of = |like: &String| twin(like, self.disk.as_deref());
        let mut like = self.like.as_ref().map(twin_of).transpose()?;
        let (baseline, command) = self.baseline(workload.name, like.as_ref(), &named)?;
        let spec = GuestTuneSpec {
            metric,
            budget_s: how.budget_s(),
            candidates: Vec::new(),
            not_tried: Vec::new(),
            like: None,
            job_notes: job.map_or_else(Vec::new, |job| job.notes),
            parts: Vec::new(),
        };
        let frame = frame(spec, command, &workload, &baseline);
        let machine = self.machine_on(host, like.as_ref(), &frame)?;
        let guest = like
            .as_mut()
            .map_or_else(Guest::default, |twin| like::guest(twin, machine));
        let has_small_image = size_image(like.as_mut(), work.as_ref());
        let tuning = Tuning {
            options: self,
            host,
            allowed,
            like,
            machine,
            guest,
            workload: workload.name,
            work,
            has_small_image,
            named,
            baseline: &baseline,
        };
        self.common.complete(tuning.plan(frame))
    }

    /// Returns the machine of the guest on this host, which is probed after the plan without its changes, `frame`, was checked.
    fn machine_on(
        &self,
        host: &LazyHost,
        like: Option<&Twin>,
        frame: &Plan,
    ) -> Result<Machine, OptionsError> {
        on_host(host, |class| {
            let machines = vec![self.machine(like, class.default_guest())?];
            self.common.complete(Plan {
                machines,
                ..frame.clone()
            })
        })?;
        self.machine(like, host.kvm.class.default_guest())
    }

    /// Returns the machine that the user named, else the twin's, or the default.
    fn machine(&self, like: Option<&Twin>, usual: Machine) -> Result<Machine, OptionsError> {
        match self.common.measurement.machine.as_deref() {
            None => Ok(like.map_or(usual, |twin| like::machine(twin, usual))),
            Some([one]) if one.is_guest() => Ok(*one),
            Some(_) => OptionsError::usage(
                "`tune` measures one guest: select it with --machine, as kvm or tcg",
            ),
        }
    }

    /// Returns the words of a command; `None` for other workloads.
    fn argv(&self) -> Option<&[String]> {
        argv_of_exec(&self.words)
    }

    /// Checks that the workload is one that --layers and --like are for.
    fn check_workload(&self, workload: WorkloadName) -> Result<(), OptionsError> {
        let is_disk = workload == WorkloadName::Disk;
        if self.layers && !is_disk {
            return OptionsError::usage(
                "--layers traces the requests of the workload disk alone: write `-- disk`",
            );
        }
        if self.like.is_some() && !workload.needs_disk() && self.argv().is_none() {
            return OptionsError::usage(
                "--like copies the disk of a VM: use it with disk, --fio JOB or exec CMD",
            );
        }
        Ok(())
    }

    /// Returns the baseline, which has the settings that are `named` above all others, and the command.
    fn baseline(
        &self,
        workload: WorkloadName,
        like: Option<&Twin>,
        named: &Settings,
    ) -> Result<(Variant, Option<Box<CommandSpec>>), OptionsError> {
        let mut baseline = Variant {
            name: GuestTuneSpec::BASELINE.to_owned(),
            set: defaults(workload),
        };
        let of_twin = like.iter().flat_map(|twin| twin.disk.set.clone());
        baseline.set.extend(of_twin);
        let command = match self.argv() {
            Some(argv) => Some(command(argv, self.ignore_failure, &mut baseline)?),
            None => None,
        };
        if workload.needs_host_program() {
            baseline.set.extend(root_share(None)?.set);
        }
        if named.contains_key("share") {
            baseline.set.retain(|key, _| !key.starts_with("share."));
        }
        baseline.set.extend(named.clone());
        Ok((baseline, command))
    }

    /// The settings that the user named.
    fn named(&self, allowed: &[ChangeCost]) -> Result<Settings, OptionsError> {
        let named = settings(&self.from, "KEY=VALUE, as in --from cache=writethrough")?;
        let is_of_machine = |key: &str| ["machine", "cpus", "memory-mib"].contains(&key);
        if let Some(key) = named.keys().find(|key| is_of_machine(key)) {
            return OptionsError::usage(format!(
                "--from {key} is what the guest is: use --{}",
                key.replace("-mib", "")
            ));
        }
        let of_host = named.keys().find(|key| key.starts_with(Variant::OF_HOST));
        match of_host.filter(|_| !allowed.contains(&ChangeCost::HostSetting)) {
            Some(key) => OptionsError::usage(format!(
                "--from {} changes the host while its guests run: allow it with --allow restart,host",
                key.escape_default()
            )),
            None => Ok(named),
        }
    }

    /// The workload, by the words.
    fn workload(&self, slice: Option<f64>) -> Result<WorkloadSpec, OptionsError> {
        let words = match self.words.as_slice() {
            [] => ["disk", "rw=randread"].map(str::to_owned).to_vec(),
            words => words.to_vec(),
        };
        let named = named_workloads(&words, Preset::Quick, [], Some(slice.unwrap_or(SLICE_S)))?;
        match named.as_slice() {
            [one] => Ok(one.clone()),
            _ => OptionsError::usage(
                "a guest is tuned for one workload or a command: `vmtax tune -- disk rw=randwrite`, `vmtax tune -- exec CMD`",
            ),
        }
    }
}

/// A guest's tuning, of which the plan is made.
struct Tuning<'a> {
    options: &'a GuestTuneOptions,
    host: &'a HostFacts,
    /// Costs of applying a change that are allowed.
    allowed: Vec<ChangeCost>,
    /// The VM whose twin the guest is.
    like: Option<Twin>,
    machine: Machine,
    guest: Guest,
    workload: WorkloadName,
    /// The block requests; `None` for other workloads.
    work: Option<BlockWork>,
    /// True if the L2 cache covers the twin's image, but not the original's, of which a workload that writes gets a part.
    has_small_image: bool,
    /// The settings that the user named.
    named: Settings,
    baseline: &'a Variant,
}

/// Returns the plan without a machine and the changes to try.
fn frame(
    spec: GuestTuneSpec,
    command: Option<Box<CommandSpec>>,
    workload: &WorkloadSpec,
    baseline: &Variant,
) -> Plan {
    let study = Study::TuneGuest(WithCommand {
        settings: Box::new(spec),
        command,
    });
    Plan {
        study,
        tree: workload.name.needs_share().then_some(TREE),
        variants: vec![baseline.clone()],
        ..Plan::new("tune", 1, Vec::new(), vec![workload.clone()])
    }
}

impl Tuning<'_> {
    /// Returns the plan; it tries changes until the time is used up.
    fn plan(self, mut frame: Plan) -> Plan {
        let (candidates, not_tried) = self.changes();
        if let Study::TuneGuest(tune) = &mut frame.study {
            let spec = &mut tune.settings;
            (spec.candidates, spec.not_tried) = (candidates, not_tried);
            spec.like = self.like.map(like::notes);
        }
        Plan {
            guest: self.guest,
            machines: vec![self.machine],
            ..frame
        }
    }

    /// Returns the changes to try on the baseline, and what is not tried.
    fn changes(&self) -> (Vec<GuestCandidate>, Vec<NotTried>) {
        // One that cannot be used is an error of the run, with its reason.
        let qemu = self
            .baseline
            .qemu()
            .or(self.options.common.guest.qemu.as_deref())
            .or(self.guest.qemu.as_deref());
        let of_guest = qemu.and_then(|named| vmtax_host::best_qemu(Some(named)).ok());
        let qemus = self.host.qemu.iter().cloned();
        let qemus: Vec<_> = qemus.chain(vmtax_host::fetched_qemus()).collect();
        let target = self.tune_target(of_guest.as_ref().or(self.host.qemu.first()), &qemus);
        let (mut candidates, mut not_tried) = candidates(&target, &self.baseline.set);
        let most = GuestTuneSpec::MAX_CANDIDATES;
        for more in candidates.drain(most.min(candidates.len())..) {
            let why = format!("`tune` tries at most {most} changes");
            not_tried.push(untried(more.name, why));
        }
        if self.has_small_image {
            let why = "a workload that writes would fill an image of the original's size, and the L2 cache covers the scratch image: tune \
                       for reads";
            not_tried.push(untried("l2-cache-size".to_owned(), why));
        }
        (candidates, not_tried)
    }

    /// Returns the guest, workload and host that changes are tried on; `qemu` is the guest's.
    fn tune_target<'t>(
        &'t self,
        qemu: Option<&'t QemuFacts>,
        qemus: &'t [QemuFacts],
    ) -> TuneTarget<'t> {
        let (guest, of_options) = (&self.guest, &self.options.common.guest.settings);
        TuneTarget {
            qemu,
            qemus,
            machine: self.machine,
            cpus: of_options.cpus.unwrap_or(guest.cpus),
            is_pinned: matches!(
                of_options.pinning.or(guest.pinning),
                None | Some(Pinning::Split)
            ),
            cpu_model: self
                .baseline
                .get("cpu-model")
                .or(of_options.cpu_model.as_deref())
                .or(guest.cpu_model.as_deref()),
            host_cpus: std::thread::available_parallelism().map_or(1, |count| count.get() as u32),
            has_hardware_kvm: self.host.kvm.class == KvmClass::Hardware,
            has_huge_pages: has_huge_pages(of_options.memory.unwrap_or(guest.memory_mib)),
            has_large_sectors: has_large_sectors(),
            host_fault: vmtax_vm::host_setting_fault,
            workload: self.workload,
            command: self.options.argv().unwrap_or_default(),
            requests: self.work.as_ref(),
            size: self.like.as_ref().and_then(|twin| twin.disk.size),
            risks_data: self.options.risks_data,
            allowed: &self.allowed,
            named: &self.named,
        }
    }
}

/// Returns the block requests that a workload makes, as far as its options tell; `None` of other workloads.
fn requests(workload: &WorkloadSpec) -> Result<Option<BlockWork>, OptionsError> {
    Ok(match workload.name {
        WorkloadName::Disk => Some(block_work(workload)?),
        WorkloadName::Fio => Some(fio_requests(workload)?),
        _ => None,
    })
}

/// Gives a twin's image the size that suits the workload's requests. Returns true if its L2 cache does not cover the original's,
/// but the workload writes.
fn size_image(like: Option<&mut Twin>, work: Option<&BlockWork>) -> bool {
    // A command writes to the disk.
    let writes = work.is_none_or(|work| work.write);
    let is_uncovered = like
        .as_ref()
        .is_some_and(|twin| uncovered(&twin.disk.set, twin.disk.size).is_some());
    if let Some(twin) = like {
        like::size(twin, is_uncovered, writes);
    }
    is_uncovered && writes
}

/// Returns true if huge pages for a guest's memory are free.
fn has_huge_pages(memory_mib: u32) -> bool {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let number = |key| vmtax_host::meminfo(&text, key).unwrap_or(0);
    number("HugePages_Free").saturating_mul(number("Hugepagesize")) >> 10 >= u64::from(memory_mib)
}

/// Returns true if a disk of the host has sectors of 4 KiB alone.
fn has_large_sectors() -> bool {
    let disks = std::fs::read_dir("/sys/block")
        .into_iter()
        .flatten()
        .flatten();
    // Not those in memory, or on files.
    let disks = disks.filter(|disk| disk.path().join("device").exists());
    let mut sizes = disks.filter_map(|disk| {
        std::fs::read_to_string(disk.path().join("queue/logical_block_size")).ok()
    });
    sizes.any(|size| size.trim() == "4096")
}

/// Costs of applying a change, by their names in --allow.
const COSTS: [(&str, ChangeCost); 5] = [
    ("live", ChangeCost::Live),
    ("replug", ChangeCost::Replug),
    ("guest-reboot", ChangeCost::GuestReboot),
    ("restart", ChangeCost::VmRestart),
    ("host", ChangeCost::HostSetting),
];

/// Returns the parser of a cost's name.
fn cost() -> impl TypedValueParser<Value = ChangeCost> {
    let parser = PossibleValuesParser::new(COSTS.map(|(name, _)| name));
    parser.try_map(|name| {
        let known = COSTS.iter().find(|(known, _)| *known == name);
        known.map(|(_, cost)| *cost).ok_or("no such cost")
    })
}

/// What may be changed, what decides, and for how long is measured: of both kinds of tuning.
#[derive(Debug, Args)]
pub struct Measuring {
    /// Kinds of changes to try, comma separated: live (without interruption), replug (unplugs a device and plugs it in
    /// again), guest-reboot, restart (of the VM), host (settings of the host, for all its VMs). For a running VM only
    /// live and host are possible [default: live
    /// for a running VM, else all except host]
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        hide_possible_values = true,
        value_parser = cost()
    )]
    pub allow: Vec<ChangeCost>,
    /// Metric to optimize. With --vm: latency (of disk requests), write-latency (time per write, with its flushes),
    /// requests (IOPS of the disks), throughput (of the disks), run (%RUN, the CPU time that the vCPUs get: more is better) or
    /// exits (VM exits per second) [default: the
    /// metric that each change targets]; without --vm: one of the workload's metrics, for example syscalls.getpid
    #[arg(long, value_name = "METRIC")]
    pub metric: Option<String>,
    /// Command that measures the metric: it is run for each measurement, and the last number in its output is the metric;
    /// lower is better
    #[arg(long, value_name = "CMD", conflicts_with = "metric")]
    pub metric_command: Option<String>,
    /// A higher number from --metric-command is better
    #[arg(long, requires = "metric_command")]
    pub higher_is_better: bool,
    /// Total measurement time: 300s, 10m [default: 300s with --vm, else 15m]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub duration: Option<f64>,
    /// Length of each measurement of a setting [default: 1.5s with --vm, else 1s in each boot]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub slice: Option<f64>,
}

impl Measuring {
    /// Returns the time of all measurements of a test guest, s.
    fn budget_s(&self) -> u32 {
        let seconds = self.duration.unwrap_or(DURATION_S).ceil();
        seconds.clamp(1.0, f64::from(u32::MAX)) as u32
    }

    /// Returns the costs of applying a change of a guest that are allowed: all that the user names, else all except the host's.
    fn allowed(&self) -> Vec<ChangeCost> {
        match self.allow.as_slice() {
            [] => COSTS
                .iter()
                .map(|(_, cost)| *cost)
                .filter(|cost| *cost != ChangeCost::HostSetting)
                .collect(),
            named => named.to_vec(),
        }
    }
}

/// Metrics that decide where none is named.
const USUAL_METRICS: [Metric; 6] = [
    Metric::DiskRate,
    Metric::FioRate,
    Metric::ExecWall,
    Metric::NetRrRate,
    Metric::NetPpsReceived,
    Metric::MemoryBandwidth,
];

/// The figure that decides: the one that is named, else the workload's rate or wall time, else its only one.
///
/// `is_rated`: the workload keeps a rate, so that its latency decides.
fn metric(
    workload: &WorkloadSpec,
    named: Option<&str>,
    is_rated: bool,
) -> Result<Metric, OptionsError> {
    let name = workload.name;
    let all: Vec<Metric> = name.metrics().collect();
    let ids: Vec<&str> = all.iter().map(|metric| metric.id()).collect();
    let ids = ids.join(", ");
    if let Some(id) = named {
        let metric = all.iter().find(|metric| metric.id() == id);
        return metric.copied().ok_or_else(|| {
            OptionsError::Usage(format!(
                "--metric '{}' is not a metric of {name}: choose from {ids}",
                id.escape_default()
            ))
        });
    }
    if is_rated {
        return Ok(Metric::FioMean);
    }
    // Of the system calls those that are measured.
    let measured = workload.options.get("only").map(String::as_str);
    let only = all.iter().find(|metric| {
        metric
            .operation()
            .is_some_and(|call| Some(call) == measured)
    });
    let usual = all.iter().find(|metric| USUAL_METRICS.contains(metric));
    match (all.as_slice(), only.or(usual)) {
        ([one], _) | (_, Some(one)) => Ok(*one),
        ([], None) => OptionsError::usage(format!("{name} has no metric to tune for")),
        _ => OptionsError::usage(format!(
            "{name} has several metrics: select one with --metric: {ids}"
        )),
    }
}

/// The command of `exec CMD ARGS`, whose writes go to the disk that is tuned.
fn command(
    argv: &[String],
    ignore_failure: bool,
    baseline: &mut Variant,
) -> Result<Box<CommandSpec>, OptionsError> {
    if argv.is_empty() {
        return OptionsError::usage("name the command, as in `vmtax tune -- exec make -j2`");
    }
    baseline.set.extend(root_share(None)?.set);
    Ok(Box::new(CommandSpec {
        scratch_mib: Some(SCRATCH_MIB),
        ignore_failure,
        ..command_here(argv)?
    }))
}
