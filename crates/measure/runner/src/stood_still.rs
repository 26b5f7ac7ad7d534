//! The rule for trials in which the guest stood still.

use vmtax_model::{CpuSeconds, Machine, Warning, WorkloadName};

/// These always keep at least one vCPU busy.
const BUSY: [WorkloadName; 4] = [
    WorkloadName::Cpu,
    WorkloadName::Threads,
    WorkloadName::Mutex,
    WorkloadName::Memory,
];
/// For how long at least, seconds, and which part of the trial.
const MIN_S: f64 = 2.0;
const MIN_PART: f64 = 0.1;

/// A warning if for 2 s and a tenth of the trial neither the VMM ran nor a vCPU waited for a CPU, of a workload that always
/// keeps one busy. Workloads that sleep or wait for I/O are not judged, nor where the kernel does not tell the waits.
pub(crate) fn stood_still(
    workload: WorkloadName,
    machine: Machine,
    wall_s: f64,
    spent: Option<&CpuSeconds>,
) -> Option<Warning> {
    let spent = spent.filter(|spent| BUSY.contains(&workload) && spent.ready > 0.0)?;
    let still = wall_s - spent.guest - spent.ready - spent.qemu;
    let stood = still >= MIN_S && still >= MIN_PART * wall_s;
    stood.then(|| Warning::StoodStill {
        machine,
        seconds: still.round() as u32,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_busy_workload_that_neither_ran_nor_waited_stood_still() {
        let warning_for = |workload, wall_s, guest, ready| {
            let spent = CpuSeconds {
                guest,
                qemu: 0.1,
                ready,
                server: None,
            };
            stood_still(workload, Machine::TCG, wall_s, Some(&spent))
        };
        // As measured: stopped for 20 s.
        let stopped = warning_for(WorkloadName::Cpu, 20.4, 0.2, 0.1);
        assert_eq!(
            stopped,
            Some(Warning::StoodStill {
                machine: Machine::TCG,
                seconds: 20
            })
        );
        assert_eq!(
            warning_for(WorkloadName::Cpu, 20.4, 0.2, 20.0),
            None,
            "a busy host"
        );
        assert_eq!(
            warning_for(WorkloadName::Cpu, 20.4, 40.0, 0.1),
            None,
            "two vCPUs"
        );
        assert_eq!(
            warning_for(WorkloadName::Memory, 1.9, 0.1, 0.1),
            None,
            "as good as no time"
        );
        assert_eq!(
            warning_for(WorkloadName::Threads, 100.0, 95.0, 0.1),
            None,
            "a small part of it"
        );
        assert_eq!(
            warning_for(WorkloadName::Fileio, 20.4, 0.2, 0.1),
            None,
            "it waits for I/O"
        );
        assert_eq!(
            warning_for(WorkloadName::Cpu, 20.4, 0.2, 0.0),
            None,
            "no waits are known"
        );
        assert_eq!(
            stood_still(WorkloadName::Cpu, Machine::NATIVE, 20.0, None),
            None
        );
    }
}
