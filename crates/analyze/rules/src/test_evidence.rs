//! Evidence for tests of rules.

use crate::{Evidence, Exits, Register, rules};
use std::collections::BTreeMap;
use vmtax_findings::{
    Advice, ClockFinding, Comparison, Estimate, ExitCount, ExitReason, Findings, HeatMap,
    LayerColumn, MachineColumn, Matched, OverheadRow, Row, State, Summary, Verdict, VmRates,
};
use vmtax_model::samples::{ApicFeatures, KvmFeatures, TimerLine};
use vmtax_model::{
    Check, Checkpoint, HostFacts, Interval, KernelIdentity, KvmClass, Layer, Machine, Metric, Plan,
    Readiness, Remedy, SCHEMA, VmConfiguration, WorkloadSpec, testing,
};

/// Returns the advice of one rule.
pub(crate) fn advice(id: &str, evidence: &Evidence<'_>) -> Vec<Advice> {
    let rule = rules().find(|rule| rule.id == id).unwrap();
    rule.advice(evidence).collect()
}

/// The sentences of one rule.
pub(crate) fn findings(id: &str, evidence: &Evidence<'_>) -> Vec<String> {
    advice(id, evidence)
        .into_iter()
        .map(|advice| advice.finding)
        .collect()
}

/// The sentences of one rule about a running VM, with plain blanks.
pub(crate) fn says(id: &str, vm: &VmRates) -> Vec<String> {
    let evidence = Evidence {
        vm: Some(vm),
        ..Evidence::default()
    };
    let found = findings(id, &evidence).into_iter();
    found.map(|text| text.replace('\u{a0}', " ")).collect()
}

/// Requests on kvm that take these rows, each with its mean in ns, and nothing else.
pub(crate) fn column(rows: &[(Layer, State, f64)]) -> LayerColumn {
    let row = |&(layer, state, mean_ns): &(Layer, State, f64)| Row {
        from: Checkpoint::Begin,
        to: Checkpoint::End,
        layer,
        state,
        label: String::new(),
        time: Summary {
            mean_ns,
            ..Summary::default()
        },
        mean: Estimate {
            median: mean_ns,
            interval: None,
        },
        percent: 0.0,
        count: 1,
        below_bound: false,
        events: None,
        corrected_ns: None,
    };
    let clock = ClockFinding {
        bound_ns: 0.0,
        source: String::new(),
        drift_ns: 0.0,
        violations: 0,
    };
    LayerColumn {
        machine: Machine::KVM,
        variant: String::new(),
        from_host: false,
        is_accelerator_unknown: false,
        rounds: 1,
        matched: Matched {
            operations: 1,
            joined: 1,
            ..Matched::default()
        },
        clock,
        traced: Summary {
            mean_ns: rows.iter().map(|(_, _, ns)| ns).sum(),
            ..Summary::default()
        },
        control: None,
        control_median: None,
        observer: None,
        rows: rows.iter().map(row).collect(),
        unexplained_ns: 0.0,
        corrected: None,
        nested: Vec::new(),
        lifecycle: Vec::new(),
        calls: Vec::new(),
        tail: Vec::new(),
        waterfalls: Vec::new(),
        heat: HeatMap::default(),
        packets: None,
        fio_requests: None,
        missing: Vec::new(),
    }
}

/// Returns true if a rule finds something in five seconds of these exits of two vCPUs.
pub(crate) fn fires(id: &str, registers: &[(Register, [u64; 3])]) -> bool {
    let (counters, apic) = (&BTreeMap::new(), ApicFeatures::default());
    let exits = Exits {
        seconds: 5.0,
        vcpus: 2,
        mean_ns: 0.0,
        registers,
        tick: None,
        counters,
        apic,
        kvm: KvmFeatures::default(),
        reasons: &[],
        page_faults: None,
        timers: &[],
    };
    !advice(
        id,
        &Evidence {
            exits: Some(&exits),
            ..Evidence::default()
        },
    )
    .is_empty()
}

/// Ten seconds of exits of four vCPUs.
#[derive(Default)]
pub(crate) struct TestExits {
    pub registers: Vec<(Register, [u64; 3])>,
    pub mean_ns: f64,
    pub kvm: KvmFeatures,
    pub reasons: Vec<ExitReason>,
    pub page_faults: Option<ExitCount>,
    pub timers: Vec<TimerLine>,
    pub counters: BTreeMap<String, u64>,
}

