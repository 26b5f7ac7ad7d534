//! Check that the variants of a comparison can take turns in one boot: only where they differ in settings that a
//! running guest can change.

use super::definition::Plan;
use super::variant::Variant;
use crate::Setting;

impl Plan {
    /// Why the variants cannot take turns in one boot; `None` where they can.
    pub fn one_boot_fault(&self) -> Option<String> {
        if self.command().is_some() {
            return Some("a command's writes stay in its guest until it ends".to_owned());
        }
        let is_live = |key: &str| {
            Variant::workload_option(key).is_some() || key.starts_with(Setting::BLOCK_QUEUE)
        };
        let fixed = self
            .differing_settings()
            .into_iter()
            .find(|key| !is_live(key))?;
        let what = fixed.escape_default();
        Some(format!(
            "the variants differ in {what}, which a running guest cannot change"
        ))
    }

    /// The settings that some variants have and others have not, or have with another value; sorted, each once.
    pub fn differing_settings(&self) -> Vec<&str> {
        let keys = self.variants.iter().flat_map(|variant| variant.set.keys());
        let differs = |key: &&String| {
            self.variants
                .iter()
                .any(|v| v.get(key) != self.variants[0].get(key))
        };
        let mut differing: Vec<&str> = keys.filter(differs).map(String::as_str).collect();
        differing.sort_unstable();
        differing.dedup();
        differing
    }
}
