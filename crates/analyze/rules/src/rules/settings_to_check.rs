//! Settings of the host that slow some VMs down, of which no measurement says what they cost this one.

use crate::rule::{about_vm, instruction};
use crate::{Evidence, Finding, Rule};
use vmtax_findings::VmRates;
use vmtax_model::number::{bytes, significant};
use vmtax_model::{Accelerator, Counter, Setting, cpu_list};

const RESIDENT: &Counter = Counter::named("resident");
const HUGE: &Counter = Counter::named("huge_page");
/// A huge page of x86-64, bytes.
const HUGE_PAGE: u64 = 2 << 20;
/// A smaller guest needs few entries of the TLB.
const LARGE_GUEST: u64 = 1 << 30;
/// Page faults of the host in memory that NUMA balancing unmapped, a second, below which it is at rest.
const MIN_HINT_FAULTS: f64 = 100.0;

/// Rules about settings of the host without a measured cost.
pub(super) const SETTINGS: &[Rule] = &[
    TRANSPARENT_HUGE_PAGES,
    HUGE_PAGE_POOL,
    NX_HUGE_PAGES,
    NUMA_NODE,
    NUMA_BALANCING,
    KSM,
    NO_HALT_POLLING,
];

/// Rules among them that concern every VM of the host alike.
pub(super) const OF_ALL_VMS: [&Rule; 4] = [
    &TRANSPARENT_HUGE_PAGES,
    &NX_HUGE_PAGES,
    &KSM,
    &NO_HALT_POLLING,
];

const TRANSPARENT_HUGE_PAGES: Rule = Rule {
    id: "setting-transparent-huge-pages",
    finds: "transparent huge pages that are off on the host of a running VM",
    remedies: &[Setting::named("host.thp").remedy(
        "madvise",
        "Set transparent huge pages to madvise, which QEMU uses, then restart the VM",
    )],
    source: "Linux kernel documentation, Transparent Hugepage Support",
    evaluate: |evidence| {
        let is_off = value(evidence, "host.thp") == Some("never");
        of_vm(
            evidence,
            is_off,
            "Transparent huge pages are off on the host.",
        )
    },
};

const HUGE_PAGE_POOL: Rule = Rule {
    id: "setting-huge-page-pool",
    finds: "a running VM of 1 GiB and more whose memory is mostly in small pages, on a host that reserves no huge pages",
    remedies: &[Setting::named("host.huge-pages").remedy(
        "PAGES",
        "Reserve them, and start the VM with hugetlb=on in its memory backend",
    )],
    source: "Linux kernel documentation, HugeTLB Pages",
    evaluate: |evidence| {
        let bytes_of = |vm: &VmRates, counter| vm.counters.get(counter).unwrap_or(0.0) as u64;
        let in_small = |vm: &VmRates| {
            bytes_of(vm, HUGE) < bytes_of(vm, RESIDENT) / 2 && vm.memory >= LARGE_GUEST
        };
        let is_empty = value(evidence, "host.huge-pages") == Some("0");
        about_vm(evidence, |vm| {
            let (huge, resident) = (bytes(bytes_of(vm, HUGE)), bytes(bytes_of(vm, RESIDENT)));
            let text = format!(
                "{huge} of the VM's {resident} are in huge pages, and the host reserves none."
            );
            let pages = vm.memory.div_ceil(HUGE_PAGE).to_string();
            (is_empty && in_small(vm)).then(|| Finding {
                values: vec![("PAGES", pages)],
                ..Finding::new(text)
            })
        })
    },
};

const NX_HUGE_PAGES: Rule = Rule {
    id: "setting-nx-huge-pages",
    finds: "a KVM that splits the huge pages of a running VM that have code (nx_huge_pages)",
    remedies: &[Setting::named("host.nx-huge-pages").remedy("N",         "Only if you trust all guests: do not split huge pages; a guest can then halt a vulnerable CPU")],
    source: "Linux kernel documentation, iTLB multihit",
    evaluate: |evidence| {
        let is_on = value(evidence, "host.nx-huge-pages") == Some("Y");
        of_vm(evidence, is_on, "KVM splits huge pages from which the guest executes code (nx_huge_pages).")
    },
};

