//! Known costs that the configuration of a VM shows: accelerator, limits, disks, network. Nothing was measured: a rule
//! says what the text has, its source what that cost others.

use super::vm_network::PASST;
use crate::rule::{TUNE_TWIN, instruction, measurement};
use crate::{Evidence, Finding, Rule};
use vmtax_model::number::counted;
use vmtax_model::{ConfiguredDisk, ConfiguredNic, Manager, Remedy, Setting, VmConfiguration};

/// Every rule about these, what costs most first.
pub(super) const CONFIGURED: &[Rule] = &[
    TCG,
    CPU_LIMIT,
    DISK_LIMIT,
    NIC_LIMIT,
    DEBUGGING,
    EMULATED_DISK,
    WRITE_THROUGH,
    EMULATED_NIC,
    USER_NETWORK,
    NO_VHOST,
    NO_IOTHREAD,
    THREAD_POOL,
    COPY_ON_READ,
    SHARE_9P,
];

const TCG: Rule = Rule {
    id: "configured-tcg",
    finds: "a configuration by which QEMU translates the guest's instructions (TCG), though KVM would execute them",
    remedies: &[instruction(
        "Use KVM; `vmtax doctor` says what it needs",
        "-accel kvm # libvirt: <domain type='kvm'> # Proxmox: qm set VMID --kvm 1",
    )],
    source: "QEMU manual, System Emulation, Introduction: KVM executes most of a guest's instructions natively",
    evaluate: |evidence| {
        of_configuration(evidence, |vm| {
            let found = vm.is_kvm == Some(false);
            found
                .then(|| "TCG runs the guest: QEMU translates each of its instructions.".to_owned())
        })
    },
};

const CPU_LIMIT: Rule = Rule {
    id: "configured-cpu-limit",
    finds: "a limit of the CPU time of a VM that is below its number of vCPUs",
    remedies: &[
        instruction(
            "Raise or remove the limit, unless it is intended",
            "cpu.max of its control group: max # libvirt: virsh schedinfo VM --set vcpu_quota=-1 --set global_quota=-1 # Proxmox: qm set VMID --delete cpulimit",
        ),
        measurement("See whether it is reached: %THR", "vmtax top VM"),
    ],
    source: "Linux kernel documentation, Control Group v2: cpu.max",
    evaluate: |evidence| {
        of_configuration(evidence, |vm| {
            let limit = vm
                .cpu_limit
                .filter(|limit| *limit < 1000 * u64::from(vm.cpus))?;
            let cpus = limit as f64 / 1000.0;
            Some(format!(
                "The VM has {} and may use the time of {cpus} host CPUs.",
                counted(vm.cpus.into(), "vCPU")
            ))
        })
    },
};

const DISK_LIMIT: Rule = Rule {
    id: "configured-disk-limit",
    finds: "a disk with a limit of its requests or bytes a second",
    remedies: &[
        instruction(
            "Raise or remove the limit, unless it is intended",
            "-drive … # without throttling.* # libvirt: virsh blkdeviotune VM DISK --total-iops-sec 0 --total-bytes-sec 0 # Proxmox: qm set VMID --DISK VOLUME # with its other options, without iops* and mbps*",
        ),
        measurement("See whether requests wait for it", "vmtax diagnose VM"),
    ],
    source: "QEMU documentation, The QEMU throttling infrastructure",
    evaluate: |evidence| {
        let manager = evidence.configuration.and_then(|vm| vm.manager);
        of_disks(evidence, |disk| {
            let limits: Vec<String> = disk
                .limits
                .iter()
                .map(|(key, value)| format!("{}={value}", limit_name(manager, key)))
                .collect();
            let text = format!(
                "Requests on {} are limited: {}.",
                disk.name,
                limits.join(", ")
            );
            (!limits.is_empty()).then_some(text)
        })
    },
};

