//! Facts about a virtual machine, gathered for a recording, with the measurements that are possible from here, and the
//! reasons why others are not.

use super::Vm;
use super::open_files::nics;
use crate::vmm::qemu::console::kernel_failure;
use procfs::process::Process;
use rustix::fs::{Access, access};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use vmtax_model::{Ability, AbilityName, Accelerator, Missing, VmFacts};
use vmtax_observe::counters::{process_stop, thread_groups};
use vmtax_observe::{may_observe, tracefs};

impl Vm {
    /// Returns [`Vm::facts`] with the guest's state, for which a monitor, or virsh for all domains of the host, is asked.
    pub fn facts_with_state(&self) -> Option<VmFacts> {
        Some(VmFacts {
            state: self.run_state(),
            ..self.facts()?
        })
    }

    /// Returns the facts known now, without the guest's state; `None` for a process that is no virtual machine.
    pub fn facts(&self) -> Option<VmFacts> {
        let vmm = self.vmm()?;
        let files = self.files().unwrap_or_default();
        let (roles_from, threads) = self.process.roles(&files);
        let (vcpus, memory) = self.process.size();
        let (accelerator, cgroup) = (self.accelerator(), Cgroup::of(self.pid()));
        let tids: Vec<i32> = threads
            .iter()
            .filter(|thread| thread.role.stays())
            .map(|thread| thread.tid)
            .collect();
        Some(VmFacts {
            pid: self.pid(),
            name: self.process.name(),
            binary: self.binary(),
            vmm,
            version: self.process.version(),
            managed: self.process.managed(),
            accelerator,
            process_stop: process_stop(self.pid()),
            state: None,
            monitor_timeout_s: self.monitor_timeout_s(),
            kernel_failure: kernel_failure(self.pid(), &mut self.process.consoles(&files, false)),
            vcpus,
            memory,
            roles_from,
            threads,
            disks: self.process.disks(&files),
            nics: nics(&files),
            abilities: self.abilities(accelerator, cgroup.as_ref()),
            cgroup: cgroup.map(|cgroup| cgroup.name),
            thread_groups: thread_groups(self.pid(), &tids),
        })
    }

    fn abilities(&self, accelerator: Option<Accelerator>, cgroup: Option<&Cgroup>) -> Vec<Ability> {
        let lacking = |what: &str, why: &str, fix: &str| {
            Some(Missing {
                what: what.to_owned(),
                why: why.to_owned(),
                fix: fix.to_owned(),
            })
        };
        let not_ours = "the process belongs to another user";
        let traced = || {
            tracefs()
                .err()
                .map(|e| Missing::for_error("the kernel's events", &e))
        };
        let is_ours = {
            let user = std::fs::metadata(format!("/proc/{}", self.pid())).map(|data| data.uid());
            let own = rustix::process::geteuid();
            own.is_root() || user.is_ok_and(|user| user == own.as_raw())
        };
        let exits = match accelerator {
            Some(Accelerator::Tcg) => {
                lacking("VM exits", "TCG has none", "run the guest under KVM")
            }
            _ => traced(),
        };
        let limits = match cgroup {
            Some(cgroup) if cgroup.name == "/" => lacking(
                "limits of its control group",
                "it is in the root group, which has no limits",
                "start the VM in its own group: `systemd-run --scope`",
            ),
            Some(cgroup) if access(&cgroup.folder, Access::WRITE_OK).is_ok() => None,
            _ => lacking(
                "limits of its control group",
                "its folder is not writable",
                "run vmtax as root",
            ),
        };
        let all = [
            (
                AbilityName::SampleThreads,
                may_observe(self.pid()).err().map(|e| Missing::for_error("stacks of its threads", &e)),
            ),
            (AbilityName::TraceKernel, traced()),
            (AbilityName::CountExits, exits),
            (
                AbilityName::GuestAgent,
                (!self.has_agent)
                    .then(|| {
                        lacking(
                            "the guest's side",
                            "no vmtax agent runs in it",
                            "measure a guest that vmtax boots: `vmtax run`",
                        )
                    })
                    .flatten(),
            ),
            (
                AbilityName::Monitor,
                self.no_monitor().and_then(|none| lacking("QEMU's monitor", &none.why(), &self.monitor_advice())),
            ),
            (
                AbilityName::QemuGuestAgent,
                (!self.process.has_agent_channel())
                    .then(|| {
                        lacking(
                            "QEMU's guest agent",
                            "the VM has no channel for it",
                            "add the channel org.qemu.guest_agent.0 and install qemu-guest-agent in the guest",
                        )
                    })
                    .flatten(),
            ),
            (
                AbilityName::SetAffinity,
                (!is_ours).then(|| lacking("host CPUs of its threads", not_ours, "run vmtax as root")).flatten(),
            ),
            (AbilityName::SetCgroup, limits),
        ];
        all.map(|(what, missing)| Ability { what, missing }).into()
    }
}

/// The control group of a process.
struct Cgroup {
    name: String,
    folder: PathBuf,
}

impl Cgroup {
    /// Returns the group of version 1's CPU controller where the host has one, else that of version 2.
    fn of(pid: i32) -> Option<Cgroup> {
        let groups = Process::new(pid)
            .and_then(|process| process.cgroups())
            .ok()?
            .0;
        let cpu = groups.iter().find(|group| {
            group
                .controllers
                .iter()
                .any(|controller| controller == "cpu")
        });
        let group = cpu.or_else(|| groups.iter().find(|group| group.hierarchy == 0))?;
        let root = PathBuf::from(if group.hierarchy == 0 {
            "/sys/fs/cgroup"
        } else {
            "/sys/fs/cgroup/cpu"
        });
        let folder = root.join(group.pathname.trim_start_matches('/'));
        Some(Cgroup {
            name: group.pathname.clone(),
            folder,
        })
    }
}
