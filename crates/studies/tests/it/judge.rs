//! Cases against recordings made up for them.

use vmtax_findings::ClaimVerdict;
use vmtax_model::{
    Antipattern, HostFacts, Keeping, Kept, KvmClass, Latency, Machine, Measure, Metric, Operation,
    OperationExits, Outcome, Plan, TrialRecord, TrialResult, WorkloadName, testing,
};
use vmtax_studies::reproduce::{PublishedResult, Tested, all, find, judge};

fn host(class: KvmClass) -> HostFacts {
    let mut host: HostFacts = serde_json::from_str(include_str!("../host.json")).unwrap();
    host.kvm.class = class;
    host
}

fn trial(
    plan: &Plan,
    round: u32,
    machine: Machine,
    variant: &str,
    step: Option<u64>,
    measures: Vec<Measure>,
) -> TrialRecord {
    let workload = plan
        .workloads
        .iter()
        .find(|w| w.name == measures[0].metric.workload())
        .unwrap()
        .clone();
    let result = TrialResult {
        measures,
        ..testing::result(workload)
    };
    TrialRecord {
        round,
        variant: variant.to_owned(),
        step,
        ..testing::done(machine, result)
    }
}

/// A recording of `9p-fids` in which one more fid costs so many nanoseconds with either QEMU.
fn fids(case: &PublishedResult, plan: &Plan, old: f64, new: f64) -> VerdictAndRows {
    fids_that_grow(case, plan, |variant, size| {
        size * if variant == "QEMU 5.2" { old } else { new }
    })
}

/// A recording of `9p-fids` in which `grown` gives the cost of all fids beyond the constant part, ns.
fn fids_that_grow(
    case: &PublishedResult,
    plan: &Plan,
    grown: impl Fn(&str, f64) -> f64,
) -> VerdictAndRows {
    let mut trials = Vec::new();
    for round in 0..plan.rounds {
        for size in (0..plan.steps()).filter_map(|r| plan.size(r)) {
            for variant in ["QEMU 5.2", "QEMU 7.2"] {
                let noise = 1.0 + 0.004 * f64::from((round * 5 + size as u32 * 3) % 7);
                let value = (500_000.0 + grown(variant, size as f64)) * noise;
                let measures = [Metric::OpenFidsStat, Metric::OpenFidsStatCpu]
                    .map(|metric| Measure { metric, value });
                trials.push(trial(
                    plan,
                    round,
                    Machine::TCG,
                    variant,
                    Some(size),
                    measures.to_vec(),
                ));
            }
        }
    }
    let findings = vmtax_analysis::growth(plan, &trials);
    let found = judge(case, &host(KvmClass::Absent), plan.rounds, &findings);
    (
        found.verdict,
        found.rows.iter().map(|r| r.verdict).collect(),
    )
}

type VerdictAndRows = (ClaimVerdict, Vec<ClaimVerdict>);
use ClaimVerdict::{
    Inconclusive as Open, NotReproduced as Not, NotTestable as Untestable, Reproduced as Holds,
};

#[test]
fn every_case_is_sound_and_its_plan_can_be_run() {
    for case in all().unwrap() {
        for (class, quick) in [(KvmClass::Hardware, false), (KvmClass::Absent, true)] {
            let plan = case.plan_here(class, quick);
            plan.check()
                .unwrap_or_else(|e| panic!("{}: {e}", case.name));
            assert_eq!(plan.reproduces.as_ref(), Some(&case.name));
            let wants_kvm = case.plan.machines.contains(&Machine::KVM);
            let has_kvm = plan.machines.contains(&Machine::KVM);
            assert_eq!(
                has_kvm,
                wants_kvm && class == KvmClass::Hardware,
                "{}",
                case.name
            );
            assert!(
                class == KvmClass::Hardware || !plan.machines.contains(&Machine::MICRO_KVM),
                "{}",
                case.name
            );
            for step in 0..plan.steps() {
                for workload in &plan.at_step(step).workloads {
                    vmtax_workload::check(workload)
                        .map(drop)
                        .unwrap_or_else(|e| panic!("{}: {e}", case.name));
                }
            }
        }
        assert!(!case.tests.is_empty());
    }
    assert!(find("nothing").is_err());
}