const NIC_LIMIT: Rule = Rule {
    id: "configured-network-limit",
    finds: "a NIC with a limit of its traffic",
    remedies: &[instruction(
        "Raise or remove the limit, unless it is intended",
        "tc qdisc del dev TAP root # libvirt: virsh domiftune VM NIC --inbound 0 --outbound 0 # Proxmox: qm set VMID --NIC MODEL=MAC,bridge=BRIDGE # with its other options, without rate=",
    )],
    source: "Linux manual pages, tc(8)",
    evaluate: |evidence| {
        of_nics(evidence, |nic| {
            let limit = nic.limit.as_ref()?;
            Some(format!("Traffic of {} is limited: {limit}.", nic.name))
        })
    },
};

const DEBUGGING: Rule = Rule {
    id: "configured-debugging",
    finds: "options of QEMU that log, count or single-step what the guest executes",
    remedies: &[instruction("Start the VM without them", "")],
    source: "QEMU manual page, -icount, -d, -trace",
    evaluate: |evidence| {
        of_configuration(evidence, |vm| {
            let options = vm.debugging.join(", ");
            (!options.is_empty())
                .then(|| format!("QEMU logs or counts what the guest executes: {options}."))
        })
    },
};

const EMULATED_DISK: Rule = Rule {
    id: "configured-emulated-disk",
    finds: "a disk on a controller that QEMU emulates register by register: IDE, SATA, an old SCSI adapter",
    remedies: &[
        instruction(
            "Attach the disk as virtio; Windows first needs the driver of virtio-win",
            "-device virtio-blk-pci,drive=… # libvirt: <target dev='vdX' bus='virtio'/>, X a free letter, and no <address> # Proxmox: qm set VMID --scsihw virtio-scsi-single --SCSI_DISK VOLUME,iothread=1 # with its other options; a disk of another bus is detached first, N is a free number, and the boot order names it",
        ),
        TUNE_TWIN,
    ],
    source: "QEMU documentation, Device Emulation",
    evaluate: |evidence| {
        let mut found = of_disks(evidence, |disk| {
            // These have queues in memory, as virtio does.
            let has_queues = ["virtio", "vhost", "nvme", "pvscsi", "vmpvscsi"]
                .iter()
                .any(|known| disk.bus.starts_with(known));
            let text = format!(
                "Each request on {} takes several accesses to the registers of its controller ({}), which QEMU emulates.",
                disk.name, disk.bus
            );
            (!has_queues && !disk.bus.is_empty()).then_some(text)
        });
        for finding in &mut found {
            // A disk of another bus gets a key of SCSI's; which are free the reader sees: a CD-ROM may have one.
            let key = Some(&finding.values[0].1).filter(|key| key.starts_with("scsi"));
            let key = key.map_or("scsiN", String::as_str).to_owned();
            finding.values.push(("SCSI_DISK", key));
        }
        found
    },
};

const WRITE_THROUGH: Rule = Rule {
    id: "configured-write-through",
    finds: "a disk whose writes QEMU flushes one by one",
    remedies: &[
        Remedy {
            line: "-drive file=…,cache=none # libvirt: <driver cache='none'/> # Proxmox: qm set VMID --DISK VOLUME,cache=none # with its other options",
            ..Setting::named("cache").remedy(
                "none",
                "Do not flush each write (a guest that never flushes can lose its last writes at a power failure)",
            )
        },
        TUNE_TWIN,
    ],
    source: "QEMU manual page, -drive: cache",
    evaluate: |evidence| {
        of_disks(evidence, |disk| {
            let is_through = ["writethrough", "directsync"].contains(&disk.cache.as_str());
            is_through.then(|| {
                format!(
                    "QEMU flushes each write on {} before it completes (cache={}).",
                    disk.name, disk.cache
                )
            })
        })
    },
};

