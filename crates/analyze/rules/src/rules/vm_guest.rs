//! Settings of the kernel in a running VM, which QEMU's guest agent reads and sets: its clock, its I/O scheduler, its read-ahead.

use super::vm_io::{MIN_PER_S, waiting};
use crate::evidence::MIN_SHARE;
use crate::rule::{about_vm, live_change};
use crate::{Evidence, Finding, Rule};
use vmtax_findings::{IoRates, VmRates};
use vmtax_model::number::{bytes, significant};
use vmtax_model::{
    Accelerator, CLOCK_SOURCE_FILE, FAST_CLOCK_SOURCES, GuestDiskSettings, LiveChange, LiveMetric,
    LiveSetting, Setting,
};

/// Clock sources that QEMU emulates, each with the rule that finds how often it is read, by VM exits.
const EMULATED_CLOCKS: [(&str, &str); 2] = [("acpi_pm", "pm-timer-clock"), ("hpet", "hpet-clock")];
/// Schedulers that hold requests back.
pub(super) const SCHEDULERS: [&str; 2] = ["bfq", "kyber"];
/// Fewer requests a second are not worth another scheduler.
pub(super) const BUSY_PER_S: f64 = 500.0;
/// Less read-ahead than this, KiB, is as good as none.
const MIN_READ_AHEAD_KB: u64 = 32;
/// Linux' own, KiB.
const READ_AHEAD_KB: u64 = 128;
/// Of a longer read, bytes, read-ahead makes no larger one.
const MAX_READ: f64 = 65536.0;

/// The rule of VM exits that finds reads of this clock source; `None` for one that QEMU does not emulate.
pub fn clock_read_rule(clock_source: &str) -> Option<&'static str> {
    let mut clocks = EMULATED_CLOCKS.iter();
    let (_, rule) = clocks.find(|(source, _)| *source == clock_source)?;
    Some(rule)
}

pub(super) const VM_GUEST_CLOCK: Rule = Rule {
    id: "vm-guest-clock",
    finds: "a guest whose clock source is a device that QEMU emulates (ACPI PM timer, HPET), though it has a faster one; where VM exits are traced, pm-timer-clock and hpet-clock say how often it is read",
    remedies: &[Setting::named(CLOCK_SOURCE_FILE)
        .remedy("VALUE", "Use a clock source that needs no VM exit")],
    source: "Linux kernel documentation, Timekeeping Virtualization for X86-Based Architectures",
    evaluate: |evidence| about_vm(evidence, clock),
};

fn clock(vm: &VmRates) -> Option<Finding> {
    let guest = vm.settings.guest.as_ref()?;
    let now = Some(&guest.clock_source).filter(|now| clock_read_rule(now).is_some())?;
    // The guest's kernel names the best first.
    let best = guest
        .clock_sources
        .iter()
        .find(|source| FAST_CLOCK_SOURCES.contains(&&***source))?;
    let setting = LiveSetting::GuestFile {
        path: CLOCK_SOURCE_FILE.to_owned(),
        flushed: None,
    };
    let change = LiveChange {
        metric: Some(LiveMetric::Exits),
        ..live_change(
            format!("Set the guest's clock source to {best}"),
            setting,
            best.clone(),
        )
    };
    let text = format!(
        "The guest's clock source is {now}, a device that QEMU emulates; it could use {best}."
    );
    Some(Finding {
        values: vec![("VALUE", best.clone()), ("BEFORE", now.to_owned())],
        // Under TCG no VM exits show whether it helps.
        change: (vm.accelerator == Some(Accelerator::Kvm)).then_some(change),
        ..Finding::new(text)
    })
}

pub(super) const VM_GUEST_SCHEDULER: Rule = Rule {
    id: "vm-guest-scheduler",
    finds: "a guest that schedules the requests of a disk by bfq or kyber, 500 a second and more",
    remedies: &[
        Setting::named("/sys/block/GUEST_DISK/queue/scheduler").remedy(
            "VALUE",
            "Set the guest's I/O scheduler to none; its processes then have no I/O priorities",
        ),
    ],
    source: "Linux kernel documentation, Switching Scheduler",
    evaluate: |evidence| {
        each_guest_disk(evidence, |disk, io| {
            let now = disk
                .scheduler
                .as_deref()
                .filter(|now| SCHEDULERS.contains(now))?;
            let text = format!(
                "The guest schedules the requests of {} ({}) by {now}, {} a second.",
                disk.disk,
                disk.name,
                significant(io.per_s())
            );
            let action = format!("Set the guest's I/O scheduler of {} to none", disk.name);
            // A scheduler merges requests: their number tells nothing.
            let metric = Some(LiveMetric::Throughput);
            let changed = changed(disk, "queue/scheduler", [now, "none"], action, metric);
            (io.per_s() >= BUSY_PER_S).then_some(Finding { text, ..changed })
        })
    },
};

