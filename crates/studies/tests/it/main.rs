//! Studies end to end: their history, cases, pages, and the commands that reports propose.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking"
)]

#[path = "../../../present/report/tests/it/common/mod.rs"]
#[allow(dead_code, reason = "the tests of reports use the rest")]
mod common;

mod history;
mod judge;
mod profile;
mod suggested;