const EMULATED_NIC: Rule = Rule {
    id: "configured-emulated-nic",
    finds: "a NIC that QEMU emulates register by register: e1000, rtl8139 and others",
    remedies: &[instruction(
        "Use a virtio network card; Windows first needs the driver of virtio-win",
        "-device virtio-net-pci,netdev=… # libvirt: <model type='virtio'/> # Proxmox: qm set VMID --NIC virtio=MAC,bridge=BRIDGE # with its other options",
    )],
    source: "QEMU documentation, Network emulation",
    evaluate: |evidence| {
        of_nics(evidence, |nic| {
            let is_virtio = nic.model.is_empty() || nic.model == "virtio";
            (!is_virtio).then(|| {
                format!(
                    "QEMU emulates the registers of {} ({}): more accesses for each packet than with virtio-net.",
                    nic.name, nic.model
                )
            })
        })
    },
};

const USER_NETWORK: Rule = Rule {
    id: "configured-user-network",
    finds: "a NIC on QEMU's user-mode network (slirp)",
    remedies: &[
        Remedy {
            line: "passt --socket SOCKET # QEMU: -netdev stream,id=NIC,server=off,addr.type=unix,addr.path=SOCKET # libvirt: <interface type='user'> with <backend type='passt'/>",
            ..PASST
        },
        instruction(
            "Or use a tap on a bridge, which needs privileges",
            "-netdev tap,vhost=on,… # libvirt: <interface type='bridge'>",
        ),
    ],
    source: "the-void-ia/void-box#81: a connection by slirp takes 2.6 times as long as by passt",
    evaluate: |evidence| {
        of_nics(evidence, |nic| {
            (nic.backend == "user").then(|| {
                format!(
                    "QEMU itself is the TCP/IP stack of {} (slirp), in its main loop.",
                    nic.name
                )
            })
        })
    },
};

const NO_VHOST: Rule = Rule {
    id: "configured-no-vhost",
    finds: "a virtio NIC on a tap whose packets QEMU itself moves, without vhost-net",
    remedies: &[instruction(
        "Use vhost-net: the host's kernel moves the packets",
        "-netdev tap,vhost=on,… # libvirt: <driver name='vhost'/>",
    )],
    source: "Linux kernel, vhost-net: the host's kernel moves packets without QEMU",
    evaluate: |evidence| {
        of_nics(evidence, |nic| {
            let is_slow = nic.has_vhost == Some(false) && nic.model == "virtio";
            is_slow.then(|| {
                format!(
                    "QEMU's main loop moves each packet of {}: vhost-net is off.",
                    nic.name
                )
            })
        })
    },
};

const NO_IOTHREAD: Rule = Rule {
    id: "configured-no-iothread",
    finds: "a virtio disk that QEMU's main loop serves, without an iothread",
    remedies: &[
        instruction(
            "Give the disk an iothread of its own, where the host has a CPU for it",
            "-object iothread,id=disk-io -device virtio-blk-pci,…,iothread=disk-io # libvirt: <iothreads>1</iothreads> and <driver iothread='1'/> # Proxmox: qm set VMID --scsihw virtio-scsi-single --DISK …,iothread=1",
        ),
        TUNE_TWIN,
    ],
    source: "kata-containers/runtime#133: with an iothread reads +120 %, random writes +97 %",
    evaluate: |evidence| {
        let is_served =
            |disk: &&ConfiguredDisk| disk.bus.starts_with("virtio") && !disk.has_iothread;
        of_configuration(evidence, |vm| {
            let names: Vec<&str> = vm
                .disks
                .iter()
                .filter(is_served)
                .map(|disk| disk.name.as_str())
                .collect();
            (!names.is_empty()).then(|| {
                let (has, serves) = if names.len() == 1 {
                    ("has", "it")
                } else {
                    ("have", "them")
                };
                format!(
                    "{} {has} no iothread; the main loop serves {serves}.",
                    names.join(", ")
                )
            })
        })
    },
};

