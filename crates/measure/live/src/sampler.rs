//! The counters of one VM and of the programs that serve its vhost-user devices, and the cost that a sample may have for it.

use crate::change::{host_queues, pinned};
use crate::cores::host_cores;
use std::cell::LazyCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use vmtax_model::{
    BlockedThread, Counter, CounterMap, DaemonCounters, DiskCounters, GuestCounters, QemuThread,
    Role, ShareServer, ThreadCounters, VmCounters, VmDisk, VmFacts, VmSettings,
};
use vmtax_observe::counters::{
    Cgroups, ThreadCgroups, block_device, cgroup_counters, cpu_quotas, interfaces, is_stopped,
    low_cpu_weights, memory_limit, page_table_counters, process_counters, process_stop,
    socket_server, started, thread_counters, thread_state, throttled_us, wait_channel,
};
use vmtax_observe::{kvm_stats, thread_names};
use vmtax_vmm::qemu::console::{Console, kernel_failure};
use vmtax_vmm::qemu::counters::{Questions, counters, queues};
use vmtax_vmm::qemu::guest_agent::GuestAgent;
use vmtax_vmm::qemu::libvirt::{Answers, DaemonId, DomainStats};
use vmtax_vmm::{NoMonitor, Vm, VmmError};

/// Facts that change seldom are read again after this: disks, taps, groups, roles of threads.
const REFRESH_INTERVAL: Duration = Duration::from_secs(30);

/// VM exits, which QEMU or KVM counts.
const EXITS: &Counter = Counter::named("exits");

/// A VM that is sampled.
#[derive(Debug)]
pub(super) struct Sampler {
    pub vm: Vm,
    pub facts: VmFacts,
    /// When its process started: a PID is used again.
    pub started: u64,
    level: Level,
    cgroups: Cgroups,
    thread_cgroups: ThreadCgroups,
    daemons: Vec<Daemon>,
    is_alone: bool,
    settings: VmSettings,
    questions: Questions,
    refreshed: Instant,
    monitor_pause: Pause,
    /// Time without an answer when the monitor was last asked, s.
    monitor_timeout_s: Option<f64>,
    /// True if the process was stopped by a signal or a tracer at the last sample, or when its monitor was connected to.
    was_stopped: bool,
    agent: Option<GuestAgent>,
    agent_pause: Pause,
    page_tables: CounterMap<u64>,
    consoles: Vec<Console>,
}

impl Sampler {
    /// Makes the sampler of a VM; `None` where the process is none, or has ended.
    /// `is_alone`: it is sampled alone, so the host's other VMs are read, too.
    pub fn attach(vm: Vm, level: Level, is_alone: bool) -> Option<Sampler> {
        let mut sampler = Sampler {
            started: vm.start_ticks()?,
            facts: VmFacts {
                shares_name: is_alone && vm.shares_name(),
                ..vm.facts()?
            },
            is_alone,
            vm,
            level,
            cgroups: Cgroups::default(),
            thread_cgroups: ThreadCgroups::default(),
            daemons: Vec::new(),
            settings: VmSettings::default(),
            questions: Questions::default(),
            refreshed: Instant::now(),
            monitor_pause: Pause::default(),
            monitor_timeout_s: None,
            was_stopped: false,
            agent: None,
            agent_pause: Pause::default(),
            page_tables: CounterMap::default(),
            consoles: Vec::new(),
        };
        sampler.was_stopped = matches!(sampler.vm.no_monitor(), Some(NoMonitor::Stopped(_)));
        sampler.read_seldom();
        Some(sampler)
    }

    /// Returns true if a sample asks the VM's monitor.
    fn asks_monitor(&self) -> bool {
        let monitor = self.vm.monitor();
        monitor.is_some_and(|monitor| self.level >= Level::Histograms || !monitor.taints())
    }

    /// Returns true if a sample asks a program that may take some time: the VM's monitor, the agent in its guest.
    pub fn asks(&self) -> bool {
        let connects = self.vm.monitor().is_none() && (self.was_stopped || self.is_due());
        self.asks_monitor() || connects || (self.agent.is_some() && !self.agent_pause.is_on())
    }

    /// Returns true when the facts that change seldom are to be read again.
    fn is_due(&self) -> bool {
        self.refreshed.elapsed() > REFRESH_INTERVAL
    }

