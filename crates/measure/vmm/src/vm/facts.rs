//! Facts about a virtual machine, gathered for a recording, with the measurements that are possible from here, and the
//! reasons why others are not.

use super::Vm;
use super::open_files::nics;
use crate::process::NoMonitor;
use crate::qemu::console::kernel_failure;
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
        let (accelerator, cgroup) = (self.accelerator(), Cgroup::read(self.pid()));
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

    /// The measurements that are possible from here, and why others are not.
    fn abilities(&self, accelerator: Option<Accelerator>, cgroup: Option<&Cgroup>) -> Vec<Ability> {
        let stacks = may_observe(self.pid()).err();
        let traced = || {
            let error = tracefs().err()?;
            Some(Missing::for_error("the kernel's events", &error))
        };
        let exits = match accelerator {
            Some(Accelerator::Tcg) => Some(missing(
                "VM exits",
                "TCG has none",
                "run the guest under KVM",
            )),
            _ => traced(),
        };
        let agent = (!self.has_agent).then(|| {
            missing(
                "the guest's side",
                "no vmtax agent runs in it",
                "measure a guest that vmtax boots: `vmtax run`",
            )
        });
        let no_monitor =
            |none: &NoMonitor| missing("QEMU's monitor", &none.why(), &self.monitor_advice());
        let qemu_agent = (!self.process.has_agent_channel()).then(|| {
            missing(
                "QEMU's guest agent",
                "the VM has no channel for it",
                "add the channel org.qemu.guest_agent.0 and install qemu-guest-agent in the guest",
            )
        });
        let affinity = (!self.is_ours()).then(|| {
            let why = "the process belongs to another user";
            missing("host CPUs of its threads", why, "run vmtax as root")
        });
        let all = [
            (
                AbilityName::SampleThreads,
                stacks.map(|e| Missing::for_error("stacks of its threads", &e)),
            ),
            (AbilityName::TraceKernel, traced()),
            (AbilityName::CountExits, exits),
            (AbilityName::GuestAgent, agent),
            (AbilityName::Monitor, self.no_monitor().map(no_monitor)),
            (AbilityName::QemuGuestAgent, qemu_agent),
            (AbilityName::SetAffinity, affinity),
            (AbilityName::SetCgroup, no_limits(cgroup)),
        ];
        all.map(|(what, missing)| Ability { what, missing }).into()
    }

    /// Returns true if the process is this user's, or the user is root.
    fn is_ours(&self) -> bool {
        let user = std::fs::metadata(format!("/proc/{}", self.pid())).map(|data| data.uid());
        let own = rustix::process::geteuid();
        own.is_root() || user.is_ok_and(|user| user == own.as_raw())
    }
}

fn missing(what: &str, why: &str, fix: &str) -> Missing {
    Missing {
        what: what.to_owned(),
        why: why.to_owned(),
        fix: fix.to_owned(),
    }
}

/// Why the limits of a control group cannot be set; `None` where they can.
fn no_limits(cgroup: Option<&Cgroup>) -> Option<Missing> {
    let (why, fix) = match cgroup {
        Some(cgroup) if cgroup.name == "/" => (
            "it is in the root group, which has no limits",
            "start the VM in its own group: `systemd-run --scope`",
        ),
        Some(cgroup) if access(&cgroup.folder, Access::WRITE_OK).is_ok() => return None,
        _ => ("its directory is not writable", "run vmtax as root"),
    };
    Some(missing("limits of its control group", why, fix))
}

/// The control group of a process.
struct Cgroup {
    name: String,
    folder: PathBuf,
}

impl Cgroup {
    /// Returns the group of version 1's CPU controller where the host has one, else that of version 2.
    fn read(pid: i32) -> Option<Cgroup> {
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