const THREAD_POOL: Rule = Rule {
    id: "configured-thread-pool",
    finds: "a disk without the host's page cache whose requests go through QEMU's pool of threads (aio=threads)",
    remedies: &[
        instruction(
            "Submit requests to the kernel directly",
            "aio=native # libvirt: <driver io='native'/> # Proxmox: qm set VMID --DISK …,aio=native",
        ),
        TUNE_TWIN,
    ],
    source: "Virtio block latency (KVM wiki, 2010): a 4 KiB read from 200 to 193 µs",
    evaluate: |evidence| {
        of_disks(evidence, |disk| {
            let is_direct = ["none", "directsync"].contains(&disk.cache.as_str());
            // A manager may choose another than QEMU's own.
            let is_pool = disk.aio.as_deref() == Some("threads");
            let text = format!(
                "A thread of QEMU's pool wakes up for each request on {} (aio=threads).",
                disk.name
            );
            (is_direct && is_pool && disk.network_storage.is_none()).then_some(text)
        })
    },
};

const COPY_ON_READ: Rule = Rule {
    id: "configured-copy-on-read",
    finds: "a disk whose reads are written into its image (copy-on-read)",
    remedies: &[instruction(
        "Switch it off once the image has what is read",
        "",
    )],
    source: "QEMU manual page, -drive: copy-on-read",
    evaluate: |evidence| {
        of_disks(evidence, |disk| {
            let text = format!(
                "The first read of each block of {} writes it into the image (copy-on-read).",
                disk.name
            );
            disk.is_copied_on_read.then_some(text)
        })
    },
};

const SHARE_9P: Rule = Rule {
    id: "configured-9p",
    finds: "a directory that QEMU shares by 9p",
    remedies: &[
        instruction(
            "Share it by virtiofs, where many small files are used",
            "-chardev socket,id=c,path=SOCKET -device vhost-user-fs-pci,chardev=c,tag=TAG # libvirt: <driver type='virtiofs'/>",
        ),
        measurement("Measure both, and the ways to mount them", "vmtax share"),
    ],
    source: "virtme-ng #9: 283.8 to 1.17 s; nixpkgs #552774: 1.00 to 1.44 times as fast",
    evaluate: |evidence| {
        of_configuration(evidence, |vm| {
            let (_, model) = vm.shares_9p.first()?;
            let tags: Vec<&str> = vm.shares_9p.iter().map(|(tag, _)| tag.as_str()).collect();
            let tag = tags.join(", ");
            let model = if ["mapped", "mapped-xattr"].contains(&model.as_str()) {
                ", with an extended attribute read for each access (mapped)"
            } else {
                ""
            };
            Some(format!(
                "Each access to {tag} is a request that QEMU answers (9p){model}."
            ))
        })
    },
};

/// A disk's limit by the name that the VM's manager has for it: Proxmox's `iops_rd`, libvirt's `read_iops_sec`.
fn limit_name(manager: Option<Manager>, key: &str) -> String {
    let mut parts = key.splitn(3, '-');
    let (Some(manager), Some(unit @ ("iops" | "bps")), Some(kind)) =
        (manager, parts.next(), parts.next())
    else {
        return key.to_owned();
    };
    let end = parts
        .next()
        .map_or(String::new(), |end| format!("_{}", end.replace('-', "_")));
    if manager == Manager::Proxmox {
        // Only bursts' lengths are not in MiB.
        let unit = if unit == "bps" && !end.ends_with("_length") {
            "mbps"
        } else {
            unit
        };
        let kind = match kind {
            "read" => "_rd",
            "write" => "_wr",
            _ => "",
        };
        return format!("{unit}{kind}{end}");
    }
    let unit = if unit == "bps" { "bytes" } else { unit };
    format!("{kind}_{unit}_sec{end}")
}

/// The finding about a configuration.
pub(super) fn of_configuration(
    evidence: &Evidence<'_>,
    text: impl Fn(&VmConfiguration) -> Option<String>,
) -> Vec<Finding> {
    let found = evidence.configuration.and_then(text);
    found.map(Finding::new).into_iter().collect()
}

