//! QEMU's own traces. What their events hold, QEMU's list of them says: `trace-events-all`, beside its other data.
//!
//! Source: `docs/devel/tracing.rst`, `trace/simple.c` and `scripts/tracetool` of QEMU.

mod block_requests;
mod events;
mod list;
mod log;
mod simple;
mod template;

#[cfg(test)]
mod tests;

pub use events::QemuEvents;
