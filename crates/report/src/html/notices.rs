//! Advice and warnings.

use maud::{Markup, html as markup};

/// A sentence whose commands stand between backticks.
pub fn prose(text: &str) -> Markup {
    markup! {
        @for (i, part) in text.split('`').enumerate() {
            @if i % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}

/// A titled list; nothing where there is no item.
pub fn notices(title: &str, class: &str, items: &[String]) -> Markup {
    markup! {
        @if !items.is_empty() {
            section.(class) {
                h2 { (title) }
                ul { @for item in items { li { (prose(item)) } } }
            }
        }
    }
}
