//! A table that scrolls by itself where the page is too narrow for it.

use maud::{Markup, html as markup};

/// The table of these rows under a head of these names; `label` is for who does not see it.
pub fn table(label: &str, names: &[&str], rows: &Markup) -> Markup {
    markup! {
        div.scroll tabindex="0" role="region" aria-label=(label) {
            table {
                thead { tr { @for name in names { th { (name) } } } }
                tbody { (rows) }
            }
        }
    }
}
