//! `KEY=VALUE`, as it stands in command lines.

use crate::fault::Fault;

/// Key and value of `word`, neither of them empty; `form` says how it is written, with an example.
///
/// # Errors
/// [`Fault::Usage`] for any other word.
pub(super) fn setting<'a>(word: &'a str, form: &str) -> Result<(&'a str, &'a str), Fault> {
    word.split_once('=')
        .filter(|(key, value)| !key.is_empty() && !value.is_empty())
        .ok_or_else(|| Fault::Usage(format!("'{}' is not {form}", word.escape_default())))
}
