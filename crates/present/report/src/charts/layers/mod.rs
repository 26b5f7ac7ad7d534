//! The pictures of requests through the layers.

mod heat;
mod paint;
mod stack;
mod variants;
mod waterfall;

pub use heat::Heat;
pub use paint::{States, class, stretch};
pub use stack::{Ladder, Stack};
pub use variants::Variants;
pub use waterfall::Falls;
