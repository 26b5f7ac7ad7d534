//! The pictures of requests through the layers.

mod heat;
mod paint;
mod stack;
mod variants;
mod waterfall;

pub use heat::Heat;
pub use paint::{States, class};
pub use stack::{Medians, Stack};
pub use variants::Variants;
pub use waterfall::Falls;
