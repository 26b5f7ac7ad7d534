//! Results of analyses, in one vocabulary: a figure with its interval is an [`Estimate`], beside another a
//! [`Comparison`] with a [`Verdict`]; a distribution is a [`Summary`], growth a [`Law`].

mod comparison;
mod estimate;
mod law;
mod summary;

pub use comparison::{Comparison, Verdict};
pub use estimate::{Estimate, FEWEST_ROUNDS, Interval};
pub use law::Law;
pub use summary::Summary;
