//! Reproductions of published results: plans, claims, and what a recording says about each claim.

mod evidence;
mod judge;
mod options;
mod published;

pub use evidence::{Evidence, Tested};
pub use judge::judge;
pub use options::{Asked, ReproduceOptions};
pub use published::{Check, Claim, PublishedError, PublishedResult, Quick, all, find};
