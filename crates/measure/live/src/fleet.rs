//! The VMs of the host, or those that were named, sampled together, with the libvirt daemons and the latency histograms
//! that they share.

use super::sampler::{Level, Pause, Sampler};
use crate::state_file;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::thread::{self, Builder};
use std::time::{Duration, Instant};
use std::{fs, io};
use vmtax_model::{VmCounters, VmFacts, limit_remedy};
use vmtax_observe::counters::started;
use vmtax_vmm::qemu::counters::{disks_without_histograms, remove_histograms, set_histograms};
use vmtax_vmm::qemu::libvirt::{DaemonId, DomainStats};
use vmtax_vmm::{FindError, Vm, VmmError, find, is_vm, pids, running};

/// A process may become a VMM after it was seen, or create its VM: all are read again after this.
const FULL_SCAN_INTERVAL: Duration = Duration::from_secs(10);

/// Why VMs are not sampled.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// A file, thread or system call on the host.
    #[error("{what}: {source}{}", limit_remedy(.source))]
    System {
        /// Operation that failed, with its object.
        what: String,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The monitor of a VM.
    #[error(transparent)]
    Monitor(#[from] VmmError),
}

impl FleetError {
    fn system(what: impl Into<String>, source: io::Error) -> FleetError {
        FleetError::System {
            what: what.into(),
            source,
        }
    }
}

/// The VMs that are sampled. What was set in them is removed when the value is dropped.
#[derive(Debug)]
pub struct Fleet {
    level: Level,
    wanted: Wanted,
    vms: BTreeMap<i32, Sampler>,
    /// Processes that are known to be no VM.
    others: BTreeSet<i32>,
    scanned: Option<Instant>,
    libvirt: LibvirtDaemons,
    histograms: Option<Histograms>,
}

/// The VMs that are wanted.
#[derive(Debug)]
enum Wanted {
    /// All of the host.
    All,
    /// The VMs of these names; one that ended may run again, as another process.
    Named(Vec<String>),
    /// No more than there are.
    None,
}

/// One VM's sample.
#[derive(Debug)]
pub struct Sample<'a> {
    /// Facts known of the VM.
    pub facts: &'a VmFacts,
    /// Counters of the VM at this sample.
    pub counters: VmCounters,
}

impl Fleet {
    /// The VMs of these names, of none all of the host.
    ///
    /// # Errors
    /// [`FindError`] where a name stands for no VM, or for several.
    pub fn find(names: &[String], level: Level) -> Result<Fleet, FindError> {
        for name in names {
            find(name)?;
        }
        Ok(Fleet::new(
            if names.is_empty() {
                Wanted::All
            } else {
                Wanted::Named(names.to_vec())
            },
            level,
        ))
    }

    /// One VM, and no other that has its PID later; none where it is no VM, or has ended.
    ///
    /// # Errors
    /// [`FleetError`] where the histograms of level 1 cannot be written down.
    pub fn of(vm: Vm, level: Level) -> Result<Fleet, FleetError> {
        let mut fleet = Fleet::new(Wanted::None, level);
        Sampler::attach(vm, level, true).map_or(Ok(()), |sampler| fleet.add(sampler))?;
        Ok(fleet)
    }

    fn new(wanted: Wanted, level: Level) -> Fleet {
        Fleet {
            level,
            wanted,
            vms: BTreeMap::new(),
            others: BTreeSet::new(),
            scanned: None,
            libvirt: LibvirtDaemons::default(),
            histograms: None,
        }
    }

    /// Finds VMs that are new, and samples all. Of those that ended since the last time the second part says so, a line each.
    ///
    /// # Errors
    /// [`FleetError`] where the histograms of level 1 cannot be written down.
    pub fn sample(&mut self) -> Result<(Vec<Sample<'_>>, Vec<String>), FleetError> {
        self.attach_new()?;
        if self.vms.len() > 1 {
            vmtax_vmm::mark_shared_names(self.vms.values_mut().map(|sampler| &mut sampler.facts));
        }
        let mut counters = self.counters()?;
        let mut notes = Vec::new();
        let histograms = &mut self.histograms;
        self.vms.retain(|pid, sampler| {
            let runs = counters.contains_key(pid);
            if !runs {
                let name = sampler.facts.name.as_deref().unwrap_or("the VM");
                notes.push(format!("{name} (PID {pid}) has ended"));
                let histograms = histograms.iter_mut();
                histograms.for_each(|histograms| histograms.forget(*pid));
            }
            runs
        });
        let all = self.vms.values().map(|sampler| &sampler.facts);
        let samples = all.filter_map(|facts| {
            Some(Sample {
                facts,
                counters: counters.remove(&facts.pid)?,
            })
        });
        Ok((samples.collect(), notes))
    }

