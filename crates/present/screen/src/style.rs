//! Styles of text that stands out, also without colours.

use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

pub(crate) fn reversed() -> Style {
    Style::new().add_modifier(Modifier::REVERSED)
}

pub(crate) fn bold(text: impl Into<String>) -> Line<'static> {
    Line::from(Span::styled(
        text.into(),
        Style::new().add_modifier(Modifier::BOLD),
    ))
}
