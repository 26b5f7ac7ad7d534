//! Known costs among the exits of a guest, each with its cure.
//!
//! A rule says what was counted and fires only on that. Its published figures are others', with their source.

use super::devices::Register;
use std::collections::BTreeMap;
use vmtax_model::{CostlyExits, ExitFinding};

/// Fewer than this are nothing to speak of, in all and a second.
const LEAST: u64 = 100;
const LEAST_PER_S: f64 = 10.0;
/// Bytes a second over a UART that are worth a faster console.
const MANY_BYTES: f64 = 1000.0;
/// A timer that ticks faster is fast; Linux' usual 100 to 250 Hz are not. What comes faster than the second is no timer.
const FAST_HZ: f64 = 500.0;
pub(super) const NO_TIMER_HZ: f64 = 2500.0;
/// Time of a processor that may be polled away.
const POLLED: f64 = 0.05;

/// What the rules look at.
pub(super) struct Seen<'a> {
    pub seconds: f64,
    pub vcpus: usize,
    /// Exits by register: reads, writes, writes that QEMU took.
    pub registers: &'a [(Register, [u64; 3])],
    /// The interrupt that comes regularly most often: how often, and its rate while it does, Hz.
    pub tick: Option<(u64, f64)>,
    pub counters: &'a BTreeMap<String, u64>,
}

impl Seen<'_> {
    fn sum(&self, register: Register, kind: usize) -> u64 {
        self.registers.iter().filter(|(r, _)| *r == register).map(|(_, counts)| counts[kind]).sum()
    }

    fn reads(&self, register: Register) -> u64 {
        self.sum(register, 0)
    }

    fn writes(&self, register: Register) -> u64 {
        self.sum(register, 1)
    }

    fn taken_by_qemu(&self, register: Register) -> u64 {
        self.sum(register, 2)
    }

    fn per_s(&self, count: u64) -> f64 {
        count as f64 / self.seconds.max(f64::EPSILON)
    }

    fn many(&self, count: u64) -> bool {
        count >= LEAST && self.per_s(count) >= LEAST_PER_S
    }

    fn finding(&self, cost: CostlyExits, count: u64, said: [String; 3]) -> ExitFinding {
        let [seen, advice, published] = said;
        ExitFinding { cost, count, per_s: self.per_s(count), seen, advice, published }
    }
}

/// The known costs that are there, the most frequent first.
pub(super) fn findings(seen: &Seen<'_>) -> Vec<ExitFinding> {
    let rules = [uart, output, cursor, tick, pm_timer, hpet, eoi, notify, halt_polling];
    let mut found: Vec<ExitFinding> = rules.iter().filter_map(|rule| rule(seen)).collect();
    found.sort_by_key(|finding| std::cmp::Reverse(finding.count));
    found
}

fn uart(seen: &Seen<'_>) -> Option<ExitFinding> {
    let (polls, bytes) = (seen.reads(Register::UartStatus), seen.writes(Register::UartData));
    (seen.many(polls) && polls * 2 >= bytes && bytes > 0).then(|| {
        seen.finding(CostlyExits::UartPolling, polls, [
            format!("The guest asks {polls} times whether the UART is ready, to write {bytes} bytes: each is an exit."),
            "QEMU's UART is always ready: write without asking, or use a virtio console (`console=hvc0` and QEMU's \
             -device virtconsole)."
                .into(),
            "one of the cures that took a kernel's getpid from 13,000 to 200 ns (seed 003)".into(),
        ])
    })
}

fn output(seen: &Seen<'_>) -> Option<ExitFinding> {
    let bytes = seen.writes(Register::UartData);
    let rate = seen.per_s(bytes);
    (seen.many(bytes) && rate >= MANY_BYTES).then(|| {
        seen.finding(
            CostlyExits::SerialOutput,
            bytes,
            [
                format!("The guest writes {rate:.0} bytes a second to a UART, an exit each."),
                "Say less (`quiet`, `loglevel=`), or use a virtio console (`console=hvc0`), which takes whole buffers."
                    .into(),
                "Firecracker gives its 125 ms of boot with the serial console off (its SPECIFICATION.md)".into(),
            ],
        )
    })
}