    /// The libvirt daemon that has its monitor, where the monitor is not asked.
    pub fn daemon(&self) -> Option<DaemonId> {
        self.vm.monitor().filter(|_| !self.asks_monitor())?.daemon()
    }

    /// A sample, with what its libvirt daemon says of it; `None` where the VM's process has ended, also where another one has its
    /// PID now.
    pub fn sample(&mut self, stats: Option<&DomainStats>) -> Option<VmCounters> {
        if self.vm.has_ended() {
            return None;
        }
        let pid = self.facts.pid;
        let process_stop = process_stop(pid);
        self.refresh(process_stop.is_some())?;
        let at_ns = monotonic_ns();
        let threads = self.threads();
        let (answers, monitor_ns) = match stats {
            Some(stats) => (stats.answers.clone(), None),
            // Nothing of a process that is stopped answers.
            None if process_stop.is_some() => (Answers::default(), None),
            None => self.ask(),
        };
        let monitor_timeout_s = self.vm.monitor_timeout_s().or(self.monitor_timeout_s);
        let blocked = self.blocked(monitor_timeout_s.is_some());
        let mut counters = process_counters(pid)?;
        counters.add(self.page_tables.clone());
        counters.add(cgroup_counters(&self.cgroups));
        counters.add(self.kvm_stats(answers.counters));
        let taps: Vec<String> = self.facts.nics.iter().map(|nic| nic.tap.clone()).collect();
        Some(VmCounters {
            pid,
            started: self.started,
            at_ns,
            state: answers.state,
            process_stop,
            monitor_timeout_s,
            blocked,
            kernel_failure: kernel_failure(pid, &mut self.consoles),
            counters,
            disks: self.disks(answers.disks, stats),
            stalled_queues: Vec::new(),
            nics: interfaces(pid, &taps),
            monitor_ns,
            daemons: self.daemons.iter().filter_map(Daemon::counters).collect(),
            settings: self.settings.clone(),
            guest: (!self.was_stopped).then(|| self.ask_agent()).flatten(),
            threads,
        })
    }

    /// Reads the facts again where that is due, and where the process is continued; `None` where it has ended.
    fn refresh(&mut self, is_stopped: bool) -> Option<()> {
        let is_continued = self.was_stopped && !is_stopped;
        self.was_stopped = is_stopped;
        if self.is_due() || is_continued {
            // What did not answer may do so now.
            if self.vm.monitor().is_none() && !is_stopped {
                self.vm.attach_again();
            }
            self.facts = VmFacts {
                shares_name: self.facts.shares_name,
                ..self.vm.facts()?
            };
            self.read_seldom();
        }
        Some(())
    }

    /// Threads with their times; one that is new is known by its name alone until the next refresh.
    fn threads(&self) -> Vec<ThreadCounters> {
        let known: BTreeMap<i32, &Role> = self
            .facts
            .threads
            .iter()
            .map(|thread| (thread.tid, &thread.role))
            .collect();
        let pid = self.facts.pid;
        let names: LazyCell<BTreeMap<i32, String>, _> =
            LazyCell::new(|| thread_names(pid).into_iter().collect());
        let role = |tid: i32| {
            let named = || Role::of_thread_name(names.get(&tid).map_or("", String::as_str));
            known.get(&tid).map_or_else(named, |role| (*role).clone())
        };
        let mut threads = thread_counters(pid, role);
        for thread in &mut threads {
            thread.throttled_ns = self.thread_cgroups.throttled_ns(thread.tid);
        }
        // The kernel's own threads that move its packets are none of its process.
        let is_of_kernel = |thread: &&QemuThread| {
            thread.role == Role::Vhost && !threads.iter().any(|own| own.tid == thread.tid)
        };
        let of_kernel = self.facts.threads.iter().filter(is_of_kernel);
        let of_kernel = of_kernel.flat_map(|thread| thread_counters(thread.tid, role));
        let of_kernel: Vec<ThreadCounters> = of_kernel.collect();
        threads.extend(of_kernel);
        threads
    }

