//! Reports of made-up recordings in every format.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod common;

mod consistency;
mod formats;
mod pages;
mod snapshot;
mod studies;
mod terminal;
