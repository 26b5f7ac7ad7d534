//! The checkpoints that a request passes: a table for each class of device. A row says what is observed for the checkpoint,
//! which side's clock stamps it, which layer the interval that leads to it counts for, and what it is called.
//! [`crate::Probes::checkpoints`] says which table a trial is read by.

mod disk;
mod layer;
mod network;
mod point;
mod source;
mod tables;

pub use disk::DISK;
pub use layer::{Layer, State};
pub use network::NETWORK;
pub use point::{Checkpoint, CheckpointInfo, Side};
pub use source::{PROBE_GROUP, Scope, Source};
