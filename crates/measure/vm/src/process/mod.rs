//! Processes under a watchdog, what they leave, and the CPU time that they use.

pub(crate) mod batch_cpu;
pub(crate) mod child;
pub(crate) mod cpu_accounting;
pub(crate) mod log;
pub(crate) mod peer;
pub(crate) mod remove;
pub(crate) mod spawn;
pub(crate) mod watchdog;
