//! The workloads, run for real and small, their options, and their page.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod disk;
mod options;
mod share;
mod sysbench;
