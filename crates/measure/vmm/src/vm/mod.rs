//! A virtual machine as it is observed: one handle for a guest that vmtax booted and for one that another program started.

mod find;
pub(crate) mod images;
pub(crate) mod open_files;

pub use find::{
    FindError, find, is_vm, mark_shared_names, pids, process_identity, running, running_vms,
};

use crate::VmmError;
use crate::process::{NoMonitor, VmmProcess};
use crate::qemu::attach::{binary, binary_file};
use crate::qemu::console::{Console, kernel_failure};
use crate::qemu::monitor::Monitor;
use open_files::{OpenFile, nics, open_files, opened_as};
use procfs::process::Process;
use rustix::fs::{Access, access};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use vmtax_model::samples::ApicFeatures;
use vmtax_model::{
    Ability, AbilityName, Accelerator, DiskBus, DiskSettings, GuestSettings, Managed, Missing,
    QemuThread, Role, RunState, TracedDisk, TracedNic, VmFacts, VmNic, VmSettings, Vmm,
};
use vmtax_observe::counters::{process_stop, started, thread_groups};
use vmtax_observe::{ProbePoint, host_disk_in_use, may_observe, tracefs};

/// A process that runs a guest, started by vmtax or not; or any other process, of which less can be observed. Copies share
/// its monitor.
#[derive(Debug, Clone)]
pub struct Vm {
    pub(crate) process: VmmProcess,
    /// When the process started, clock ticks after the host's boot: a PID is used again. `None` of one that had ended.
    started: Option<u64>,
    has_agent: bool,
}

impl Vm {
    /// The one that vmtax started as this process of a VMM, which has this monitor; `has_agent`: vmtax's agent runs in its
    /// guest.
    pub fn started(pid: i32, vmm: Vmm, monitor: Monitor, has_agent: bool) -> Vm {
        Vm {
            started: started(pid),
            process: VmmProcess {
                pid,
                vmm: Some(vmm),
                monitor: Ok(monitor),
            },
            has_agent,
        }
    }

    /// One that runs already. Nothing of it is changed. Its monitor, which serves one client, is left after each command.
    pub fn attach(pid: i32) -> Vm {
        Vm {
            started: started(pid),
            process: VmmProcess::attach(pid),
            has_agent: false,
        }
    }

    /// Returns this VM, whose monitor is tried once more where it did not answer.
    pub fn with_monitor(&self) -> Vm {
        let mut vm = self.clone();
        if vm.monitor().is_none() {
            vm.attach_again();
        }
        vm
    }

    /// Tries once more to reach its monitor.
    pub fn attach_again(&mut self) {
        self.process = VmmProcess::attach(self.pid());
    }

    /// Returns the PID of the VM's process.
    pub fn pid(&self) -> i32 {
        self.process.pid
    }

    /// When its process started, clock ticks after the host's boot; `None` of one that had ended.
    pub fn start_ticks(&self) -> Option<u64> {
        self.started
    }

    /// Returns true if its process has ended, also where another one has its PID now.
    pub fn has_ended(&self) -> bool {
        self.started.is_none() || started(self.pid()) != self.started
    }

    /// The VMM; `None` for any other process.
    pub fn vmm(&self) -> Option<Vmm> {
        self.process.vmm
    }

    /// Returns the monitor, where there is one that answers.
    pub fn monitor(&self) -> Option<&Monitor> {
        self.process.monitor()
    }

    /// Why there is no monitor.
    pub fn no_monitor(&self) -> Option<&NoMonitor> {
        self.process.monitor.as_ref().err()
    }

    /// Time within which its monitor did not answer, s.
    pub fn monitor_timeout_s(&self) -> Option<f64> {
        match self.no_monitor() {
            Some(NoMonitor::Silent(seconds)) => Some(*seconds),
            _ => None,
        }
    }

    /// Returns advice on how to get a monitor where there is none.
    pub fn monitor_advice(&self) -> String {
        self.process.monitor_advice()
    }

    /// State of the guest by its monitor or libvirt, without a taint; `None` where neither answers.
    pub fn run_state(&self) -> Option<RunState> {
        self.process.run_state()
    }

    /// The program that runs: what was named may be a script or a loader around it. `None` without the permission to read it.
    pub fn binary(&self) -> Option<PathBuf> {
        binary(self.pid())
    }

    /// The file of that program for this process: also of one in a container, and of one that was replaced since it started.
    pub fn binary_file(&self) -> Option<PathBuf> {
        binary_file(self.pid())
    }

    /// The program's name, as its file has it: longer than the 15 bytes that the kernel keeps.
    pub fn program(&self) -> String {
        Vm::program_of(self.pid())
    }

    /// The name of a process's program.
    pub fn program_of(pid: i32) -> String {
        let binary = binary(pid).unwrap_or_default();
        let name = binary.file_name().unwrap_or_default().to_string_lossy();
        let name = name.trim_end_matches(" (deleted)");
        if name.is_empty() {
            "process".to_owned()
        } else {
            name.to_owned()
        }
    }

