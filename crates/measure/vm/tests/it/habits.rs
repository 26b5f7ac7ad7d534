//! Habits of guest kernels, and their cures.

use crate::guest::{Guest, accelerators};
use crate::ticks;
use vmtax_model::Habit;
use vmtax_vm::micro_guest::{Failure, Order, qemu};

fn count(habit: Habit) -> u32 {
    if habit == Habit::FastTick { 10 } else { 200 }
}

/// Each form, as far as this machine can.
fn measure(guest: &mut Guest, accelerator: &str) {
    println!("{accelerator}\n{:36} {:>10} {:>10} {:>10} {:>10}", "", "p50", "p90", "p99", "max");
    for (habit, cured) in Habit::forms() {
        let name = habit.label(cured);
        match guest.carry_out(Order::Habit { habit, cured, count: count(habit) }) {
            Ok(()) => {
                let ticks = guest.mailbox().habit(habit, cured).unwrap();
                assert_eq!(ticks.len(), count(habit) as usize);
                println!("{name:36} {}", ticks::summary(&ticks));
            }
            Err(Failure::NoX2apic) => println!("{name:36} {}", Failure::NoX2apic),
            Err(failure) => panic!("{accelerator}: {name}: {failure}"),
        }
    }
}

/// How many times a cure's median its habit's is. A form of TCG lasts a fifth of a microsecond, 20 of them less than
/// other load on the host does, which doubles either: so each is measured right behind the other, many times, and of the
/// ratios the median counts.
fn ratio(guest: &mut Guest, habit: Habit) -> f64 {
    let mut median = |cured| {
        guest.carry_out(Order::Habit { habit, cured, count: 20 }).unwrap();
        ticks::percentile(&guest.mailbox().habit(habit, cured).unwrap(), 50) as f64
    };
    let mut ratios: Vec<f64> = (0..41).map(|_| median(false) / median(true)).collect();
    ratios.sort_by(f64::total_cmp);
    ratios[ratios.len() / 2]
}

#[test]
fn habits_cost_more_than_their_cures() {
    for accelerator in accelerators() {
        let mut guest = Guest::start(accelerator, &qemu::HABIT_DEVICES.map(str::to_owned));
        measure(&mut guest, accelerator);
        // Each of these leaves the guest more often than its cure does; TCG only calls a function more.
        let least = if accelerator == "kvm" { 1.2 } else { 1.0 };
        for (habit, least) in [
            (Habit::UartPolling, least),
            (Habit::CursorMoves, least),
            (Habit::PmTimerClock, least),
            (Habit::HpetClock, least),
            (Habit::TraceLine, least),
            (Habit::ClockDivision, 1.2),
        ] {
            let ratio = ratio(&mut guest, habit);
            println!("{accelerator}: {habit:?} costs {ratio:.2} times its cure");
            assert!(ratio > least, "{accelerator}: {habit:?} costs {ratio:.2} times its cure");
        }
    }
}
