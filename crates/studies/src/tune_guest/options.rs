//! The options of a tuning of a guest, and the plan that they mean.

use super::candidates::{Tuned, candidates, defaults, uncovered};
use super::fio::{self, Job};
use super::like;
use crate::exec::root_share;
use crate::options::{CommonOptions, OptionsError, named_workloads, settings};
use clap::Args;
use std::path::PathBuf;
use vmtax_model::{
    CommandSpec, Guest, GuestTune, GuestTuneSpec, HostFacts, Metric, NotTried, Plan, Study, Variant, WorkloadName,
    WorkloadSpec,
};
use vmtax_vm::twin;
use vmtax_workload::{CheckedPlan, Preset, block_work};

/// How long to measure in all, s.
const DURATION_S: f64 = 900.0;
/// How long a workload runs in each boot, s.
const BLOCK_S: f64 = 1.0;
/// The disk that a command's writes go to: a sparse file.
const SCRATCH_MIB: u32 = 4096;

/// What `vmtax tune` takes for a guest that it boots.
#[derive(Debug, Args)]
pub struct GuestTuneOptions {
    /// Without --vm: what a guest that is booted for it is tuned for: disk with its options, or exec CMD ARGS
    /// [default: disk rw=randread]
    #[arg(value_name = "WORKLOAD", conflicts_with = "vm")]
    words: Vec<String>,
    /// Begin with a twin of this VM: a running VM, a libvirt domain, a file with its XML, or a QEMU command line in quotes
    #[arg(long, value_name = "VM|XML|CMD", conflicts_with = "vm")]
    like: Option<String>,
    /// The disk of that VM that is tuned, as vda or the ID of its device [default: the first]
    #[arg(long, value_name = "DISK", requires = "like")]
    disk: Option<String>,
    /// Take the block requests of this fio job file in place of WORKLOAD; what they cannot do is refused by its name
    #[arg(long, value_name = "FILE", conflicts_with_all = ["vm", "words"])]
    fio: Option<PathBuf>,
    /// Setting of the disk to begin with, in place of QEMU's default: KEY=VALUE; may be repeated
    #[arg(long, value_name = "KEY=VALUE", conflicts_with = "vm")]
    from: Vec<String>,
    /// Also try what loses data when the host fails (cache=unsafe)
    #[arg(long = "unsafe", conflicts_with = "vm")]
    risks_data: bool,
    #[command(flatten)]
    common: CommonOptions,
}

