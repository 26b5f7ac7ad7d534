//! The facts of this host: CPU, KVM, QEMU, tracing, and what each of them needs.
//!
//! Read-only: nothing is changed on the host, and root is not needed. What an ordinary user may not see or use is reported
//! as limited, with its remedy.

mod collect;
mod command;
mod counters;
mod cpu;
mod error;
mod guest_network;
mod identity;
mod kvm;
mod line;
mod micro_vm;
mod program;
mod qemu;
mod qemu_binary;
mod raw;
mod settings;
mod system;
mod system_files;
mod threads;
mod tracing;
mod version;

pub use collect::collect;
pub use command::{Answer, Output, ask_command, ask_command_unless, ask_streams};
pub use error::HostError;
pub use guest_network::{has_vhost_net, passt_has_vhost_user};
pub use kvm::{kvm, kvm_forgets_breakpoints};
pub use program::find_program;
pub use qemu::{best_qemu, fetched_qemus};
pub use system_files::{CpuTime, meminfo};
pub use version::QemuVersion;