#[test]
fn the_list_of_fids_against_the_table() {
    let case = find("9p-fids").unwrap();
    let full = case.plan_here(KvmClass::Absent, false);
    let quick = case.plan_here(KvmClass::Absent, true);
    assert_eq!(
        fids(&case, &full, 50.0, 0.0),
        (Holds, vec![Holds, Holds, Holds, Holds])
    );
    // Below the top step the tenfold cannot be seen, and is not claimed.
    assert_eq!(
        fids(&case, &quick, 50.0, 0.0),
        (Holds, vec![Holds, Holds, Holds, Untestable])
    );
    // The new one as slow as the old: two claims fail. Neither grows: others do.
    let (verdict, rows) = fids(&case, &full, 50.0, 50.0);
    assert_eq!((verdict, rows[1], rows[2]), (Not, Not, Not));
    let (verdict, rows) = fids(&case, &full, 0.0, 0.0);
    assert_eq!((verdict, rows[0], rows[3]), (Not, Not, Not));
    // No trial with a value says nothing.
    let none = vmtax_analysis::growth(&full, &[]);
    let found = judge(&case, &host(KvmClass::Absent), 0, &none);
    assert_eq!(found.verdict, Untestable);
}

#[test]
fn the_exponent_of_a_list_excludes_other_growth_laws_and_a_cache_refutes_nothing() {
    let case = find("9p-fids").unwrap();
    let quick = case.plan_here(KvmClass::Absent, true);
    let verdict = |grown: fn(f64) -> f64| {
        let growing_cost = |variant: &str, size: f64| {
            if variant == "QEMU 5.2" {
                grown(size)
            } else {
                0.0
            }
        };
        fids_that_grow(&case, &quick, growing_cost).1[0]
    };
    assert_eq!(verdict(|n| 50.0 * n), Holds);
    assert_eq!(
        verdict(|n| 50.0 * n * if n > 20_000.0 { 2.0 } else { 1.0 }),
        Holds
    );
    assert_eq!(verdict(|n| n * n / 1000.0), Not);
    assert_eq!(verdict(|n| 200_000.0 * n.ln()), Not);
    assert_eq!(
        verdict(|n| 50.0 * n * if n > 20_000.0 { 8.0 } else { 1.0 }),
        Open
    );
}

/// Whatever the medians of three rounds say: each claim that could be tested is inconclusive, and three more rounds decide.
#[test]
fn three_rounds_decide_no_claim() {
    for name in ["9p-fids", "sysbench-five", "guest-syscalls"] {
        let case = find(name).unwrap();
        let plan = Plan {
            rounds: 3,
            ..case.plan_here(KvmClass::Hardware, false)
        };
        let rows = match name {
            "9p-fids" => fids(&case, &plan, 50.0, 0.0).1,
            _ => overheads(&case, &plan, KvmClass::Hardware, 20.0).1,
        };
        assert!(
            rows.iter()
                .all(|verdict| matches!(verdict, Open | Untestable)),
            "{name}: {rows:?}"
        );
    }
    let case = find("sysbench-five").unwrap();
    let plan = Plan {
        rounds: 3,
        ..case.plan_here(KvmClass::Hardware, false)
    };
    let findings = vmtax_analysis::findings(
        &plan,
        &host(KvmClass::Hardware),
        &overhead_trials(&plan, 20.0, 0.0),
    );
    let found = judge(&case, &host(KvmClass::Hardware), 3, &findings);
    assert!(
        found.rows.iter().all(|row| row.rounds_needed == Some(3)),
        "{:?}",
        found.rows[0]
    );
}

/// An interval that contains its bound says how many more rounds would decide: the more, the nearer the bound is.
#[test]
fn an_interval_around_its_bound_says_how_many_rounds_would_decide() {
    let case = find("sysbench-five").unwrap();
    let host = host(KvmClass::Hardware);
    let plan = case.plan_here(host.kvm.class, true);
    let needed = |times: f64| {
        let findings = vmtax_analysis::findings(&plan, &host, &overhead_trials(&plan, times, 0.1));
        let found = judge(&case, &host, plan.rounds, &findings);
        // TCG is claimed to cost at least ten times as much.
        let row = found
            .rows
            .iter()
            .find(|row| row.why.starts_with("claimed: at least ×10"))
            .unwrap()
            .clone();
        (row.verdict, row.rounds_needed)
    };
    assert_eq!(needed(12.0), (Holds, None));
    assert_eq!(needed(8.0), (Not, None));
    let (verdict, far) = needed(10.6);
    let (_, near) = needed(10.3);
    assert_eq!(verdict, Open);
    assert!(far.is_some_and(|n| n > 0) && near > far, "{far:?} {near:?}");
}

