//! Recorded traces against what others print of them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod common;

mod qemu;
mod recorded;
