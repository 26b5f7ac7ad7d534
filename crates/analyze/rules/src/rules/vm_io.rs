//! Requests and packets of a running VM, by its counters.

use super::device_users::who_else;
use super::io_limits::limit_reached;
use crate::rule::{about_vm, instruction, measurement};
use crate::{Evidence, Finding, Rule, VmPart};
use vmtax_findings::{DiskRates, ThreadRates, VmRates};
use vmtax_model::number::{nanoseconds, percent, significant};
use vmtax_model::{DiskSettings, Role, Setting, shell_line};

/// esxtop's guides name 20 ms at the device as the limit of a healthy disk.
const SLOW_DEVICE_NS: f64 = 20e6;
/// Fewer requests a second are no load.
pub(super) const MIN_PER_S: f64 = 10.0;
/// On fast devices a limit in milliseconds says nothing: then the share of a request's time that is not the device's.
const MIN_KAVG_SHARE: f64 = 0.5;
/// A device that takes so much of a request's time explains it.
const EXPLAINED: f64 = 0.5;
/// Below this mean time, ns, a request costs its wake-ups, and waits for the VM's own threads; esxtop's guides name 2 ms.
const MIN_KAVG_NS: f64 = 1e6;
/// Fewer slow requests, mean of those that are under way, are no load.
pub(super) const MIN_WAITING: f64 = 0.5;
/// An iothread or a main loop on a CPU for so long is the bottleneck of its disks.
pub(super) const BUSY_IOTHREAD: f64 = 0.8;
/// Dropped packets a second from which on they are worth a line.
const MIN_DROPS_PER_S: f64 = 1.0;

pub(super) const VM_SLOW_DEVICE: Rule = Rule {
    id: "vm-slow-device",
    finds: "requests of a VM that take 20 ms and more, as those of all processes on the host's block device do",
    remedies: &[
        measurement(
            "See which layer the requests wait in",
            "vmtax profile --vm VM",
        ),
        instruction("See who else uses the device", "iostat -x 1"),
    ],
    source: "VMware, Interpreting esxtop Statistics: DAVG",
    evaluate: |evidence| {
        each_loaded(evidence, |vm, disk, per_s| {
            let ns = slow_device(disk)?;
            let device = disk.device.as_ref()?;
            let text = format!(
                "Requests on {} take {} (BLKAVG), {} a second; those of all processes on the host's {} take {}.{}",
                disk.name,
                nanoseconds(disk.io?.blkavg_ns?),
                significant(per_s),
                device.name,
                nanoseconds(device.mean_ns?),
                who_else(evidence, &device.name)
            );
            Some(Finding::of_vm(vm, text, waiting(per_s, ns)))
        })
    },
};

pub(super) const VM_QUEUED_REQUESTS: Rule = Rule {
    id: "vm-queued-requests",
    finds: "requests that spend most of their time in QEMU and the host's kernel, not at the host's block device that is the disk",
    remedies: &[
        Setting::named("aio").remedy(
            "io_uring",
            "Submit requests without a pool of threads, past the host's page cache",
        ),
        measurement(
            "See in which functions QEMU spends the time",
            "vmtax profile --vm VM",
        ),
    ],
    source: "VMware, Interpreting esxtop Statistics: KAVG",
    evaluate: |evidence| {
        each_loaded(evidence, |vm, disk, per_s| {
            let (kavg, blkavg) = (disk.kavg_ns?, disk.io.as_ref()?.blkavg_ns?);
            let share = kavg / blkavg;
            let text = format!(
                "Requests on {} take {} (BLKAVG), of which {} ({}) in QEMU and the host's kernel (KAVG).",
                disk.name,
                nanoseconds(blkavg),
                nanoseconds(kavg),
                percent(share)
            );
            (share >= MIN_KAVG_SHARE && kavg >= MIN_KAVG_NS)
                .then(|| Finding::of_vm(vm, text, waiting(per_s, kavg)))
        })
    },
};