/// Findings about disks: where several have the same, of the first, with the others' names.
fn of_disks(
    evidence: &Evidence<'_>,
    text: impl Fn(&ConfiguredDisk) -> Option<String>,
) -> Vec<Finding> {
    let disks = evidence.configuration.map(|vm| vm.disks.as_slice());
    let found = disks
        .unwrap_or_default()
        .iter()
        .filter_map(|disk| Some((disk.name.as_str(), text(disk)?)));
    of_first(found, "DISK")
}

/// Findings about network cards, likewise.
fn of_nics(
    evidence: &Evidence<'_>,
    text: impl Fn(&ConfiguredNic) -> Option<String>,
) -> Vec<Finding> {
    let nics = evidence.configuration.map(|vm| vm.nics.as_slice());
    let found = nics
        .unwrap_or_default()
        .iter()
        .filter_map(|nic| Some((nic.name.as_str(), text(nic)?)));
    of_first(found, "NIC")
}

fn of_first<'a>(
    mut found: impl Iterator<Item = (&'a str, String)>,
    word: &'static str,
) -> Vec<Finding> {
    let Some((name, text)) = found.next() else {
        return Vec::new();
    };
    let others: Vec<&str> = found.map(|(name, _)| name).collect();
    let text = if others.is_empty() {
        text
    } else {
        format!("{text} The same is true of {}.", others.join(", "))
    };
    vec![Finding {
        values: vec![(word, name.to_owned())],
        ..Finding::new(text)
    }]
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::configured_guest::CONFIGURED_GUEST;
    use super::*;
    use vmtax_model::Manager;

    #[test]
    fn what_stands_for_a_name_is_in_commands_alone() {
        let remedies = CONFIGURED.iter().flat_map(|rule| rule.remedies);
        for remedy in remedies {
            let mut words = remedy.action.split(|c: char| !c.is_alphanumeric());
            assert!(
                !words.any(|word| word == "DISK" || word == "NIC"),
                "{}",
                remedy.action
            );
        }
    }

    /// The rules that find something in a configuration.
    pub fn found_in(vm: &VmConfiguration) -> Vec<&'static str> {
        let evidence = Evidence {
            configuration: Some(vm),
            ..Evidence::default()
        };
        let rules = CONFIGURED.iter().chain(CONFIGURED_GUEST);
        rules
            .filter(|rule| !(rule.evaluate)(&evidence).is_empty())
            .map(|rule| rule.id)
            .collect()
    }

    /// A configuration that has no known cost.
    pub fn fast() -> VmConfiguration {
        VmConfiguration {
            is_kvm: Some(true),
            cpu_model: Some("host".to_owned()),
            cpus: 2,
            memory: 2 << 30,
            disks: vec![ConfiguredDisk {
                name: "vda".to_owned(),
                bus: "virtio-blk".to_owned(),
                cache: "none".to_owned(),
                aio: Some("native".to_owned()),
                has_iothread: true,
                ..ConfiguredDisk::default()
            }],
            nics: vec![ConfiguredNic {
                name: "net0".to_owned(),
                model: "virtio".to_owned(),
                backend: "tap".to_owned(),
                has_vhost: Some(true),
                ..ConfiguredNic::default()
            }],
            ..VmConfiguration::default()
        }
    }

    fn with(change: impl FnOnce(&mut VmConfiguration)) -> Vec<&'static str> {
        let mut vm = fast();
        change(&mut vm);
        found_in(&vm)
    }

    #[test]
    fn each_cost_is_found_and_a_fast_vm_has_none() {
        assert_eq!(found_in(&fast()), [""; 0]);
        assert_eq!(with(|vm| vm.is_kvm = Some(false)), ["configured-tcg"]);
        assert_eq!(
            with(|vm| vm.cpu_limit = Some(1500)),
            ["configured-cpu-limit"]
        );
        assert_eq!(with(|vm| vm.cpu_limit = Some(2000)), [""; 0]);
        assert_eq!(
            with(|vm| drop(
                vm.disks[0]
                    .limits
                    .insert("iops-total".to_owned(), "9".to_owned())
            )),
            ["configured-disk-limit"]
        );
        assert_eq!(
            with(|vm| vm.nics[0].limit = Some("9".to_owned())),
            ["configured-network-limit"]
        );
        assert_eq!(
            with(|vm| vm.debugging.push("-d".to_owned())),
            ["configured-debugging"]
        );
        assert_eq!(
            with(|vm| "ide".clone_into(&mut vm.disks[0].bus)),
            ["configured-emulated-disk"]
        );
        assert_eq!(
            with(|vm| "directsync".clone_into(&mut vm.disks[0].cache)),
            ["configured-write-through"]
        );
        assert_eq!(
            with(|vm| "e1000e".clone_into(&mut vm.nics[0].model)),
            ["configured-emulated-nic"]
        );
        assert_eq!(
            with(|vm| "user".clone_into(&mut vm.nics[0].backend)),
            ["configured-user-network"]
        );
        assert_eq!(
            with(|vm| vm.nics[0].has_vhost = Some(false)),
            ["configured-no-vhost"]
        );
        assert_eq!(
            with(|vm| vm.disks[0].has_iothread = false),
            ["configured-no-iothread"]
        );
        assert_eq!(
            with(|vm| vm.disks[0].aio = Some("threads".to_owned())),
            ["configured-thread-pool"]
        );
        assert_eq!(
            with(|vm| vm.disks[0].is_copied_on_read = true),
            ["configured-copy-on-read"]
        );
        assert_eq!(
            with(|vm| vm.shares_9p.push(("t".to_owned(), String::new()))),
            ["configured-9p"]
        );
    }

    #[test]
    fn a_remedy_has_the_managers_words() {
        let line_for = |manager| {
            let mut vm = VmConfiguration { manager, ..fast() };
            "ide".clone_into(&mut vm.disks[0].bus);
            let evidence = Evidence {
                configuration: Some(&vm),
                ..Evidence::default()
            };
            crate::review(&evidence)[0].remedies[0].line.clone()
        };
        assert_eq!(line_for(None), "-device virtio-blk-pci,drive=…");
        assert!(line_for(Some(Manager::Libvirt)).ends_with(
            "# libvirt: <target dev='vdX' bus='virtio'/>, X a free letter, and no <address>"
        ));
        assert_eq!(
            line_for(Some(Manager::Proxmox)),
            "qm set VMID --scsihw virtio-scsi-single --scsiN VOLUME,iothread=1 # with its other options; a disk of another bus is detached first, N is a free number, and the boot order names it"
        );
    }

    #[test]
    fn limits_have_the_names_of_the_text() {
        for (manager, key, expected) in [
            (None, "iops-total", "iops-total"),
            (Some(Manager::Proxmox), "iops-read", "iops_rd"),
            (Some(Manager::Proxmox), "bps-total-max", "mbps_max"),
            (
                Some(Manager::Proxmox),
                "bps-write-max-length",
                "bps_wr_max_length",
            ),
            (Some(Manager::Libvirt), "bps-read", "read_bytes_sec"),
            (
                Some(Manager::Libvirt),
                "iops-total-max-length",
                "total_iops_sec_max_length",
            ),
            (Some(Manager::Libvirt), "iops-size", "size_iops_sec"),
            (Some(Manager::Libvirt), "group", "group"),
        ] {
            assert_eq!(limit_name(manager, key), expected);
        }
    }

    #[test]
    fn several_disks_with_one_cost_are_one_finding() {
        let mut vm = fast();
        "sata".clone_into(&mut vm.disks[0].bus);
        let mut other = vm.disks[0].clone();
        "vdb".clone_into(&mut other.name);
        vm.disks.push(other);
        let evidence = Evidence {
            configuration: Some(&vm),
            ..Evidence::default()
        };
        let advice = crate::review(&evidence);
        assert_eq!(advice.len(), 1);
        assert!(
            advice[0].finding.ends_with("The same is true of vdb."),
            "{}",
            advice[0].finding
        );
    }
}
