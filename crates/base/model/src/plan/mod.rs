//! Plans: the trials to make, and the study that they are made for. What a command line means, and what a person can write.

mod check;
mod command;
mod definition;
mod error;
mod file;
mod guest;
mod observed_vm;
mod one_boot;
mod parts;
mod pinning;
mod profile;
mod same_guest;
mod schedule;
mod settings;
mod size_range;
mod study;
#[cfg(test)]
mod tests;
mod variant;

pub use command::{CommandSpec, Forward, Net, OWN};
pub use definition::Plan;
pub use error::PlanError;
pub use guest::Guest;
pub use observed_vm::{DeviceClass, ObservedVm, VmIdentity};
pub use pinning::{PinnedCpus, Pinning};
pub use profile::ProfileSettings;
pub use schedule::{Column, SharedBoot, Slot};
pub use size_range::{Grows, GuestSize, SizeRange};
pub use study::{Compare, CompareSpec, GuestTune, ProfileSpec, Study};
pub use variant::Variant;
