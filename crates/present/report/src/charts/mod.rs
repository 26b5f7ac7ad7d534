//! The pictures of reports: SVG for a page, and what can be drawn with characters.

pub mod axis;
pub mod bars;
pub mod curves;
pub mod distributions;
pub mod hosts;
pub mod layers;
pub mod profile;
pub mod series;
