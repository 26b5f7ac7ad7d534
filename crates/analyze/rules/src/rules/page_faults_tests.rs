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
            .ends_with("100\u{a0}% of the time of all exits but idling."),
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
