//! Processes of VMMs, each of which has a directory beside this file: the one place that distinguishes them.

use crate::VmmError;
use crate::kvm::holders::{guest_memory, maps};
use crate::kvm::known;
use crate::qemu::arguments::Arguments;
use crate::qemu::console::Console;
use crate::qemu::guest_agent::{GuestAgent, PORT};
use crate::qemu::monitor::Monitor;
use crate::qemu::probe_points::{NETWORK_PROBE_POINTS, disk_probe_points};
use crate::qemu::{self, attach, disks, settings, threads};
use crate::vm::images::images;
use crate::vm::open_files::{OpenFile, vcpu_descriptors};
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use vmtax_model::samples::ApicFeatures;
use vmtax_model::{
    DiskBus, DiskSettings, GuestSettings, Managed, ProcessStop, QemuThread, RoleSource, RunState,
    TracedDisk, VmDisk, VmSettings, Vmm,
};
use vmtax_observe::ProbePoint;
use vmtax_observe::counters::process_stop;

/// A process that runs a guest, or any other process. Copies share the monitor.
#[derive(Debug, Clone)]
pub(crate) struct VmmProcess {
    pub pid: i32,
    /// `None` for a process that is not a VMM.
    pub vmm: Option<Vmm>,
    /// QEMU's QMP monitor, or why there is none.
    pub monitor: Result<Monitor, NoMonitor>,
}

/// Reason for a missing monitor.
#[derive(Debug, Clone, PartialEq)]
pub enum NoMonitor {
    /// The process is stopped: nothing of it answers, and whoever waits for its monitor keeps others waiting.
    Stopped(ProcessStop),
    /// It did not answer for so long, s, and no other client is known to be connected.
    Silent(f64),
    /// vmtax asks no monitor of this VMM.
    NotAsked(Vmm),
    /// This user may not connect to its QMP socket, for this reason.
    Denied(String),
    /// Any other reason.
    Other(String),
}

impl NoMonitor {
    /// The reason that an error gives.
    fn by(error: VmmError) -> NoMonitor {
        match error {
            VmmError::MonitorTimeout {
                seconds,
                has_client: false,
            } => NoMonitor::Silent(seconds),
            VmmError::MonitorDenied(why) => NoMonitor::Denied(why),
            other => NoMonitor::Other(other.monitor_reason()),
        }
    }

    /// The reason, for people.
    pub fn why(&self) -> String {
        match self {
            NoMonitor::Stopped(ProcessStop::Signal) => {
                "QEMU is stopped by a signal (state T)".to_owned()
            }
            NoMonitor::Stopped(ProcessStop::Tracer(tracer)) => {
                format!("{tracer} has stopped QEMU (state t)")
            }
            NoMonitor::Silent(seconds) => VmmError::MonitorTimeout {
                seconds: *seconds,
                has_client: false,
            }
            .to_string(),
            NoMonitor::NotAsked(vmm) => format!("vmtax asks no monitor of {}", vmm.subject()),
            NoMonitor::Denied(why) | NoMonitor::Other(why) => why.clone(),
        }
    }
}

impl VmmProcess {
    /// A process of which only that is asked which the kernel shows.
    pub fn without_monitor(pid: i32) -> VmmProcess {
        VmmProcess {
            pid,
            vmm: recognize(pid),
            monitor: Err(NoMonitor::Other("it was not asked for".to_owned())),
        }
    }

    /// Recognizes the VMM that a process runs.
    pub fn attach(pid: i32) -> VmmProcess {
        let monitor = match process_stop(pid) {
            Some(stop) => Err(NoMonitor::Stopped(stop)),
            None => attach::monitor(pid).map_err(NoMonitor::by),
        };
        // sudo, timeout and similar programs have the command line of the QEMU that they start.
        let monitor = monitor.and_then(|monitor| {
            match monitor.taints() || threads::belongs_to(&monitor, pid) {
                true => Ok(monitor),
                false => Err(NoMonitor::Other(
                    "the QMP socket of its command line belongs to another process".to_owned(),
                )),
            }
        });
        let vmm = match monitor {
            Ok(_) => Some(Vmm::Qemu),
            Err(_) => recognize(pid),
        };
        let monitor = match vmm.filter(|vmm| !vmm.is_qemu()) {
            Some(other) => Err(NoMonitor::NotAsked(other)),
            None => monitor,
        };
        VmmProcess { pid, vmm, monitor }
    }

    /// State of the guest by its monitor or libvirt, without a taint; `None` where neither answers.
    pub fn run_state(&self) -> Option<RunState> {
        let monitor = self.monitor()?;
        if monitor.taints() {
            let mut stats = monitor.domain_stats().ok()?;
            return stats.remove(&self.name()?)?.answers.state;
        }
        qemu::counters::run_state(&monitor.execute("query-status").ok()?)
    }

    /// The monitor, where there is one that answers.
    pub fn monitor(&self) -> Option<&Monitor> {
        self.monitor.as_ref().ok()
    }

    /// The monitor, for what is worth no mark.
    fn free_monitor(&self) -> Option<&Monitor> {
        self.monitor().filter(|monitor| !monitor.taints())
    }