impl GuestTuneOptions {
    /// The plan; `duration` in all and `block` of a workload in each boot, s.
    ///
    /// # Errors
    /// [`OptionsError`] for another workload, several machines, and settings of another form.
    pub(crate) fn plan(
        &self,
        host: &HostFacts,
        duration: Option<f64>,
        block: Option<f64>,
    ) -> Result<CheckedPlan, OptionsError> {
        if self.common.measurement.rounds.is_some() {
            return OptionsError::usage("a tuning takes as many rounds as it needs: bound it with --duration");
        }
        let mut like = self.like.as_ref().map(|like| twin(like, self.disk.as_deref())).transpose()?;
        let usual = host.default_guest();
        let machine = match self.common.measurement.machine.as_deref() {
            None => like.as_ref().map_or(usual, |twin| like::machine(twin, usual)),
            Some([one]) if one.is_guest() => *one,
            Some(_) => return OptionsError::usage("a tuning is of one guest: name one with --machine, as kvm or tcg"),
        };
        let guest = like.as_mut().map_or_else(Guest::default, |twin| like::guest(twin, machine));
        let job = self.fio.as_deref().map(fio::job).transpose()?;
        let is_command = self.words.first().is_some_and(|first| first.parse() == Ok(WorkloadName::Exec));
        let requests = if is_command { None } else { Some(self.requests(job.as_ref(), block)?) };
        let work = requests.as_ref().map(block_work).transpose()?;
        // A command writes to the disk.
        let writes = work.as_ref().is_none_or(|work| work.write);
        let is_uncovered = like.as_ref().is_some_and(|twin| uncovered(&twin.disk.set, twin.disk.size).is_some());
        if let Some(twin) = &mut like {
            like::size(twin, is_uncovered, writes);
        }
        let mut baseline = Variant { name: GuestTuneSpec::BASELINE.to_owned(), set: defaults() };
        baseline.set.extend(like.iter().flat_map(|twin| twin.disk.set.clone()));
        baseline.set.extend(settings(&self.from, "KEY=VALUE, as in --from cache=writethrough")?);
        let disk = baseline.disk();
        if let Some(other) = baseline.set.keys().find(|key| !disk.contains_key(*key)) {
            return OptionsError::usage(format!(
                "--from is of the disk's settings, which {} is not: use the guest's own options",
                other.escape_default()
            ));
        }
        let command = match self.words.split_first() {
            Some((first, argv)) if first.parse() == Ok(WorkloadName::Exec) => Some(command(argv, &mut baseline)?),
            _ => None,
        };
        let (workload, metric) = match command {
            Some(_) => (WorkloadSpec::new(WorkloadName::Exec), Metric::ExecWall),
            None => (requests.unwrap_or_else(|| WorkloadSpec::new(WorkloadName::Disk)), Metric::DiskRate),
        };
        // One that cannot be used is an error of the run, with its reason.
        let qemu = self.common.guest.qemu.as_deref().or(guest.qemu.as_deref());
        let named = qemu.and_then(|named| vmtax_host::best_qemu(Some(named)).ok());
        let tuned = Tuned {
            qemu: named.as_ref().or(host.qemu.first()),
            machine,
            cpus: self.common.guest.settings.cpus.unwrap_or(guest.cpus),
            requests: work.as_ref(),
            size: like.as_ref().and_then(|twin| twin.disk.size),
            risks_data: self.risks_data,
        };
        let (candidates, mut not_tried) = candidates(&tuned, &disk);
        if is_uncovered && writes {
            let why = "a workload that writes would fill an image of the original's size, and the twin's is covered by its cache: tune \
                       for reads";
            not_tried.push(NotTried { action: "l2-cache-size".to_owned(), line: String::new(), why: why.to_owned() });
        }
        let budget_s = duration.unwrap_or(DURATION_S).ceil().clamp(1.0, f64::from(u32::MAX)) as u32;
        let job_notes = job.map_or_else(Vec::new, |job| job.notes);
        let spec = GuestTuneSpec {
            metric,
            budget_s,
            candidates,
            not_tried,
            like: like.map(like::notes),
            job_notes,
            parts: Vec::new(),
        };
        let study = Study::TuneGuest(GuestTune { spec: Box::new(spec), command });
        let plan = Plan::new("tune", 1, vec![machine], vec![workload]);
        self.common.complete(Plan { study, guest, variants: vec![baseline], ..plan })
    }

    /// The block requests, by the words or the fio `job`.
    fn requests(&self, job: Option<&Job>, block: Option<f64>) -> Result<WorkloadSpec, OptionsError> {
        let words = match self.words.as_slice() {
            [] if job.is_some() => job.map_or_else(Vec::new, |job| job.words.clone()),
            [] => ["disk", "rw=randread"].map(str::to_owned).to_vec(),
            words => words.to_vec(),
        };
        let named = named_workloads(&words, Preset::Quick, [], Some(block.unwrap_or(BLOCK_S)))?;
        match named.as_slice() {
            [one] if one.name == WorkloadName::Disk => Ok(one.clone()),
            _ => OptionsError::usage(
                "a disk is tuned for block requests or a command: `vmtax tune -- disk rw=randwrite`, `vmtax tune -- exec CMD`",
            ),
        }
    }
}

/// The command of `exec CMD ARGS`, whose writes go to the disk that is tuned.
fn command(argv: &[String], baseline: &mut Variant) -> Result<Box<CommandSpec>, OptionsError> {
    if argv.is_empty() {
        return OptionsError::usage("name the command, as in `vmtax tune -- exec make -j2`");
    }
    baseline.set.extend(root_share(None)?.set);
    let directory = std::env::current_dir().map_err(|e| OptionsError::file("the working directory", e))?;
    Ok(Box::new(CommandSpec { scratch_mib: Some(SCRATCH_MIB), ..CommandSpec::new(argv.to_vec(), directory) }))
}
