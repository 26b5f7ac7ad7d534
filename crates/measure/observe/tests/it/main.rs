//! Tests of observing a host and its threads, on this host.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking"
)]

mod host;
mod thread_reader;
