//! Antipatterns of guest kernels, and their fixes.

use crate::guest::{Guest, percentile, summary};
use vmtax_model::Antipattern;
use vmtax_model::testing::accelerators;
use vmtax_vm::micro_guest::{Failure, Order, qemu};

fn count(antipattern: Antipattern) -> u32 {
    if antipattern == Antipattern::FastTick {
        10
    } else {
        200
    }
}

/// Each form, as far as this machine can.
fn measure(guest: &mut Guest, accelerator: &str) {
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
        measure(&mut guest, accelerator);
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