fn cursor(seen: &Seen<'_>) -> Option<ExitFinding> {
    let writes = seen.writes(Register::VgaCursor);
    seen.many(writes).then(|| {
        seen.finding(CostlyExits::VgaCursor, writes, [
            format!("The guest writes {writes} times to the VGA's CRT controller, as it does to move the text cursor."),
            "Give the guest no VGA console (`-vga none`, `-display none`, `console=ttyS0` or hvc0), or move the cursor \
             once a line."
                .into(),
            "four writes a character, 320 exits for a line of 80 (seed 003)".into(),
        ])
    })
}

fn tick(seen: &Seen<'_>) -> Option<ExitFinding> {
    let (count, hz) = seen.tick.filter(|(count, hz)| *count >= LEAST && (FAST_HZ..NO_TIMER_HZ).contains(hz))?;
    Some(seen.finding(
        CostlyExits::FastTick,
        count,
        [
            format!("An interrupt comes {hz:.0} times a second, as regularly as a timer's: {count} times in all."),
            "Let the guest tick less often: HZ=100 or 250, and NO_HZ, for a Linux guest.".into(),
            "one of seed 003's cures: 1000 to 100 Hz".into(),
        ],
    ))
}

const CLOCK: &str = "Let the guest take its clock from kvm-clock or the TSC: CONFIG_KVM_GUEST=y, `-cpu …,+invtsc`, and see \
                     /sys/devices/system/clocksource/clocksource0/current_clocksource in the guest.";
const CLOCK_COST: &str =
    "an access that QEMU serves costs some 5,800 cycles (kernel commit ad3610919e6f), reading the TSC some 25 ns";

fn pm_timer(seen: &Seen<'_>) -> Option<ExitFinding> {
    let reads = seen.reads(Register::PmTimer);
    seen.many(reads).then(|| {
        seen.finding(
            CostlyExits::PmTimerClock,
            reads,
            [
                format!(
                    "The guest reads the ACPI PM timer {reads} times: each is an exit to QEMU, under its big lock."
                ),
                CLOCK.into(),
                CLOCK_COST.into(),
            ],
        )
    })
}

fn hpet(seen: &Seen<'_>) -> Option<ExitFinding> {
    let reads = seen.reads(Register::HpetCounter);
    seen.many(reads).then(|| {
        seen.finding(
            CostlyExits::HpetClock,
            reads,
            [
                format!(
                    "The guest reads the HPET's counter {reads} times: each is an exit to QEMU, under its big lock."
                ),
                format!("{CLOCK} Or take the HPET away: `-machine hpet=off`."),
                CLOCK_COST.into(),
            ],
        )
    })
}

fn eoi(seen: &Seen<'_>) -> Option<ExitFinding> {
    let ends = seen.writes(Register::Eoi);
    seen.many(ends).then(|| {
        seen.finding(
            CostlyExits::Eoi,
            ends,
            [
                format!("The guest ends {ends} interrupts at its local APIC by an exit each."),
                "Spare it the exit: `-cpu …,+kvm-pv-eoi` and CONFIG_KVM_GUEST=y, or a host whose APICv or AVIC is on; \
             `+x2apic` makes it an MSR, cheaper than memory."
                    .into(),
                "fewer exits of an interrupt, by as much as half (kernel commit ae7a2a3fb6f8)".into(),
            ],
        )
    })
}

fn notify(seen: &Seen<'_>) -> Option<ExitFinding> {
    let taken = seen.taken_by_qemu(Register::Notify);
    seen.many(taken).then(|| {
        seen.finding(CostlyExits::NotifyWithoutIoeventfd, taken, [
            format!(
                "QEMU's processor threads themselves took {taken} notifications of virtio devices: the guest stood still \
                 meanwhile."
            ),
            "Switch ioeventfd on (`-device virtio-…-pci,ioeventfd=on`): KVM then wakes another thread and goes on.".into(),
            "an emulated NVMe disk went from 35,000 to 41,000 requests a second, one at a time (QEMU commit 0ebf76aae583)"
                .into(),
        ])
    })
}

