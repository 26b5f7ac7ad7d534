//! Findings about many runs and hosts, and about traces of other tools.

use super::traced::vm_requests;
use std::collections::BTreeMap;
use std::sync::Arc;
use vmtax_analysis::{fleet as compare_hosts, history as find_changes};
use vmtax_findings::*;
use vmtax_model::*;

/// A metric over so many runs: from the ninth on it costs a seventh more, with another kernel.
pub fn history(runs: u32) -> HistoryFindings {
    let key = SeriesKey {
        machine: Machine::KVM,
        variant: String::new(),
        step: String::new(),
        host: "AMD EPYC 7763, 2 CPUs".into(),
        settings: BTreeMap::from([
            ("cpus".into(), "1".into()),
            ("memory-mib".into(), "1024".into()),
        ]),
    };
    let figure = |run: u32| {
        let is_later = run > 8;
        let median = if is_later { 8_700.0 } else { 10_000.0 } + f64::from(run * 7 % 5) * 20.0;
        let interval = Interval {
            low: median * 0.99,
            high: median * 1.01,
            coverage: 0.969,
        };
        let kernel = if is_later { "6.12.43" } else { "6.12.40" };
        let past = PastFigure {
            run: PastRun {
                folder: format!("202611{run:02}T090000Z-nightly"),
                started: format!("2026-11-{run:02}T09:00:00Z"),
                name: "nightly".into(),
                recorded: run > 1,
            },
            n: 6,
            value: Estimate {
                median,
                interval: Some(interval),
            },
            facts: BTreeMap::from([("host_kernel".into(), kernel.into())]),
        };
        (key.clone(), past)
    };
    find_changes(Metric::CpuEvents, (1..=runs).map(figure).collect())
}

/// Twenty hosts of one CPU model, of which two have older microcode and are slower, and one of another model.
pub fn fleet() -> FleetFindings {
    const RUNS: u32 = 5;
    let name = |host: u32| format!("node-{host:02}");
    let run = |host: u32, run: u32| {
        let model = if host == 20 {
            "Intel Xeon 6338"
        } else {
            "AMD EPYC 7763"
        };
        let microcode = if host < 2 { "0xa001173" } else { "0xa0011d5" };
        let facts = [
            ("host_cpu_model_name", model.to_owned()),
            ("host_cpu_microcode", microcode.to_owned()),
            ("host_name", name(host)),
        ];
        FleetRun {
            id: format!("{host}-{run}"),
            host: name(host),
            date: format!("2026-11-{:02}", 10 + run),
            facts: Arc::new(Facts::from(
                facts.map(|(fact, value)| (fact.to_owned(), value)),
            )),
        }
    };
    let series = |metric: &str, machine: &str| FleetSeries {
        metric: metric.into(),
        machine: machine.into(),
        variant: String::new(),
        size: None,
        workload: "cpu".into(),
        settings: "{}".into(),
        unit: "ns".into(),
        better: Some(Better::Lower),
    };
    let hosts = 0..21u32;
    let runs: Vec<FleetRun> = hosts
        .flat_map(|host| (0..RUNS).map(move |number| run(host, number)))
        .collect();
    let measure = |(at, series): (u32, u32)| {
        let (host, number) = (at / RUNS, at % RUNS);
        let noise = f64::from((host * 5 + number * 3 + series) % 7) * 0.001;
        let cost = if host < 2 { 1.08 } else { 1.0 };
        FleetFigure {
            run: at,
            series,
            trial: series,
            round: 0,
            value: 1_000.0 * cost * (1.0 + noise),
        }
    };
    let all = (0..runs.len() as u32).flat_map(|run| [(run, 0), (run, 1)]);
    let data = FleetData {
        figures: all.map(measure).collect(),
        runs,
        series: vec![
            series("syscalls.getpid", "native"),
            series("syscalls.pipe", "kvm"),
        ],
        warnings: Vec::new(),
    };
    compare_hosts(&data, &["host_cpu_model_name".to_owned()], 0.02)
}

/// A trace of 4.8 ms of the host, and one of the guest; neither names the VM.
pub fn imported() -> ImportFindings {
    let count = |count: u64| ExitCount {
        count,
        per_s: count as f64 / 0.0048,
        ..ExitCount::default()
    };
    let vm = VmFacts {
        name: Some("VM with vCPU thread 15532".into()),
        ..VmFacts::unknown(0)
    };
    let access = |address, write, device: &str| ExitAddress {
        space: AddressSpace::Port,
        address,
        write,
        device: device.into(),
        register: String::new(),
        exits: count(63),
    };
    let vcpu = VcpuExits {
        vcpu: 0,
        tid: 15_532,
        count: 191,
        per_s: 191.0 / 0.0048,
        total_ns: 0.0,
        halted_ns: 0.0,
        spinning_ns: 0.0,
        in_guest_ns: None,
    };
    let reasons = [("port I/O", 126), ("KVM_EXIT_IO", 63), ("MMIO", 2)];
    let exits = GuestExits {
        seconds: 0.0048,
        vcpus: vec![vcpu],
        reasons: reasons
            .map(|(reason, exits)| ExitReason::new(reason.into(), count(exits)))
            .into(),
        addresses: vec![
            access(0xcf8, true, "pci-conf-idx"),
            access(0xcfc, false, "pci-conf-data"),
        ],
        devices_from: DevicesFrom::UsualPlaces,
        timing: "No exit has a time: kvm_entry is not in the trace.".into(),
        lost: 0,
        counters: BTreeMap::new(),
        page_faults: None,
        timers: Vec::new(),
        advice: Vec::new(),
    };
    let mut layers = vm_requests(false);
    (layers.vm, layers.ended) = (vm.clone(), false);
    layers.missing.clear();
    layers.layers.advice.clear();
    for column in &mut layers.layers.columns {
        column.is_accelerator_unknown = true;
    }
    let file = |file: &str, side, events| ImportedFile {
        file: file.into(),
        format: "ftrace text".into(),
        side,
        clock: "mono".into(),
        events,
        lost: 0,
        unknown: 0,
    };
    ImportFindings {
        facts: ImportFacts {
            schema: SCHEMA,
            files: vec![
                file("host.txt", TraceSide::Host, 259),
                file("guest.txt", TraceSide::Guest, 126),
            ],
            clocks: vec![JoinedClock {
                file: "guest.txt".into(),
                method: "cause and effect".into(),
                bound_ns: Some(12_000.0),
            }],
            missing: vec![Missing {
                what: "exits that KVM handles itself".into(),
                why: "host.txt has no kvm_exit".into(),
                fix: "record all events of KVM: `trace-cmd record -e kvm`".into(),
            }],
        },
        exits: Some(VmExits {
            vm,
            exits,
            missing: Vec::new(),
        }),
        layers: Some(layers),
    }
}
