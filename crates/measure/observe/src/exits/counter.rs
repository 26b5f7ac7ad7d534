//! Counts exits in the order of a trace, and names them.

use super::count::{Count, Counts, Key, Reason};
use super::event::ThreadEvent;
use vmtax_model::samples::{ExitRow, TracedExits};
use vmtax_model::{AddressSpace, QemuThread};
use vmtax_trace::{ExitReasons, Formats, KernelDecoder, Symbols};

/// Counts the VM exits in a trace.
#[derive(Debug)]
pub struct ExitCounter {
    decoder: KernelDecoder,
    names: Names,
    counts: Counts,
}

impl ExitCounter {
    /// For a trace with these formats.
    pub fn new(formats: &Formats) -> ExitCounter {
        ExitCounter {
            decoder: KernelDecoder::new(formats),
            names: Names::of(formats),
            counts: Counts::default(),
        }
    }

    /// Takes the next event; those of one thread must come in the order of time.
    pub fn take(&mut self, event: &vmtax_trace::Event<'_>) {
        if let Some(event) = ThreadEvent::read(&self.decoder, event) {
            self.counts.take(&event);
        }
    }

    /// Takes a loss of events: of an exit that it may have cut the time is not known.
    pub fn lost(&mut self, lost: &vmtax_trace::Lost) {
        self.counts.take(&ThreadEvent::lost(lost));
    }

    /// Returns the counts. `mhz`: ticks of the trace per microsecond; `lost`: events that are missing.
    pub fn finish(mut self, threads: Vec<QemuThread>, mhz: f64, lost: u64) -> TracedExits {
        self.counts.end();
        self.names.rows(&self.counts, threads, mhz, lost)
    }
}

/// The tables of names that the kernel's own formats hold.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Of exit reasons, by instruction set.
    pub reasons: ExitReasons,
    /// Of what QEMU is told.
    pub user: Vec<Symbols>,
}

impl Names {
    /// The names in a trace's formats.
    pub fn of(formats: &Formats) -> Names {
        let names = |event| formats.event("kvm", event).and_then(|id| formats.get(id));
        let names = |event| names(event).map_or_else(Vec::new, |format| format.names.clone());
        Names {
            reasons: ExitReasons::from_tables(&names("kvm_exit")),
            user: names("kvm_userspace_exit"),
        }
    }

    /// Returns the counts, with KVM's names of the reasons.
    pub fn rows(
        &self,
        counts: &Counts,
        threads: Vec<QemuThread>,
        mhz: f64,
        lost: u64,
    ) -> TracedExits {
        let row = |(key, count): (&Key, &Count)| ExitRow {
            tid: key.tid,
            reason: self.reason(key.reason),
            access: key.access,
            count: count.count,
            user: count.user,
            timed: count.timed,
            ticks: count.ticks,
        };
        TracedExits {
            brackets: counts.told(),
            threads,
            rows: counts.counts.iter().map(row).collect(),
            regular: counts.regular(mhz),
            mhz,
            lost,
            user_unknown: false,
        }
    }

    /// A reason as KVM names it.
    fn reason(&self, reason: Reason) -> String {
        match reason {
            Reason::Hardware { isa, number } => self.reasons.name(isa, number),
            Reason::Access(AddressSpace::Port) => "port I/O".to_owned(),
            Reason::Access(AddressSpace::Memory) => "MMIO".to_owned(),
            Reason::Access(AddressSpace::Msr) => "MSR".to_owned(),
            Reason::User(None) => "signal pending (KVM_EXIT_INTR)".to_owned(),
            Reason::User(Some(number)) => {
                let named = self.user.first().and_then(|table| table.names.get(&number));
                named
                    .cloned()
                    .unwrap_or_else(|| format!("unknown (KVM_EXIT {number})"))
            }
        }
    }
}