    /// The counters of the VMs that run, by their PIDs.
    fn counters(&mut self) -> Result<BTreeMap<i32, VmCounters>, FleetError> {
        let stats = self.libvirt.ask(self.vms.values());
        let (asked, others): (Vec<_>, Vec<_>) =
            self.vms.values_mut().partition(|sampler| sampler.asks());
        // A monitor or an agent may take its time, and must not hold up the others.
        thread::scope(|scope| {
            let asked = asked
                .into_iter()
                .map(|sampler| Builder::new().spawn_scoped(scope, || sampler.sample(None)));
            let threads = asked.collect::<io::Result<Vec<_>>>()?;
            let others = others
                .into_iter()
                .filter_map(|sampler| sampler.sample(stats_of(&stats, sampler)));
            let others = others.collect::<Vec<_>>();
            let asked = threads
                .into_iter()
                .filter_map(|thread| thread.join().ok().flatten());
            Ok((asked.chain(others).map(|counters| (counters.pid, counters))).collect())
        })
        .map_err(no_thread)
    }

    /// A handle of one of them, for a closer look.
    pub fn vm(&self, pid: i32) -> Option<&Vm> {
        self.vms.get(&pid).map(|sampler| &sampler.vm)
    }

    fn attach_new(&mut self) -> Result<(), FleetError> {
        let found: Vec<i32> = match &self.wanted {
            Wanted::All => self.scan(),
            Wanted::Named(names) => {
                let names = names.clone();
                self.named(&names)
            }
            Wanted::None => return Ok(()),
        };
        let new: Vec<i32> = found
            .into_iter()
            .filter(|pid| !self.vms.contains_key(pid))
            .collect();
        let level = self.level;
        let is_alone = matches!(&self.wanted, Wanted::Named(names) if names.len() == 1);
        let attached: Vec<Sampler> = thread::scope(|scope| {
            let attach = |pid: &i32| {
                let pid = *pid;
                Builder::new().spawn_scoped(scope, move || {
                    Sampler::attach(Vm::attach(pid), level, is_alone)
                })
            };
            let threads = new.iter().map(attach).collect::<io::Result<Vec<_>>>()?;
            Ok(threads
                .into_iter()
                .filter_map(|thread| thread.join().ok().flatten())
                .collect())
        })
        .map_err(no_thread)?;
        attached
            .into_iter()
            .try_for_each(|sampler| self.add(sampler))
    }

    fn add(&mut self, sampler: Sampler) -> Result<(), FleetError> {
        if self.level >= Level::Histograms {
            let histograms = match &mut self.histograms {
                Some(histograms) => histograms,
                none => none.insert(Histograms::new()?),
            };
            // A monitor that refuses, or has no such command, leaves the VM without them.
            if let Err(error @ FleetError::System { .. }) =
                histograms.set(&sampler.vm, sampler.started)
            {
                return Err(error);
            }
        }
        self.vms.insert(sampler.facts.pid, sampler);
        Ok(())
    }

    /// The VMs of the host. Between full scans only new processes are read.
    fn scan(&mut self) -> Vec<i32> {
        if self
            .scanned
            .is_none_or(|at| at.elapsed() > FULL_SCAN_INTERVAL)
        {
            self.scanned = Some(Instant::now());
            self.others.clear();
        }
        let all = pids();
        self.others.retain(|pid| all.contains(pid));
        let unknown = all.into_iter().filter(|pid| !self.others.contains(pid));
        let (vms, others): (Vec<i32>, Vec<i32>) =
            unknown.partition(|pid| self.vms.contains_key(pid) || is_vm(*pid));
        self.others.extend(others);
        vms
    }

    /// The VMs of the names. One that ended may run again, as another process.
    fn named(&mut self, names: &[String]) -> Vec<i32> {
        let found = self.vms.len() == names.len();
        if found
            || (self
                .scanned
                .is_some_and(|at| at.elapsed() < FULL_SCAN_INTERVAL)
                && !self.vms.is_empty())
        {
            return Vec::new();
        }
        self.scanned = Some(Instant::now());
        if running().is_empty() {
            return Vec::new();
        }
        names
            .iter()
            .filter_map(|name| Some(find(name).ok()?.pid))
            .collect()
    }
}

fn no_thread(e: io::Error) -> FleetError {
    FleetError::system("starting a thread", e)
}

impl Drop for Fleet {
    fn drop(&mut self) {
        let vms = &self.vms;
        if let Some(histograms) = &mut self.histograms {
            histograms.remove(|pid| vms.get(&pid).map(|sampler| sampler.vm.clone()));
        }
    }
}

/// Statistics of the domains of each daemon, by the domains' names.
pub(super) type Stats = BTreeMap<DaemonId, BTreeMap<String, DomainStats>>;

/// The daemons that did not answer.
#[derive(Debug, Default)]
pub(super) struct LibvirtDaemons(BTreeMap<DaemonId, Pause>);

impl LibvirtDaemons {
    /// Asks the daemons of the VMs whose own monitor is not asked.
    pub fn ask<'a>(&mut self, vms: impl Iterator<Item = &'a Sampler>) -> Stats {
        let mut stats = Stats::new();
        for (monitor, daemon) in
            vms.filter_map(|sampler| Some((sampler.vm.monitor()?, sampler.daemon()?)))
        {
            if stats.contains_key(&daemon) || self.0.get(&daemon).is_some_and(|pause| pause.is_on())
            {
                continue;
            }
            let answer = monitor.domain_stats().unwrap_or_else(|_| {
                self.0.insert(daemon, Pause::begin());
                BTreeMap::new()
            });
            stats.insert(daemon, answer);
        }
        stats
    }
}

