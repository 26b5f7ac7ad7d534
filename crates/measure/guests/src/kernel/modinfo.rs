//! Parser of a kernel module's `.modinfo` section: `key=value` strings, each ended by a NUL.
//!
//! Source: `include/linux/module.h` (`MODULE_INFO`, `MODULE_SOFTDEP`, `MODULE_ALIAS`) and `scripts/mod/modpost.c`.

use object::{Object, ObjectSection};

/// The part of `.modinfo` that matters for loading. Names are spelt with `_`, as the kernel does inside.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Modinfo {
    /// Modules whose symbols it uses; they must be loaded before.
    pub depends: Vec<String>,
    /// Modules or aliases that it would like loaded before (`softdep=pre:`).
    pub wishes: Vec<String>,
    /// Other names under which it can be asked for, as they stand.
    pub aliases: Vec<String>,
    /// The release of the kernel that it was built for: the first word of `vermagic`.
    pub release: Option<String>,
}

/// The bytes are not a kernel module.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAModule {
    /// Not an ELF file, or a damaged one.
    #[error("not a whole ELF file ({0})")]
    Elf(String),
    /// An ELF file of another kind.
    #[error("an ELF file without a .modinfo section, so no kernel module")]
    NoModinfo,
}

/// Reads `.modinfo` from the bytes of an uncompressed module.
///
/// # Errors
/// [`NotAModule`] when they are no ELF file, or one without that section.
pub fn parse(elf: &[u8]) -> Result<Modinfo, NotAModule> {
    let file = object::File::parse(elf).map_err(|e| NotAModule::Elf(e.to_string()))?;
    let section = file
        .section_by_name(".modinfo")
        .ok_or(NotAModule::NoModinfo)?;
    let data = section.data().map_err(|e| NotAModule::Elf(e.to_string()))?;
    Ok(entries(data))
}

/// A module's name the way it is compared: files use `-` and `_` alike.
pub(crate) fn canonical(name: &str) -> String {
    name.replace('-', "_")
}

fn entries(section: &[u8]) -> Modinfo {
    let mut info = Modinfo::default();
    for entry in section.split(|&b| b == 0) {
        let entry = String::from_utf8_lossy(entry);
        let Some((key, value)) = entry.split_once('=') else {
            continue;
        };
        match key {
            "depends" => info.depends.extend(
                value
                    .split(',')
                    .filter(|name| !name.is_empty())
                    .map(canonical),
            ),
            "softdep" => info.wishes.extend(before(value)),
            "alias" => info.aliases.push(value.into()),
            "vermagic" => info.release = value.split_whitespace().next().map(Into::into),
            _ => {}
        }
    }
    info
}

/// The names between `pre:` and `post:`.
fn before(softdep: &str) -> impl Iterator<Item = String> + '_ {
    let mut pre = false;
    softdep
        .split_whitespace()
        .filter_map(move |word| match word {
            "pre:" | "post:" => {
                pre = word == "pre:";
                None
            }
            name => pre.then(|| canonical(name)),
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::module;
    use proptest::prelude::*;

    #[test]
    fn a_module_tells_what_it_needs() {
        let elf = module(&[
            "license=GPL",
            "softdep=pre: crypto-crc32c zlib post: later",
            "softdep=post: after pre: also",
            "alias=fs-ext4",
            "depends=jbd2,mb-cache,crc16",
            "vermagic=6.1.0-56-amd64 SMP preempt mod_unload modversions ",
        ]);
        let info = parse(&elf).unwrap();
        assert_eq!(info.depends, ["jbd2", "mb_cache", "crc16"]);
        assert_eq!(info.wishes, ["crypto_crc32c", "zlib", "also"]);
        assert_eq!(info.aliases, ["fs-ext4"]);
        assert_eq!(info.release.as_deref(), Some("6.1.0-56-amd64"));
    }

    #[test]
    fn no_dependency_is_no_empty_name() {
        assert_eq!(
            parse(&module(&["depends=", "vermagic="])).unwrap(),
            Modinfo::default()
        );
    }

    #[test]
    fn what_is_no_module_is_told() {
        assert!(matches!(
            parse(b"no ELF at all, and longer than a header would be"),
            Err(NotAModule::Elf(_))
        ));
        assert_eq!(parse(&module(&[])), Err(NotAModule::NoModinfo));
    }

    proptest! {
        #[test]
        fn any_section_is_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
            let _ = entries(&bytes);
        }

        #[test]
        fn a_damaged_module_is_read_without_panic(
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..16),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut elf = module(&["depends=virtio,virtio_ring", "vermagic=6.1.0 SMP"]);
            for (at, with) in changes {
                let at = at.index(elf.len());
                elf[at] = with;
            }
            elf.truncate(cut.index(elf.len()) + 1);
            let _ = parse(&elf);
        }
    }
}
