//! Settings of a VM, its guest and its host, with an entry for each. Comparisons, `vmtax tune`, the settings that it
//! hands over, a VM's twin, live changes and the remedies of rules read it.

mod device;
mod entry;
mod guest;
mod host;
mod remedy;

pub use entry::{
    FileValues, Libvirt, NO_FIGURE, Restored, ScsiDevice, SetBy, Setting, SettingPart,
    SettingPlace, SpecialValue, Unset,
};
pub use remedy::Remedy;

use entry::OTHER;
pub(crate) use entry::is_same;

/// The entries, by what they are of. Of several that fit a key the longest is its own.
const TABLES: [&[Setting]; 3] = [device::TABLE, guest::TABLE, host::TABLE];

impl Setting {
    /// Returns the entry for a variant's key: its own, that of its family, else that of every device's property.
    pub fn of(key: &str) -> &'static Setting {
        Setting::listed(key).unwrap_or(&OTHER)
    }

    /// Returns the entry of a key, or of its family; `None` where no entry names it.
    pub fn listed(key: &str) -> Option<&'static Setting> {
        Setting::all()
            .filter(|setting| {
                setting.key == key || (setting.is_family() && key.starts_with(setting.key))
            })
            .max_by_key(|setting| setting.key.len())
    }

    /// Returns the entry of this key.
    ///
    /// # Panics
    /// Where there is none: in a constant, which does not compile then.
    pub const fn named(key: &str) -> &'static Setting {
        let mut table = 0;
        while table < TABLES.len() {
            let mut entry = 0;
            while entry < TABLES[table].len() {
                if is_same(TABLES[table][entry].key, key) {
                    return &TABLES[table][entry];
                }
                entry += 1;
            }
            table += 1;
        }
        panic!("no setting has this key")
    }

    /// The name of a setting without that of its family, as QEMU or a kernel has it.
    pub fn name(key: &str) -> &str {
        let of_family = key.find('.').filter(|dot| {
            Setting::all().any(|setting| setting.is_family() && setting.key == &key[..=*dot])
        });
        of_family.map_or(key, |dot| &key[dot + 1..])
    }

    /// Every entry.
    pub fn all() -> impl Iterator<Item = &'static Setting> {
        TABLES.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests;
