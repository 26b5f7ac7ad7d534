//! Samples of counters, one after another, made into rates.

use crate::fault::Fault;
use jiff::{Timestamp, Unit};
use std::collections::BTreeMap;
use std::io;
use std::thread::{Builder, ScopedJoinHandle};
use std::time::{Duration, Instant};
use vmtax_analysis::host_rates;
use vmtax_configuration::configuration_of;
use vmtax_findings::{GuestExits, HostRates, REPORT_SCHEMA, TopSample, VmRates};
use vmtax_host::kernel_settings;
use vmtax_live::{Fleet, Level};
use vmtax_model::samples::ExitCounts;
use vmtax_model::{Accelerator, HostCounters, VmCounters, VmFacts};
use vmtax_observe::counters::{host_counters, own_cpu};
use vmtax_observe::{ExitTracer, kvm_features};
use vmtax_profile::exits::{Devices, summary};
use vmtax_vmm::Vm;

/// Collector of counters, which gives the rates of each interval.
pub(super) struct Collector {
    fleet: Fleet,
    level: Level,
    before: BTreeMap<i32, VmCounters>,
    /// The facts and counters of the last sample.
    last: Vec<(VmFacts, VmCounters)>,
    host: Option<HostCounters>,
    /// Settings of the host's kernel, and when they were read.
    settings: (BTreeMap<String, String>, Instant),
    /// True if all else of the host used so much that its processes are read.
    reads_processes: bool,
    sampled: Instant,
    own_cpu: Duration,
}

/// Settings of the host's kernel are read again after this.
const SETTINGS_INTERVAL: Duration = Duration::from_secs(30);
/// CPUs that all else of the host used, from which on its processes are read: fewer, and none of them is named.
const MIN_OTHERS: f64 = 0.1;

impl Collector {
    /// Takes the first sample.
    pub fn start(fleet: Fleet, level: Level) -> Result<Collector, Fault> {
        let mut collector = Collector {
            fleet,
            level,
            before: BTreeMap::new(),
            last: Vec::new(),
            host: None,
            settings: (kernel_settings(), Instant::now()),
            reads_processes: true,
            sampled: Instant::now(),
            own_cpu: own_cpu(),
        };
        collector.sample()?;
        Ok(collector)
    }

    /// Takes a further sample: what happened since the one before.
    pub fn sample(&mut self) -> Result<TopSample, Fault> {
        let (samples, notes) = self.fleet.sample()?;
        let mut vms = Vec::new();
        let mut after = BTreeMap::new();
        self.last.clear();
        for sample in samples {
            let pid = sample.counters.pid;
            let before = self.before.get(&pid);
            vms.extend(
                before.and_then(|before| {
                    vmtax_analysis::rates(sample.facts, before, &sample.counters)
                }),
            );
            after.insert(pid, sample.counters.clone());
            self.last.push((sample.facts.clone(), sample.counters));
        }
        self.before = after;
        let host = self.host(&vms);
        let (own, elapsed) = (own_cpu(), self.sampled.elapsed());
        let used = own.saturating_sub(self.own_cpu).as_secs_f64()
            / elapsed.as_secs_f64().max(f64::EPSILON);
        (self.sampled, self.own_cpu) = (Instant::now(), own);
        let now = Timestamp::now();
        Ok(TopSample {
            schema: REPORT_SCHEMA,
            time: now.round(Unit::Millisecond).unwrap_or(now).to_string(),
            level: self.level as u8,
            own_cpu: used,
            host,
            vms,
            notes,
        })
    }

    /// Samples the host and returns its rates beside those of the VMs in the same interval.
    fn host(&mut self, vms: &[VmRates]) -> Option<HostRates> {
        if self.settings.1.elapsed() > SETTINGS_INTERVAL {
            self.settings = (kernel_settings(), Instant::now());
        }
        let after = host_counters(self.reads_processes);
        let before = std::mem::replace(&mut self.host, after);
        let rates = host_rates(&before?, self.host.as_ref()?, vms, &self.settings.0);
        let others = rates.as_ref().map(|rates| rates.used_by_others);
        self.reads_processes = others.is_none_or(|used| used >= MIN_OTHERS);
        rates
    }