pub(super) const VM_GUEST_READ_AHEAD: Rule = Rule {
    id: "vm-guest-read-ahead",
    finds: "a guest with a read-ahead below 32 KiB that waits for small reads of that disk for a twentieth of the time and more",
    remedies: &[Setting::named("/sys/block/GUEST_DISK/queue/read_ahead_kb").remedy("VALUE", "Increase the guest's read-ahead, for files that it opens afterwards; random reads then take longer")],
    source: "TuneD, profile throughput-performance: readahead",
    evaluate: |evidence| {
        each_guest_disk(evidence, |disk, io| {
            let now = disk.read_ahead_kb.filter(|now| *now < MIN_READ_AHEAD_KB)?;
            let each = io.read_bytes_per_s / io.reads_per_s;
            let text = format!(
                "The guest reads {now} KiB ahead on {} ({}): {} reads a second of {} each.",
                disk.disk,
                disk.name,
                significant(io.reads_per_s),
                bytes(each as u64)
            );
            let waits =
                io.reads_per_s >= MIN_PER_S && waiting(io.reads_per_s, io.read_ns?) >= MIN_SHARE;
            let action = format!(
                "Set the guest's read-ahead on {} to {READ_AHEAD_KB} KiB",
                disk.name
            );
            let values = [now, READ_AHEAD_KB].map(|kib| kib.to_string());
            let values = values.each_ref().map(String::as_str);
            // What was read ahead for nothing counts like what the guest asked for.
            let changed = changed(disk, "queue/read_ahead_kb", values, action, None);
            (waits && each <= MAX_READ).then_some(Finding { text, ..changed })
        })
    },
};

/// Returns the findings of each disk whose settings in the guest and whose requests are known.
fn each_guest_disk(
    evidence: &Evidence<'_>,
    find: impl Fn(&GuestDiskSettings, &IoRates) -> Option<Finding>,
) -> Vec<Finding> {
    let Some(vm) = evidence.vm else {
        return Vec::new();
    };
    let found = |disk: &GuestDiskSettings| {
        let io = vm.disk(&disk.disk)?.io.as_ref()?;
        find(disk, io)
    };
    let disks = vm.settings.guest.iter().flat_map(|guest| &guest.disks);
    disks.filter_map(found).collect()
}

