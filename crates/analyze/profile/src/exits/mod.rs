//! Findings from the VM exits of a guest of KVM: by reason, by address and device, by vCPU.

mod devices;
mod named;
mod summary;
#[cfg(test)]
mod tests;

pub use devices::Devices;
pub use named::{NamedExits, named};
pub use summary::summary;
