//! A counter of a VM: its column, its field of CSV, its metric; the unit of its values; the reasons why a VM has none at a level.

use vmtax_findings::VmRates;
use vmtax_model::number::{NONE, bytes, nanoseconds, significant};
use vmtax_model::{Accelerator, VmCounters, VmFacts};

/// A counter of each VM.
pub struct VmCounter {
    /// Head of its column; empty for a counter without one.
    pub column: &'static str,
    /// Description, a noun phrase.
    pub what: &'static str,
    /// Source of the value, limits of it, and the value that is much; empty without a column.
    pub explanation: &'static str,
    /// Name in esxtop, or of the nearest there.
    pub esxtop: &'static str,
    /// Condition for a value that not every VM meets.
    pub needs: &'static str,
    /// The step from which on its column is left out where there is little room; 0: never.
    pub spare: u8,
    /// The unit of its values.
    pub unit: CounterUnit,
    /// Name in CSV, which ends with the unit.
    pub csv: &'static str,
    /// Reads the value, by which rows are sorted, the largest first; `None` where it is not known.
    pub value: fn(&VmRates) -> Option<f64>,
    /// The reason for "–" in its column at a level.
    pub unknown: fn(&VmRates, u8) -> String,
    /// Metric for Prometheus with the sums of which `value` is a rate or a mean; `None` where another entry has it.
    pub metric: Option<Metric>,
}

/// A metric for Prometheus: names end with their unit, as OpenMetrics has it.
pub struct Metric {
    /// Name without the `_total` of a counter: [`Metric::sample_name`].
    pub name: &'static str,
    /// `counter`, which grows, or `gauge`.
    pub kind: &'static str,
    /// Description, a sentence.
    pub help: &'static str,
    /// Reads the samples of a VM; none where it is not known.
    pub samples: fn(&VmFacts, &VmCounters) -> Vec<(Labels, f64)>,
}

impl Metric {
    /// Returns the name of its samples.
    pub(super) fn sample_name(&self) -> String {
        match self.kind {
            "counter" => format!("{}_total", self.name),
            _ => self.name.to_owned(),
        }
    }
}

/// Labels of a sample beside those of its VM.
pub(super) type Labels = Vec<(&'static str, String)>;

/// A counter of a VM that every VM has, without a column and a metric.
pub(super) const BASE: VmCounter = VmCounter {
    column: "",
    what: "",
    explanation: "",
    esxtop: "",
    needs: "",
    spare: 0,
    unit: CounterUnit::Count,
    csv: "",
    value: |_| None,
    unknown: never,
    metric: None,
};

impl VmCounter {
    /// Returns the text of its cell; "–" where the value is not known.
    pub fn text(&self, vm: &VmRates) -> String {
        self.unit.text((self.value)(vm))
    }

    /// Returns the value with its unit's sign; `None` where it is not known.
    pub fn with_sign(&self, vm: &VmRates) -> Option<String> {
        let text = self.unit.text(Some((self.value)(vm)?));
        Some(text + self.unit.sign())
    }
}

/// The unit of a VM's counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CounterUnit {
    /// A number of something.
    Count,
    /// A part, 0 to 1: in percent in a table, whose head has the sign.
    Ratio,
    /// Events per second.
    PerSecond,
    /// Nanoseconds; seconds in CSV.
    Time,
    /// Number of bytes.
    Bytes,
    /// Bytes per second.
    BytesPerSecond,
}

impl CounterUnit {
    /// The text of a cell, at most six characters; "–" for a value that is not known.
    pub(super) fn text(self, value: Option<f64>) -> String {
        let Some(value) = value else {
            return NONE.to_owned();
        };
        match self {
            CounterUnit::Count => format!("{value:.0}"),
            CounterUnit::Ratio => short(value * 100.0),
            CounterUnit::PerSecond => rate(value),
            CounterUnit::Time => nanoseconds(value),
            CounterUnit::Bytes | CounterUnit::BytesPerSecond if value < 1.0 => "0".to_owned(),
            CounterUnit::Bytes | CounterUnit::BytesPerSecond => bytes(value as u64),
        }
    }

    /// The value in the unit that its name in CSV ends with.
    pub(super) fn in_csv(self, value: f64) -> f64 {
        match self {
            CounterUnit::Time => value / 1e9,
            _ => value,
        }
    }

