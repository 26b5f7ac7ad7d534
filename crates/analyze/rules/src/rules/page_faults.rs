//! Exits by the guest's page tables and page faults: shadow paging, huge pages that KVM splits, memory that NUMA balancing unmaps.

use super::apic::is_on;
use super::reported::of_reasons;
use super::settings_to_check::value;
use crate::evidence::{MIN_EXITS, MIN_SHARE};
use crate::rule::{about_exits, about_vm, instruction};
use crate::{Evidence, Exits, Finding, Rule};
use vmtax_findings::VmRates;
use vmtax_model::number::{count as grouped, nanoseconds, percent, significant};
use vmtax_model::{Accelerator, Counter, ExitReportRow, Remedy, Setting};

const MAJOR_FAULTS: &Counter = Counter::named("major_faults");
/// Reasons of exits that shadow page tables cause.
const OF_SHADOW: [&str; 6] = [
    "CR_ACCESS",
    "INVLPG",
    "EXCEPTION_NMI",
    "invlpg",
    "write_cr3",
    "PF excp",
];
/// Page faults in memory that NUMA balancing unmapped, of the host, a second, below which its work is no cost.
const MIN_HINT_FAULTS: f64 = 100.0;
/// More faults from disk explain page faults in another way.
const MAX_MAJOR_FAULTS: f64 = 10.0;
/// KVM's counter of huge pages that it split because a guest executed code in them.
const SPLITS: &str = "nx_lpage_splits";

const EPT: Remedy<&str> = Setting::named("host.ept").remedy(
    "Y",
    "Enable EPT: the CPU then translates the guest's addresses",
);
const NPT: Remedy<&str> = Setting::named("host.npt").remedy(
    "Y",
    "Enable NPT: the CPU then translates the guest's addresses",
);

pub(super) const SHADOW_PAGING: Rule = Rule {
    id: "shadow-paging",
    finds: "exits by page faults and by loads of CR3 or INVLPG: KVM has no nested page tables (EPT, NPT)",
    remedies: &[
        instruction(
            "Check whether EPT or NPT is on (Y); in a nested host ask the provider for it",
            "grep . /sys/module/kvm_*/parameters/{ept,npt} 2>/dev/null",
        ),
        Remedy {
            action: "Else enable EPT",
            ..EPT
        },
        Remedy {
            action: "Else enable NPT",
            ..NPT
        },
    ],
    source: "Linux kernel documentation, The x86 kvm shadow mmu",
    evaluate: |evidence| {
        // With nested page tables no INVLPG of a guest ends in KVM.
        let is_sign = |row: &ExitReportRow| row.reason.eq_ignore_ascii_case("invlpg");
        let is_reported = evidence.exit_report.iter().any(is_sign);
        let counted = evidence.exits.map(|exits| {
            let mut reasons = exits.reasons.iter();
            reasons.any(|row| row.reason.eq_ignore_ascii_case("invlpg"))
                && exits.kvm.nested_paging != Some(true)
        });
        if !is_reported && counted != Some(true) {
            return Vec::new();
        }
        of_reasons(evidence, &OF_SHADOW, "KVM shadows the guest's page tables")
    },
};

pub(super) const SETTING_NESTED_PAGING: Rule = Rule {
    id: "setting-nested-paging",
    finds: "a KVM that shadows the page tables of a running VM, though the CPU could translate the guest's addresses (EPT, NPT)",
    remedies: &[EPT, NPT],
    source: "Linux kernel documentation, The x86 kvm shadow mmu",
    evaluate: |evidence| {
        let parameter = value(evidence, "host.ept").or(value(evidence, "host.npt"));
        let is_off = parameter.and_then(is_on) == Some(false);
        about_vm(evidence, |vm| {
            let is_kvm = vm.accelerator == Some(Accelerator::Kvm);
            (is_off && is_kvm).then(|| {
                Finding::new("KVM shadows the guest's page tables (EPT, NPT are off): the guest's changes of its address spaces take VM exits.".to_owned())
            })
        })
    },
};

pub(super) const SPLIT_HUGE_PAGES: Rule = Rule {
    id: "split-huge-pages",
    finds: "huge pages that KVM splits because the guest executes code in them (nx_huge_pages), for a hundredth of the vCPUs' time and more",
    remedies: &[Setting::named("host.nx-huge-pages").remedy(
        "N",
        "Only if you trust all guests: do not split huge pages; a guest can then halt a vulnerable CPU",
    )],
    source: "Linux kernel documentation, iTLB multihit",
    evaluate: |evidence| {
        about_exits(evidence, |exits| {
            let splits = exits.counter(SPLITS) as u64;
            let fault_ns = mean_fault_ns(exits)?;
            let gain = exits.part(splits as f64 * fault_ns);
            let text = format!(
                "KVM splits {} huge pages in {:.1} s because the guest executes code in them (nx_huge_pages), each by a page fault of {}: {} of the vCPUs' time.",
                grouped(splits),
                exits.seconds,
                nanoseconds(fault_ns),
                percent(gain)
            );
            let is_costly = exits.many(splits) && gain >= 0.01;
            is_costly.then(|| Finding::with_gain(text, gain))
        })
    },
};