/// Returns the statistics of one VM from its daemon.
pub(super) fn stats_of<'a>(stats: &'a Stats, sampler: &Sampler) -> Option<&'a DomainStats> {
    stats
        .get(&sampler.daemon()?)?
        .get(sampler.facts.name.as_ref()?)
}

/// The kind of the files that tell which are set.
const KIND: &str = "histograms";

/// The histograms that this process has set.
#[derive(Debug)]
pub(super) struct Histograms {
    file: PathBuf,
    set: Vec<SetHistograms>,
}

/// Histograms of one VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SetHistograms {
    /// PID of the VM's process.
    pid: i32,
    /// When that started, clock ticks since boot.
    started: u64,
    /// The disks' devices, as QEMU names them.
    disks: Vec<String>,
}

impl Histograms {
    /// None so far.
    ///
    /// # Errors
    /// [`FleetError::System`] where nothing can be written down, so nothing may be set.
    pub fn new() -> Result<Histograms, FleetError> {
        let failed = |e| FleetError::system("a directory to record which histograms are set", e);
        Ok(Histograms {
            file: state_file::own(KIND).map_err(failed)?,
            set: Vec::new(),
        })
    }

    /// Sets histograms of a VM's disks that have none. Those that others have set are used as they are.
    ///
    /// # Errors
    /// [`FleetError`] where that cannot be written down, or the monitor does not answer.
    pub fn set(&mut self, vm: &Vm, started: u64) -> Result<(), FleetError> {
        let Some(monitor) = vm.monitor() else {
            return Ok(());
        };
        let disks = disks_without_histograms(monitor)?;
        if disks.is_empty() {
            return Ok(());
        }
        self.set.push(SetHistograms {
            pid: vm.pid(),
            started,
            disks: disks.clone(),
        });
        let written = state_file::write(&self.file, &self.set);
        written.map_err(|e| FleetError::system(format!("writing {}", self.file.display()), e))?;
        Ok(set_histograms(monitor, &disks)?)
    }

    /// Forgets a VM that has ended.
    pub fn forget(&mut self, pid: i32) {
        self.set.retain(|set| set.pid != pid);
    }

    /// Removes those of the VMs that run.
    pub fn remove(&mut self, vm_of: impl Fn(i32) -> Option<Vm>) {
        for SetHistograms {
            pid,
            started: at,
            disks,
        } in self.set.drain(..)
        {
            if let Some(vm) = vm_of(pid).filter(|_| started(pid) == Some(at)) {
                let _ = vm
                    .monitor()
                    .map(|monitor| remove_histograms(monitor, &disks));
            }
        }
        let _ = fs::remove_file(&self.file);
    }
}

/// Removes the histograms that killed processes left. Those of a living vmtax, or of others, stay.
pub fn remove_stale_histograms() {
    for file in state_file::stale(KIND) {
        let left: Vec<SetHistograms> = state_file::read(&file).unwrap_or_default();
        Histograms { file, set: left }.remove(|pid| Some(Vm::attach(pid)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::process::Command;
    use vmtax_model::testing::Ends;

    /// A VM without a monitor whose guest agent never answers.
    fn with_hanging_agent(folder: &Path, number: u32) -> Ends {
        let socket = folder.join(number.to_string());
        let chardev = format!("socket,id=a,server=on,wait=off,path={}", socket.display());
        let port = "virtserialport,chardev=a,name=org.qemu.guest_agent.0";
        let mut command = Command::new("qemu-system-x86_64");
        command.args([
            "-S",
            "-M",
            "q35",
            "-m",
            "16",
            "-nodefaults",
            "-display",
            "none",
            "-chardev",
            &chardev,
        ]);
        let vm = Ends(
            command
                .args(["-device", "virtio-serial-pci", "-device", port])
                .spawn()
                .unwrap(),
        );
        let began = Instant::now();
        while !socket.exists() {
            assert!(
                began.elapsed() < Duration::from_secs(60),
                "QEMU made no socket"
            );
            thread::sleep(Duration::from_millis(10));
        }
        vm
    }

    #[test]
    fn agents_that_hang_do_not_hold_each_other_up() {
        let folder = tempfile::tempdir().unwrap();
        let vms: Vec<_> = (0..4)
            .map(|number| with_hanging_agent(folder.path(), number))
            .collect();
        let names: Vec<String> = vms.iter().map(|vm| vm.0.id().to_string()).collect();
        let mut fleet = Fleet::find(&names, Level::Histograms).unwrap();
        fleet.attach_new().unwrap();
        let began = Instant::now();
        let (samples, notes) = fleet.sample().unwrap();
        assert_eq!((samples.len(), notes), (4, Vec::new()));
        let took = began.elapsed();
        assert!(
            took >= Duration::from_secs(2),
            "an agent was asked: {took:?}"
        );
        assert!(
            took < Duration::from_secs(4),
            "one after the other takes 8 s: {took:?}"
        );
    }
}
