//! What is a disk's alone: its events, what identifies its requests, how they are followed through their checkpoints. Another
//! class of devices has a table of checkpoints, and a folder beside this one.

pub(crate) mod decode;
pub(crate) mod extents;
pub(crate) mod follow;
pub(crate) mod levels;
pub(crate) mod qemu_log;
pub(crate) mod request;
pub(crate) mod rwbs;
