//! The live screen of `vmtax top`. It draws samples that come through a channel and knows nothing of how they are taken.

mod detail;
mod keys;
mod list;
mod page;
mod screen;
mod state;
mod style;
#[cfg(test)]
mod tests;

pub use keys::Request;
pub use screen::Screen;
