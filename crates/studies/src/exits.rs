//! Costs of one VM exit, by cause; and of avoidable work in guest kernels, as evidence for claims.

use crate::analysis::{Analysis, StudyError, found};
use crate::options::{
    CommonOptions, LazyHost, MEMORY_HELP, OptionsError, RunningVmOptions, StudyOptions, with_help,
};
use crate::reproduce::{Check, Evidence, Tested};
use clap::Args;
use vmtax_findings::{AntipatternFindings, AntipatternRow, ClaimUnit, ExitFindings, VmExits};
use vmtax_model::{HostFacts, KvmClass, Plan, VmStudy};
use vmtax_recording::Recording;
use vmtax_report as page;
use vmtax_workload::CheckedPlan;

/// A fresh QEMU each: what one of them had by luck counts once.
const ROUNDS: u32 = 3;

/// The options of `vmtax exits`.
#[derive(Debug, Args)]
#[command(
    mut_arg("rounds", with_help("Rounds, each with a new QEMU [default: 3]")),
    mut_arg(
        "machine",
        with_help(
            "Where to measure, comma separated: micro-kvm or micro-tcg (a small test guest without an operating system) [default: both; without KVM micro-tcg]"
        )
    ),
    // A micro-guest has no kernel and one vCPU.
    mut_arg("kernel", |a| a.hide(true)),
    mut_arg("modules", |a| a.hide(true)),
    mut_arg("kernel_args", |a| a.hide(true)),
    mut_arg("cpus", |a| a.hide(true)),
    mut_arg("memory", with_help(MEMORY_HELP)),
    mut_arg("vm", |vm| vm.conflicts_with("count")),
    after_help = "Measures port I/O, MMIO, cpuid, MSR accesses, halt and wake-up, end of interrupt and interrupt injection, \
each exit timed; micro-tcg has no exits: there vmtax times QEMU's emulation of the same operations. It takes seconds.
With --vm, as root: counts the exits of a running KVM guest instead, by reason, device and address, with their times.

Examples:
  vmtax exits
  vmtax exits --machine micro-kvm --count 100000 --json
  vmtax exits --vm web01"
)]
pub struct ExitsOptions {
    /// Exits of each kind in a round
    #[arg(long, value_name = "N", default_value_t = 5000)]
    count: u32,
    #[command(flatten)]
    common: CommonOptions,
    #[command(flatten)]
    running: RunningVmOptions,
}

impl StudyOptions for ExitsOptions {
    fn plan(&self, host: &LazyHost) -> Result<CheckedPlan, OptionsError> {
        if let Some(plan) = self.running.plan(VmStudy::VmExits) {
            return plan;
        }
        let workloads = vec![vmtax_workload::exits(self.count)];
        let mut plan = Plan::new("exits", ROUNDS, Vec::new(), workloads);
        self.common.measurement.replace_machines(&mut plan);
        let default = |class: KvmClass| class.micro_guests().to_vec();
        self.common.complete_on(host, default, plan)
    }
}

/// Returns the costs of one VM exit in a recording, by cause: the report and JSON are of the findings alone.
pub(crate) fn analysis(recording: &Recording) -> Box<dyn Analysis + '_> {
    let manifest = &recording.manifest;
    let findings = vmtax_analysis::exits(
        &recording.plan,
        &recording.host,
        &recording.trials,
        &manifest.vmtax,
        &manifest.command,
        &manifest.started,
    );
    found(
        recording,
        findings,
        |_, f| page::exits::report(f),
        |_, f| page::findings_json(f),
    )
}

/// The exits of a VM that runs already.
pub(crate) fn of_vm(recording: &Recording) -> Result<VmExits, StudyError> {
    Ok(vmtax_profile::vm_exits(&recording.trial_folder(0))?)
}

/// No published result claims anything of them.
impl Evidence for ExitFindings {}

/// No published result claims anything of a running VM's exits.
impl Evidence for VmExits {}

impl Evidence for AntipatternFindings {
    fn test(&self, check: &Check, host: &HostFacts) -> Option<Tested> {
        let (Check::Antipattern {
            antipattern,
            machine,
            ..
        }
        | Check::Spared {
            antipattern,
            machine,
            ..
        }) = check
        else {
            return None;
        };
        let rows = self
            .machines
            .iter()
            .find(|m| m.machine == *machine)
            .map(|m| &m.rows);
        let Some(row) =
            rows.and_then(|rows| rows.iter().find(|row| row.antipattern == *antipattern))
        else {
            return Some(Tested::absent(*machine, host));
        };
        if row.emulated {
            let why = "it needs a guest at CPL 0, which this host's KVM emulates; the micro-guest's other operations run at CPL 3";
            return Some(Tested::untestable(why));
        }
        Some(match check {
            Check::Antipattern { at_least, .. } => match row.ratio {
                Some(ratio) => Tested::at_least(ratio, *at_least),
                None => Tested::untestable(row.why.clone()),
            },
            Check::Spared { at_least, .. } => spared(row, *at_least),
            _ => return None,
        })
    }
}

/// Compares the number of VM exits that the fix saves with the claimed minimum.
fn spared(row: &AntipatternRow, at_least: f64) -> Tested {
    match row.exits_saved {
        Some(saved) => Tested::within(saved, ClaimUnit::Count, Some(at_least), None),
        None if !row.why.is_empty() => Tested::untestable(row.why.clone()),
        None => Tested::untestable("this QEMU does not tell KVM's counters: it takes 7.1 or newer"),
    }
}