const NUMA_NODE: Rule = Rule {
    id: "setting-numa-node",
    finds: "a running VM whose threads may run on all nodes of a NUMA host",
    remedies: &[instruction(
        "Where it fits into one node, start the VM there",
        "numactl --cpunodebind=NODE --membind=NODE qemu-system-x86_64 # libvirt: virsh numatune VM --nodeset NODE --config",
    )],
    source: "Linux kernel documentation, NUMA Memory Policy",
    evaluate: |evidence| {
        let nodes = nodes(evidence);
        about_vm(evidence, |vm| {
            let is_free = vm.settings.pinned.is_empty() && !vm.settings.host_cpus.is_empty();
            let text = format!(
                "The VM's threads may run on all {nodes} NUMA nodes of the host, away from its memory."
            );
            (nodes > 1 && is_free).then(|| Finding::of_vm(vm, text, 0.0))
        })
    },
};

const NUMA_BALANCING: Rule = Rule {
    id: "setting-numa-balancing",
    finds: "NUMA balancing on the NUMA host of a running VM, whose threads are pinned, or while it unmaps memory that is used a hundred times a second and more",
    remedies: &[Setting::named("host.numa-balancing").remedy("0", "Switch it off")],
    source: "Linux kernel documentation, Documentation for /proc/sys/kernel: numa_balancing",
    evaluate: |evidence| {
        let is_on = value(evidence, "host.numa-balancing").is_some_and(|mode| mode != "0");
        let is_pinned = evidence.vm.is_some_and(|vm| !vm.settings.pinned.is_empty());
        let numa = evidence.activity.and_then(|activity| activity.numa);
        let faults = numa
            .map(|numa| numa.hint_faults_per_s)
            .filter(|per_s| *per_s >= MIN_HINT_FAULTS);
        let text = match (is_pinned, faults) {
            (true, _) => {
                "NUMA balancing unmaps the VM's memory again and again, though its threads are pinned."
                    .to_owned()
            }
            (false, faults) => format!(
                "NUMA balancing unmaps memory of the host: {} times a second it is in use (hint faults of all processes).",
                significant(faults.unwrap_or(0.0))
            ),
        };
        let is_at_work = is_pinned || faults.is_some();
        of_vm(evidence, nodes(evidence) > 1 && is_on && is_at_work, &text)
    },
};

const KSM: Rule = Rule {
    id: "setting-ksm",
    finds: "a host that merges equal pages of its VMs' memory (KSM)",
    remedies: &[Setting::named("host.ksm").remedy(
        "0",
        "Where memory is not short, stop merging; what is merged stays so until it is written to",
    )],
    source: "Linux kernel documentation, Kernel Samepage Merging",
    evaluate: |evidence| {
        let is_on = value(evidence, "host.ksm") == Some("1");
        of_vm(
            evidence,
            is_on,
            "The host merges equal pages (KSM): a guest that writes to a merged page waits until it is copied.",
        )
    },
};

const NO_HALT_POLLING: Rule = Rule {
    id: "setting-no-halt-polling",
    finds: "a KVM that does not poll before a halted vCPU of a running VM sleeps",
    remedies: &[Setting::named("host.halt-poll-ns").remedy("200000",         "For guests that wake up often, and if host CPUs are idle: enable halt polling; the default on x86 is 200,000 ns")],
    source: "Linux kernel documentation, The KVM halt polling system",
    evaluate: |evidence| {
        let is_kvm = evidence
            .vm
            .is_some_and(|vm| vm.accelerator == Some(Accelerator::Kvm));
        let is_off = value(evidence, "host.halt-poll-ns") == Some("0");
        of_vm(evidence, is_kvm && is_off, "KVM does not poll before a halted vCPU sleeps (halt_poll_ns is 0): the host's scheduler has to wake it each time.")
    },
};

/// A finding where there is a running VM and the host is like that.
fn of_vm(evidence: &Evidence<'_>, is_so: bool, text: &str) -> Vec<Finding> {
    about_vm(evidence, |_| is_so.then(|| Finding::new(text.to_owned())))
}

/// The host's value of a setting.
pub(super) fn value<'a>(evidence: &Evidence<'a>, key: &str) -> Option<&'a str> {
    let file = Setting::of(key).host_file()?;
    evidence.settings_of_host()?.get(file).map(String::as_str)
}

