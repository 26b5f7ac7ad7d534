//! Settings that make a VM faster: live ones of a running VM, which a diagnosis proposes; or those of a guest that is booted for
//! it.

use crate::analysis::StudyError;
use crate::diagnose;
use crate::options::values::milliseconds;
use crate::options::{
    LazyHost, MEMORY_HELP, OptionsError, PINNING_HELP, StudyOptions, VCPUS_HELP, plan_of_vm,
    with_help,
};
use crate::reproduce::Evidence;
use crate::tune_guest::{GuestTuneOptions, Measuring, untried};
use clap::Args;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use vmtax_findings::{TuneFindings, VmDiagnosis};
use vmtax_model::{
    Candidate, ChangeCost, LiveChange, LiveMetric, NotTried, Plan, Remedy, SettingPlace, Study,
    TuneMetric, TuneRecord, TuneSpec, VmIdentity, VmStudy, files,
};
use vmtax_recording::Recording;
use vmtax_workload::CheckedPlan;

/// Time for which a VM is diagnosed before it is tuned, s.
const DIAGNOSED_S: f64 = 10.0;
/// A remedy that can save less is not tried.
const MIN_CEILING: f64 = 0.02;
/// Time for which a running VM is measured in all, and a setting of it at a time, s.
const DURATION_S: f64 = 300.0;
const SLICE_S: f64 = 1.5;
/// Largest size of a file of measurements, bytes.
const MAX_BYTES: u64 = 1 << 30;

/// The options of `vmtax tune`.
#[derive(Debug, Args)]
#[command(
    mut_arg("machine", with_help("Type of the test guest: kvm or tcg (a Linux guest), micro-kvm or micro-tcg (a small guest without an operating system) [default: kvm if usable, else tcg]")),
    mut_arg("rounds", |arg| arg.hide(true)),
    mut_arg("cpus", with_help(VCPUS_HELP)),
    mut_arg("memory", with_help(MEMORY_HELP)),
    mut_arg("pinning", with_help(PINNING_HELP)),
    after_help = "With --vm: diagnoses the VM first (10 s, also with --dry-run, whose plan depends on it), then lists the live changes that address what it found, with the part of the VM's time that each cause takes. \
With --apply each change is made, read back, measured against the previous setting (without, with, with, without; under the VM's own load) and reverted. \
Changes that help are measured a second time, and kept if they help again; `vmtax undo` reverts to the original settings. Nothing is restarted. \
The original settings are saved before the first change: if vmtax is killed, its watchdog restores them; if that is killed, too, `vmtax undo` or the next vmtax command that measures.
Without --vm: boots test guests and searches, starting from QEMU's defaults, for settings that make WORKLOAD faster on \
this host (disk, CPU, kernel arguments, memory, TCG, file share, network). It measures each change alone, then the helpful ones combined, then the others on top of these, \
then the result on fresh boots; the reported gain comes from these boots only. The recording's directory tuned/ has the result as QEMU arguments and libvirt XML. See docs/tune.md.

Examples:
  vmtax tune -- disk rw=randwrite
  vmtax tune --from cache=writethrough -- exec ./import.sh big.csv
  vmtax tune --fio job.fio --section reads
  vmtax tune --from backend=user -- net-rr
  vmtax tune --from share.msize=8192 --metric tree.large-cold -- tree
  vmtax tune --vm web01
  vmtax tune --vm web01 --apply
  vmtax tune --vm db --apply --metric-command './transactions-per-second' --higher-is-better
  vmtax undo"
)]
pub struct TuneOptions {
    /// The running VM: PID, libvirt domain or UUID, Proxmox ID, QMP socket, unique part of its name
    #[arg(long, value_name = "VM")]
    vm: Option<String>,
    /// Make the changes, measure them, keep what helps; without it nothing is changed
    #[arg(long)]
    apply: bool,
    /// Remove limits (CPU quota, I/O limits) without asking; on a terminal --apply asks first
    #[arg(long, requires = "apply")]
    yes: bool,
    #[command(flatten)]
    measuring: Measuring,
    #[command(flatten)]
    guest: GuestTuneOptions,
}