/// A finding without its text whose change gives a file of the disk another value.
fn changed(
    disk: &GuestDiskSettings,
    file: &str,
    [before, value]: [&str; 2],
    action: String,
    metric: Option<LiveMetric>,
) -> Finding {
    let setting = LiveSetting::GuestFile {
        path: disk.file(file),
        flushed: None,
    };
    Finding {
        values: vec![
            ("GUEST_DISK", disk.name.clone()),
            ("VALUE", value.to_owned()),
            ("BEFORE", before.to_owned()),
        ],
        change: Some(LiveChange {
            metric,
            disk: Some(disk.disk.clone()),
            ..live_change(action, setting, value.to_owned())
        }),
        ..Finding::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_evidence::advice;
    use vmtax_findings::{Advice, DiskRates};
    use vmtax_model::{GuestSettings, SettingValue, VmSettings};

    fn vm(disk: GuestDiskSettings, io: IoRates) -> VmRates {
        let disk = GuestDiskSettings {
            disk: "data".to_owned(),
            name: "vdb".to_owned(),
            ..disk
        };
        let guest = GuestSettings {
            disks: vec![disk],
            ..GuestSettings::default()
        };
        let settings = VmSettings {
            guest: Some(guest),
            ..VmSettings::default()
        };
        let rates = DiskRates {
            name: "data".to_owned(),
            io: Some(io),
            ..DiskRates::default()
        };
        VmRates {
            disks: vec![rates],
            settings,
            ..VmRates::default()
        }
    }

    fn found(id: &str, vm: &VmRates) -> Vec<Advice> {
        advice(
            id,
            &Evidence {
                vm: Some(vm),
                ..Evidence::default()
            },
        )
    }

    #[test]
    fn a_scheduler_that_holds_back_is_found_on_a_busy_disk() {
        let advice_for = |scheduler: &str, reads_per_s| {
            let disk = GuestDiskSettings {
                scheduler: Some(scheduler.to_owned()),
                ..GuestDiskSettings::default()
            };
            found(
                "vm-guest-scheduler",
                &vm(
                    disk,
                    IoRates {
                        reads_per_s,
                        ..IoRates::default()
                    },
                ),
            )
        };
        let advice = &advice_for("bfq", 900.0)[0];
        assert_eq!(
            advice.finding.replace('\u{a0}', " "),
            "The guest schedules the requests of data (vdb) by bfq, 900 a second."
        );
        assert_eq!(
            advice.remedies[0].line,
            "echo none | sudo tee /sys/block/vdb/queue/scheduler # in the guest"
        );
        assert_eq!(
            advice.remedies[0].undo,
            "echo bfq | sudo tee /sys/block/vdb/queue/scheduler # in the guest"
        );
        let setting = LiveSetting::GuestFile {
            path: "/sys/block/vdb/queue/scheduler".to_owned(),
            flushed: None,
        };
        assert_eq!(
            advice.change.as_ref().unwrap().settings,
            [SettingValue {
                setting,
                value: "none".to_owned()
            }]
        );
        assert!(
            advice_for("none", 900.0).is_empty()
                && advice_for("mq-deadline", 900.0).is_empty()
                && advice_for("bfq", 200.0).is_empty()
        );
    }

    #[test]
    fn no_read_ahead_is_found_where_small_reads_take_time() {
        let findings_for = |read_ahead_kb, bytes: f64, ns| {
            let disk = GuestDiskSettings {
                read_ahead_kb: Some(read_ahead_kb),
                ..GuestDiskSettings::default()
            };
            let io = IoRates {
                reads_per_s: 1000.0,
                read_bytes_per_s: bytes * 1000.0,
                read_ns: Some(ns),
                ..IoRates::default()
            };
            let found = found("vm-guest-read-ahead", &vm(disk, io));
            found
                .into_iter()
                .map(|advice| advice.finding.replace('\u{a0}', " "))
                .collect::<Vec<String>>()
        };
        assert_eq!(
            findings_for(0, 4096.0, 2e5),
            ["The guest reads 0 KiB ahead on data (vdb): 1000 reads a second of 4.00 KiB each."]
        );
        assert!(findings_for(128, 4096.0, 2e5).is_empty(), "Linux' own");
        assert!(findings_for(0, 1e6, 2e5).is_empty(), "large reads");
        assert!(
            findings_for(0, 4096.0, 1e4).is_empty(),
            "a hundredth of the time"
        );
    }

    #[test]
    fn a_clock_of_qemus_is_found_where_the_guest_has_a_better_one() {
        let vm_with_clock = |now: &str, others: &[&str], accelerator| {
            let guest = GuestSettings {
                clock_source: now.to_owned(),
                clock_sources: others.iter().map(|source| (*source).to_owned()).collect(),
                ..GuestSettings::default()
            };
            let settings = VmSettings {
                guest: Some(guest),
                ..VmSettings::default()
            };
            VmRates {
                settings,
                accelerator: Some(accelerator),
                ..VmRates::default()
            }
        };
        let slow = vm_with_clock(
            "acpi_pm",
            &["kvm-clock", "tsc", "acpi_pm"],
            Accelerator::Kvm,
        );
        let advice = &found("vm-guest-clock", &slow)[0];
        assert_eq!(
            advice.finding,
            "The guest's clock source is acpi_pm, a device that QEMU emulates; it could use kvm-clock."
        );
        assert_eq!(
            advice.change.as_ref().unwrap().settings[0].value,
            "kvm-clock"
        );
        assert!(
            advice.remedies[0]
                .undo
                .starts_with("echo acpi_pm | sudo tee "),
            "{:?}",
            advice.remedies[0]
        );
        let none = |vm: VmRates| assert!(found("vm-guest-clock", &vm).is_empty());
        none(vm_with_clock("tsc", &["tsc", "acpi_pm"], Accelerator::Kvm));
        none(vm_with_clock(
            "hpet",
            &["hpet", "acpi_pm", "jiffies", "$(reboot)"],
            Accelerator::Kvm,
        ));
        assert_eq!(
            found(
                "vm-guest-clock",
                &vm_with_clock("hpet", &["tsc"], Accelerator::Tcg)
            )[0]
            .change,
            None
        );
    }
}