    /// The VMM's version, where its monitor tells.
    pub fn version(&self) -> Option<String> {
        self.free_monitor()
            .and_then(|monitor| monitor.version().ok())
    }

    /// Returns true if KVM runs the guest, according to the monitor, the open `files`, or the command line.
    pub fn is_kvm(&self, files: Option<&[OpenFile]>) -> Option<bool> {
        let from_monitor = self
            .free_monitor()
            .and_then(|monitor| monitor.is_kvm().ok());
        // The others are known by their vCPUs alone.
        if self.vmm.is_some_and(|vmm| !vmm.is_qemu()) {
            return Some(true);
        }
        let from_files = || files.map(|files| files.iter().any(|file| file.vcpu().is_some()));
        from_monitor
            .or_else(from_files)
            .or_else(|| self.arguments().is_kvm())
    }

    /// The threads with their roles, and the source of the roles, given the files that the process has open.
    pub fn roles(&self, files: &[OpenFile]) -> (RoleSource, Vec<QemuThread>) {
        let (source, mut all) = match self.vmm {
            Some(Vmm::Qemu) => {
                threads::roles(self.pid, self.free_monitor(), files, &self.arguments())
            }
            Some(vmm) => known::roles(self.pid, vmm, &vcpu_descriptors(files)),
            None => (RoleSource::Names, threads::without_roles(self.pid)),
        };
        all.extend(threads::vhost_of_kernel(self.pid, &all, files));
        (source, all)
    }

    /// The guest's disks, given the files that the process has open.
    pub fn disks(&self, files: &[OpenFile]) -> Vec<VmDisk> {
        match self.vmm {
            Some(Vmm::Qemu) => {
                disks::disks(self.pid, self.free_monitor(), files, &self.arguments())
            }
            Some(_) => images(files),
            None => Vec::new(),
        }
    }

    /// Returns the guest's disks with the data that join their requests to the host's events. The monitor is asked
    /// even where that taints the domain.
    pub fn traced_disks(&self, files: &[OpenFile]) -> Vec<TracedDisk> {
        match self.vmm {
            Some(Vmm::Qemu) => disks::traced(self.pid, self.monitor(), files, &self.arguments()),
            Some(_) => images(files).into_iter().map(TracedDisk::of_file).collect(),
            None => Vec::new(),
        }
    }

    /// The network backends of its command line that are no taps: ID and type.
    pub fn network_backends(&self) -> Vec<(String, String)> {
        match self.vmm {
            Some(Vmm::Qemu) => self.arguments().backends_without_tap(),
            _ => Vec::new(),
        }
    }

    /// The ports and addresses by which the guest kicks the queues of the card on a tap, of which the process has these
    /// descriptors.
    /// The monitor is asked even where that leaves a mark.
    pub fn doorbells_of(&self, tap: &str, descriptors: &[i32]) -> Vec<(u64, u64)> {
        let regions = self
            .monitor()
            .map(|monitor| monitor.doorbells(tap, descriptors));
        regions.and_then(Result::ok).unwrap_or_default()
    }

    /// Reads the settings. Those that need the monitor are read only where that does not taint the domain, or with
    /// `may_taint`.
    pub fn settings(&self, may_taint: bool) -> VmSettings {
        let monitor = match may_taint {
            true => self.monitor(),
            false => self.free_monitor(),
        };
        match self.vmm {
            Some(Vmm::Qemu) => VmSettings {
                qmp_socket: attach::qmp_socket(self.pid, &self.arguments()),
                ..settings::settings(monitor, &self.arguments())
            },
            _ => VmSettings::default(),
        }
    }

    /// Settings of the guest's own kernel, with those of these disks; `None` without a channel for an agent. libvirt
    /// taints the domain.
    pub fn guest_settings(
        &self,
        disks: &[DiskSettings],
    ) -> Option<Result<GuestSettings, VmmError>> {
        let agent = self
            .vmm
            .filter(|vmm| vmm.is_qemu())
            .and_then(|_| GuestAgent::of(self.pid, self.monitor()))?;
        Some(settings::guest_settings(&agent, disks))
    }

    /// Features of the local APIC of a guest of KVM; the monitor is asked even where that leaves a mark.
    pub fn apic_features(&self) -> ApicFeatures {
        let given = match self.vmm {
            Some(Vmm::Qemu) => self.arguments().apic_features(),
            _ => ApicFeatures::default(),
        };
        let known = self
            .monitor()
            .map(Monitor::apic_features)
            .unwrap_or_default();
        ApicFeatures {
            pv_eoi: known.pv_eoi.or(given.pv_eoi),
            x2apic: known.x2apic.or(given.x2apic),
        }
    }

    /// The guest's consoles that can be read without taking them from anybody, given the files that the process has open.
    /// `asks_libvirt`: libvirt names the files that its own daemon writes.
    pub fn consoles(&self, files: &[OpenFile], asks_libvirt: bool) -> Vec<Console> {
        let managed = self.managed().filter(|_| asks_libvirt);
        match self.vmm {
            Some(Vmm::Qemu) => {
                qemu::console::consoles(self.pid, &self.arguments(), files, managed.as_ref())
            }
            _ => Vec::new(),
        }
    }

