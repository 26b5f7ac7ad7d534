//! Known costs that the configuration of a VM shows: CPU, timers, memory, what Windows needs.

use super::configured::of_configuration;
use crate::rule::{instruction, measurement};
use crate::{Finding, Rule};
use vmtax_model::VmConfiguration;

/// Every rule about these, what costs most first.
pub(super) const CONFIGURED_GUEST: &[Rule] = &[
    HIDDEN_HYPERVISOR,
    WINDOWS_ENLIGHTENMENTS,
    WINDOWS_HPET,
    WINDOWS_SOCKETS,
    IRQCHIP,
    CPU_MODEL,
    KVM_FEATURES,
    HUGE_PAGES,
    USB_TABLET,
    WRAPPER,
];

/// Those that the command line of a running VM shows, too, as settings worth checking; what its disks and cards cost is measured.
pub(super) const OF_RUNNING_VM: &[Rule] = &[
    HIDDEN_HYPERVISOR,
    WINDOWS_ENLIGHTENMENTS,
    WINDOWS_HPET,
    WINDOWS_SOCKETS,
    IRQCHIP,
    KVM_FEATURES,
];

/// Enlightenments that QEMU's documentation asks for, of which an idle Windows guest without some runs timers by an emulated device.
pub(super) const WANTED: [&str; 10] = [
    "relaxed",
    "vapic",
    "spinlocks",
    "vpindex",
    "runtime",
    "synic",
    "stimer",
    "time",
    "frequencies",
    "ipi",
];
/// A smaller guest needs few entries of the TLB.
const LARGE_GUEST: u64 = 16 << 30;

const HIDDEN_HYPERVISOR: Rule = Rule {
    id: "configured-hidden-hypervisor",
    finds: "a guest from which KVM is hidden, so that it uses none of its paravirtual clocks, interrupts and idle states",
    remedies: &[instruction(
        "Show KVM to the guest, unless a driver refuses to run then",
        "-cpu …,kvm=on # libvirt: <features><kvm><hidden state='off'/></kvm></features> # Proxmox: qm set VMID --cpu TYPE,hidden=0",
    )],
    source: "360 Zhihui Cloud: a guest that sees KVM makes twice the requests a second (haltpoll)",
    evaluate: |evidence| {
        of_configuration(evidence, |vm| {
            let is_off = |name| vm.cpu_features.get(name) == Some(&false);
            // Windows has enlightenments in place of KVM's clock, which a hidden KVM does not take away.
            let is_hidden = vm.windows.is_none() && (is_off("kvm") || is_off("hypervisor"));
            is_hidden.then(|| {
                "KVM is hidden from the guest: it uses neither kvm-clock nor other help of KVM."
                    .to_owned()
            })
        })
    },
};

const WINDOWS_ENLIGHTENMENTS: Rule = Rule {
    id: "configured-windows-enlightenments",
    finds: "a Windows guest without some of the Hyper-V enlightenments that QEMU's documentation asks for (unproven here)",
    remedies: &[
        instruction(
            "Switch them on",
            "-cpu …,FLAGS # libvirt: <hyperv mode='custom'> with each of NAMES, and <timer name='hypervclock' present='yes'/> # Proxmox: qm set VMID --ostype win11",
        ),
        measurement(
            "Measure an idle guest before and after: EXIT/s and %RUN",
            "vmtax top VM",
        ),
    ],
    source: "OpenNebula/addon-storpool#79: an idle Windows guest takes 1 to 3 % of a CPU in place of 30 to 40 % with hv-synic and hv-stimer",
    evaluate: |evidence| {
        let missing = evidence
            .configuration
            .map(missing_enlightenments)
            .unwrap_or_default();
        // The clock is a timer of libvirt's.
        let elements: Vec<&str> = missing
            .iter()
            .copied()
            .filter(|name| *name != "time")
            .collect();
        let flags: Vec<String> = missing.iter().map(|name| flag(name)).collect();
        let found = of_configuration(evidence, |vm| {
            let why = vm.windows.as_ref().filter(|_| !missing.is_empty())?;
            Some(format!(
                "The guest is Windows ({why}), and {} of {} Hyper-V enlightenments are missing: {}.",
                missing.len(),
                WANTED.len(),
                missing.join(", ")
            ))
        });
        let values = vec![("FLAGS", flags.join(",")), ("NAMES", elements.join(", "))];
        with_values(found, &values)
    },
};