    /// The threads that serve the guest and are in uninterruptible sleep; `with_main`: the main loop, however it waits.
    fn blocked(&self, with_main: bool) -> Vec<BlockedThread> {
        let blocked = |thread: &QemuThread| {
            let state = thread_state(self.facts.pid, thread.tid)?;
            let (is_uninterruptible, is_main) = (state == 'D', thread.role == Role::Main);
            (is_uninterruptible || (with_main && is_main && state != 'R')).then(|| BlockedThread {
                tid: thread.tid,
                role: thread.role.clone(),
                is_uninterruptible,
                wait_channel: wait_channel(self.facts.pid, thread.tid),
            })
        };
        self.facts
            .threads
            .iter()
            .filter(|thread| thread.role.stays())
            .filter_map(blocked)
            .collect()
    }

    /// Asks the monitor. Returns its answers and the time that they took, ns; `None` where there are no answers.
    fn ask(&mut self) -> (Answers, Option<u64>) {
        let may_ask = self.asks_monitor() && !self.monitor_pause.is_on();
        let Some(monitor) = self.vm.monitor().filter(|_| may_ask) else {
            return (Answers::default(), None);
        };
        let began = Instant::now();
        match counters(monitor, &self.questions) {
            Ok(answers) => {
                self.monitor_timeout_s = None;
                (answers, Some(began.elapsed().as_nanos() as u64))
            }
            Err(error) => {
                self.monitor_timeout_s = match error {
                    VmmError::MonitorTimeout {
                        seconds,
                        has_client: false,
                    } => Some(seconds),
                    _ => None,
                };
                self.monitor_pause = Pause::begin();
                (Answers::default(), None)
            }
        }
    }

    /// Adds KVM's counters in debugfs to a monitor's without them: root reads them without disturbing a vCPU.
    fn kvm_stats(&self, mut of_monitor: CounterMap<u64>) -> CounterMap<u64> {
        if self.questions.kvm && of_monitor.get(EXITS).is_none() {
            of_monitor.add(kvm_stats(self.facts.pid));
        }
        of_monitor
    }

    /// Asks the guest's agent for its counters; `None` without an agent that answers.
    fn ask_agent(&mut self) -> Option<GuestCounters> {
        let agent = self.agent.as_ref().filter(|_| !self.agent_pause.is_on())?;
        agent
            .counters()
            .inspect_err(|_| self.agent_pause = Pause::begin())
            .ok()
    }

    /// The monitor's or libvirt's disks, else those that are known from outside, each with the block device beneath.
    fn disks(
        &self,
        of_monitor: Vec<DiskCounters>,
        stats: Option<&DomainStats>,
    ) -> Vec<DiskCounters> {
        let name_of = |disk: &VmDisk| match disk.id.is_empty() {
            true => disk.file.to_string_lossy().into_owned(),
            false => disk.id.clone(),
        };
        let of_facts = &self.facts.disks;
        let mut disks = of_monitor;
        if disks.is_empty() {
            let named = |disk| DiskCounters {
                name: name_of(disk),
                ..DiskCounters::default()
            };
            disks = of_facts.iter().map(named).collect();
        }
        let of_name = |name: &str| of_facts.iter().find(|disk| name_of(disk) == name);
        let of_file = |name: &str| {
            let file = Path::new(stats?.files.get(name)?);
            of_facts.iter().find(|disk| disk.file == file)
        };
        let only = of_facts
            .first()
            .filter(|_| of_facts.len() == 1 && disks.len() == 1);
        for disk in &mut disks {
            let Some(known) = of_name(&disk.name).or_else(|| of_file(&disk.name)).or(only) else {
                continue;
            };
            disk.device = known.host_device.and_then(block_device);
            // Through the page cache the kernel makes requests of its own: read-ahead and write-back.
            disk.own_device = known
                .own_device
                .filter(|_| known.direct == Some(true))
                .and_then(block_device);
        }
        disks
    }

