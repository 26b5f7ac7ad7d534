//! Kinds of questions, end to end.

pub mod ledger;
pub mod reproduce;