const WINDOWS_HPET: Rule = Rule {
    id: "configured-windows-hpet",
    finds: "a Windows guest with an HPET and without both timer and clock of Hyper-V: each of its ticks is an interrupt of a device that QEMU emulates (unproven here)",
    remedies: &[
        instruction(
            "Remove the HPET, once the guest has hv-time and hv-stimer",
            "-machine …,hpet=off # libvirt: <timer name='hpet' present='no'/> # Proxmox: qm set VMID --args '-machine hpet=off'",
        ),
        measurement(
            "See how often the guest reads and sets it",
            "vmtax exits --vm VM",
        ),
    ],
    source: "OpenNebula/one#6298: with an HPET an idle Windows guest keeps QEMU busy (virt-manager/virt-manager#205 has a guest that needs it)",
    evaluate: |evidence| {
        of_configuration(evidence, |vm| {
            let lacks_timers = missing_enlightenments(vm)
                .iter()
                .any(|name| ["stimer", "time"].contains(name));
            let found = vm.windows.is_some() && vm.hpet != Some(false) && lacks_timers;
            found.then(|| "Windows has an HPET and not both of Hyper-V's timer and clock (stimer, time): it sets and reads a device that QEMU emulates.".to_owned())
        })
    },
};

const WINDOWS_SOCKETS: Rule = Rule {
    id: "configured-windows-sockets",
    finds: "a Windows guest with more than two CPU sockets, of which its client editions use no more",
    remedies: &[instruction(
        "Give it cores in place of sockets",
        "-smp CPUS,sockets=1,cores=CPUS # libvirt: <topology sockets='1' cores='CPUS' threads='1'/> # Proxmox: qm set VMID --sockets 1 --cores CPUS",
    )],
    source: "Microsoft, Windows 11 editions: Home uses one CPU socket, Pro two",
    evaluate: |evidence| {
        let found = of_configuration(evidence, |vm| {
            let sockets = vm
                .sockets
                .filter(|sockets| *sockets > 2 && vm.windows.is_some())?;
            Some(format!(
                "The guest is Windows and has {sockets} CPU sockets: client editions use two at most."
            ))
        });
        let cpus = evidence.configuration.map_or(1, |vm| vm.cpus).to_string();
        with_values(found, &[("CPUS", cpus)])
    },
};

const IRQCHIP: Rule = Rule {
    id: "configured-irqchip",
    finds: "a guest whose interrupt controllers are partly or wholly in QEMU instead of KVM",
    remedies: &[instruction(
        "Leave them to KVM, unless the guest has an emulated IOMMU",
        "-machine …,kernel-irqchip=on # libvirt: <features><ioapic driver='kvm'/></features>",
    )],
    source: "QEMU manual page, -accel: kernel-irqchip",
    evaluate: |evidence| {
        of_configuration(evidence, |vm| {
            match vm.irqchip.as_deref() {
            Some("off") => Some("QEMU emulates every interrupt controller (kernel-irqchip=off): each interrupt goes through it.".to_owned()),
            Some("split") => Some("QEMU emulates PIC and IOAPIC (kernel-irqchip=split): interrupts of devices without MSI go through it.".to_owned()),
            _ => None,
        }
        })
    },
};

const CPU_MODEL: Rule = Rule {
    id: "configured-cpu-model",
    finds: "a guest of KVM with a generic CPU model, which has few of the host CPU's instructions",
    remedies: &[
        instruction(
            "Use -cpu host, unless the VM must migrate to older hosts",
            "-cpu host # libvirt: <cpu mode='host-passthrough'/> # Proxmox: qm set VMID --cpu host",
        ),
        measurement(
            "Measure it with your own command",
            "vmtax compare cpu-model=MODEL cpu-model=host -- exec COMMAND",
        ),
    ],
    source: "QEMU documentation, QEMU / KVM CPU model configuration",
    evaluate: |evidence| {
        let found = of_configuration(evidence, |vm| {
            let model = vm.cpu_model.as_deref().unwrap_or("QEMU's default, qemu64");
            let is_generic = [
                "qemu64",
                "kvm64",
                "QEMU's default, qemu64",
                "x86-64-v1",
                "pentium3",
            ]
            .contains(&model);
            let found =
                is_generic && vm.is_kvm != Some(false) && vm.cpu_features.get("aes") != Some(&true);
            found.then(|| format!("The guest's CPU is {model}: it has no AES, AVX and other instructions of the host."))
        });
        // QEMU has no x86-64-v1: that is qemu64.
        let model = evidence
            .configuration
            .and_then(|vm| vm.cpu_model.as_deref());
        let model = model
            .filter(|model| *model != "x86-64-v1")
            .unwrap_or("qemu64");
        let values = vec![("MODEL", model.to_owned())];
        found
            .into_iter()
            .map(|finding| Finding {
                values: values.clone(),
                ..finding
            })
            .collect()
    },
};

