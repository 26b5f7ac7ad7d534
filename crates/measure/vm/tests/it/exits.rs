//! Exits of every kind; antipatterns of guest kernels, and their fixes.

use crate::guest::{Guest, per_us, percentile, summary};
use std::collections::BTreeMap;
use vmtax_model::Antipattern;
use vmtax_model::testing::{accelerators, skipped};
use vmtax_vm::micro_guest::{ExitKind, Failure, Order, qemu};

/// The median of each kind, in ticks.
fn measure(guest: &mut Guest, name: &str) -> BTreeMap<ExitKind, u64> {
    println!("{name}: ready after {:?}", guest.start);
    println!(
        "{:32} {:>10} {:>10} {:>10} {:>10}",
        "", "p50", "p90", "p99", "max"
    );
    let measured = ExitKind::ALL.map(|kind| {
        let count = if kind == ExitKind::Halt { 200 } else { 2000 };
        guest.carry_out(Order::Exits { kind, count }).unwrap();
        let exits = guest.mailbox().exits(kind).unwrap();
        assert_eq!(exits.len(), count as usize);
        assert!(exits.iter().sum::<u64>() > 0, "{kind:?} takes no time");
        let mode = if kind.in_kernel_mode() {
            " (kernel mode)"
        } else {
            ""
        };
        println!(
            "{:32} {}",
            format!("{}{mode}", kind.label()),
            summary(&exits)
        );
        if kind == ExitKind::Halt {
            // The CPU slept for 1 ms: when the deadline were half as far away, or none, this would be longer.
            let fastest = percentile(&exits, 0) as f64 / per_us();
            assert!(
                fastest < 400.0,
                "{name}: the fastest wake-up takes {fastest} us"
            );
        }
        (kind, percentile(&exits, 50))
    });
    BTreeMap::from(measured)
}

#[test]
fn every_kind_costs_what_it_must() {
    for accelerator in accelerators() {
        let mut guest = Guest::start(accelerator, &[]);
        // Each kind is measured within a millisecond, in which other load may have the CPU.
        let times = [(); 3].map(|()| measure(&mut guest, accelerator));
        let lowest_median = |kind| times.iter().map(|median| median[&kind]).min().unwrap();
        // Nothing takes no time in either mode: which of the two is shorter is chance.
        let nothing = lowest_median(ExitKind::Empty).min(lowest_median(ExitKind::EmptyKernel));
        for kind in ExitKind::ALL {
            assert!(
                lowest_median(kind) >= nothing,
                "{accelerator}: {kind:?} is cheaper than nothing"
            );
        }
        for kind in [
            ExitKind::PioUserWrite,
            ExitKind::PioUserRead,
            ExitKind::MmioUserWrite,
            ExitKind::MmioUserRead,
        ] {
            assert!(
                lowest_median(kind) > lowest_median(ExitKind::Empty),
                "{accelerator}: {kind:?} costs nothing"
            );
        }
        assert!(
            lowest_median(ExitKind::Inject) > lowest_median(ExitKind::Empty)
                && lowest_median(ExitKind::Halt) > lowest_median(ExitKind::Empty)
        );
        if accelerator == "kvm" {
            assert!(
                lowest_median(ExitKind::Cpuid) > 4 * lowest_median(ExitKind::Empty),
                "cpuid leaves every guest of KVM"
            );
            for (user, kernel) in [
                (ExitKind::PioUserWrite, ExitKind::PioKernelWrite),
                (ExitKind::PioUserRead, ExitKind::PioKernelRead),
                (ExitKind::MmioUserRead, ExitKind::MmioKernelRead),
            ] {
                assert!(
                    4 * lowest_median(user) > 5 * lowest_median(kernel),
                    "{user:?} goes no further than {kernel:?}"
                );
            }
        }
    }
}

/// Interrupt controllers elsewhere, more CPUs, other CPU models: nothing that the ROM counts on.
#[test]
fn other_machines_do_as_well() {
    for accelerator in accelerators() {
        let mut machines = vec![["-cpu", "max"], ["-cpu", "qemu64"], ["-smp", "2"]];
        if accelerator == "kvm" {
            machines.extend([
                ["-cpu", "host"],
                ["-M", "kernel-irqchip=split"],
                ["-M", "kernel-irqchip=off"],
            ]);
        }
        for machine in machines {
            let name = format!("{accelerator} {}", machine.join(" "));
            match Guest::try_start(accelerator, &machine.map(str::to_owned)) {
                Ok(mut guest) => drop(measure(&mut guest, &name)),
                Err(said) => skipped(&format!("{name}: {said}")),
            }
        }
    }
}

fn count(antipattern: Antipattern) -> u32 {
    if antipattern == Antipattern::FastTick {
        10
    } else {
        200
    }
}

/// Each form, as far as this machine can.
fn measure_antipatterns(guest: &mut Guest, accelerator: &str) {
    println!(
        "{accelerator}\n{:36} {:>10} {:>10} {:>10} {:>10}",
        "", "p50", "p90", "p99", "max"
    );
    for (antipattern, fixed) in Antipattern::forms() {
        let name = antipattern.label(fixed);
        match guest.carry_out(Order::Antipattern {
            antipattern,
            fixed,
            count: count(antipattern),
        }) {
            Ok(()) => {
                let ticks = guest.mailbox().antipattern(antipattern, fixed).unwrap();
                assert_eq!(ticks.len(), count(antipattern) as usize);
                println!("{name:36} {}", summary(&ticks));
            }
            Err(Failure::NoX2apic) => println!("{name:36} {}", Failure::NoX2apic),
            Err(failure) => panic!("{accelerator}: {name}: {failure}"),
        }
    }
}

/// Returns the ratio of an antipattern's median to its fix's. A form of TCG lasts a fifth of a microsecond, 20 of them
/// less than other load on the host does, which doubles either: so each is measured right behind the other, many
/// times, and of the ratios the median counts.
fn ratio(guest: &mut Guest, antipattern: Antipattern) -> f64 {
    let mut median = |fixed| {
        guest
            .carry_out(Order::Antipattern {
                antipattern,
                fixed,
                count: 20,
            })
            .unwrap();
        percentile(
            &guest.mailbox().antipattern(antipattern, fixed).unwrap(),
            50,
        ) as f64
    };
    let mut ratios: Vec<f64> = (0..41).map(|_| median(false) / median(true)).collect();
    ratios.sort_by(f64::total_cmp);
    ratios[ratios.len() / 2]
}

#[test]
fn antipatterns_cost_more_than_their_fixes() {
    for accelerator in accelerators() {
        let mut guest = Guest::start(accelerator, &qemu::ANTIPATTERN_DEVICES.map(str::to_owned));
        measure_antipatterns(&mut guest, accelerator);
        // Each of these leaves the guest more often than its fix does; TCG only calls a function more.
        let least = if accelerator == "kvm" { 1.2 } else { 1.0 };
        for (antipattern, least) in [
            (Antipattern::UartPolling, least),
            (Antipattern::CursorMoves, least),
            (Antipattern::PmTimerClock, least),
            (Antipattern::HpetClock, least),
            (Antipattern::TraceLine, least),
            (Antipattern::ClockDivision, 1.2),
        ] {
            let ratio = ratio(&mut guest, antipattern);
            println!("{accelerator}: {antipattern:?} costs {ratio:.2} times its fix");
            assert!(
                ratio > least,
                "{accelerator}: {antipattern:?} costs {ratio:.2} times its fix"
            );
        }
    }
}