fn halt_polling(seen: &Seen<'_>) -> Option<ExitFinding> {
    let counter = |name: &str| seen.counters.get(name).copied().unwrap_or(0) as f64;
    let (vain, useful) = (counter("halt_poll_fail_ns"), counter("halt_poll_success_ns"));
    let share = vain / 1e9 / (seen.seconds * seen.vcpus.max(1) as f64).max(f64::EPSILON);
    (share >= POLLED && vain > useful).then(|| {
        seen.finding(CostlyExits::HaltPolling, counter("halt_attempted_poll") as u64, [
            format!(
                "KVM polled {:.1} ms in vain for halted processors ({:.0} % of their time), {:.1} ms with success.",
                vain / 1e6,
                share * 100.0,
                useful / 1e6
            ),
            "Poll less on the host (/sys/module/kvm/parameters/halt_poll_ns), and leave polling in the guest off (its \
             cpuidle governor haltpoll)."
                .into(),
            String::new(),
        ])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(
        registers: &[(Register, [u64; 3])],
        tick: Option<(u64, f64)>,
        counters: &[(&str, u64)],
    ) -> Vec<CostlyExits> {
        let counters = counters.iter().map(|&(name, value)| (name.to_owned(), value)).collect();
        let seen = Seen { seconds: 5.0, vcpus: 2, registers, tick, counters: &counters };
        findings(&seen).iter().map(|finding| finding.cost).collect()
    }

    #[test]
    fn each_rule_fires_on_what_it_is_about() {
        use CostlyExits as C;
        use Register as R;
        assert_eq!(costs(&[(R::UartStatus, [600, 0, 0]), (R::UartData, [0, 600, 600])], None, &[]), [C::UartPolling]);
        assert_eq!(costs(&[(R::UartData, [0, 6000, 6000])], None, &[]), [C::SerialOutput]);
        assert_eq!(costs(&[(R::VgaCursor, [0, 600, 600])], None, &[]), [C::VgaCursor]);
        assert_eq!(costs(&[(R::PmTimer, [600, 0, 0])], None, &[]), [C::PmTimerClock]);
        assert_eq!(costs(&[(R::HpetCounter, [600, 0, 0])], None, &[]), [C::HpetClock]);
        assert_eq!(costs(&[(R::Eoi, [0, 600, 0])], None, &[]), [C::Eoi]);
        assert_eq!(costs(&[(R::Notify, [0, 600, 600])], None, &[]), [C::NotifyWithoutIoeventfd]);
        assert_eq!(costs(&[], Some((500, 1000.0)), &[]), [C::FastTick]);
        let polls = [("halt_poll_fail_ns", 2_000_000_000), ("halt_poll_success_ns", 1_000_000)];
        assert_eq!(costs(&[], None, &polls), [C::HaltPolling]);
    }

    #[test]
    fn what_is_usual_is_no_finding() {
        use Register as R;
        let boot = [(R::UartStatus, [40, 0, 0]), (R::UartData, [0, 40, 40]), (R::PmTimer, [20, 0, 0])];
        assert_eq!(costs(&boot, Some((500, 250.0)), &[]), [], "a few bytes, an ordinary tick");
        assert_eq!(costs(&[(R::UartStatus, [600, 0, 0])], None, &[]), [], "a status without output");
        assert_eq!(costs(&[(R::Notify, [0, 6000, 0])], None, &[]), [], "notifications that KVM took");
        assert_eq!(costs(&[(R::PmTimer, [0, 600, 600])], None, &[]), [], "writes");
        assert_eq!(costs(&[], Some((5000, 30_000.0)), &[]), [], "too fast for a timer");
        let polls = [("halt_poll_fail_ns", 2_000_000_000), ("halt_poll_success_ns", 3_000_000_000)];
        assert_eq!(costs(&[], None, &polls), [], "polling that helps");
        assert_eq!(costs(&[], None, &[("halt_poll_fail_ns", 100_000_000)]), [], "a hundredth of the time");
    }
}