    /// Who started it, where that is not the user.
    pub fn managed(&self) -> Option<Managed> {
        self.process.managed()
    }

    /// Returns the VM's name, where it has one.
    pub fn name(&self) -> Option<String> {
        self.process.name()
    }

    /// Returns the accelerator of the guest; `None` if unknown.
    pub fn accelerator(&self) -> Option<Accelerator> {
        self.accelerator_by(self.files().as_deref())
    }

    fn accelerator_by(&self, files: Option<&[OpenFile]>) -> Option<Accelerator> {
        self.vmm()?;
        match self.process.is_kvm(files)? {
            true => Some(Accelerator::Kvm),
            false => Some(Accelerator::Tcg),
        }
    }

    /// Returns the VM's threads with their roles, by number.
    pub fn threads(&self) -> Vec<QemuThread> {
        self.process.roles(&self.files().unwrap_or_default()).1
    }

    /// The threads that run the guest's vCPUs.
    pub fn vcpus(&self) -> Vec<i32> {
        self.threads()
            .iter()
            .filter(|thread| matches!(thread.role, Role::Vcpu(_)))
            .map(|thread| thread.tid)
            .collect()
    }

    /// Where block requests to disks on a bus pass in its binary, besides those to disks on virtio-blk.
    pub fn disk_probe_points(&self, bus: DiskBus) -> &'static [ProbePoint] {
        self.process.disk_probe_points(bus)
    }

    /// Where packets of the guest's network cards do.
    pub fn network_probe_points(&self) -> &'static [ProbePoint] {
        self.process.network_probe_points()
    }

    /// Reads the VM's settings. Those that need the monitor are read only where that does not taint the domain, or
    /// with `may_taint`.
    pub fn settings(&self, may_taint: bool) -> VmSettings {
        self.process.settings(may_taint)
    }

    /// Settings of the guest's own kernel, with those of these disks; `None` without a channel for an agent. libvirt marks a domain
    /// whose agent is asked.
    ///
    /// # Errors
    /// [`VmmError::Monitor`] where the agent does not answer, or may not read files.
    pub fn guest_settings(
        &self,
        disks: &[DiskSettings],
    ) -> Option<Result<GuestSettings, VmmError>> {
        self.process.guest_settings(disks)
    }

    /// Features of the local APIC of a guest of KVM. The monitor is asked even where that leaves a mark.
    pub fn apic_features(&self) -> ApicFeatures {
        self.process.apic_features()
    }

    /// Returns true if the guest has a balloon device.
    pub fn has_balloon(&self) -> bool {
        self.process.has_balloon()
    }

    /// The guest's consoles that can be read without taking them from anybody; `asks_libvirt`: also those that libvirt's
    /// daemon writes.
    pub fn consoles(&self, asks_libvirt: bool) -> Vec<Console> {
        self.process
            .consoles(&self.files().unwrap_or_default(), asks_libvirt)
    }

    /// Quits the VMM by its monitor.
    pub fn quit(&self) {
        let _ = self.monitor().map(|monitor| monitor.execute("quit"));
    }

    /// Returns the open files of the process; `None` without the permission to list them.
    fn files(&self) -> Option<Vec<OpenFile>> {
        open_files(self.pid()).ok()
    }
}

/// The first bytes of a qcow2 image.
const QCOW2: [u8; 4] = *b"QFI\xfb";

impl Vm {
    /// Returns the VM's disks, as needed to trace their requests. The monitor is asked, also libvirt's, which marks
    /// the domain as tainted.
    pub fn traced_disks(&self) -> Vec<TracedDisk> {
        let files = self.files().unwrap_or_default();
        let mut disks = self.process.traced_disks(&files);
        self.place(&mut disks, &files);
        disks
    }

    /// Updates where the disks' files lie: holes get a place when they are written. What is no longer known stays.
    pub fn place_disks(&self, disks: &mut [TracedDisk]) {
        self.place(disks, &self.files().unwrap_or_default());
    }

    fn place(&self, disks: &mut [TracedDisk], files: &[OpenFile]) {
        for TracedDisk { disk, host, .. } in disks {
            let open = opened_as(files, self.pid(), &disk.file);
            let Some(file) = open.first() else { continue };
            if is_raw(disk.format.as_deref(), &file.path) {
                if let Ok(now) = host_disk_in_use(&file.path) {
                    *host = now;
                }
            }
            host.descriptors = open.iter().map(|file| file.fd).collect();
        }
    }
}

/// Returns true if the guest's bytes lie in the file at the offsets at which the guest has them.
fn is_raw(format: Option<&str>, file: &Path) -> bool {
    let mut begin = [0; QCOW2.len()];
    match format {
        Some("raw" | "file" | "host_device") => true,
        // A filter, or no monitor that tells.
        None | Some("throttle" | "copy-on-read") => {
            File::open(file)
                .and_then(|mut file| file.read_exact(&mut begin))
                .is_ok()
                && begin != QCOW2
        }
        Some(_) => false,
    }
}

