//! From traces to requests, from requests to layers.

mod calls;
mod event;
mod follow;
mod guest;
mod host;
mod join;
mod past;
mod pieces;
mod request;
mod stats;
mod timeline;

pub use request::{JoinedRequest, Piece, Who};