/// Shares with their intervals against a lower and an upper bound: the evidence for a claim of a share.
#[test]
fn claims_that_a_bound_divides_have_three_verdicts() {
    let verdict_between = |low: f64, high: f64| {
        let interval = Some(vmtax_model::Interval {
            low,
            high,
            coverage: 0.96,
        });
        let figure = vmtax_findings::Estimate {
            median: f64::midpoint(low, high),
            interval,
        };
        Tested::within(
            figure,
            vmtax_findings::ClaimUnit::Percent,
            Some(50.0),
            Some(60.0),
        )
        .verdict
    };
    assert_eq!(
        [
            verdict_between(51.0, 59.0),
            verdict_between(61.0, 70.0),
            verdict_between(40.0, 49.0)
        ],
        [Holds, Not, Not]
    );
    assert_eq!(
        [
            verdict_between(49.0, 55.0),
            verdict_between(55.0, 61.0),
            verdict_between(40.0, 70.0)
        ],
        [Open; 3]
    );
    let none = vmtax_findings::Estimate {
        median: 55.0,
        interval: None,
    };
    assert_eq!(
        Tested::within(none, vmtax_findings::ClaimUnit::Percent, Some(50.0), None).verdict,
        Open
    );
}

/// Trials in which each guest costs so many times what native does, a share of that more or less from round to round.
fn overhead_trials(plan: &Plan, times: f64, noise: f64) -> Vec<TrialRecord> {
    let mut trials = Vec::new();
    for round in 0..plan.rounds {
        for &machine in &plan.machines {
            for &metric in Metric::ALL
                .iter()
                .filter(|m| plan.workloads.iter().any(|w| w.name == m.workload()))
            {
                let times = times * (1.0 + noise * (f64::from(round % 3) - 1.0));
                let cost = if machine.is_guest() { times } else { 1.0 };
                let value = match metric.better() {
                    vmtax_model::Better::Higher => 1000.0 / cost,
                    vmtax_model::Better::Lower => 100.0 * cost,
                };
                trials.push((round, machine, Measure { metric, value }));
            }
        }
    }
    // One trial has all metrics of its workload.
    let mut records: Vec<TrialRecord> = Vec::new();
    for (round, machine, measure) in trials {
        let is_of_measure = |t: &&mut TrialRecord| {
            t.round == round && t.machine == machine && t.workload.name == measure.metric.workload()
        };
        match records.iter_mut().find(is_of_measure) {
            Some(TrialRecord {
                outcome: Outcome::Done { result },
                ..
            }) => result.measures.push(measure),
            _ => records.push(trial(plan, round, machine, "", None, vec![measure])),
        }
    }
    records
}

fn overheads(case: &PublishedResult, plan: &Plan, class: KvmClass, times: f64) -> VerdictAndRows {
    let host = host(class);
    let findings = vmtax_analysis::findings(plan, &host, &overhead_trials(plan, times, 0.0));
    let found = judge(case, &host, plan.rounds, &findings);
    (
        found.verdict,
        found.rows.iter().map(|r| r.verdict).collect(),
    )
}

#[test]
fn without_kvm_its_claims_are_not_testable_and_the_others_count() {
    let case = find("sysbench-five").unwrap();
    let plan = case.plan_here(KvmClass::EmulatesKernels, false);
    let (verdict, rows) = overheads(&case, &plan, KvmClass::EmulatesKernels, 20.0);
    assert_eq!(
        (verdict, &rows[..5], &rows[5..]),
        (Holds, &[Untestable; 5][..], &[Holds; 5][..])
    );
    assert_eq!(
        overheads(&case, &plan, KvmClass::EmulatesKernels, 5.0).0,
        Not
    );
    let plan = case.plan_here(KvmClass::Hardware, false);
    assert_eq!(
        overheads(&case, &plan, KvmClass::Hardware, 20.0),
        (Holds, vec![Holds; 10])
    );
}

#[test]
fn system_calls_are_held_against_what_was_reached() {
    let case = find("guest-syscalls").unwrap();
    let plan = case.plan_here(KvmClass::Hardware, false);
    // 100 ns natively: everything within bounds; then getpid alone above them.
    assert_eq!(overheads(&case, &plan, KvmClass::Hardware, 1.5).0, Holds);
    let (verdict, rows) = overheads(&case, &plan, KvmClass::Hardware, 3.0);
    assert_eq!((verdict, rows[0], rows[1]), (Not, Not, Holds));
}