    /// The facts and counters of the last sample.
    pub fn counters(&self) -> Vec<(&VmFacts, &VmCounters)> {
        self.last
            .iter()
            .map(|(facts, counters)| (facts, counters))
            .collect()
    }

    /// Traces the exits of the VMs that KVM runs, of these or of all, for some time; of each what was found, or why not.
    pub fn trace<F: Fn() -> bool + Sync>(
        &self,
        only: Option<i32>,
        time: Duration,
        stop: &F,
    ) -> Vec<(i32, Result<GuestExits, String>)> {
        let is_wanted = |facts: &VmFacts| {
            only.is_none_or(|pid| pid == facts.pid)
                && (only.is_some() || facts.accelerator == Some(Accelerator::Kvm))
        };
        let vms = self.last.iter().filter(|(facts, _)| is_wanted(facts));
        let vms: Vec<&Vm> = vms
            .filter_map(|(facts, _)| self.fleet.vm(facts.pid))
            .collect();
        std::thread::scope(|scope| {
            let started = vms.into_iter().map(|vm| {
                let thread = Builder::new().spawn_scoped(scope, move || traced(vm, time, stop));
                (vm.pid(), thread)
            });
            let threads: Vec<_> = started.collect();
            let found = |(pid, thread): (
                i32,
                io::Result<ScopedJoinHandle<'_, Result<GuestExits, String>>>,
            )| match thread {
                Ok(thread) => Some((pid, thread.join().ok()?)),
                Err(e) => Some((pid, Err(format!("starting a thread: {e}")))),
            };
            threads.into_iter().filter_map(found).collect()
        })
    }
}

/// Adds what was traced to the rates of its VMs; what could not be traced becomes a note.
pub(super) fn add_exits(sample: &mut TopSample, traced: Vec<(i32, Result<GuestExits, String>)>) {
    for (pid, exits) in traced {
        let Some(vm) = sample
            .vms
            .iter_mut()
            .find(|vm: &&mut VmRates| vm.pid == pid)
        else {
            continue;
        };
        match exits {
            Ok(exits) => {
                // The gain of these is a number of exits, not a share of the time: they come behind.
                vm.findings.extend(exits.advice.iter().cloned());
                vm.traced_exits = Some(exits);
            }
            Err(why) => sample
                .notes
                .push(format!("VM exits of {} were not traced: {why}", vm.label())),
        }
    }
}

/// Traces the VM's exits for `time` and counts them by reason and device. The error is the reason, as a text for
/// people, why they could not be traced.
pub(super) fn traced(
    vm: &Vm,
    time: Duration,
    stop: &dyn Fn() -> bool,
) -> Result<GuestExits, String> {
    if vm.accelerator() != Some(Accelerator::Kvm) {
        return Err("only KVM has VM exits".to_owned());
    }
    let tracer = ExitTracer::start(vm.pid(), vm.threads()).map_err(|e| e.to_string())?;
    let (counted, span) = tracer.follow(time, stop).map_err(|e| e.to_string())?;
    let memory_tree = vm.monitor().and_then(|monitor| monitor.memory_tree().ok());
    let devices = memory_tree
        .as_deref()
        .and_then(Devices::of_memory_tree)
        .unwrap_or_else(Devices::usual);
    let apic = vm.apic_features();
    let counts = ExitCounts {
        seconds: span.as_secs_f64(),
        traced: Some(counted),
        apic,
        kvm: kvm_features(),
        configuration: configuration_of(vm.pid()),
        ..ExitCounts::default()
    };
    Ok(summary(&counts, &devices))
}
