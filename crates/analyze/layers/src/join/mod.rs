//! From events to requests: each followed through its checkpoints.

pub(crate) mod critical_path;
pub(crate) mod guest;
pub(crate) mod host;
pub(crate) mod joined;
pub(crate) mod joiner;
pub(crate) mod match_params;
pub(crate) mod passed;
pub(crate) mod recorded;
pub(crate) mod request_path;
pub(crate) mod segments;
