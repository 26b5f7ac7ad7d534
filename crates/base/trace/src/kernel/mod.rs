//! Meaning of the kernel's events.

mod call_times;
mod decode;
mod exit_reasons;
mod syscalls;
mod timeline;
mod window;

pub use call_times::{CallPhase, CallTimes, call_rows};
pub use decode::{
    BlockRequest, KernelDecoder, KernelEvent, KvmAccess, KvmSpace, Leaves, Packet, Sched,
};
pub use exit_reasons::{ExitReasons, SVM, VMX};
pub(crate) use exit_reasons::{NAMED_IN_TEXT, exit_reason_named};
pub use syscalls::{FUTEX, SystemCall, system_call, system_call_name};
pub use timeline::{Moment, SchedTimeline, ThreadState, Waker};
pub use window::EventWindow;
