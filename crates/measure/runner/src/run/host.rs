//! The host beside a run: the CPUs of a guest's threads, its own speed, its clocks and counters during a trial, and whether a
//! guest stood still.

use super::state::TrialNotes;
use jiff::Timestamp;
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};
use std::hint::black_box;
use std::time::Instant;
use vmtax_host::CpuTime;
use vmtax_model::{
    CpuSeconds, Guest, Machine, PinnedCpus, Pinning, QemuThread, Role, Warning, WorkloadName,
};
use vmtax_vm::RunningMachine;

/// CPUs that are left for QEMU's other threads and for the host before an iothread gets one of its own.
const SPARE: usize = 2;

/// The host CPUs of a guest's threads, or natively of the workload.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Placement {
    /// `None` where the host's scheduler places them.
    pub cpus: Option<PinnedCpus>,
    /// Why they could not be pinned.
    pub warning: Option<Warning>,
}

impl Placement {
    /// Chooses the CPUs of a guest among the CPUs that this process may use.
    pub fn choose(guest: &Guest, is_comparison: bool) -> Placement {
        let Ok(allowed) = sched_getaffinity(None) else {
            return Placement::default();
        };
        let own: Vec<u32> = (0..CpuSet::MAX_CPU)
            .filter(|cpu| allowed.is_set(*cpu))
            .filter_map(|cpu| cpu.try_into().ok())
            .collect();
        Placement::among(&own, guest, is_comparison)
    }

    fn among(own: &[u32], guest: &Guest, is_comparison: bool) -> Placement {
        let default = if is_comparison {
            Pinning::Split
        } else {
            Pinning::None
        };
        let vcpus = guest.cpus as usize;
        let pinned = |vcpus: &[u32], others: &[u32]| Placement {
            cpus: Some(PinnedCpus {
                vcpus: vcpus.to_vec(),
                others: others.to_vec(),
            }),
            warning: None,
        };
        match (guest.pinning.unwrap_or(default), own) {
            (Pinning::None, _) | (_, []) => Placement::default(),
            (Pinning::OneCpu, [.., last]) => pinned(&[*last], &[*last]),
            (Pinning::Split, own) if vcpus < own.len() => {
                let (others, vcpus) = own.split_at(own.len() - vcpus);
                pinned(vcpus, others)
            }
            (Pinning::Split, own) => {
                let warning = Warning::NotPinned {
                    cpus: guest.cpus,
                    online: own.len() as u32,
                };
                Placement {
                    cpus: None,
                    warning: Some(warning),
                }
            }
        }
    }

    /// The CPUs of the vCPUs.
    pub fn vcpus(&self) -> &[u32] {
        self.cpus.as_ref().map_or(&[], |cpus| &cpus.vcpus)
    }

    /// Pins the threads of a guest that runs. Threads that these start later run where they do.
    pub fn pin(&self, threads: &[QemuThread]) {
        let Some(PinnedCpus { vcpus, others }) = &self.cpus else {
            return;
        };
        let iothreads = threads
            .iter()
            .filter(|thread| matches!(thread.role, Role::Iothread(_)))
            .count();
        let (rest, own) =
            others.split_at(others.len() - iothreads.min(others.len().saturating_sub(SPARE)));
        let (mut vcpus, mut own) = (vcpus.iter().cycle(), own.iter());
        for thread in threads {
            let cpu = match thread.role {
                Role::Vcpu(_) => vcpus.next(),
                Role::Iothread(_) => own.next(),
                _ => None,
            };
            let mut set = CpuSet::new();
            cpu.map_or(rest, std::slice::from_ref)
                .iter()
                .for_each(|cpu| set.set(*cpu as usize));
            // A thread may have ended by now.
            let _ = sched_setaffinity(Pid::from_raw(thread.tid), &set);
        }
    }
}

/// Some milliseconds of work.
const STEPS: u64 = 4_000_000;
/// The fastest counts: interruptions are not the host's speed.
const TRIES: usize = 5;

/// Measures the time that the host takes for a fixed piece of work, seconds: beside each slot of a comparison, to detect drift.
pub(crate) fn control_seconds() -> f64 {
    let once = |_| {
        let begin = Instant::now();
        // Each step needs the one before: neither vectors nor a cleverer compiler shorten it.
        black_box((0..STEPS).fold(1_u64, |x, i| {
            (x ^ i).wrapping_mul(6_364_136_223_846_793_005)
        }));
        begin.elapsed().as_secs_f64()
    };
    (0..TRIES).map(once).fold(f64::INFINITY, f64::min)
}