/// Mean time of a page fault, ns; `None` where none was timed.
fn mean_fault_ns(exits: &Exits<'_>) -> Option<f64> {
    exits.page_faults?.mean_ns
}

pub(super) const NUMA_FAULTS: Rule = Rule {
    id: "vm-numa-faults",
    finds: "page faults of a VM that take a twentieth of its vCPUs' time and more, while the host's NUMA balancing unmaps memory and finds it used",
    remedies: &[
        Setting::named("host.numa-balancing").remedy("0", "Switch NUMA balancing off"),
        instruction(
            "And start the VM in one node, where it fits into it",
            "numactl --cpunodebind=NODE --membind=NODE qemu-system-x86_64 # libvirt: virsh numatune VM --nodeset NODE --config",
        ),
    ],
    source: "Linux kernel documentation, Documentation for /proc/sys/kernel: numa_balancing",
    evaluate: |evidence| about_vm(evidence, |vm| numa_faults(evidence, vm)),
};

fn numa_faults(evidence: &Evidence<'_>, vm: &VmRates) -> Option<Finding> {
    let numa = evidence.activity?.numa?;
    let exits = evidence.profile?.exits.as_ref()?;
    let faults = exits.page_faults.as_ref()?;
    let share = exits.part_of_time(faults.total_ns).min(1.0);
    // Each fault in memory that was unmapped is one of the host's.
    let gain = share * (numa.hint_faults_per_s / faults.per_s.max(f64::MIN_POSITIVE)).min(1.0);
    let is_off = value(evidence, "host.numa-balancing") == Some("0");
    let text = format!(
        "NUMA balancing unmaps memory: {} hint faults and {} moved pages a second on the host. Page faults take {} of the vCPUs' time in {:.1} s, {} each; at most {} of it is by that.",
        significant(numa.hint_faults_per_s),
        significant(numa.migrated_per_s),
        percent(share),
        exits.seconds,
        nanoseconds(faults.mean_ns?),
        percent(gain)
    );
    let is_cause = numa.hint_faults_per_s >= MIN_HINT_FAULTS
        && vm.counters.get(MAJOR_FAULTS).unwrap_or(0.0) < MAX_MAJOR_FAULTS
        && faults.count >= MIN_EXITS;
    (is_cause && gain >= MIN_SHARE && !is_off).then(|| Finding::of_vm(vm, text, gain))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_evidence::{TestExits, advice, reason};
    use std::collections::BTreeMap;
    use vmtax_findings::{Advice, DevicesFrom, ExitCount, GuestExits, ProfileFindings};
    use vmtax_model::samples::KvmFeatures;
    use vmtax_model::{HostActivity, NumaBalancing};

    fn shadowed(nested_paging: Option<bool>, invlpgs: u64) -> Vec<Advice> {
        let exits = TestExits {
            reasons: vec![
                reason("CR_ACCESS", 400_000, 3000.0),
                reason("EXCEPTION_NMI", 300_000, 6000.0),
                reason("INVLPG", invlpgs, 2500.0),
                reason("HLT", 5000, 1e6),
            ]
            .into_iter()
            .filter(|reason| reason.exits.count > 0)
            .collect(),
            kvm: KvmFeatures {
                is_intel: Some(true),
                nested_paging,
                apicv: None,
            },
            ..TestExits::default()
        };
        exits.advice("shadow-paging", None)
    }

    #[test]
    fn page_tables_that_kvm_shadows_are_found_in_exits_and_in_reports_alike() {
        let advice = shadowed(Some(false), 200_000).remove(0);
        assert_eq!(
            advice.finding.replace('\u{a0}', " "),
            "KVM shadows the guest's page tables: 900,000 exits (CR_ACCESS, EXCEPTION_NMI, INVLPG), 3.89 µs each, 8.8 % of the vCPUs' time in 10.0 s."
        );
        let settings: Vec<&str> = advice.remedies.iter().map(|one| &*one.setting).collect();
        assert_eq!(settings, ["", "host.ept"], "the host has no kvm_amd");
        assert_eq!(
            shadowed(Some(false), 0),
            [],
            "a guest that loads CR3 with EPT"
        );
        assert_eq!(shadowed(Some(true), 200_000), [], "the remedy is in place");
        let rows = [("CR_ACCESS", 4), ("INVLPG", 2)].map(|(reason, count)| ExitReportRow {
            reason: reason.to_owned(),
            count,
            mean_ns: 1000.0,
        });
        let evidence = Evidence {
            exit_report: &rows,
            ..Evidence::default()
        };
        let of_text = crate::review(&evidence).remove(0);
        assert_eq!(of_text.rule, "shadow-paging");
        let settings: Vec<&str> = of_text.remedies.iter().map(|one| &*one.setting).collect();
        assert_eq!(
            settings,
            ["", "host.ept"],
            "reasons in capitals are Intel's"
        );
        assert!(
            of_text
                .finding
                .ends_with("100\u{a0}% of the time of all exits except HLT."),
            "{}",
            of_text.finding
        );
    }

    #[test]
    fn split_huge_pages_cost_a_page_fault_each() {
        let found = |splits: u64, faults: Option<f64>| {
            let exits = TestExits {
                counters: BTreeMap::from([(SPLITS.to_owned(), splits)]),
                page_faults: faults.map(|mean_ns| ExitCount {
                    count: 2 * splits,
                    mean_ns: Some(mean_ns),
                    ..ExitCount::default()
                }),
                ..TestExits::default()
            };
            exits.advice("split-huge-pages", None)
        };
        let advice = found(30_000, Some(20_000.0)).remove(0);
        assert_eq!(
            advice.finding.replace('\u{a0}', " "),
            "KVM splits 30,000 huge pages in 10.0 s because the guest executes code in them (nx_huge_pages), each by a page fault of 20.0 µs: 1.5 % of the vCPUs' time."
        );
        assert_eq!(advice.remedies[0].value, "N");
        assert_eq!(found(3_000, Some(20_000.0)), [], "0.15 % of the time");
        assert_eq!(found(30_000, None), [], "no page fault was timed");
    }

    /// Three seconds of two vCPUs, with page faults of 15 µs.
    fn unmapped(hint_faults_per_s: f64, major_faults_per_s: f64, balancing: &str) -> Vec<Advice> {
        let count = 60_000;
        let page_faults = ExitCount {
            count,
            per_s: 20_000.0,
            timed: count,
            total_ns: count as f64 * 15_000.0,
            mean_ns: Some(15_000.0),
            ..ExitCount::default()
        };
        let vcpu = |vcpu| vmtax_findings::VcpuExits {
            vcpu,
            tid: 9,
            count,
            per_s: 0.0,
            total_ns: 0.0,
            halted_ns: 0.0,
            spinning_ns: 0.0,
            in_guest_ns: None,
        };
        let exits = GuestExits {
            seconds: 3.0,
            vcpus: vec![vcpu(0), vcpu(1)],
            reasons: Vec::new(),
            addresses: Vec::new(),
            devices_from: DevicesFrom::UsualPlaces,
            timing: String::new(),
            lost: 0,
            counters: BTreeMap::new(),
            page_faults: Some(page_faults),
            timers: Vec::new(),
            advice: Vec::new(),
        };
        let profile = ProfileFindings {
            exits: Some(exits),
            ..ProfileFindings::default()
        };
        let activity = HostActivity {
            numa: Some(NumaBalancing {
                hint_faults_per_s,
                migrated_per_s: 640.0,
            }),
            ..HostActivity::default()
        };
        let vm = VmRates {
            counters: [("major_faults", major_faults_per_s)].into_iter().collect(),
            ..VmRates::default()
        };
        let mut host = crate::test_evidence::host();
        let file = "/proc/sys/kernel/numa_balancing";
        host.settings.insert(file.to_owned(), balancing.to_owned());
        advice(
            "vm-numa-faults",
            &Evidence {
                vm: Some(&vm),
                host: Some(&host),
                profile: Some(&profile),
                activity: Some(&activity),
                ..Evidence::default()
            },
        )
    }

    #[test]
    fn memory_that_numa_balancing_unmaps_is_found_by_faults_of_host_and_guest() {
        let advice = unmapped(10_000.0, 0.0, "1").remove(0);
        assert_eq!(
            advice.finding.replace('\u{a0}', " "),
            "NUMA balancing unmaps memory: 10000 hint faults and 640 moved pages a second on the host. Page faults take 15 % of the vCPUs' time in 3.0 s, 15.00 µs each; at most 7.5 % of it is by that."
        );
        assert!((advice.gain - 0.075).abs() < 1e-9);
        assert_eq!(advice.remedies[0].setting, "host.numa-balancing");
        assert_eq!(unmapped(10_000.0, 0.0, "0"), [], "it is off");
        assert_eq!(unmapped(50.0, 0.0, "1"), [], "the host has few");
        assert_eq!(unmapped(2_000.0, 0.0, "1"), [], "1.5 % at most");
        assert_eq!(unmapped(10_000.0, 300.0, "1"), [], "the host swaps");
    }
}