/// A recording of `virtfs-or-nfs`: what each way costs over the first at every metric, and what becomes of properties.
fn ways(costs: [f64; 5], label: Keeping, left: Keeping) -> VerdictAndRows {
    let case = find("virtfs-or-nfs").unwrap();
    let plan = case.plan_here(KvmClass::Absent, false);
    let metrics = || {
        Metric::ALL
            .iter()
            .filter(|m| m.workload() == WorkloadName::Bonnie)
    };
    let mut trials = Vec::new();
    for round in 0..plan.rounds {
        for (variant, cost) in plan.variants.iter().zip(costs) {
            let noise = 1.0 + 0.004 * f64::from(round);
            let measures = metrics()
                .map(|&metric| Measure {
                    metric,
                    value: 1000.0 / cost * noise,
                })
                .collect();
            let mut trial = trial(&plan, round, Machine::TCG, &variant.name, None, measures);
            if let Outcome::Done { result } = &mut trial.outcome {
                let kept = |what: &str, keeping| Kept {
                    what: what.to_owned(),
                    keeping,
                    detail: "seen".to_owned(),
                };
                result.kept = vec![
                    kept("security xattr on the host", label),
                    kept("release of unlinked open files", left),
                ];
            }
            trials.push(trial);
        }
    }
    let findings = vmtax_analysis::shares(&plan, &trials);
    let found = judge(&case, &host(KvmClass::Absent), plan.rounds, &findings);
    (
        found.verdict,
        found.rows.iter().map(|r| r.verdict).collect(),
    )
}

#[test]
fn ways_to_share_are_held_against_the_first_and_against_what_they_keep() {
    use Keeping::{Kept as Stays, Lost};
    // As published, except the files that NFS makes faster: the exception is one claim.
    let (verdict, rows) = ways([1.0, 1.0, 0.75, 0.5, 0.2], Stays, Lost);
    assert_eq!(
        (verdict, rows),
        (Not, [&[Holds; 4][..], &[Not], &[Holds; 5]].concat())
    );
    // A large msize that halves the time, a label that stays in the guest, nothing left behind.
    let (_, rows) = ways([1.0, 0.5, 0.95, 1.2, 1.5], Lost, Stays);
    assert_eq!(rows, [&[Not; 4][..], &[Holds], &[Not; 5]].concat());
}

/// A recording of `guest-antipatterns` in which each antipattern costs so many times its fix, and has so many exits more.
fn antipatterns(class: KvmClass, times: u64, spared: f64) -> Vec<ClaimVerdict> {
    let case = find("guest-antipatterns").unwrap();
    let plan = case.plan_here(class, false);
    let mut trials = Vec::new();
    for round in 0..plan.rounds {
        let measure = Measure {
            metric: Metric::DiskMedian,
            value: 1.0,
        };
        let mut record = trial(&disk(), round, Machine::MICRO_KVM, "", None, vec![measure]);
        let Outcome::Done { result } = &mut record.outcome else {
            panic!()
        };
        for (antipattern, fixed) in Antipattern::forms() {
            let name = antipattern.label(fixed).to_owned();
            let mut latency = Latency::new();
            let ns = u64::from(antipattern.batch())
                * (1000 + u64::from(round))
                * if fixed { 2 } else { 2 * times + 1 };
            (0..9).for_each(|_| latency.record(ns));
            let each = if fixed { 1.0 } else { 1.0 + spared };
            result.exits.push(OperationExits {
                operation: name.clone(),
                each,
            });
            result.operations.push(Operation { name, latency });
        }
        trials.push(record);
    }
    let findings = vmtax_analysis::antipatterns(&plan, &host(class), &trials);
    judge(&case, &host(class), plan.rounds, &findings)
        .rows
        .iter()
        .map(|r| r.verdict)
        .collect()
}

/// A plan with the workload that the helper's figure is of.
fn disk() -> Plan {
    Plan::new(
        "x",
        1,
        vec![Machine::MICRO_KVM],
        vec![vmtax_model::WorkloadSpec::new(WorkloadName::Disk)],
    )
}

#[test]
fn antipatterns_are_held_against_their_fixes() {
    let costly = antipatterns(KvmClass::Hardware, 3, 64.0);
    assert!(costly.iter().all(|v| *v == Holds), "{costly:?}");
    // What takes kernel mode says nothing where that is emulated: the EOI by MSR and the lock.
    let emulated = antipatterns(KvmClass::EmulatesKernels, 3, 64.0);
    let open = |all: &[ClaimVerdict]| {
        all.iter()
            .enumerate()
            .filter(|(_, v)| **v == Untestable)
            .map(|(n, _)| n)
            .collect::<Vec<_>>()
    };
    assert_eq!(open(&emulated), [6, 11], "{emulated:?}");
    // Antipatterns that cost nothing, and fixes that spare nothing.
    let free = antipatterns(KvmClass::Hardware, 0, 0.0);
    assert!(free.iter().all(|v| *v == Not), "{free:?}");
    let case = find("guest-antipatterns").unwrap();
    let none = judge(
        &case,
        &host(KvmClass::Absent),
        0,
        &vmtax_analysis::antipatterns(&disk(), &host(KvmClass::Absent), &[]),
    );
    assert!(
        none.rows.iter().all(|r| r.verdict == Untestable),
        "{:?}",
        none.rows
    );
}
