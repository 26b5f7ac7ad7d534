//! Flame graphs: documents of their own inside a page, which bring their scripts for zoom and search.

use crate::engine::Chart;
use base64::Engine;
use maud::{Markup, html};

/// A flame graph.
pub struct Flame<'a> {
    /// Title of the frame on the page.
    pub title: String,
    /// SVG document with the flame graph.
    pub svg: &'a str,
}

impl Chart for Flame<'_> {
    fn svg(&self) -> Markup {
        let data = base64::engine::general_purpose::STANDARD.encode(self.svg);
        let style = format!("height:{}px", height(self.svg));
        html! { iframe title=(self.title) style=(style) src={ "data:image/svg+xml;base64," (data) } {} }
    }
}

/// Returns the height of the picture by its own attribute, in px: 600 without it, at least 200, at most 1200.
fn height(svg: &str) -> u32 {
    let said = svg
        .split_once(" height=\"")
        .and_then(|(_, rest)| rest.split_once('"')?.0.parse().ok());
    said.unwrap_or(600).clamp(200, 1200)
}