impl TestExits {
    /// Returns the advice of one rule about these exits of a VM with this configuration.
    pub fn advice(&self, id: &str, configuration: Option<&VmConfiguration>) -> Vec<Advice> {
        let exits = Exits {
            seconds: 10.0,
            vcpus: 4,
            mean_ns: self.mean_ns,
            registers: &self.registers,
            tick: None,
            counters: &self.counters,
            apic: ApicFeatures::default(),
            kvm: self.kvm,
            reasons: &self.reasons,
            page_faults: self.page_faults.as_ref(),
            timers: &self.timers,
        };
        let evidence = Evidence {
            exits: Some(&exits),
            configuration,
            ..Evidence::default()
        };
        advice(id, &evidence)
    }
}

/// Exits of one reason, of the same time each, ns.
pub(crate) fn reason(name: &str, count: u64, mean_ns: f64) -> ExitReason {
    let exits = ExitCount {
        count,
        timed: count,
        total_ns: count as f64 * mean_ns,
        mean_ns: Some(mean_ns),
        ..ExitCount::default()
    };
    ExitReason::new(name.to_owned(), exits)
}

/// A Windows guest of KVM with these enlightenments.
pub(crate) fn windows(enlightenments: &[&str]) -> VmConfiguration {
    let on = enlightenments.iter().map(|name| ((*name).to_owned(), true));
    VmConfiguration {
        is_kvm: Some(true),
        windows: Some("its clock is set to local time (-rtc base=localtime)".to_owned()),
        cpu_model: Some("host".to_owned()),
        cpus: 4,
        enlightenments: on.collect(),
        ..VmConfiguration::default()
    }
}

/// Overheads of one guest over six rounds: each metric costs its ratio, which is shown.
pub(crate) struct Overheads {
    pub plan: Plan,
    pub host: HostFacts,
    pub findings: Findings,
}

impl Overheads {
    pub fn new(machine: Machine, ratios: &[(Metric, f64)]) -> Overheads {
        let workloads = ratios
            .iter()
            .map(|(metric, _)| WorkloadSpec::new(metric.workload()))
            .collect();
        let row = |(metric, ratio): &(Metric, f64)| {
            let overhead = Comparison {
                ratio: Estimate {
                    median: *ratio,
                    interval: None,
                },
                difference: Some(Estimate {
                    median: (ratio - 1.0) * 1000.0,
                    interval: None,
                }),
                rounds: 6,
                p: None,
                verdict: Verdict::Slower,
            };
            let column = MachineColumn {
                machine,
                spread: None,
                overhead: Some(overhead),
                unsupported: None,
            };
            OverheadRow {
                metric: *metric,
                machines: vec![column],
            }
        };
        let kernel = KernelIdentity {
            system: "Linux".into(),
            release: "6.1".into(),
            version: String::new(),
        };
        Overheads {
            plan: Plan::new("run", 6, vec![Machine::NATIVE, machine], workloads),
            host: host(),
            findings: Findings {
                schema: SCHEMA,
                rounds_planned: 6,
                rounds_complete: 6,
                method: String::new(),
                kernels: [Machine::NATIVE, machine]
                    .map(|m| (m, kernel.clone()))
                    .to_vec(),
                rows: ratios.iter().map(row).collect(),
                warnings: Vec::new(),
                advice: Vec::new(),
            },
        }
    }

    pub fn evidence(&self) -> Evidence<'_> {
        Evidence {
            plan: Some(&self.plan),
            host: Some(&self.host),
            overhead: Some(&self.findings),
            ..Evidence::default()
        }
    }

    pub fn verdict(self, verdict: Verdict) -> Overheads {
        self.each(|overhead| overhead.verdict = verdict)
    }

    pub fn interval(self, low: f64, high: f64) -> Overheads {
        self.each(|overhead| {
            overhead.ratio.interval = Some(Interval {
                low,
                high,
                coverage: 0.97,
            })
        })
    }

    pub fn kernels(mut self, native: &str, guest: &str) -> Overheads {
        for ((_, kernel), release) in self.findings.kernels.iter_mut().zip([native, guest]) {
            kernel.release = release.to_owned();
        }
        self
    }

    fn each(mut self, change: impl Fn(&mut Comparison)) -> Overheads {
        let columns = self
            .findings
            .rows
            .iter_mut()
            .flat_map(|row| &mut row.machines);
        columns
            .filter_map(|column| column.overhead.as_mut())
            .for_each(change);
        self
    }
}

pub(crate) fn host() -> HostFacts {
    let kvm = Check {
        id: "kvm".into(),
        subject: "KVM".into(),
        state: Readiness::Missing,
        found: String::new(),
        why: String::new(),
        problem: None,
        remedies: vec![Remedy::instruction("sudo modprobe kvm_intel".into())],
    };
    HostFacts {
        checks: vec![kvm],
        ..testing::host(KvmClass::Hardware)
    }
}
