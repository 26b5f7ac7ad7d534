//! Pins a guest's threads to host CPUs: wake-ups then go between the same CPUs in every boot.

use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};
use vmtax_model::{Guest, PinnedCpus, Pinning, QemuThread, Role, Warning};

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
    /// Of a guest among the CPUs that this process may use.
    pub fn of(guest: &Guest, is_comparison: bool) -> Placement {
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
        let placement = Placement::of(
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
}
