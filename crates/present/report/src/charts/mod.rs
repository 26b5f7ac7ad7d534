//! The pictures of reports: SVG for a page, and what can be drawn with characters.

pub mod axis;
pub mod curves;
pub mod intervals;
pub mod marks;
