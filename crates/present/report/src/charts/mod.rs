//! The pictures of reports: SVG for a page, and what can be drawn with characters.

pub mod axis;
pub mod bars;
pub mod curves;
pub mod densities;
pub mod flame;
pub mod hosts;
pub mod intervals;
pub mod layers;
pub mod marks;
pub mod parts;
pub mod rounds;
pub mod series;
pub mod threads;
