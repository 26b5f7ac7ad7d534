//! The ROM in real QEMUs, under TCG and, where this user may, KVM.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod exits;
mod guest;
mod requests;