const KVM_FEATURES: Rule = Rule {
    id: "configured-kvm-features",
    finds: "features of the CPU and of KVM that are switched off though they save exits: kvmclock, PV EOI, x2APIC, the TSC-deadline timer",
    remedies: &[instruction("Leave them on", "-cpu … # without OFF")],
    source: "Linux commit ae7a2a3fb6f8: PV EOI saves up to half of the exits of an interrupt",
    evaluate: |evidence| {
        let is_off = |vm: &VmConfiguration| -> Vec<String> {
            let known = ["kvmclock", "kvm-pv-eoi", "x2apic", "tsc-deadline"];
            let off = |name: &&str| vm.cpu_features.get(*name) == Some(&false);
            known.into_iter().filter(off).map(str::to_owned).collect()
        };
        let off = evidence.configuration.map(is_off).unwrap_or_default();
        let found = of_configuration(evidence, |_| {
            (!off.is_empty()).then(|| {
                format!(
                    "The guest's CPU lacks what saves VM exits: {} off.",
                    off.join(", ")
                )
            })
        });
        let names = off
            .iter()
            .map(|name| format!("{name}=off"))
            .collect::<Vec<_>>()
            .join(", ");
        with_values(found, &[("OFF", names)])
    },
};

const HUGE_PAGES: Rule = Rule {
    id: "configured-huge-pages",
    finds: "a guest of 16 GiB and more whose memory is not of huge pages by its configuration",
    remedies: &[
        instruction(
            "Enable transparent huge pages on the host, or reserve huge pages for the guest",
            "-object memory-backend-memfd,hugetlb=on,… # libvirt: <memoryBacking><hugepages/></memoryBacking> # Proxmox: qm set VMID --hugepages 2",
        ),
        measurement(
            "See how much of it is in huge pages now",
            "vmtax diagnose VM",
        ),
    ],
    source: "Intel 749114 (crosvm): 70 % fewer exits by page faults, 3 % more speed",
    evaluate: |evidence| {
        of_configuration(evidence, |vm| {
            let found = vm.memory >= LARGE_GUEST && !vm.has_huge_pages && vm.is_kvm != Some(false);
            found.then(|| {
                format!(
                    "The guest's {} GiB are in huge pages only if the host makes them so.",
                    vm.memory >> 30
                )
            })
        })
    },
};

const USB_TABLET: Rule = Rule {
    id: "configured-usb-tablet",
    finds: "a guest with a USB tablet, for which the USB controller wakes QEMU regularly",
    remedies: &[instruction(
        "Remove it where nobody uses the guest's screen",
        "remove -device usb-tablet # libvirt: remove <input type='tablet' bus='usb'/> # Proxmox: qm set VMID --tablet 0",
    )],
    source: "Proxmox VE, qm.conf(5), tablet: without it some context switches are saved",
    evaluate: |evidence| {
        of_configuration(evidence, |vm| {
            vm.has_usb_tablet.then(|| "The guest has a USB tablet: its controller wakes QEMU, also while the guest is idle.".to_owned())
        })
    },
};

const WRAPPER: Rule = Rule {
    id: "configured-wrapper",
    finds: "a program before QEMU that decides on which CPUs, with which priority or within which limits it runs",
    remedies: &[measurement(
        "See whether its threads wait for a CPU: %RDY and %THR",
        "vmtax top VM",
    )],
    source: "Linux manual pages, taskset(1), nice(1), cgexec(1)",
    evaluate: |evidence| {
        of_configuration(evidence, |vm| {
            let names = vm.wrappers.join(", ");
            (!names.is_empty()).then(|| {
                format!("Programs before QEMU decide where and how much it runs: {names}.")
            })
        })
    },
};

