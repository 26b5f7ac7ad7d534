//! From traces to requests, from requests to layers.

mod advice;
mod calls;
mod chain;
mod column;
mod distribution;
mod error;
mod event;
mod fields;
mod findings;
mod follow;
mod guest;
mod heat;
mod host;
mod join;
mod nested;
mod open;
mod past;
mod pieces;
mod qemu_log;
mod request;
mod stats;
#[cfg(test)]
mod synthetic;
mod tally;
#[cfg(test)]
mod tests;
mod timeline;
mod trial;
mod waterfall;

pub use error::LayersError;
pub use findings::findings;
pub use open::join;
pub use request::{JoinedRequest, Piece, Who};
pub use trial::JoinedTrial;