impl Vm {
    /// The cards on a tap, whose packets QEMU or a vhost worker moves; and those of which the host shows less, each with
    /// the reason.
    /// The monitor is asked, also libvirt's, which marks the domain as tainted.
    pub fn traced_nics(&self) -> (Vec<TracedNic>, Vec<Missing>) {
        let files = self.files().unwrap_or_default();
        let backends = self.process.network_backends();
        let traced = |nic: VmNic| {
            let descriptors: Vec<i32> = files
                .iter()
                .filter(|file| file.is_tap(&nic.tap))
                .map(|file| file.fd)
                .collect();
            TracedNic {
                notify: self.process.doorbells_of(&nic.tap, &descriptors),
                nic,
                descriptors,
            }
        };
        let missing = backends.iter().map(|(id, kind)| without_tap(id, kind));
        (
            nics(&files).into_iter().map(traced).collect(),
            missing.collect(),
        )
    }
}

fn without_tap(id: &str, kind: &str) -> Missing {
    let own = if matches!(kind, "user" | "passt") {
        kind
    } else {
        "tap"
    };
    Missing {
        what: format!("packets of the network backend {id} ({kind})"),
        why: "of a running VM only packets that pass a tap are traced".to_owned(),
        fix: format!(
            "`vmtax layers --device net --set backend={own}` follows round trips of a guest that vmtax boots"
        ),
    }
}

impl Vm {
    /// Returns [`Vm::facts`] with the guest's state, for which a monitor, or virsh for all domains of the host, is asked.
    pub fn facts_with_state(&self) -> Option<VmFacts> {
        Some(VmFacts {
            state: self.run_state(),
            ..self.facts()?
        })
    }

    /// Returns [`Vm::facts_with_state`] and whether another VM of the host has its name, for which all processes are read: for
    /// one VM, not for each of many.
    pub fn facts_among_all(&self) -> Option<VmFacts> {
        Some(VmFacts {
            shares_name: self.shares_name(),
            ..self.facts_with_state()?
        })
    }

    /// Returns the facts known now by this process alone; `None` for a process that is no virtual machine.
    pub fn facts(&self) -> Option<VmFacts> {
        let vmm = self.vmm()?;
        let open = self.files();
        let accelerator = self.accelerator_by(open.as_deref());
        let files = open.unwrap_or_default();
        let (roles_from, threads) = self.process.roles(&files);
        let cgroup = Cgroup::read(self.pid());
        let tids: Vec<i32> = threads
            .iter()
            .filter(|thread| thread.role.stays())
            .map(|thread| thread.tid)
            .collect();
        Some(VmFacts {
            pid: self.pid(),
            name: self.process.name(),
            shares_name: false,
            binary: self.binary(),
            vmm,
            version: self.process.version(),
            managed: self.process.managed(),
            accelerator,
            process_stop: process_stop(self.pid()),
            state: None,
            monitor_timeout_s: self.monitor_timeout_s(),
            kernel_failure: kernel_failure(self.pid(), &mut self.process.consoles(&files, false)),
            vcpus: self.process.vcpus(&files),
            memory: self.process.memory(),
            roles_from,
            threads,
            disks: self.process.disks(&files),
            nics: nics(&files),
            has_vsock: files.iter().any(OpenFile::is_vhost_vsock),
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
        let vmm = self.vmm().unwrap_or_default();
        let monitor = match vmm {
            Vmm::Qemu => "QEMU's monitor".to_owned(),
            other => format!("a monitor of {}", other.subject()),
        };
        let no_monitor = |none: &NoMonitor| missing(&monitor, &none.why(), &self.monitor_advice());
        let qemu_agent = (!self.process.has_agent_channel()).then(|| no_agent(vmm));
        let affinity = (!is_ours(self.pid())).then(|| {
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
}

/// Returns true if a process is this user's, or the user is root.
pub fn is_ours(pid: i32) -> bool {
    let user = std::fs::metadata(format!("/proc/{pid}")).map(|data| data.uid());
    let own = rustix::process::geteuid();
    own.is_root() || user.is_ok_and(|user| user == own.as_raw())
}

/// Why no agent of QEMU's answers in the guest.
fn no_agent(vmm: Vmm) -> Missing {
    let (why, fix) = match vmm {
        Vmm::Qemu => (
            "the VM has no channel for it".to_owned(),
            "add the channel org.qemu.guest_agent.0 and install qemu-guest-agent in the guest",
        ),
        other => (
            format!("{} has none", other.subject()),
            "read the guest's settings in the guest",
        ),
    };
    missing("QEMU's guest agent", &why, fix)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_that_maps_the_guests_bytes_is_not_raw() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let is = |format: Option<&str>, bytes: &[u8]| {
            std::fs::write(file.path(), bytes).unwrap();
            is_raw(format, file.path())
        };
        assert!(
            is(Some("raw"), b"QFI\xfb\0")
                && is(None, b"any bytes")
                && is(Some("throttle"), b"any bytes")
        );
        assert!(!is(Some("qcow2"), b"any bytes") && !is(None, b"QFI\xfb\0\0") && !is(None, b""));
    }
}
