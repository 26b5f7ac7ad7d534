//! Antipatterns of guest kernels that cost more than they need, and their fixes.

use serde::{Deserialize, Serialize};

/// Operation of guest kernels that costs more than it needs to. Each has a fix, which does the same without that cost.
/// Published as "From 13µs to 200ns: Four Rounds of KVM Performance Work (Kevlar)".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Antipattern {
    /// Asking the UART whether it is ready before each byte; QEMU's always is. Fix: only the byte.
    UartPolling,
    /// Moving the VGA cursor with each character, four port writes. Fix: only the character.
    CursorMoves,
    /// A timer of 1000 Hz beside some milliseconds of work. Fix: 100 Hz.
    FastTick,
    /// Ending an interrupt at the local APIC by memory. Fix: by MSR, in its x2APIC mode.
    EoiByMemory,
    /// Reading the time from the ACPI's PM timer, a port. Fix: the time stamp counter.
    PmTimerClock,
    /// Reading it from the HPET, device memory. Fix: the time stamp counter.
    HpetClock,
    /// Ticks to nanoseconds by 64-bit divisions. Fix: a multiplication and a shift.
    ClockDivision,
    /// A line on the UART, 32 bytes, about each interrupt. Fix: none.
    TraceLine,
    /// Saving, clearing and restoring the interrupt flag around a lock. Fix: the lock alone.
    LockSavesInterrupts,
    /// Handing over 16 bytes as two copies, each with its call and check. Fix: one.
    TwoCopies,
}

impl Antipattern {
    /// All of them, in the order of a report.
    pub const ALL: [Antipattern; 10] = [
        Antipattern::UartPolling,
        Antipattern::CursorMoves,
        Antipattern::FastTick,
        Antipattern::EoiByMemory,
        Antipattern::PmTimerClock,
        Antipattern::HpetClock,
        Antipattern::ClockDivision,
        Antipattern::TraceLine,
        Antipattern::LockSavesInterrupts,
        Antipattern::TwoCopies,
    ];

    /// Number of repetitions between two stamps of an operation that takes a few instructions.
    pub const BATCH: u32 = 64;

    /// Both forms of all antipatterns, each before its fix.
    pub fn forms() -> impl Iterator<Item = (Antipattern, bool)> {
        Self::ALL
            .into_iter()
            .flat_map(|antipattern| [(antipattern, false), (antipattern, true)])
    }

    /// Returns true if the timed operation runs in kernel mode (CPL 0): on a KVM that emulates kernel mode, its time
    /// is the emulator's.
    pub const fn in_kernel_mode(self, fixed: bool) -> bool {
        matches!(
            (self, fixed),
            (Antipattern::LockSavesInterrupts, _) | (Antipattern::EoiByMemory, true)
        )
    }

    /// Returns the number of repetitions between two stamps.
    pub const fn batch(self) -> u32 {
        match self {
            Antipattern::ClockDivision
            | Antipattern::LockSavesInterrupts
            | Antipattern::TwoCopies => Self::BATCH,
            _ => 1,
        }
    }

    /// Returns the operation's label, for people: that of the antipattern, or of its fix. It names the operation of a
    /// trial.
    pub const fn label(self, fixed: bool) -> &'static str {
        match (self, fixed) {
            (Antipattern::UartPolling, false) => "UART byte, status polled before it",
            (Antipattern::UartPolling, true) => "UART byte alone",
            (Antipattern::CursorMoves, false) => "character, VGA cursor moved",
            (Antipattern::CursorMoves, true) => "character, cursor left alone",
            (Antipattern::FastTick, false) => "work, timer at 1000 Hz",
            (Antipattern::FastTick, true) => "work, timer at 100 Hz",
            (Antipattern::EoiByMemory, false) => "EOI by MMIO",
            (Antipattern::EoiByMemory, true) => "EOI by MSR (x2APIC)",
            (Antipattern::PmTimerClock, false) => "clock from the PM timer",
            (Antipattern::HpetClock, false) => "clock from the HPET",
            (Antipattern::PmTimerClock, true) => "clock from the TSC, not the PM timer",
            (Antipattern::HpetClock, true) => "clock from the TSC, not the HPET",
            (Antipattern::ClockDivision, false) => "ticks to ns by 64-bit division",
            (Antipattern::ClockDivision, true) => "ticks to ns by multiply and shift",
            (Antipattern::TraceLine, false) => "interrupt with a trace line",
            (Antipattern::TraceLine, true) => "interrupt without a trace line",
            (Antipattern::LockSavesInterrupts, false) => "lock, interrupts saved and restored",
            (Antipattern::LockSavesInterrupts, true) => "lock alone",
            (Antipattern::TwoCopies, false) => "16 bytes in two copies",
            (Antipattern::TwoCopies, true) => "16 bytes in one copy",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_forms_share_a_label() {
        let labels: std::collections::BTreeSet<_> = Antipattern::forms()
            .map(|(antipattern, fixed)| antipattern.label(fixed))
            .collect();
        assert_eq!(labels.len(), 2 * Antipattern::ALL.len());
    }
}
