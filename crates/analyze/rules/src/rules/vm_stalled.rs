//! Requests of a disk that stay in its virtqueue, as the guest's memory shows it: the VMM, or the storage beneath, stands still.

use crate::rule::{about_vm, instruction, measurement};
use crate::{Finding, Rule};
use vmtax_findings::VmRates;
use vmtax_model::number::counted;
use vmtax_model::{StalledQueue, Vmm};

pub(super) const VM_STALLED_REQUESTS: Rule = Rule {
    id: "vm-stalled-requests",
    finds: "a disk on virtio-blk in whose queue requests stay for a second and more without one being completed, by the virtqueue in the guest's memory",
    remedies: &[
        measurement("See what QEMU's threads wait for", "vmtax profile --vm VM"),
        instruction(
            "See whether the host's kernel logged I/O errors or hung tasks",
            "sudo dmesg --level=err,warn",
        ),
    ],
    source: "OASIS, Virtual I/O Device (VIRTIO) Version 1.2: Virtqueues",
    evaluate: |evidence| {
        about_vm(evidence, |vm| {
            // A process that is stopped has its own rule.
            let queues = vm.stalled_queues.iter();
            let queues = queues.filter(|_| vm.process_stop.is_none() && vm.stopped().is_none());
            let longest = queues.max_by(|one, other| one.seconds.total_cmp(&other.seconds))?;
            let gain = (longest.seconds / vm.seconds).min(1.0);
            Some(Finding::of_vm(vm, text(vm, longest), gain))
        })
    },
};

fn text(vm: &VmRates, queue: &StalledQueue) -> String {
    let requests = counted(u64::from(queue.requests), "request");
    let disk = disk(vm);
    let kinds = queue.operations.map_or(String::new(), kinds);
    let seconds = queue.seconds;
    let lie = if queue.requests == 1 { "lies" } else { "lie" };
    // Which process serves the queue is not known then.
    let (first, server) = match has_served_elsewhere(vm) {
        true => (
            "The VMM or the device's process",
            "the VMM or the device's process",
        ),
        false => ("QEMU", "QEMU"),
    };
    let further = match vm.stalled_queues.len() - 1 {
        0 => String::new(),
        1 => " 1 further queue is stalled, too.".to_owned(),
        n => format!(" {n} further queues are stalled, too."),
    };
    match queue.since_empty {
        Some(0) => format!(
            "{first} has taken {requests}{kinds} from the queue of {disk} and has completed none for {seconds:.1} s.{further}"
        ),
        Some(_) => format!(
            "{requests}{kinds} of the guest {lie} in the queue of {disk} for {seconds:.1} s: {server} completes none and does not empty the queue.{further}"
        ),
        None => format!(
            "{requests}{kinds} of the guest {lie} in the queue of {disk} for {seconds:.1} s: {server} completes none.{further}"
        ),
    }
}

/// The name of the disk where it is the only one that the VM can have.
fn disk(vm: &VmRates) -> String {
    let all_are_known = vm.vmm == Vmm::Qemu && vm.no_monitor.is_none() && !has_served_elsewhere(vm);
    match &vm.disks[..] {
        [only] if all_are_known => only.name.clone(),
        _ => "a virtio disk".to_owned(),
    }
}

/// Returns true for a VM with a disk that another process serves: QEMU keeps its queue's addresses, but not the disk.
fn has_served_elsewhere(vm: &VmRates) -> bool {
    let configuration = vm.settings.configuration.iter();
    let mut disks = configuration.flat_map(|vm| &vm.disks);
    disks.any(|disk| disk.bus.starts_with("vhost-user"))
}

fn kinds(operations: [u32; 4]) -> String {
    let names = ["read", "write", "flush", "other"];
    let kinds = operations.into_iter().zip(names);
    let kinds: Vec<String> = kinds
        .filter(|(count, _)| *count > 0)
        .map(|(count, name)| match (count, name) {
            (_, "flush" | "other") | (1, _) => format!("{count} {name}"),
            _ => format!("{count} {name}s"),
        })
        .collect();
    format!(" ({})", kinds.join(", "))
}

#[cfg(test)]
mod tests {
    use crate::test_evidence;
    use vmtax_findings::{DiskRates, VmRates};
    use vmtax_model::{ProcessStop, StalledQueue, Vmm};

    fn stalled(since_empty: Option<u32>) -> VmRates {
        VmRates {
            seconds: 4.0,
            disks: vec![DiskRates {
                name: "vd0".to_owned(),
                ..DiskRates::default()
            }],
            stalled_queues: vec![StalledQueue {
                requests: 8,
                seconds: 3.94,
                since_empty,
                operations: Some([7, 0, 1, 0]),
            }],
            ..VmRates::default()
        }
    }

    fn says(vm: &VmRates) -> Vec<String> {
        test_evidence::says("vm-stalled-requests", vm)
    }

    #[test]
    fn requests_that_stay_are_found_taken_or_not() {
        assert_eq!(
            says(&stalled(Some(0))),
            [
                "QEMU has taken 8 requests (7 reads, 1 flush) from the queue of vd0 and has completed none for 3.9 s."
            ]
        );
        assert_eq!(
            says(&stalled(Some(8))),
            [
                "8 requests (7 reads, 1 flush) of the guest lie in the queue of vd0 for 3.9 s: QEMU completes none and does not empty the queue."
            ]
        );
        let other = VmRates {
            vmm: Vmm::Firecracker,
            ..stalled(None)
        };
        assert_eq!(
            says(&other),
            [
                "8 requests (7 reads, 1 flush) of the guest lie in the queue of a virtio disk for 3.9 s: Firecracker completes none."
            ]
        );
    }

    #[test]
    fn a_disk_that_another_process_serves_is_not_named() {
        let served = vmtax_model::ConfiguredDisk {
            bus: "vhost-user-blk".to_owned(),
            ..Default::default()
        };
        let mut vm = stalled(Some(0));
        vm.settings.configuration = Some(vmtax_model::VmConfiguration {
            disks: vec![served],
            ..Default::default()
        });
        assert_eq!(
            says(&vm),
            [
                "The VMM or the device's process has taken 8 requests (7 reads, 1 flush) from the queue of a virtio disk and has completed none for 3.9 s."
            ]
        );
    }

    #[test]
    fn a_vm_that_is_stopped_completes_nothing() {
        let vm = VmRates {
            process_stop: Some(ProcessStop::Signal),
            ..stalled(Some(0))
        };
        assert_eq!(says(&vm), [""; 0]);
    }
}
