//! Habits of guest kernels that cost more than they need, and their cures.

use serde::{Deserialize, Serialize};

/// What guest kernels do at a cost that they need not pay. Each has a cure, which does the same without. Published as
/// "From 13µs to 200ns: Four Rounds of KVM Performance Work (Kevlar)".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Habit {
    /// Asking the UART whether it is ready before each byte; QEMU's always is. Cure: only the byte.
    UartPolling,
    /// Moving the VGA cursor with each character, four port writes. Cure: only the character.
    CursorMoves,
    /// A timer of 1000 Hz beside some milliseconds of work. Cure: 100 Hz.
    FastTick,
    /// Ending an interrupt at the local APIC by memory. Cure: by MSR, in its x2APIC mode.
    EoiByMemory,
    /// Reading the time from the ACPI's PM timer, a port. Cure: the time stamp counter.
    PmTimerClock,
    /// Reading it from the HPET, device memory. Cure: the time stamp counter.
    HpetClock,
    /// Ticks to nanoseconds by 64-bit divisions. Cure: a multiplication and a shift.
    ClockDivision,
    /// A line on the UART, 32 bytes, about each interrupt. Cure: none.
    TraceLine,
    /// Saving, clearing and restoring the interrupt flag around a lock. Cure: the lock alone.
    LockSavesInterrupts,
    /// Handing over 16 bytes as two copies, each with its call and check. Cure: one.
    TwoCopies,
}

impl Habit {
    /// All of them, in the order of a report.
    pub const ALL: [Habit; 10] = [
        Habit::UartPolling,
        Habit::CursorMoves,
        Habit::FastTick,
        Habit::EoiByMemory,
        Habit::PmTimerClock,
        Habit::HpetClock,
        Habit::ClockDivision,
        Habit::TraceLine,
        Habit::LockSavesInterrupts,
        Habit::TwoCopies,
    ];

    /// How often one that takes a few instructions is done between two stamps.
    pub const BATCH: u32 = 64;

    /// Both forms of all habits, each before its cure.
    pub fn forms() -> impl Iterator<Item = (Habit, bool)> {
        Self::ALL.into_iter().flat_map(|habit| [(habit, false), (habit, true)])
    }

    /// Whether what is timed runs in kernel mode (CPL 0): a KVM that emulates that measures its emulator here.
    pub const fn in_kernel_mode(self, cured: bool) -> bool {
        matches!((self, cured), (Habit::LockSavesInterrupts, _) | (Habit::EoiByMemory, true))
    }

    /// How often it is done between two stamps.
    pub const fn batch(self) -> u32 {
        match self {
            Habit::ClockDivision | Habit::LockSavesInterrupts | Habit::TwoCopies => Self::BATCH,
            _ => 1,
        }
    }

    /// What is done, for people: the habit or its cure. It names the operation of a trial.
    pub const fn label(self, cured: bool) -> &'static str {
        match (self, cured) {
            (Habit::UartPolling, false) => "UART byte, status polled before it",
            (Habit::UartPolling, true) => "UART byte alone",
            (Habit::CursorMoves, false) => "character, VGA cursor moved",
            (Habit::CursorMoves, true) => "character, cursor left alone",
            (Habit::FastTick, false) => "work, timer at 1000 Hz",
            (Habit::FastTick, true) => "work, timer at 100 Hz",
            (Habit::EoiByMemory, false) => "EOI by MMIO",
            (Habit::EoiByMemory, true) => "EOI by MSR (x2APIC)",
            (Habit::PmTimerClock, false) => "clock from the PM timer",
            (Habit::HpetClock, false) => "clock from the HPET",
            (Habit::PmTimerClock, true) => "clock from the TSC, not the PM timer",
            (Habit::HpetClock, true) => "clock from the TSC, not the HPET",
            (Habit::ClockDivision, false) => "ticks to ns by 64-bit division",
            (Habit::ClockDivision, true) => "ticks to ns by multiply and shift",
            (Habit::TraceLine, false) => "interrupt with a trace line",
            (Habit::TraceLine, true) => "interrupt without a trace line",
            (Habit::LockSavesInterrupts, false) => "lock, interrupts saved and restored",
            (Habit::LockSavesInterrupts, true) => "lock alone",
            (Habit::TwoCopies, false) => "16 bytes in two copies",
            (Habit::TwoCopies, true) => "16 bytes in one copy",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_forms_share_a_label() {
        let labels: std::collections::BTreeSet<_> = Habit::forms().map(|(habit, cured)| habit.label(cured)).collect();
        assert_eq!(labels.len(), 2 * Habit::ALL.len());
    }
}
