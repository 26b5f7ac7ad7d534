//! Distribution packages, fetched with the system's apt into the user's cache, without being installed.
//!
//! [`Apt`] asks and downloads, from the system's sources or from any suite of the distribution's [`Archive`]; a [`Fetch`]
//! is the time in which one process makes something out of it in the cache, in one step or not at all.

mod apt_get;
mod archive;
mod cache;
mod config;
mod error;
mod package;
mod sandbox;
mod suites;
pub mod version;

pub use apt_get::Apt;
pub use archive::{Archive, Distribution};
pub use cache::{Fetch, cache_dir};
pub use error::AptError;
pub use package::Package;
pub(crate) use suites::{is_known, is_suite, known, with_version};
