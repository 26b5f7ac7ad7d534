//! Exits that are made up.

use super::{Devices, summary};
use vmtax_findings::{ExitTimes, GuestExits};
use vmtax_model::AddressSpace;
use vmtax_model::samples::{Access, ApicFeatures, ExitCounts, ExitRow, TimerLine, TracedExits};

const VCPU: i32 = 40;

fn row(reason: &str, access: Option<(u64, bool)>, count: u64, user: u64) -> ExitRow {
    let access = access.map(|(address, write)| Access {
        space: AddressSpace::Port,
        address,
        write,
    });
    ExitRow {
        tid: VCPU,
        reason: reason.to_owned(),
        access,
        count,
        user,
        timed: count,
        ticks: 10 * count,
    }
}

fn summarised(rows: Vec<ExitRow>, regular: Vec<(u64, f64)>) -> GuestExits {
    let traced = TracedExits {
        rows,
        regular,
        mhz: 1000.0,
        ..TracedExits::default()
    };
    let counts = ExitCounts {
        seconds: 2.0,
        traced: Some(traced),
        ..ExitCounts::default()
    };
    summary(&counts, &Devices::usual())
}

#[test]
fn sums_name_reasons_devices_and_costs() {
    let polled =
        [(0x3fd, false), (0x3f8, true)].map(|access| row("port I/O", Some(access), 300, 300));
    let found = summarised(polled.into(), Vec::new());
    assert_eq!(
        (
            found.reasons.len(),
            found.reasons[0].reason.as_str(),
            found.reasons[0].exits.count
        ),
        (1, "port I/O", 600)
    );
    assert_eq!(
        (found.vcpus.len(), found.vcpus[0].tid, found.vcpus[0].count),
        (1, VCPU, 600)
    );
    let status = found.addresses.iter().find(|a| a.address == 0x3fd).unwrap();
    assert_eq!(
        (
            status.device.as_str(),
            status.register.as_str(),
            status.write
        ),
        ("serial", "line status", false)
    );
    assert_eq!(
        (
            status.exits.count,
            status.exits.user,
            status.exits.by_vcpu.as_slice()
        ),
        (300, Some(300), [300].as_slice())
    );
    // 10 ticks of a 1 GHz clock, 150 times a second.
    assert_eq!(
        (status.exits.mean_ns, status.exits.per_s),
        (Some(10.0), 150.0)
    );
    assert_eq!(
        found
            .advice
            .iter()
            .map(|a| a.rule.as_str())
            .collect::<Vec<_>>(),
        ["uart-polling"]
    );
    let halts = summarised(
        vec![row("unknown (0x63)", None, 3, 0), row("HLT", None, 4, 0)],
        Vec::new(),
    );
    assert_eq!(
        halts
            .reasons
            .iter()
            .map(|r| r.reason.as_str())
            .collect::<Vec<_>>(),
        ["HLT", "unknown (0x63)"]
    );
    assert!(halts.advice.is_empty());
}

/// Two seconds of a vCPU that is halted for one and spins for a quarter: neither is a cost of the other exits, on no CPU.
#[test]
fn halts_and_spins_are_no_cost_of_exits() {
    let polled =
        || [(0x3fd, false), (0x3f8, true)].map(|access| row("io", Some(access), 3000, 3000));
    let expected = summarised(polled().into(), Vec::new());
    let gain = |found: &GuestExits| {
        found
            .advice
            .iter()
            .find(|a| a.rule == "uart-polling")
            .map(|a| a.gain)
    };
    // 10 ticks of a 1 GHz clock each.
    assert!(
        (gain(&expected).unwrap() - 3000.0 * 10e-9 / 2.0).abs() < 1e-12,
        "{:?}",
        expected.advice
    );
    for [halt, spin] in [
        ["HLT", "PAUSE_INSTRUCTION"],
        ["hlt", "pause"],
        ["idle-halt", "EXIT_PAUSE"],
    ] {
        let long = |reason, ticks| ExitRow {
            ticks,
            ..row(reason, None, 100, 0)
        };
        let idle = [long(halt, 1_000_000_000), long(spin, 250_000_000)];
        let found = summarised(polled().into_iter().chain(idle).collect(), Vec::new());
        assert_eq!(gain(&found), gain(&expected), "{halt}");
        let times = ExitTimes {
            halted_ns: 1e9,
            spinning_ns: 0.25e9,
            handled_ns: 60_000.0,
        };
        assert_eq!(found.times(), times, "{halt}");
        let vcpu = &found.vcpus[0];
        assert_eq!(
            [vcpu.halted_ns, vcpu.spinning_ns, vcpu.total_ns],
            [1e9, 0.25e9, 1.25e9 + 60_000.0],
            "{halt}"
        );
        assert_eq!(found.part_of_time(found.times().halted_ns), 0.5);
    }
}

