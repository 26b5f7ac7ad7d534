//! Traces of other tools and files of guests as they become recordings.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod cases;
mod guest_file;
mod import;
