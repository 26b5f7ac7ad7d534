//! Recipe of a QEMU build, and the name that the build gets for it.

use super::source::Source;
use crate::qemu::error::QemuError;
use crate::qemu::name::BUILT;
use std::fs;
use std::path::Path;

/// Patches that come with vmtax, by name.
const OURS: [(&str, &str); 2] = [
    ("9p-list", include_str!("../patches/9p-list.patch")),
    ("cpu-loop", include_str!("../patches/cpu-loop.patch")),
];

/// Folders' names stay readable.
const LONGEST: usize = 48;

/// Source, patches and options of a build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipe {
    /// A folder with QEMU's source, or a version or suite of the distribution.
    pub source: String,
    /// Patches in the order in which they are applied: files, or names of those that come with vmtax.
    pub patches: Vec<String>,
    /// More words for configure.
    pub configure: Vec<String>,
}

impl Recipe {
    /// Names of the patches that come with vmtax.
    pub fn own_patches() -> Vec<&'static str> {
        OURS.iter().map(|(name, _)| *name).collect()
    }

    /// A patch's text: a file's, else that of the one that comes with vmtax under this name.
    pub(super) fn patch(given: &str) -> Result<String, QemuError> {
        let path = Path::new(given);
        match OURS
            .iter()
            .find(|(name, _)| *name == given && !path.exists())
        {
            Some((_, text)) => Ok((*text).to_owned()),
            None => fs::read_to_string(path).map_err(|source| QemuError::NoPatch {
                given: given.into(),
                source,
            }),
        }
    }

    /// All that a build depends on besides its source.
    pub(super) fn text(&self) -> Result<String, QemuError> {
        let mut text = format!("vmtax 1\nconfigure {}\n", self.configure.join(" "));
        for given in &self.patches {
            text.push_str(&format!("patch {}\n{}", stem(given), Self::patch(given)?));
        }
        Ok(text)
    }

    /// Returns the part of the build's name that takes the place of a suite: `built-9p-list`.
    pub(super) fn label(&self, source: &Source) -> String {
        let tree = match source {
            Source::Tree { .. } => Some(source.name()),
            Source::Offered { .. } => None,
        };
        let patches = self.patches.iter().map(|given| stem(given));
        let words: Vec<String> = tree
            .into_iter()
            .chain(patches)
            .chain(self.configure.iter().cloned())
            .collect();
        let mut label = BUILT.to_owned();
        for word in words
            .iter()
            .map(|word| plain(word))
            .filter(|word| !word.is_empty())
        {
            label = format!("{label}-{word}");
        }
        if label.len() > LONGEST {
            label.truncate(LONGEST);
            label = format!(
                "{}-{:08x}",
                label.trim_end_matches('-'),
                crc32fast::hash(words.join("\n").as_bytes())
            );
        }
        label
    }
}

/// A patch's name without folder and ending.
fn stem(given: &str) -> String {
    Path::new(given)
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// Lower-case letters, digits and single dashes: what a suite's name may have.
fn plain(word: &str) -> String {
    let parts = word
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|part| !part.is_empty());
    parts
        .map(str::to_ascii_lowercase)
        .collect::<Vec<_>>()
        .join("-")
}
