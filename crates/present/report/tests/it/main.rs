//! Reports of made-up recordings in every format.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod common;

mod consistency;
mod engine;
mod formats;
mod layers;
mod pages;
mod snapshot;
mod studies;
mod terminal;
mod top;