/// Below this, steal time of the host during a trial is not reported, percent.
const NOTABLE_STEAL_PERCENT: u32 = 5;

/// The host's clocks and counters before a trial.
pub(super) struct HostSnapshot {
    started: Timestamp,
    clock: Instant,
    host: CpuTime,
    machine: Option<CpuSeconds>,
}

impl HostSnapshot {
    pub fn now(machine: &dyn RunningMachine) -> HostSnapshot {
        HostSnapshot {
            started: Timestamp::now(),
            clock: Instant::now(),
            host: CpuTime::now(),
            machine: machine.cpu_time(),
        }
    }

    /// Returns what the trial took of the host. `cpu_seconds` is what its command took, where that is known.
    pub fn notes(
        self,
        machine: &dyn RunningMachine,
        cpu_seconds: Option<CpuSeconds>,
    ) -> TrialNotes {
        let wall_s = self.clock.elapsed().as_secs_f64();
        let percent = (CpuTime::now().stolen_since(&self.host) * 100.0).round() as u32;
        let stolen = (percent >= NOTABLE_STEAL_PERCENT).then_some(Warning::StolenTime { percent });
        let whole = self
            .machine
            .zip(machine.cpu_time())
            .map(|(before, after)| after.since(&before));
        TrialNotes {
            started: self.started,
            wall_s,
            share: machine.share().cloned(),
            cpu_seconds: cpu_seconds.or(whole),
            warnings: stolen.into_iter().collect(),
            ..TrialNotes::none()
        }
    }
}

/// These always keep at least one vCPU busy.
const BUSY: [WorkloadName; 4] = [
    WorkloadName::Cpu,
    WorkloadName::Threads,
    WorkloadName::Mutex,
    WorkloadName::Memory,
];
/// Time that it stood still at least, seconds, and as a part of the trial.
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
    use std::process::{Command, Stdio};

    fn among(own: &[u32], cpus: u32, pinning: Option<Pinning>, is_comparison: bool) -> Placement {
        Placement::among(
            own,
            &Guest {
                cpus,
                pinning,
                ..Guest::default()
            },
            is_comparison,
        )
    }

    #[test]
    fn each_vcpu_has_its_own_cpu_and_the_rest_another() {
        let cpus = |placement: Placement| placement.cpus.map(|cpus| (cpus.vcpus, cpus.others));
        let split = Some(Pinning::Split);
        assert_eq!(
            cpus(among(&[0, 1], 1, split, false)),
            Some((vec![1], vec![0]))
        );
        assert_eq!(
            cpus(among(&[2, 3, 6, 7], 2, None, true)),
            Some((vec![6, 7], vec![2, 3]))
        );
        assert_eq!(
            cpus(among(&[0, 1], 1, Some(Pinning::OneCpu), true)),
            Some((vec![1], vec![1]))
        );
        assert_eq!(among(&[0, 1], 1, None, false), Placement::default());
        assert_eq!(
            among(&[0, 1], 1, Some(Pinning::None), true),
            Placement::default()
        );
        let few = among(&[0, 1], 2, split, false);
        assert_eq!(
            (few.cpus, few.warning),
            (None, Some(Warning::NotPinned { cpus: 2, online: 2 }))
        );
    }

    #[test]
    fn threads_run_where_they_were_put() {
        let mut children = [0; 3].map(|_| {
            Command::new("sleep")
                .arg("60")
                .stdin(Stdio::null())
                .spawn()
                .unwrap()
        });
        let roles = [Role::Vcpu(0), Role::Iothread("io0".to_owned()), Role::Main];
        let threads: Vec<QemuThread> = std::iter::zip(&children, roles)
            .map(|(child, role)| QemuThread {
                tid: child.id() as i32,
                role,
            })
            .collect();
        let placement = Placement::choose(
            &Guest {
                pinning: Some(Pinning::Split),
                ..Guest::default()
            },
            false,
        );
        placement.pin(&threads);
        let allowed = |thread: &QemuThread| sched_getaffinity(Pid::from_raw(thread.tid)).unwrap();
        let all: Vec<CpuSet> = threads.iter().map(allowed).collect();
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let Some(PinnedCpus { vcpus, others }) = placement.cpus else {
            assert!(placement.warning.is_some(), "a host with one CPU");
            return;
        };
        assert!(all[0].count() == 1 && all[0].is_set(vcpus[0] as usize));
        assert!(!all[1].is_set(vcpus[0] as usize) && !all[2].is_set(vcpus[0] as usize));
        assert_eq!(
            all[1].count(),
            if others.len() > SPARE {
                1
            } else {
                others.len() as u32
            }
        );
    }

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
