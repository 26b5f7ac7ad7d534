//! Isolation of processes from the host: namespaces, mounts, a root, rights.

pub(crate) mod interface;
pub(crate) mod mountinfo;
pub(crate) mod mounts;
pub(crate) mod namespaces;
pub(crate) mod overlay;
pub(crate) mod reach;
pub(crate) mod rights;
pub(crate) mod root;
mod set_id_filter;
