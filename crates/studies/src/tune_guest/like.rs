//! A guest that is the twin of somebody's VM.

use vmtax_configuration::Twin;
use vmtax_model::{Guest, Machine, TwinOf};

/// The part of the host's free memory that a twin takes at most.
const MEMORY_PART: f64 = 0.6;
/// A Linux guest with vmtax in it, MiB.
const MIN_MEMORY: u64 = 256;
/// The written data of a scratch disk, bytes.
const WRITTEN: u64 = 256 << 20;
/// A larger image takes too long to make, bytes.
const MAX_SIZE: u64 = 64 << 30;

/// The machine that runs the twin, where the user names none.
pub(super) fn machine(twin: &Twin, usual: Machine) -> Machine {
    if twin.is_kvm == Some(false) {
        Machine::TCG
    } else {
        usual
    }
}

/// The guest that the twin is on a machine.
pub(super) fn guest(twin: &mut Twin, machine: Machine) -> Guest {
    let mut lacks = Vec::new();
    if !machine.has_kernel() {
        lacks.push("machine type, CPU, memory: the micro-guest has its own".to_owned());
    }
    if twin.is_kvm == Some(true) && !machine.is_kvm() {
        lacks.push("accelerator kvm: replaced by TCG".to_owned());
    }
    let is_hosts = twin
        .cpu_model
        .as_ref()
        .is_some_and(|model| model == "host" || model.starts_with("host,"));
    if is_hosts && !machine.is_kvm() {
        lacks.push("CPU model host: without KVM it is QEMU's max".to_owned());
        twin.cpu_model = None;
    }
    let most = (available_mib().unwrap_or(u64::MAX) as f64 * MEMORY_PART) as u64;
    let memory_mib = twin.memory_mib.clamp(MIN_MEMORY, most.max(MIN_MEMORY));
    if memory_mib != twin.memory_mib {
        lacks.push(format!(
            "memory of {} MiB: {memory_mib} MiB, as the host's free memory or vmtax's guest asks for",
            twin.memory_mib
        ));
    }
    twin.not_twinned.extend(lacks);
    Guest {
        cpus: twin.cpus,
        memory_mib: u32::try_from(memory_mib).unwrap_or(u32::MAX),
        qemu: twin.qemu.clone(),
        cpu_model: twin.cpu_model.clone(),
        machine_type: twin.machine_type.clone(),
        ..Guest::default()
    }
}

/// Gives a qcow2 image the original's size where its L2 cache does not cover that, and the disk is read: the rest of the image is
/// allocated, but not written. All other disks have the size of the written data.
pub(super) fn size(twin: &mut Twin, is_uncovered: bool, writes: bool) {
    let Some(size) = twin.disk.size else { return };
    let mebibytes = |bytes: u64| format!("{} MiB", bytes >> 20);
    if is_uncovered && !writes && size > WRITTEN {
        let used = size.min(MAX_SIZE);
        twin.disk
            .set
            .insert("image.size".to_owned(), used.to_string());
        if used < size {
            twin.not_twinned
                .push(format!("image of {}: {}", mebibytes(size), mebibytes(used)));
        }
        twin.not_twinned.push(format!(
            "data of the image: what is not in its first {} reads as zeros",
            mebibytes(WRITTEN)
        ));
        twin.disk.size = Some(used);
    } else if size != WRITTEN {
        twin.not_twinned.push(format!(
            "image of {}: {} of data",
            mebibytes(size),
            mebibytes(WRITTEN)
        ));
        twin.disk.size = Some(WRITTEN);
    }
}

/// Returns the part of a test guest's configuration that the plan records.
pub(super) fn notes(twin: Twin) -> TwinOf {
    TwinOf {
        source: twin.source,
        disk: twin.disk.name,
        image: twin.disk.file,
        not_twinned: twin.not_twinned,
        domain_name: twin.domain_name,
        domain_xml: twin.domain_xml,
    }
}

/// The host's free memory, MiB: `MemAvailable`.
fn available_mib() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    Some(vmtax_host::meminfo(&text, "MemAvailable")? >> 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmtax_configuration::TwinDisk;

    fn twin() -> Twin {
        Twin {
            cpu_model: Some("host,-vmx".to_owned()),
            is_kvm: Some(true),
            memory_mib: 1 << 40,
            cpus: 3,
            ..Twin::default()
        }
    }

    #[test]
    fn a_twin_fits_the_host_and_says_what_it_has_not() {
        let mut kvm = twin();
        let made = guest(&mut kvm, Machine::KVM);
        assert!(
            made.memory_mib < u32::MAX
                && made.cpus == 3
                && made.cpu_model.as_deref() == Some("host,-vmx")
        );
        assert_eq!(kvm.not_twinned.len(), 1, "{:?}", kvm.not_twinned);
        let mut tcg = twin();
        assert_eq!(guest(&mut tcg, Machine::TCG).cpu_model, None);
        assert_eq!(tcg.not_twinned.len(), 3, "{:?}", tcg.not_twinned);
        assert_eq!(
            machine(
                &Twin {
                    is_kvm: Some(false),
                    ..twin()
                },
                Machine::KVM
            ),
            Machine::TCG
        );
    }

    #[test]
    fn an_image_whose_cache_is_too_small_keeps_its_size_for_reads() {
        let image_size = |is_uncovered, writes| {
            let disk = TwinDisk {
                size: Some(128 << 30),
                ..TwinDisk::default()
            };
            let mut twin = Twin {
                disk,
                ..Twin::default()
            };
            size(&mut twin, is_uncovered, writes);
            (
                twin.disk.set.get("image.size").cloned(),
                twin.disk.size,
                twin.not_twinned.len(),
            )
        };
        assert_eq!(
            image_size(true, false),
            (Some(MAX_SIZE.to_string()), Some(MAX_SIZE), 2)
        );
        assert_eq!(
            (image_size(true, true), image_size(false, false)),
            ((None, Some(WRITTEN), 1), (None, Some(WRITTEN), 1))
        );
    }
}