pub(super) const VM_SLOW_REQUESTS: Rule = Rule {
    id: "vm-slow-requests",
    finds: "requests of a disk that take 20 ms and more in QEMU and below, of which the host's device takes less than half, and which wait for no limit and for no busy iothread or main loop",
    remedies: &[
        measurement(
            "See which layer the requests wait in",
            "vmtax layers --vm VM",
        ),
        instruction(
            "See what serves the file: a network file system, a storage daemon",
            "findmnt -T FILE",
        ),
    ],
    source: "VMware, Interpreting esxtop Statistics: GAVG",
    evaluate: |evidence| {
        let finding = |vm: &VmRates, disk: &DiskRates| {
            let io = disk.io?;
            let ns = io.blkavg_ns.filter(|ns| *ns >= SLOW_DEVICE_NS)?;
            let mut disks = vm.settings.disks.iter();
            let settings = disks.find(|settings| settings.name == disk.name);
            let limits = settings.and_then(|settings| settings.limits.as_ref());
            let is_limited = limits.is_some_and(|limits| limit_reached(vm, limits).is_some());
            // What is left is KAVG where it is known, which has a rule of its own.
            let has_kavg = disk.kavg_ns.is_some() && io.per_s() >= MIN_PER_S;
            let is_explained = has_kavg
                || slow_device(disk).is_some_and(|of_device| of_device >= EXPLAINED * ns)
                || settings.is_some_and(|settings| waits_for_its_thread(vm, settings));
            let text = format!(
                "Requests on {} take {} in QEMU and below (BLKAVG); the guest makes {} a second.",
                disk.name,
                nanoseconds(ns),
                significant(io.per_s())
            );
            let file = settings.map_or_else(String::new, |settings| {
                settings.file.to_string_lossy().into_owned()
            });
            let gain = waiting(io.per_s(), ns);
            (!is_limited && !is_explained && gain >= MIN_WAITING).then(|| Finding {
                values: vec![("VM", vm.argument()), ("FILE", shell_line(&[file]))],
                ..Finding::with_gain(text, gain)
            })
        };
        evidence
            .vm
            .into_iter()
            .flat_map(|vm| vm.disks.iter().filter_map(|disk| finding(vm, disk)))
            .collect()
    },
};

pub(super) const VM_DROPS: Rule = Rule {
    id: "vm-drops",
    finds: "packets of a VM that its tap device drops",
    remedies: &[
        Setting::named("rx_queue_size").remedy("1024", "Give the guest a longer receive queue"),
        instruction(
            "See whether the guest's vCPUs get their CPUs (%RDY)",
            "vmtax top VM",
        ),
    ],
    source: "Linux kernel documentation, Interface statistics: tx_dropped",
    evaluate: |evidence| {
        about_vm(evidence, |vm| {
            let (to, from) = vm.nics.iter().fold((0.0, 0.0), |(to, from), nic| {
                (to + nic.rx_dropped_per_s, from + nic.tx_dropped_per_s)
            });
            let text = format!(
                "The tap device drops {} packets a second to the guest and {} from it, of {} in all.",
                significant(to),
                significant(from),
                significant(vm.packets_per_s())
            );
            (vm.drops_per_s() >= MIN_DROPS_PER_S).then(|| Finding::of_vm(vm, text, 0.0))
        })
    },
};

/// The part of the interval in which a request is under way, by their number a second and their mean time.
pub(super) fn waiting(per_s: f64, ns: f64) -> f64 {
    (per_s * ns / 1e9).min(1.0)
}

/// Mean time of the requests that is the host's device's at most, ns, where that and the requests are slow. Requests that
/// the host's page cache answers do not wait for the device, however slow it is for others.
fn slow_device(disk: &DiskRates) -> Option<f64> {
    let ns = disk.device.as_ref()?.mean_ns?.min(disk.io?.blkavg_ns?);
    (ns >= SLOW_DEVICE_NS).then_some(ns)
}