fn live_metric(text: &str) -> Result<LiveMetric, OptionsError> {
    LiveMetric::named(text).ok_or_else(|| {
        let names: Vec<String> = LiveMetric::ALL.iter().map(ToString::to_string).collect();
        OptionsError::Usage(format!(
            "--metric '{}' is not a metric of a running VM: choose from {}",
            text.escape_default(),
            names.join(", ")
        ))
    })
}

/// Without a running VM: of a guest that is booted for it.
impl StudyOptions for TuneOptions {
    fn plan(&self, host: &LazyHost) -> Result<CheckedPlan, OptionsError> {
        self.guest.plan(host, &self.measuring)
    }

    fn traces_tuned(&self) -> bool {
        self.guest.layers
    }
}

impl TuneOptions {
    /// The plan of the diagnosis that comes first; `None` where no running VM is tuned.
    ///
    /// # Errors
    /// [`OptionsError`] for a name that stands for no VM, or for several, and options of a running VM without one.
    pub fn diagnosis(&self) -> Result<Option<CheckedPlan>, OptionsError> {
        if self.vm.is_none() && (self.apply || self.measuring.metric_command.is_some()) {
            return OptionsError::usage(
                "--apply and --metric-command are of a running VM: name it with --vm",
            );
        }
        let Some(vm) = &self.vm else {
            return Ok(None);
        };
        self.live_metric()?;
        let is_live =
            |cost: &ChangeCost| matches!(cost, ChangeCost::Live | ChangeCost::HostSetting);
        if !self.measuring.allow.iter().all(is_live) {
            return OptionsError::usage(
                "a running VM is neither replugged nor restarted: --allow takes live and host with --vm",
            );
        }
        let plan = plan_of_vm(vm, DIAGNOSED_S, VmStudy::Diagnose)?;
        match &plan.study {
            Study::Vm(_, observed) if self.apply && !vmtax_vmm::is_ours(observed.process.pid) => {
                let pid = observed.process.pid;
                OptionsError::usage(format!(
                    "--apply changes the VM of process {pid}, which belongs to another user: run vmtax as root"
                ))
            }
            _ => Ok(Some(plan)),
        }
    }

    /// Returns the metric of a running VM that is named.
    fn live_metric(&self) -> Result<Option<LiveMetric>, OptionsError> {
        self.measuring
            .metric
            .as_deref()
            .map(live_metric)
            .transpose()
    }

    /// Returns true if the user is to be asked before a limit of the VM is removed: --apply changes it, and --yes is not given.
    pub fn asks_about_limits(&self) -> bool {
        self.apply && !self.yes
    }

    /// The plan of the tuning of a running VM that a diagnosis leads to. `answers` are to changes that remove a limit, by their
    /// actions; without an answer a change is tried.
    ///
    /// # Errors
    /// [`OptionsError`] for times of nothing.
    pub fn plan_of(
        &self,
        found: &VmDiagnosis,
        answers: &BTreeMap<String, LimitAnswer>,
    ) -> Result<CheckedPlan, OptionsError> {
        let measuring = &self.measuring;
        let command = measuring.metric_command.clone();
        let command = command.map(|line| TuneMetric::Command {
            line,
            higher_is_better: measuring.higher_is_better,
        });
        let mut spec = TuneSpec {
            process: VmIdentity {
                pid: found.vm.pid,
                started: Some(found.started).filter(|started| *started > 0),
                name: found.vm.name.clone(),
            },
            apply: self.apply,
            time_ms: milliseconds(measuring.duration.unwrap_or(DURATION_S)).max(1),
            block_ms: milliseconds(measuring.slice.unwrap_or(SLICE_S)).max(1),
            metric: command.or(self.live_metric()?.map(TuneMetric::Vm)),
            candidates: Vec::new(),
            not_tried: Vec::new(),
            unobserved: found.unobserved().map(str::to_owned),
        };
        self.sort(found, &mut spec);
        settle(&mut spec, answers);
        let plan = Plan::new(
            &format!("tune-{}", spec.process.pid),
            1,
            Vec::new(),
            Vec::new(),
        );
        Ok(CheckedPlan::new(Plan {
            study: Study::Tune(Box::new(spec)),
            ..plan
        })?)
    }

