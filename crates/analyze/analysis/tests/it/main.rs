//! From made-up trials to what is found in them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod exec;
mod findings;
mod growth;