/// Returns true if the disk's iothread, else the main loop, is on a CPU so much that its requests wait for it.
fn waits_for_its_thread(vm: &VmRates, disk: &DiskSettings) -> bool {
    let serves = |thread: &ThreadRates| match &thread.role {
        Role::Main => disk.iothread.is_none(),
        Role::Iothread(name) => is_served(disk, name),
        _ => false,
    };
    let mut threads = vm.threads.iter();
    threads.any(|thread| thread.run >= BUSY_IOTHREAD && serves(thread))
}

/// Returns true if the iothread serves the disk. The kernel cuts its thread's name.
pub(super) fn is_served(disk: &DiskSettings, iothread: &str) -> bool {
    let name = disk.iothread.as_deref();
    name.is_some_and(|name| {
        name == iothread || (iothread.len() == 12 && name.starts_with(iothread))
    })
}

/// Returns the findings of each disk under load; `find` gets its requests per second.
fn each_loaded(
    evidence: &Evidence<'_>,
    find: impl Fn(&VmRates, &DiskRates, f64) -> Option<Finding>,
) -> Vec<Finding> {
    let Some(vm) = evidence.vm else {
        return Vec::new();
    };
    let found = |disk: &DiskRates| {
        let per_s = disk.io?.per_s();
        let finding = find(vm, disk, Some(per_s).filter(|per_s| *per_s >= MIN_PER_S)?)?;
        Some(Finding {
            part: VmPart::Disk(disk.name.clone()),
            ..finding
        })
    };
    vm.disks.iter().filter_map(found).collect()
}

#[cfg(test)]
mod tests {
    use crate::test_evidence::says;
    use vmtax_findings::{DeviceRates, DiskRates, IoRates, NicRates, ThreadRates, VmRates};
    use vmtax_model::{DiskSettings, IoLimits, Role};

    fn disk(reads_per_s: f64, blkavg_ns: f64, device_ns: f64, kavg_ns: Option<f64>) -> VmRates {
        let io = Some(IoRates {
            reads_per_s,
            blkavg_ns: Some(blkavg_ns),
            ..IoRates::default()
        });
        let device = Some(DeviceRates {
            name: "sda".to_owned(),
            per_s: reads_per_s,
            mean_ns: Some(device_ns),
        });
        let disk = DiskRates {
            name: "vd0".to_owned(),
            io,
            device,
            kavg_ns,
            ..DiskRates::default()
        };
        VmRates {
            disks: vec![disk],
            ..VmRates::default()
        }
    }

    #[test]
    fn a_slow_device_is_found_under_load_alone() {
        assert_eq!(
            says("vm-slow-device", &disk(50.0, 31e6, 30e6, None)),
            [
                "Requests on vd0 take 31.0 ms (BLKAVG), 50.0 a second; those of all processes on the host's sda take 30.0 ms."
            ]
        );
        let none = [
            disk(50.0, 6e6, 5e6, None),
            disk(1.0, 31e6, 30e6, None),
            disk(50.0, 1e6, 30e6, None),
        ];
        assert!(none.iter().all(|vm| says("vm-slow-device", vm).is_empty()));
    }