    /// Reads the data, besides the facts, that change seldom.
    fn read_seldom(&mut self) {
        let pid = self.facts.pid;
        let vcpus = self
            .facts
            .threads
            .iter()
            .filter(|thread| matches!(thread.role, Role::Vcpu(_)));
        let tids: Vec<i32> = vcpus.map(|thread| thread.tid).chain([pid]).collect();
        self.cgroups = Cgroups::of(pid, &tids);
        let staying = self.facts.threads.iter();
        let staying = staying.filter(|thread| thread.role.stays());
        let tids: Vec<i32> = staying.map(|thread| thread.tid).chain([pid]).collect();
        self.thread_cgroups = ThreadCgroups::of(pid, &tids);
        self.settings = self.vm.settings(self.level >= Level::Histograms);
        self.settings.quotas = cpu_quotas(&self.cgroups, pid);
        self.settings.low_weights = low_cpu_weights(&self.cgroups, pid);
        self.settings.memory_limit = memory_limit(&self.cgroups, pid);
        self.settings.host_queues =
            host_queues(self.facts.disks.iter().filter_map(|disk| disk.host_device));
        (self.settings.host_cpus, self.settings.pinned) = pinned(
            pid,
            self.facts
                .threads
                .iter()
                .filter(|thread| thread.role.stays())
                .map(|thread| thread.tid),
        );
        if self.is_alone {
            self.settings.host_cores = host_cores(&self.settings.host_cpus, pid);
        }
        self.consoles = self.vm.consoles(self.level >= Level::Histograms);
        self.daemons = Daemon::serving(pid, &self.settings);
        self.questions.kvm = self.facts.accelerator == Some(vmtax_model::Accelerator::Kvm);
        self.questions.balloon = self.vm.has_balloon();
        if self.level >= Level::Histograms {
            self.questions.queues = self.vm.monitor().map(queues).unwrap_or_default();
            self.agent = GuestAgent::of(pid, self.vm.monitor());
            self.page_tables = page_table_counters(pid);
        }
        self.refreshed = Instant::now();
    }
}

/// The host's monotonic clock, ns.
fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    (now.tv_sec as u64)
        .saturating_mul(1_000_000_000)
        .saturating_add(now.tv_nsec as u64)
}

/// Permitted cost of a sample to the VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Counters alone: the kernel's, and those of a monitor that is not libvirt's. Changes nothing.
    Counters,
    /// And libvirt's monitor, which taints the domain, and QEMU's latency histograms, set and removed again.
    Histograms,
    /// And traces of VM exits.
    Traces,
}

/// For so long.
const PAUSE: Duration = Duration::from_secs(30);

/// Until when somebody is not asked again.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pause(Option<Instant>);

impl Pause {
    /// Returns true until the pause is over.
    pub fn is_on(self) -> bool {
        self.0.is_some_and(|until| Instant::now() < until)
    }

    /// One that begins now.
    pub fn begin() -> Pause {
        Pause(Some(Instant::now() + PAUSE))
    }
}

/// The program, by its process.
#[derive(Debug)]
pub(super) struct Daemon {
    pid: i32,
    started: u64,
    tag: String,
    cgroups: Cgroups,
    /// The folder of the group that has no other process and a CPU quota.
    limited: Option<PathBuf>,
}

impl Daemon {
    /// Those that serve shared trees of a VM's process, as far as this user may see them.
    pub fn serving(vm: i32, settings: &VmSettings) -> Vec<Daemon> {
        let served = settings
            .shares
            .iter()
            .filter_map(|share| match &share.server {
                ShareServer::Daemon(socket) => Some((&share.tag, socket)),
                ShareServer::Qemu => None,
            });
        let daemon = |(tag, socket): (&String, &PathBuf)| {
            let pid = socket_server(vm, socket)?;
            let tids: Vec<i32> = thread_names(pid).into_iter().map(|(tid, _)| tid).collect();
            let cgroups = Cgroups::of(pid, &tids);
            let own = cpu_quotas(&cgroups, pid)
                .into_iter()
                .find(|quota| !quota.is_shared);
            let limited = own.and_then(|quota| Some(quota.file.parent()?.to_path_buf()));
            Some(Daemon {
                pid,
                started: started(pid)?,
                tag: tag.clone(),
                cgroups,
                limited,
            })
        };
        served.filter_map(daemon).collect()
    }

    /// Returns the daemon's counters; `None` if it has ended.
    pub fn counters(&self) -> Option<DaemonCounters> {
        if started(self.pid) != Some(self.started) {
            return None;
        }
        let names: BTreeMap<i32, String> = thread_names(self.pid).into_iter().collect();
        let named = |tid: i32| Role::Other(names.get(&tid).cloned().unwrap_or_default());
        Some(DaemonCounters {
            pid: self.pid,
            tag: self.tag.clone(),
            is_stopped: is_stopped(self.pid),
            threads: thread_counters(self.pid, named),
            throttled_us: throttled_us(&self.cgroups),
            cgroup: self
                .limited
                .as_ref()
                .map(|folder| folder.to_string_lossy().into_owned()),
        })
    }
}
