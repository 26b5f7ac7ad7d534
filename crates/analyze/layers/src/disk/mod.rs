//! Code for disks alone: a disk's events, the identity of its requests, and their way through the checkpoints.

pub(crate) mod decode;
pub(crate) mod follow;
mod follow_host;
pub(crate) mod qemu_log;
pub(crate) mod request;
pub(crate) mod scsi;
