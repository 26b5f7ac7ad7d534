//! What analyses say, in one vocabulary: a distribution is a [`Summary`].

mod summary;

pub use summary::Summary;