/// The wanted enlightenments that a Windows guest does not have.
fn missing_enlightenments(vm: &VmConfiguration) -> Vec<&'static str> {
    if vm.windows.is_none() || vm.has_all_enlightenments {
        return Vec::new();
    }
    let is_missing = |name: &&&str| vm.enlightenments.get(**name) != Some(&true);
    WANTED.iter().filter(is_missing).copied().collect()
}

/// QEMU's flag of an enlightenment.
fn flag(name: &str) -> String {
    let value = if name == "spinlocks" { "=0x1fff" } else { "" };
    format!("hv-{name}{value}")
}

/// Findings whose remedies have these words filled in.
fn with_values(mut found: Vec<Finding>, values: &[(&'static str, String)]) -> Vec<Finding> {
    for finding in &mut found {
        finding.values = values.to_vec();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::configured::tests::{fast, found_in};
    use super::*;

    fn with(change: impl FnOnce(&mut VmConfiguration)) -> Vec<&'static str> {
        let mut vm = fast();
        change(&mut vm);
        found_in(&vm)
    }

    fn switched(name: &'static str, is_on: bool) -> [(String, bool); 1] {
        [(name.to_owned(), is_on)]
    }

    #[test]
    fn each_cost_of_a_guest_is_found() {
        assert_eq!(
            with(|vm| vm.cpu_features.extend(switched("kvm", false))),
            ["configured-hidden-hypervisor"]
        );
        assert_eq!(
            with(|vm| vm.irqchip = Some("split".to_owned())),
            ["configured-irqchip"]
        );
        assert_eq!(with(|vm| vm.cpu_model = None), ["configured-cpu-model"]);
        assert_eq!(
            with(|vm| vm.cpu_features.extend(switched("kvm-pv-eoi", false))),
            ["configured-kvm-features"]
        );
        assert_eq!(
            with(|vm| vm.memory = LARGE_GUEST),
            ["configured-huge-pages"]
        );
        assert_eq!(
            with(|vm| vm.has_usb_tablet = true),
            ["configured-usb-tablet"]
        );
        assert_eq!(
            with(|vm| vm.wrappers.push("taskset".to_owned())),
            ["configured-wrapper"]
        );
        // A Linux guest needs none of what Windows does.
        assert_eq!(with(|vm| vm.sockets = Some(4)), [""; 0]);
    }

    #[test]
    fn the_vms_own_cpu_model_is_compared() {
        let line = |model: Option<&str>| {
            let vm = VmConfiguration {
                cpu_model: model.map(str::to_owned),
                ..fast()
            };
            let evidence = crate::Evidence {
                configuration: Some(&vm),
                ..crate::Evidence::default()
            };
            crate::review(&evidence)[0].remedies[1].line.clone()
        };
        assert_eq!(
            line(Some("kvm64")),
            "vmtax compare cpu-model=kvm64 cpu-model=host -- exec COMMAND"
        );
        for model in [None, Some("x86-64-v1")] {
            assert!(line(model).starts_with("vmtax compare cpu-model=qemu64 "));
        }
    }

    #[test]
    fn windows_needs_its_enlightenments() {
        let windows = |vm: &mut VmConfiguration| vm.windows = Some("its name is win".to_owned());
        let bare = with(|vm| {
            windows(vm);
            vm.sockets = Some(4);
        });
        let expected = [
            "configured-windows-enlightenments",
            "configured-windows-hpet",
            "configured-windows-sockets",
        ];
        assert_eq!(bare, expected);
        let complete = with(|vm| {
            windows(vm);
            vm.enlightenments = WANTED
                .iter()
                .map(|name| ((*name).to_owned(), true))
                .collect();
        });
        assert_eq!(complete, [""; 0]);
        let by_manager = with(|vm| {
            windows(vm);
            vm.has_all_enlightenments = true;
        });
        assert_eq!(by_manager, [""; 0]);
        let one_off = with(|vm| {
            windows(vm);
            vm.enlightenments = WANTED
                .iter()
                .map(|name| ((*name).to_owned(), *name != "ipi"))
                .collect();
        });
        assert_eq!(one_off, ["configured-windows-enlightenments"]);
    }
}
