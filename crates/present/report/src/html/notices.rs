//! Advice and warnings.

use maud::{Markup, html as markup};

/// A sentence whose commands stand between backticks.
pub fn prose(text: &str) -> Markup {
    markup! {
        @for (i, part) in text.split('`').enumerate() {
            @if i % 2 == 1 { code { (breakable(part)) } } @else { (breakable(part)) }
        }
    }
}

/// Text that a narrow column breaks after its commas: options and the names of variants have no blanks.
pub fn breakable(text: &str) -> Markup {
    markup! { @for part in text.split_inclusive(',') { (part) @if part.ends_with(',') { wbr; } } }
}

/// A sentence, and the lines that it ends with, to be copied.
fn with_commands(text: &str) -> Markup {
    let (sentence, commands) = text.split_once('\n').unwrap_or((text, ""));
    markup! {
        (prose(sentence))
        @if !commands.is_empty() { pre { (commands) } }
    }
}

/// A titled list; nothing where there is no item.
pub fn notices(title: &str, class: &str, items: &[String]) -> Markup {
    markup! {
        @if !items.is_empty() {
            section.(class) {
                h2 { (title) }
                ul { @for item in items { li { (with_commands(item)) } } }
            }
        }
    }
}