/// NUMA nodes of the host.
fn nodes(evidence: &Evidence<'_>) -> usize {
    let settings = evidence.settings_of_host();
    let online = settings.and_then(|settings| settings.get("/sys/devices/system/node/online"));
    online
        .and_then(|list| cpu_list::parse(list))
        .map_or(0, |nodes| nodes.len())
}

#[cfg(test)]
mod tests {
    use crate::test_evidence::host;
    use crate::{Evidence, evaluate, settings};
    use vmtax_findings::VmRates;
    use vmtax_model::{Accelerator, HostActivity, NumaBalancing, PinnedThread, VmSettings};

    fn found(files: &[(&str, &str)], is_pinned: bool) -> Vec<String> {
        let mut host = host();
        host.settings = files
            .iter()
            .map(|(file, value)| ((*file).to_owned(), (*value).to_owned()))
            .collect();
        let counters = [("resident", 4294967296.0), ("huge_page", 1048576.0)];
        let pinned = PinnedThread {
            tid: 7,
            cpus: "0".to_owned(),
        };
        let pinned = Some(pinned).filter(|_| is_pinned).into_iter().collect();
        let vm_settings = VmSettings {
            host_cpus: "0-7".to_owned(),
            pinned,
            ..VmSettings::default()
        };
        let accelerator = Some(Accelerator::Kvm);
        let vm = VmRates {
            accelerator,
            memory: 4 << 30,
            counters: counters.into_iter().collect(),
            settings: vm_settings,
            ..VmRates::default()
        };
        let evidence = Evidence {
            host: Some(&host),
            vm: Some(&vm),
            ..Evidence::default()
        };
        assert_eq!(evaluate(&evidence), [], "no cause, and nothing unhealthy");
        let found = settings(&evidence);
        assert!(found.iter().all(|advice| advice.gain == 0.0), "{found:?}");
        found
            .into_iter()
            .map(|advice| advice.rule.trim_start_matches("setting-").to_owned())
            .collect()
    }

    #[test]
    fn each_setting_is_found_beside_the_causes() {
        let all = [
            ("/sys/kernel/mm/transparent_hugepage/enabled", "never"),
            ("/proc/sys/vm/nr_hugepages", "0"),
            ("/sys/module/kvm/parameters/nx_huge_pages", "Y"),
            ("/sys/devices/system/node/online", "0-1"),
            ("/proc/sys/kernel/numa_balancing", "1"),
            ("/sys/kernel/mm/ksm/run", "1"),
            ("/sys/module/kvm/parameters/halt_poll_ns", "0"),
        ];
        let of_each_vm = [
            "transparent-huge-pages",
            "huge-page-pool",
            "nx-huge-pages",
            "numa-node",
            "ksm",
            "no-halt-polling",
        ];
        assert_eq!(found(&all, false), of_each_vm);
        assert_eq!(found(&all[3..5], true), ["numa-balancing"]);
        let at_work = |hint_faults_per_s| {
            let numa = Some(NumaBalancing {
                hint_faults_per_s,
                migrated_per_s: 0.0,
            });
            let mut host = host();
            host.settings = all[3..5]
                .iter()
                .map(|(file, value)| ((*file).to_owned(), (*value).to_owned()))
                .collect();
            let activity = HostActivity {
                numa,
                ..HostActivity::default()
            };
            let evidence = Evidence {
                host: Some(&host),
                vm: Some(&VmRates::default()),
                activity: Some(&activity),
                ..Evidence::default()
            };
            settings(&evidence).len()
        };
        assert_eq!([at_work(8200.0), at_work(20.0)], [1, 0]);
    }

    #[test]
    fn settings_that_are_well_or_unknown_are_not_mentioned() {
        let well = [
            ("/sys/kernel/mm/transparent_hugepage/enabled", "madvise"),
            ("/proc/sys/vm/nr_hugepages", "512"),
            ("/sys/module/kvm/parameters/nx_huge_pages", "N"),
            ("/sys/devices/system/node/online", "0"),
            ("/proc/sys/kernel/numa_balancing", "1"),
            ("/sys/kernel/mm/ksm/run", "2"),
            ("/sys/module/kvm/parameters/halt_poll_ns", "200000"),
        ];
        assert_eq!(
            (found(&well, false), found(&well, true), found(&[], false)),
            (vec![], vec![], vec![])
        );
    }
}
