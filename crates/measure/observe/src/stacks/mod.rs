//! Stacks of a process's threads, sampled.

mod guest;
mod on_cpu;
mod run_queue;
mod wall_clock;

pub use guest::GuestSampler;
pub(crate) use on_cpu::trigger;
pub use on_cpu::{OnCpuSampler, StackSampling};
pub use wall_clock::wall_clock;