    /// The guest's name.
    pub fn name(&self) -> Option<String> {
        let from_monitor = || {
            self.free_monitor()
                .and_then(|monitor| monitor.name().ok().flatten())
        };
        match self.vmm? {
            Vmm::Qemu => self.arguments().name().or_else(from_monitor),
            other => known::name(self.pid, other),
        }
    }

    /// Where block requests to disks on a bus pass in the VMM's binary, besides those to disks on virtio-blk.
    pub fn disk_probe_points(&self, bus: DiskBus) -> &'static [ProbePoint] {
        match self.vmm {
            Some(Vmm::Qemu) => disk_probe_points(bus),
            _ => &[],
        }
    }

    /// Where packets of the guest's network cards do.
    pub fn network_probe_points(&self) -> &'static [ProbePoint] {
        match self.vmm {
            Some(Vmm::Qemu) => NETWORK_PROBE_POINTS,
            _ => &[],
        }
    }

    /// Who started it, where that is not the user.
    pub fn managed(&self) -> Option<Managed> {
        self.vmm
            .filter(|vmm| vmm.is_qemu())
            .and_then(|_| attach::manager(self.pid, &self.arguments()))
    }

    /// Number of the vCPUs that the guest was started with, given the files that the process has open.
    pub fn vcpus(&self, files: &[OpenFile]) -> usize {
        match self.vmm {
            Some(vmm) if !vmm.is_qemu() => {
                let vcpus: BTreeSet<u32> = vcpu_descriptors(files).into_values().collect();
                vcpus.len()
            }
            _ => self.arguments().vcpus(),
        }
    }

    /// The guest's memory at its start, bytes; of another VMM than QEMU an estimate by its mappings.
    pub fn memory(&self) -> u64 {
        match self.vmm {
            Some(vmm) if !vmm.is_qemu() => guest_memory(&maps(self.pid)),
            _ => self.arguments().memory_bytes(),
        }
    }

    /// Returns true if the guest has a channel for QEMU's guest agent.
    pub fn has_agent_channel(&self) -> bool {
        if self.vmm != Some(Vmm::Qemu) {
            return false;
        }
        let arguments = self.arguments();
        arguments.with("device", "name", PORT).is_some()
    }

    /// Returns true if the guest has a balloon device.
    pub fn has_balloon(&self) -> bool {
        if self.vmm != Some(Vmm::Qemu) {
            return false;
        }
        let arguments = self.arguments();
        arguments.properties("device").any(|device| {
            device
                .first("driver")
                .is_some_and(|name| name.starts_with("virtio-balloon"))
        })
    }

    /// Returns advice on how to get a monitor where there is none.
    pub fn monitor_advice(&self) -> String {
        match &self.monitor {
            Err(NoMonitor::Stopped(ProcessStop::Signal)) => {
                format!("resume QEMU (kill -CONT {})", self.pid)
            }
            Err(NoMonitor::Stopped(ProcessStop::Tracer(_))) => {
                "continue QEMU in the tracer, or detach the tracer".to_owned()
            }
            Err(NoMonitor::Silent(_)) => {
                format!("see where QEMU hangs: `vmtax profile --vm {}`", self.pid)
            }
            Err(NoMonitor::NotAsked(_)) => "the kernel's figures are shown without it".to_owned(),
            Err(NoMonitor::Denied(_)) => run_as(self.pid),
            _ => attach::monitor_advice(self.managed().map(|managed| managed.manager)).to_owned(),
        }
    }

    fn arguments(&self) -> Arguments {
        Arguments::of(self.pid)
    }
}

/// Advice for a process whose monitor only its user and root may ask.
fn run_as(pid: i32) -> String {
    let user = std::fs::metadata(format!("/proc/{pid}")).map(|process| process.uid());
    match user {
        Ok(0) | Err(_) => "run vmtax as root".to_owned(),
        Ok(user) => format!("run vmtax as root or as QEMU's user (`sudo -u '#{user}' vmtax …`)"),
    }
}

/// The VMM that a process runs: QEMU by its program and command line, any other by the descriptors of KVM's that it holds; `None`
/// for any other process.
pub(crate) fn recognize(pid: i32) -> Option<Vmm> {
    match attach::runs_qemu(pid) {
        true => Some(Vmm::Qemu),
        false => known::recognize(pid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_that_this_user_may_not_use_is_a_matter_of_the_user() {
        let denied = VmmError::MonitorDenied("/run/q: Permission denied (os error 13)".to_owned());
        let process = VmmProcess {
            pid: std::process::id() as i32,
            vmm: Some(Vmm::Qemu),
            monitor: Err(NoMonitor::by(denied)),
        };
        let (why, advice) = (
            process.monitor.as_ref().unwrap_err().why(),
            process.monitor_advice(),
        );
        assert_eq!(why, "/run/q: Permission denied (os error 13)");
        assert!(advice.starts_with("run vmtax as root"), "{advice}");
    }
}