    /// The remedies of the causes: those that are tried, and the others with the reason.
    fn sort(&self, found: &VmDiagnosis, spec: &mut TuneSpec) {
        for cause in &found.causes {
            let untried = |action: &str, why| NotTried {
                finding: cause.finding.clone(),
                ..untried(action.to_owned(), why)
            };
            if let Some(change) = &cause.change {
                let is_known = spec
                    .candidates
                    .iter()
                    .any(|known| known.change.settings == change.settings);
                match self.fault(change, cause.gain) {
                    Some(why) => spec.not_tried.push(untried(&change.action, why)),
                    None if is_known => {}
                    None => spec.candidates.push(Candidate {
                        rule: cause.rule.clone(),
                        finding: cause.finding.clone(),
                        ceiling: cause.gain.clamp(0.0, 1.0),
                        change: change.clone(),
                    }),
                }
            }
            let others = cause.remedies.iter();
            let mut others: Vec<&Remedy> = others
                .filter(|remedy| remedy.place != SettingPlace::Vmtax)
                .collect();
            // The change is the first remedy of its kind.
            let tried = cause.change.as_ref().map(|change| Some(change.cost));
            if let Some(first) = others.iter().position(|remedy| Some(remedy.cost) == tried) {
                others.remove(first);
            }
            spec.not_tried
                .extend(others.into_iter().map(|remedy| NotTried {
                    line: remedy.line.clone(),
                    ..untried(&remedy.action, why(remedy))
                }));
        }
    }

    /// Returns the reason why a change is not tried, which can save this part of the time.
    fn fault(&self, change: &LiveChange, gain: f64) -> Option<&'static str> {
        let is_host = change.cost == ChangeCost::HostSetting;
        let Measuring {
            allow,
            metric_command,
            ..
        } = &self.measuring;
        if change.metric.is_none() && metric_command.is_none() {
            Some(
                "the VM's own figures do not show whether it helps: `--metric-command CMD` tries it",
            )
        } else if is_host && !allow.contains(&ChangeCost::HostSetting) {
            Some("it changes the host for all its VMs: `--allow live,host` tries it")
        } else if !is_host && !allow.is_empty() && !allow.contains(&ChangeCost::Live) {
            Some("--allow does not name live")
        } else if gain > 0.0 && gain < MIN_CEILING {
            Some("it can save less than 2 % of the time")
        } else {
            None
        }
    }
}

/// Answer to whether a limit of a VM may be removed, where the user did not agree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LimitAnswer {
    /// The limit stays.
    Keep,
    /// This change, which raises the limit, is tried in place of the one that removes it.
    Raise(LiveChange),
}

/// Leaves out or replaces the changes that were answered otherwise than by yes.
fn settle(spec: &mut TuneSpec, answers: &BTreeMap<String, LimitAnswer>) {
    let not_tried = &mut spec.not_tried;
    spec.candidates.retain_mut(|candidate| {
        let action = &candidate.change.action;
        match answers.get(action) {
            Some(LimitAnswer::Keep) => {
                not_tried.push(NotTried {
                    finding: candidate.finding.clone(),
                    ..untried(action.clone(), "you chose to keep the limit")
                });
                false
            }
            Some(LimitAnswer::Raise(raised)) => {
                candidate.change.clone_from(raised);
                true
            }
            None => true,
        }
    });
}

