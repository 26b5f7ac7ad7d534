//! Secrets in texts: keys, passwords, tokens, userinfo of addresses. They are removed where a text enters (a VM's command line,
//! XML, logs, answers of monitors, what people paste, vmtax's own arguments), so that no recording, report or message has them.
//!
//! A secret is found by its place: behind a name (`password=`, `X-Auth-Token:`, `--token`), in the authority or the query of an
//! address, within an element of XML; some by their form alone. A name that only refers to one (`password-secret=ID`), a switch
//! (`password=on`) and a variable (`$TOKEN`) stay. A text keeps its structure: JSON, XML and lists of options stay readable.

mod assignments;
mod forms;
mod found;

pub use found::SECRET_REMOVED;

use assignments::values_of_words;
use found::Found;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Returns a text with [`SECRET_REMOVED`] in the place of each secret: a line or a file of any kind.
pub fn without_secrets(text: &str) -> Cow<'_, str> {
    let mut found = Found::new(text, false);
    find(&mut found);
    found.removed()
}

/// Returns the words of a command line, as a program gets them, with [`SECRET_REMOVED`] in the place of each secret.
pub fn words_without_secrets(words: &[String]) -> Vec<String> {
    let values = values_of_words(words);
    let words = words.iter().zip(values);
    words
        .map(|(word, value)| {
            let mut found = Found::new(word, true);
            find(&mut found);
            found.ranges.extend(value);
            found.removed().into_owned()
        })
        .collect()
}

/// Puts [`SECRET_REMOVED`] in the place of each secret in these values, each of which is behind its key.
pub(crate) fn remove_secrets_of_values(values: &mut BTreeMap<String, String>) {
    for (key, value) in values {
        let pair = format!("{key}={value}");
        let cleared = without_secrets(&pair);
        let rest = cleared.strip_prefix(key.as_str());
        let rest = rest.and_then(|rest| rest.strip_prefix('='));
        *value = rest.unwrap_or(SECRET_REMOVED).to_owned();
    }
}

/// Finds the secrets of a text.
fn find(found: &mut Found<'_>) {
    found.find_assignments();
    found.find_addresses();
    found.find_options();
    found.find_markup();
    found.find_forms();
}

#[cfg(test)]
mod tests;
