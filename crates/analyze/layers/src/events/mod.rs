//! From records of both kernels and of QEMU to events on one clock.

pub(crate) mod calls;
pub(crate) mod clocks;
pub(crate) mod decode;
pub(crate) mod event;
pub(crate) mod trace_reader;