    #[test]
    fn slow_requests_are_found_where_neither_the_device_nor_a_limit_explains_them() {
        let findings_for = |reads_per_s, ns, limits, mean_ns| {
            let mut vm = disk(reads_per_s, ns, 0.0, None);
            vm.disks[0].device = Some(DeviceRates {
                name: "sda".to_owned(),
                per_s: 1.0,
                mean_ns,
            });
            let settings = DiskSettings {
                name: "vd0".to_owned(),
                file: "null-co://".into(),
                limits,
                ..DiskSettings::default()
            };
            vm.settings.disks.push(settings);
            says("vm-slow-requests", &vm)
        };
        let limit = |all| {
            Some(IoLimits {
                requests_per_s: [all, 0, 0],
                ..IoLimits::default()
            })
        };
        let slow = [
            "Requests on vd0 take 41.0 ms in QEMU and below (BLKAVG); the guest makes 24.0 a second.",
        ];
        assert_eq!(findings_for(24.0, 41e6, None, None), slow);
        assert_eq!(
            findings_for(24.0, 41e6, limit(1000), None),
            slow,
            "the limit is not reached"
        );
        assert_eq!(
            findings_for(24.0, 41e6, None, Some(1e6)),
            slow,
            "the device is fast"
        );
        assert_eq!(
            findings_for(40.0, 31e6, None, Some(19e6)).len(),
            1,
            "no other rule names a device of 19 ms"
        );
        let none = [
            findings_for(24.0, 19e6, None, None),
            findings_for(10.0, 41e6, None, None),
            findings_for(24.0, 41e6, limit(25), None),
            findings_for(24.0, 41e6, None, Some(30e6)),
        ];
        assert!(none.iter().all(Vec::is_empty), "{none:?}");
        assert_eq!(
            says("vm-slow-requests", &disk(50.0, 31e6, 10e6, Some(21e6))),
            [""; 0],
            "KAVG says it"
        );
        let of_thread = |iothread: Option<&str>, role, run| {
            let mut vm = disk(50.0, 31e6, 0.0, None);
            vm.settings.disks.push(DiskSettings {
                name: "vd0".to_owned(),
                iothread: iothread.map(str::to_owned),
                ..DiskSettings::default()
            });
            vm.threads.push(ThreadRates {
                tid: 7,
                role,
                run,
                ready: 0.0,
                turns_per_s: 0.0,
                throttled: None,
            });
            says("vm-slow-requests", &vm).len()
        };
        let of_iothread = |run| of_thread(Some("io1"), Role::Iothread("io1".to_owned()), run);
        assert_eq!(
            [of_iothread(0.79), of_iothread(0.8)],
            [1, 0],
            "a busy iothread has a rule of its own"
        );
        let of_main_loop = |iothread| of_thread(iothread, Role::Main, 0.9);
        assert_eq!(
            [of_main_loop(None), of_main_loop(Some("io1"))],
            [0, 1],
            "and so has the main loop, of the disks that it serves"
        );
        assert_eq!(
            says("vm-slow-requests", &disk(2.0, 500e6, 1e6, Some(499e6))).len(),
            1,
            "too few for KAVG's rule"
        );
    }

    #[test]
    fn queueing_in_the_host_is_found_by_its_share() {
        assert_eq!(
            says("vm-queued-requests", &disk(500.0, 4e6, 1e6, Some(3e6))),
            [
                "Requests on vd0 take 4.00 ms (BLKAVG), of which 3.00 ms (75 %) in QEMU and the host's kernel (KAVG)."
            ]
        );
        let none = [
            disk(500.0, 9e6, 6e6, Some(3e6)),
            disk(500.0, 4e6, 1e6, None),
            disk(500.0, 1.2e6, 0.3e6, Some(0.9e6)),
        ];
        assert!(
            none.iter()
                .all(|vm| says("vm-queued-requests", vm).is_empty())
        );
    }

    #[test]
    fn drops_are_found_from_one_a_second_on() {
        let findings_for = |rx_dropped_per_s| {
            let nic = NicRates {
                rx_dropped_per_s,
                rx_packets_per_s: 800.0,
                ..NicRates::default()
            };
            says(
                "vm-drops",
                &VmRates {
                    nics: vec![nic],
                    ..VmRates::default()
                },
            )
        };
        assert_eq!(
            findings_for(25.0),
            [
                "The tap device drops 25.0 packets a second to the guest and 0 from it, of 800 in all."
            ]
        );
        assert_eq!(findings_for(0.5), [""; 0]);
    }
}
