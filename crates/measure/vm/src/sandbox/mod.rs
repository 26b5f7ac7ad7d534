//! Isolation of processes from the host: namespaces, mounts, a root.

pub(crate) mod mountinfo;
pub(crate) mod mounts;
pub(crate) mod namespaces;
pub(crate) mod root;
