//! What is told of running QEMUs, and the probe points of their binaries.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod probe_points;
mod vm;
