//! A trial's requests, and the rows that they have in common.

pub(crate) mod call_times;
pub(crate) mod common_path;
mod imported;
pub(crate) mod joined_trial;
mod observed;
pub(crate) mod open;
mod shared_requests;
pub(crate) mod trial_data;
pub(crate) mod vm;
pub(crate) mod vm_data;
mod vm_nics;
