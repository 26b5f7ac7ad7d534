//! Habits of guest kernels, and their cures.

use crate::guest::{Guest, accelerators};
use crate::ticks;
use std::collections::BTreeMap;
use vmtax_micro::{Failure, Order, qemu};
use vmtax_model::Habit;

fn count(habit: Habit) -> u32 {
    if habit == Habit::FastTick { 10 } else { 200 }
}

/// The median of each form, in ticks; none where this machine cannot.
fn measure(accelerator: &str) -> BTreeMap<(Habit, bool), u64> {
    let mut guest = Guest::start(accelerator, &qemu::HABIT_DEVICES.map(str::to_owned));
    println!("{accelerator}\n{:36} {:>10} {:>10} {:>10} {:>10}", "", "p50", "p90", "p99", "max");
    let mut medians = BTreeMap::new();
    for (habit, cured) in Habit::forms() {
        let name = habit.label(cured);
        match guest.carry_out(Order::Habit { habit, cured, count: count(habit) }) {
            Ok(()) => {
                let ticks = guest.mailbox().habit(habit, cured).unwrap();
                assert_eq!(ticks.len(), count(habit) as usize);
                println!("{name:36} {}", ticks::summary(&ticks));
                medians.insert((habit, cured), ticks::percentile(&ticks, 50));
            }
            Err(Failure::NoX2apic) => println!("{name:36} {}", Failure::NoX2apic),
            Err(failure) => panic!("{accelerator}: {name}: {failure}"),
        }
    }
    medians
}

#[test]
fn habits_cost_more_than_their_cures() {
    for accelerator in accelerators() {
        let median = measure(accelerator);
        let ratio = |habit| median[&(habit, false)] as f64 / median[&(habit, true)] as f64;
        // Each of these leaves the guest more often than its cure does; TCG only calls a function more.
        let least = if accelerator == "kvm" { 1.2 } else { 1.0 };
        for habit in [Habit::UartPolling, Habit::CursorMoves, Habit::PmTimerClock, Habit::HpetClock, Habit::TraceLine] {
            assert!(ratio(habit) > least, "{accelerator}: {habit:?} costs {:.2} times its cure", ratio(habit));
        }
        assert!(ratio(Habit::ClockDivision) > 1.2, "{accelerator}: {:.2}", ratio(Habit::ClockDivision));
    }
}