    /// The sign behind a text where no head of a column says it.
    pub(super) const fn sign(self) -> &'static str {
        match self {
            CounterUnit::Ratio => " %",
            CounterUnit::PerSecond | CounterUnit::BytesPerSecond => "/s",
            CounterUnit::Count | CounterUnit::Time | CounterUnit::Bytes => "",
        }
    }
}

fn short(value: f64) -> String {
    let decimals = if value < 9.95 { 1 } else { 0 };
    format!("{value:.decimals$}")
}

fn rate(per_s: f64) -> String {
    match per_s {
        rate if rate <= 0.0 => "0".to_owned(),
        rate if rate < 9999.5 => short(rate),
        rate => format!("{}k", significant(rate / 1000.0)),
    }
}

const NO_REQUESTS: &str = "no requests in the interval";
const FROM_LEVEL_1: &str = "read from --level 1 on";

/// The reason for a figure that every VM has.
pub(super) fn never(_: &VmRates, _: u8) -> String {
    String::new()
}

pub(super) fn no_vcpus(_: &VmRates, _: u8) -> String {
    "none of its threads is known to be a vCPU".to_owned()
}

pub(super) fn no_throttling(_: &VmRates, _: u8) -> String {
    "its control groups count no throttling (no cpu controller)".to_owned()
}

pub(super) fn no_exits(vm: &VmRates, _: u8) -> String {
    match vm.accelerator {
        Some(Accelerator::Kvm) => {
            "neither /sys/kernel/debug/kvm (root) nor QMP query-stats (QEMU 7.1) has KVM's counters"
        }
        Some(Accelerator::Tcg) => "only KVM has VM exits, and TCG runs this guest",
        None => "the accelerator is not known",
    }
    .to_owned()
}

/// The reason for figures that QEMU or libvirt counts.
pub(super) fn no_requests(vm: &VmRates, _: u8) -> String {
    match (&vm.io, vm.monitor_timeout_s, &vm.no_monitor) {
        (Some(_), ..) => NO_REQUESTS.to_owned(),
        (None, Some(seconds), _) => format!("QMP did not answer within {seconds} s"),
        (None, None, Some(why)) => format!("no monitor: {why}"),
        (None, None, None) if vm.process_stop.is_some() => {
            "QEMU's process is stopped, and does not answer".to_owned()
        }
        (None, None, None) if vm.disks.is_empty() => "it has no disk".to_owned(),
        (None, None, None) => "QEMU's monitor did not answer".to_owned(),
    }
}

/// The reason for figures of the guest's agent.
pub(super) fn no_agent(vm: &VmRates, level: u8) -> String {
    match (level, &vm.guest) {
        (0, _) => FROM_LEVEL_1,
        (_, None) => "no QEMU guest agent answers",
        (_, Some(_)) => "the guest counted nothing in the interval",
    }
    .to_owned()
}

pub(super) fn no_device_time(vm: &VmRates, level: u8) -> String {
    if vm.io.is_none_or(|io| io.per_s() <= 0.0) {
        return no_requests(vm, level);
    }
    if vm.disks.iter().any(|disk| disk.davg_ns.is_some()) {
        return "fewer than 10 requests, or they take longer at the device (DAVG) than in QEMU (BLKAVG)".to_owned();
    }
    let why = match vm.disks.iter().any(|disk| disk.davg_needs_requests) {
        true => {
            "the kernel counts the times of a volume's requests in ticks, too long for so few requests"
        }
        false => "no disk with requests is itself a block device of the host, opened with O_DIRECT",
    };
    let vm = vm.argument();
    format!("{why}; `vmtax layers --vm {vm}` traces the VM's requests")
}

pub(super) fn no_histograms(vm: &VmRates, level: u8) -> String {
    match (level, vm.io) {
        (0, _) => FROM_LEVEL_1.to_owned(),
        (_, Some(io)) if io.per_s() > 0.0 => {
            "QEMU has no latency histograms of these disks".to_owned()
        }
        _ => no_requests(vm, level),
    }
}

pub(super) fn no_queues(vm: &VmRates, level: u8) -> String {
    match (level, vm.io) {
        (0, _) => FROM_LEVEL_1.to_owned(),
        (_, Some(_)) => "no disk is virtio-blk, or QEMU is older than 7.2".to_owned(),
        (_, None) => no_requests(vm, level),
    }
}

pub(super) fn no_tap(_: &VmRates, _: u8) -> String {
    "it has no tap device".to_owned()
}