/// Interrupts that the guest ends by the MSR of x2APIC: 25 a second are no finding, 20,000 are one, of what is not in place.
#[test]
fn ends_of_interrupts_are_advised_where_they_cost_and_as_the_cpu_allows() {
    let found = |count: u64, apic| {
        let access = Access {
            space: AddressSpace::Msr,
            address: 0x80b,
            write: true,
        };
        let row = ExitRow {
            access: Some(access),
            timed: count,
            ticks: 2000 * count,
            ..row("msr", None, count, 0)
        };
        let traced = TracedExits {
            rows: vec![row],
            mhz: 1000.0,
            ..TracedExits::default()
        };
        let counts = ExitCounts {
            seconds: 5.0,
            traced: Some(traced),
            apic,
            ..ExitCounts::default()
        };
        summary(&counts, &Devices::usual()).advice
    };
    let host = ApicFeatures {
        pv_eoi: Some(true),
        x2apic: Some(true),
    };
    assert!(found(125, host).is_empty() && found(125, ApicFeatures::default()).is_empty());
    let actions = |apic| -> Vec<String> {
        found(100_000, apic)
            .remove(0)
            .remedies
            .into_iter()
            .map(|r| r.action)
            .collect()
    };
    assert!(
        !actions(host)
            .iter()
            .any(|action| action.contains("PV EOI") || action.contains("x2APIC"))
    );
    let without = actions(ApicFeatures {
        pv_eoi: Some(false),
        x2apic: Some(true),
    });
    assert!(
        without[0].starts_with("Enable PV EOI")
            && !without.iter().any(|action| action.contains("x2APIC"))
    );
}

#[test]
fn a_fast_tick_is_a_finding_and_an_ordinary_one_is_not() {
    let fast = summarised(Vec::new(), vec![(398, 1000.0)]).advice;
    assert_eq!((fast[0].rule.as_str(), fast.len()), ("fast-tick", 1));
    assert!(
        fast[0].finding.contains("1000 times a second"),
        "{}",
        fast[0].finding
    );
    assert!(
        summarised(Vec::new(), vec![(398, 250.0)]).advice.is_empty(),
        "250 Hz"
    );
}

/// Ten seconds of an idle guest of four vCPUs, as public reports have it: each access takes 9 µs, and each thread a quarter of them.
fn idle(accesses: &[(AddressSpace, u64, bool, u64)], timer_lines: &[TimerLine]) -> ExitCounts {
    let rows = accesses.iter().flat_map(|&(space, address, write, count)| {
        (0..4).map(move |vcpu| ExitRow {
            tid: VCPU + vcpu,
            access: Some(Access {
                space,
                address,
                write,
            }),
            ticks: 9_000 * count / 4,
            timed: count / 4,
            ..row("IO_INSTRUCTION", None, count / 4, count / 4)
        })
    });
    let traced = TracedExits {
        brackets: true,
        rows: rows.collect(),
        timer_lines: timer_lines.to_vec(),
        mhz: 1000.0,
        ..TracedExits::default()
    };
    ExitCounts {
        seconds: 10.0,
        traced: Some(traced),
        ..ExitCounts::default()
    }
}

fn rules_of(counts: &ExitCounts) -> Vec<String> {
    let found = summary(counts, &Devices::usual());
    found.advice.into_iter().map(|one| one.rule).collect()
}

/// The RTC is addressed at one port and read and reset at the other, three times for each of 2048 interrupts a second.
#[test]
fn an_idle_windows_that_ticks_by_devices_is_found_by_their_addresses() {
    let (port, memory) = (AddressSpace::Port, AddressSpace::Memory);
    let rtc = [
        (port, 0x70, true, 40_960),
        (port, 0x71, false, 20_480),
        (port, 0x71, true, 4),
    ];
    assert_eq!(rules_of(&idle(&rtc, &[])), ["rtc-timer"]);
    let pm_timer = [(port, 0x608, false, 60_000)];
    assert_eq!(rules_of(&idle(&pm_timer, &[])), ["pm-timer-clock"]);
    let hpet = [
        (memory, 0xfed0_0108, true, 50_000),
        (memory, 0xfed0_00f0, false, 60_000),
    ];
    assert_eq!(rules_of(&idle(&hpet, &[])), ["hpet-clock", "hpet-timer"]);
    let hwclock = [(port, 0x70, true, 40), (port, 0x71, false, 40)];
    assert_eq!(rules_of(&idle(&hwclock, &[])), [""; 0]);
}

#[test]
fn a_timer_of_qemus_is_no_tick_of_the_guests() {
    let line = TimerLine {
        line: 2,
        tid: 7,
        count: 10_000,
        hz: 1000.0,
    };
    assert_eq!(rules_of(&idle(&[], &[line])), ["hpet-timer"]);
}

/// On AMD's CPUs an access to a device is a page fault, too.
#[test]
fn page_faults_are_those_of_memory() {
    let mut counts = idle(&[(AddressSpace::Memory, 0xfed0_00f0, false, 400)], &[]);
    let traced = counts.traced.as_mut().unwrap();
    traced
        .rows
        .iter_mut()
        .for_each(|row| row.reason = "npf".to_owned());
    assert_eq!(summary(&counts, &Devices::usual()).page_faults, None);
    let traced = counts.traced.as_mut().unwrap();
    traced.rows.push(row("npf", None, 30, 0));
    traced.rows.push(row("EPT_VIOLATION", None, 20, 0));
    let faults = summary(&counts, &Devices::usual()).page_faults.unwrap();
    assert_eq!((faults.count, faults.mean_ns), (50, Some(10.0)));
}