/// Why a remedy is not tried on a running VM.
fn why(remedy: &Remedy) -> &'static str {
    match remedy.cost {
        Some(ChangeCost::VmRestart) => "needs a restart of the VM",
        Some(ChangeCost::GuestReboot) => "needs a reboot of the guest",
        Some(ChangeCost::Replug) => "needs the device to be unplugged and plugged in again",
        Some(ChangeCost::HostReboot) => "needs a reboot of the host",
        Some(ChangeCost::HostSetting) => {
            "it changes the host for all its VMs, and vmtax does not set it: set it yourself"
        }
        Some(ChangeCost::Live) => "vmtax does not set this: set it yourself",
        Some(ChangeCost::Measurement) | None => "needs your decision",
    }
}

/// Returns the findings of a diagnosis.
///
/// # Errors
/// [`StudyError`] where it cannot be read.
pub fn diagnosed(recording: &Recording) -> Result<VmDiagnosis, StudyError> {
    diagnose::findings(recording)
}

/// Returns the findings of the measurements.
pub(crate) fn findings(recording: &Recording, spec: &TuneSpec) -> Result<TuneFindings, StudyError> {
    let path = recording.trial_folder(0).join(files::TUNE);
    let unread = |why: String| StudyError::Measurements {
        path: path.clone(),
        why,
    };
    let file = File::open(&path).map_err(|e| unread(e.to_string()))?;
    let mut records: Vec<TuneRecord> = Vec::new();
    for line in BufReader::new(file.take(MAX_BYTES)).lines() {
        let line = line.map_err(|e| unread(e.to_string()))?;
        match serde_json::from_str(&line) {
            Ok(record) => records.push(record),
            // A kill leaves half a line at the end.
            Err(_) if !records.is_empty() => break,
            Err(e) => return Err(unread(e.to_string())),
        }
    }
    let has_candidates =
        |numbers: &[usize]| numbers.iter().all(|number| *number < spec.candidates.len());
    let is_sound = records.iter().all(|record| match record {
        TuneRecord::Pair { plan, .. } => {
            has_candidates(&plan.changed) && has_candidates(&plan.base)
        }
        TuneRecord::Kept { candidates } => has_candidates(candidates),
        TuneRecord::Refused { candidate, .. } => has_candidates(&[*candidate]),
        _ => true,
    });
    let found = is_sound
        .then(|| vmtax_analysis::tune(spec, &records))
        .flatten();
    found.ok_or_else(|| unread("it is not of this plan".to_owned()))
}

/// No published result claims anything of a VM that runs already.
impl Evidence for TuneFindings {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_kept_or_raised_as_it_was_answered() {
        let change = |action: &str| LiveChange {
            action: action.to_owned(),
            cost: ChangeCost::Live,
            metric: None,
            disk: None,
            settings: Vec::new(),
        };
        let candidate = |action: &str| Candidate {
            rule: "vm-throttled".to_owned(),
            finding: String::new(),
            ceiling: 0.5,
            change: change(action),
        };
        let mut spec = TuneSpec {
            process: VmIdentity {
                pid: 1,
                started: Some(1),
                name: None,
            },
            apply: true,
            time_ms: 1,
            block_ms: 1,
            metric: None,
            candidates: ["Remove a", "Remove b", "Remove c"].map(candidate).to_vec(),
            not_tried: Vec::new(),
            unobserved: None,
        };
        let answers = [
            ("Remove a".to_owned(), LimitAnswer::Keep),
            (
                "Remove b".to_owned(),
                LimitAnswer::Raise(change("Double b")),
            ),
        ];
        settle(&mut spec, &answers.into_iter().collect());
        let tried = spec.candidates.iter().map(|one| &*one.change.action);
        assert_eq!(tried.collect::<Vec<_>>(), ["Double b", "Remove c"]);
        assert_eq!(spec.not_tried[0].action, "Remove a");
    }
}
