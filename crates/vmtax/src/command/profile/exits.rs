//! The exits of a guest that KVM runs, while it is looked at: traced where the kernel may be, else KVM's counters.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use vmtax_model::samples::{ExitCounts, TracedExits};
use vmtax_model::{GuestExits, Missing};
use vmtax_observe::{ExitTracer, ProbeError, has_kvm};
use vmtax_profile::exits::{Devices, summary};
use vmtax_vm::QemuMonitor;

/// A guest whose exits are being counted.
pub struct Exits {
    pid: i32,
    watching: Result<ExitTracer, ProbeError>,
    monitor: Option<QemuMonitor>,
    before: BTreeMap<String, u64>,
    begun: Instant,
}

/// What came of it.
pub struct Counted {
    pid: i32,
    seen: Result<TracedExits, ProbeError>,
    monitor: Option<QemuMonitor>,
    counters: BTreeMap<String, u64>,
    time: Duration,
}

impl Exits {
    /// Begins to count; `None` where the process has no guest of KVM's. From its return on none is missed. `monitor`: its
    /// QEMU's, where one can be had.
    pub fn begin(pid: i32, monitor: Option<QemuMonitor>) -> Option<Exits> {
        has_kvm(pid).unwrap_or_default().then(|| {
            let before = counters(pid, monitor.as_ref());
            Exits { pid, watching: ExitTracer::start(pid), monitor, before, begun: Instant::now() }
        })
    }

    /// The monitor, for who has other questions meanwhile.
    pub fn monitor(&self) -> Option<QemuMonitor> {
        self.monitor.clone()
    }

    /// Counts until the time is over or `stop` says so.
    pub fn follow(self, time: Duration, stop: &dyn Fn() -> bool) -> Counted {
        let seen = match self.watching {
            Ok(watching) => watching.follow(time, stop),
            Err(why) => {
                while self.begun.elapsed() < time && !stop() {
                    std::thread::sleep(Duration::from_millis(50));
                }
                Err(why)
            }
        };
        let time = self.begun.elapsed();
        let mut counters = counters(self.pid, self.monitor.as_ref());
        counters.iter_mut().for_each(|(name, value)| {
            *value = value.saturating_sub(self.before.get(name).copied().unwrap_or(0));
        });
        Counted { pid: self.pid, seen, monitor: self.monitor, counters, time }
    }
}

impl Counted {
    /// What it says, and why there is not more. `tree`: QEMU's memory tree, where that is at hand.
    pub fn findings(self, tree: Option<&str>) -> (Option<GuestExits>, Vec<Missing>) {
        let asked = || self.monitor.as_ref().and_then(|monitor| monitor.memory_tree().ok());
        let devices = match tree.map(str::to_owned).or_else(asked) {
            Some(tree) => Devices::of_memory_tree(&tree),
            None => None,
        };
        let (traced, missing) = match self.seen {
            Ok(traced) => (Some(traced), devices.is_none().then(|| no_tree(self.pid))),
            Err(why) => (None, Some(Missing::for_error("VM exits by reason and device", &why))),
        };
        let devices = devices.unwrap_or_else(Devices::usual);
        let some = traced.is_some() || !self.counters.is_empty();
        let (seconds, counters) = (self.time.as_secs_f64(), self.counters);
        let counts = ExitCounts { seconds, traced, counters, memory_tree: None };
        (some.then(|| summary(&counts, &devices)), missing.into_iter().collect())
    }
}

/// KVM's own: through QEMU, which takes no rights, or from debugfs.
fn counters(pid: i32, monitor: Option<&QemuMonitor>) -> BTreeMap<String, u64> {
    let asked = monitor.map(QemuMonitor::kvm_counters).unwrap_or_default();
    if asked.is_empty() { vmtax_observe::kvm_counters(pid) } else { asked }
}

fn no_tree(pid: i32) -> Missing {
    Missing {
        what: "which device has which address".to_owned(),
        why: format!(
            "process {pid} has no QMP monitor that could be asked, so names are those of the usual places in a PC"
        ),
        mend: "give QEMU one that nobody else uses (-qmp unix:/run/NAME.qmp,server=on,wait=off)".to_owned(),
    }
}
