//! Why a running VM is slow.

use crate::analysis::StudyError;
use crate::options::{LazyHost, OptionsError, StudyOptions, duration, plan_of_vm};
use crate::reproduce::Evidence;
use clap::{Args, value_parser};
use vmtax_findings::VmDiagnosis;
use vmtax_model::{Missing, NotObserved, ObservedVm, Plan, Study, VmSamples, VmStudy, files};
use vmtax_profile::Recorded;
use vmtax_recording::Recording;
use vmtax_workload::CheckedPlan;

/// For how long a VM is observed where nothing else is asked for, s: by root, and by another user, who gets an answer in 5 s.
const OBSERVED_S: f64 = 10.0;
const OBSERVED_BY_USER_S: f64 = 4.0;

/// The options of `vmtax diagnose`.
#[derive(Debug, Args)]
#[command(
    after_help = "Reads the VM's counters, then samples its threads and counts its VM exits, then traces its disks' requests, for 10 s in \
all (4 s without root); what needs more privileges is skipped and listed. The first sentence names the largest cause of delay; \
the exact fix follows, and whether it applies live or needs a restart.
Changes nothing in the VM, except QEMU's latency histograms, which are set for 4 s and removed. A libvirt domain stays \
tainted (custom-monitor, custom-ga-command) until it is shut off. With --level 0 vmtax changes nothing and taints no domain: \
it reads what `vmtax top` reads at level 0. See docs/my-vm.md.

Examples:
  vmtax diagnose web01
  vmtax diagnose web01 --duration 30s --details
  vmtax diagnose web01 --level 0
  vmtax diagnose web01 --json | jq '.findings.causes[0]'"
)]
pub struct DiagnoseOptions {
    /// The running VM: PID, libvirt domain or UUID, Proxmox ID, QMP socket, unique part of its name
    #[arg(value_name = "VM")]
    vm: String,
    /// How long to observe it: 30s, 5m [default: 10s; 4s without root, where less is observed]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    duration: Option<f64>,
    /// What is observed: 0 counters; 1 also latency histograms; 2 also threads, VM exits and requests
    #[arg(long, value_name = "LEVEL", default_value_t = ObservedVm::ALL_LEVELS, value_parser = value_parser!(u8).range(0..=2))]
    level: u8,
}

impl StudyOptions for DiagnoseOptions {
    fn plan(&self, _: &LazyHost) -> Result<CheckedPlan, OptionsError> {
        let usual = match rustix::process::geteuid().is_root() {
            true => OBSERVED_S,
            false => OBSERVED_BY_USER_S,
        };
        let duration_s = self.duration.unwrap_or(usual);
        let mut plan = Plan::clone(&*plan_of_vm(&self.vm, duration_s, VmStudy::Diagnose)?);
        if let Study::Vm(_, vm) = &mut plan.study {
            vm.level = self.level;
        }
        Ok(CheckedPlan::new(plan)?)
    }
}

/// Returns the findings of every observer of the VM. Files of an observer that cannot be read are missing.
pub(crate) fn findings(recording: &Recording) -> Result<VmDiagnosis, StudyError> {
    let mut samples: VmSamples = recording.artifact(0, files::VM_COUNTERS)?;
    let folder = recording.trial_folder(0);
    let has = |name: &str| folder.join(name).exists();
    for name in [
        files::MISSING_PROFILE,
        files::MISSING_REQUESTS,
        files::MISSING_END,
    ] {
        if has(name) {
            let NotObserved { missing, .. } = recording.artifact(0, name)?;
            samples.missing.push(missing);
        }
    }
    if recording.manifest.ended.is_none() {
        samples.missing.push(Missing {
            what: "what was under way".to_owned(),
            why: "vmtax was killed before the diagnosis was complete".to_owned(),
            fix: "diagnose the VM again".to_owned(),
        });
    }
    let mut profile = None;
    if has(files::OBSERVED) {
        match Recorded::read(&folder) {
            Ok(recorded) => profile = Some(recorded.findings),
            Err(why) => samples
                .missing
                .push(Missing::for_error("threads and VM exits", &why)),
        }
    }
    let mut layers = None;
    if has(files::VM_TRACE) {
        match vmtax_layers::vm(&folder, &recording.host) {
            Ok(found) if found.requests.is_empty() => samples.missing.extend(found.missing),
            Ok(found) => layers = Some(found),
            Err(why) => samples
                .missing
                .push(Missing::for_error("requests by layer", &why)),
        }
    }
    let found = vmtax_analysis::diagnosis(&samples, &recording.host, profile, layers);
    let found = found.map(|found| VmDiagnosis {
        ended: has(files::MISSING_END),
        ..found
    });
    found.ok_or_else(|| StudyError::Counters {
        folder: recording.folder.clone(),
    })
}

/// No published result claims anything of a VM that runs already.
impl Evidence for VmDiagnosis {}
