//! A folder of kernel modules: which there are, which are built in, and in which order they load.
//!
//! An unpacked package has no `modules.dep` (depmod writes that at installation), so the order comes from the modules.

use crate::ResultExt;
use crate::error::KernelError;
use object::{Object, ObjectSection};
use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use vmtax_model::KernelFacts;

/// No module comes near this length once decompressed; a damaged or hostile one could.
const LARGEST_MODULE: u64 = 64 << 20;

/// The ends of names of compressed modules.
pub(crate) const COMPRESSED: [&str; 3] = [".xz", ".zst", ".gz"];

/// The modules of one kernel.
pub(crate) struct Tree {
    /// By canonical name.
    files: BTreeMap<String, PathBuf>,
    /// From `modules.builtin`; `None` when there is no such list.
    builtin: Option<HashSet<String>>,
}

/// A module to be loaded.
pub(crate) struct Module {
    /// Canonical name of the module.
    pub(crate) name: String,
    /// The ELF file, decompressed.
    pub(crate) elf: Vec<u8>,
}

impl Tree {
    /// Lists the modules below `root`. Folders behind symbolic links (`build`, `source`) are left alone, so no loop.
    pub(crate) fn open(root: &Path) -> Result<Tree, KernelError> {
        let mut files = BTreeMap::new();
        let mut folders = vec![root.to_path_buf()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).reading(&folder)? {
                let entry = entry.reading(&folder)?;
                if entry.file_type().reading(&folder)?.is_dir() {
                    folders.push(entry.path());
                } else if let Some(name) = entry.file_name().to_str().and_then(module_name) {
                    // The order of a folder's entries is chance; the choice between two of one name must not be.
                    let path = entry.path();
                    let place = files.entry(name).or_insert_with(|| path.clone());
                    if path < *place {
                        *place = path;
                    }
                }
            }
        }
        Ok(Tree {
            files,
            builtin: builtin(root)?,
        })
    }

    /// Returns true if the kernel can have this: as a module, built in, or nobody knows what is built in.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.files.contains_key(name)
            || self.builtin.as_ref().is_none_or(|list| list.contains(name))
    }

    /// The release that the modules were built for, from one of them; the first of `names` that is there, else any.
    pub(crate) fn release(&self, names: &[&str]) -> Result<Option<String>, KernelError> {
        let path = names
            .iter()
            .find_map(|name| self.files.get(*name))
            .or_else(|| self.files.values().next());
        match path {
            Some(path) => Ok(info(path, &read(path)?)?.release),
            None => Ok(None),
        }
    }

    /// Gives `wanted` and all that they pull in, dependencies first.
    pub(crate) fn load_order(
        &self,
        kernel: &KernelFacts,
        wanted: &[&str],
    ) -> Result<Vec<Module>, KernelError> {
        let mut order = Order {
            tree: self,
            kernel,
            seen: HashSet::new(),
            modules: Vec::new(),
        };
        for name in wanted {
            order.add(name)?;
        }
        Ok(order.modules)
    }

    /// The modules that go by this name or alias. An alias such as `crypto_crc32c` is carried by files whose names
    /// begin with `crc32c`, so only those are read.
    fn providers(&self, wish: &str) -> Result<Vec<String>, KernelError> {
        if self.files.contains_key(wish) {
            return Ok(vec![wish.into()]);
        }
        let beginning = wish.strip_prefix("crypto_").unwrap_or(wish);
        let mut found = Vec::new();
        for (name, path) in self
            .files
            .range(beginning.to_owned()..)
            .take_while(|(name, _)| name.starts_with(beginning))
        {
            let aliases = info(path, &read(path)?)?.aliases;
            if aliases.iter().any(|alias| canonical(alias) == wish) {
                found.push(name.clone());
            }
        }
        Ok(found)
    }
}

/// The walk through the dependencies.
struct Order<'a> {
    tree: &'a Tree,
    kernel: &'a KernelFacts,
    seen: HashSet<String>,
    modules: Vec<Module>,
}

impl Order<'_> {
    fn add(&mut self, name: &str) -> Result<(), KernelError> {
        // Seen before its dependencies are walked: a cycle ends here.
        if !self.seen.insert(name.to_owned()) {
            return Ok(());
        }
        let Some(path) = self.tree.files.get(name) else {
            let is_builtin = self.tree.has(name);
            return is_builtin
                .then_some(())
                .ok_or_else(|| missing(self.kernel, name));
        };
        let elf = read(path)?;
        let info = info(path, &elf)?;
        for wish in &info.wishes {
            for provider in self.tree.providers(wish)? {
                self.add(&provider)?;
            }
        }
        for name in &info.depends {
            self.add(name)?;
        }
        self.modules.push(Module {
            name: name.to_owned(),
            elf,
        });
        Ok(())
    }
}

/// The error for something that this kernel does not have.
pub(crate) fn missing(kernel: &KernelFacts, module: &str) -> KernelError {
    let (image, release) = (kernel.image.clone(), kernel.release.clone());
    let module = module.to_owned();
    if module.starts_with("virtio") {
        KernelError::NoVirtio {
            image,
            release,
            module,
        }
    } else {
        KernelError::NoModule {
            image,
            release,
            module,
        }
    }
}

/// `virtio-rng.ko.xz` is `virtio_rng`; `None` for what is no module.
pub(crate) fn module_name(file: &str) -> Option<String> {
    let plain = COMPRESSED
        .iter()
        .find_map(|end| file.strip_suffix(end))
        .unwrap_or(file);
    plain
        .strip_suffix(".ko")
        .filter(|stem| !stem.is_empty())
        .map(canonical)
}

fn builtin(root: &Path) -> Result<Option<HashSet<String>>, KernelError> {
    let path = root.join("modules.builtin");
    match fs::read_to_string(&path) {
        Ok(list) => Ok(Some(
            list.lines()
                .filter_map(|line| module_name(line.rsplit('/').next()?))
                .collect(),
        )),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e).reading(path)?,
    }
}

fn info(path: &Path, elf: &[u8]) -> Result<Modinfo, KernelError> {
    modinfo(elf).map_err(|e| bad_module(path, e.to_string()))
}

fn bad_module(path: &Path, why: String) -> KernelError {
    let path = path.into();
    KernelError::BadModule { path, why }
}

/// Reads a module, decompressed: guests get them plain, so their kernel need not know the compression.
fn read(path: &Path) -> Result<Vec<u8>, KernelError> {
    let file = io::BufReader::new(File::open(path).reading(path)?);
    let bad = |why| bad_module(path, why);

    let mut reader: Box<dyn Read> = match path.extension().and_then(|end| end.to_str()) {
        Some("xz") => Box::new(lzma_rust2::XzReader::new(file, true)),
        Some("zst") => Box::new(
            ruzstd::decoding::StreamingDecoder::new(file)
                .map_err(|e| bad(format!("damaged zstd data ({e})")))?,
        ),
        Some("gz") => Box::new(flate2::bufread::GzDecoder::new(file)),
        _ => Box::new(file),
    };
    let mut elf = Vec::new();
    match reader
        .by_ref()
        .take(LARGEST_MODULE + 1)
        .read_to_end(&mut elf)
    {
        Err(e) => Err(bad(format!("cannot be read whole ({e})"))),
        Ok(_) if elf.len() as u64 > LARGEST_MODULE => {
            Err(bad(format!("more than {} MiB", LARGEST_MODULE >> 20)))
        }
        Ok(_) => Ok(elf),
    }
}

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
pub fn modinfo(elf: &[u8]) -> Result<Modinfo, NotAModule> {
    let file = object::File::parse(elf).map_err(|e| NotAModule::Elf(e.to_string()))?;
    let section = file
        .section_by_name(".modinfo")
        .ok_or(NotAModule::NoModinfo)?;
    let data = section.data().map_err(|e| NotAModule::Elf(e.to_string()))?;
    Ok(entries(data))
}

/// A module's name the way it is compared: files use `-` and `_` alike.
fn canonical(name: &str) -> String {
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
    use crate::testing::{module, put, tree};
    use proptest::prelude::*;
    use std::os::unix::fs::symlink;
    use vmtax_model::SourceOfKernel;

    fn kernel() -> KernelFacts {
        KernelFacts {
            image: "/k/vmlinuz".into(),
            modules: None,
            release: "6.1.0".into(),
            source: SourceOfKernel::Given,
        }
    }

    fn names(tree: &Tree, wanted: &[&str]) -> Vec<String> {
        tree.load_order(&kernel(), wanted)
            .unwrap()
            .into_iter()
            .map(|module| module.name)
            .collect()
    }

    fn fixture(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/fixtures")
            .join(name)
    }

    #[test]
    fn dependencies_come_first_and_once() {
        let dir = tempfile::tempdir().unwrap();
        tree(dir.path(), "6.1.0");
        let tree = Tree::open(dir.path()).unwrap();
        assert_eq!(
            names(&tree, &["virtio_blk", "virtio_pci"]),
            ["virtio", "virtio_ring", "virtio_blk", "virtio_pci"]
        );
    }

    #[test]
    fn a_wish_is_met_by_all_that_carry_its_alias() {
        let dir = tempfile::tempdir().unwrap();
        tree(dir.path(), "6.1.0");
        assert_eq!(
            names(&Tree::open(dir.path()).unwrap(), &["ext4"]),
            ["crc32c_generic", "crc32c_intel", "jbd2", "ext4"]
        );
    }

    #[test]
    fn a_wish_that_nobody_meets_is_no_fault() {
        let dir = tempfile::tempdir().unwrap();
        put(
            &dir.path().join("a.ko"),
            &module(&["softdep=pre: nowhere", "depends="]),
        );
        put(&dir.path().join("modules.builtin"), b"");
        assert_eq!(names(&Tree::open(dir.path()).unwrap(), &["a"]), ["a"]);
    }

    #[test]
    fn what_is_built_in_is_not_packed_and_what_is_neither_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        put(&dir.path().join("a.ko"), &module(&["depends=built-in"]));
        put(
            &dir.path().join("modules.builtin"),
            b"kernel/lib/built-in.ko\n",
        );
        assert_eq!(names(&Tree::open(dir.path()).unwrap(), &["a"]), ["a"]);

        put(
            &dir.path().join("modules.builtin"),
            b"kernel/lib/other.ko\n",
        );
        let error = Tree::open(dir.path())
            .unwrap()
            .load_order(&kernel(), &["a"])
            .err()
            .unwrap();
        assert!(
            matches!(&error, KernelError::NoModule { module, .. } if module == "built_in"),
            "{error}"
        );

        // Without the list nobody knows, so it is taken to be built in.
        fs::remove_file(dir.path().join("modules.builtin")).unwrap();
        assert_eq!(names(&Tree::open(dir.path()).unwrap(), &["a"]), ["a"]);
    }

    #[test]
    fn cycles_and_links_do_not_loop() {
        let dir = tempfile::tempdir().unwrap();
        put(&dir.path().join("kernel/a.ko"), &module(&["depends=b"]));
        put(&dir.path().join("kernel/b.ko"), &module(&["depends=a"]));
        symlink("..", dir.path().join("kernel/up")).unwrap();
        symlink(dir.path(), dir.path().join("build")).unwrap();
        let linked = dir.path().join("link");
        symlink(dir.path(), &linked).unwrap();
        assert_eq!(names(&Tree::open(&linked).unwrap(), &["a"]), ["b", "a"]);
    }

    #[test]
    fn every_compression_gives_the_same_module() {
        let plain = read(&fixture("plain.ko")).unwrap();
        assert_eq!(plain, fs::read(fixture("plain.ko")).unwrap());
        for name in ["lzma2.ko.xz", "bcj.ko.xz", "level19.ko.zst", "level9.ko.gz"] {
            assert!(read(&fixture(name)).unwrap() == plain, "{name}");
            assert_ne!(fs::read(fixture(name)).unwrap(), plain, "{name}");
        }
        assert_eq!(
            info(Path::new("plain.ko"), &plain).unwrap().depends,
            ["virtio", "virtio_ring"]
        );
    }

    #[test]
    fn damaged_modules_are_named() {
        let dir = tempfile::tempdir().unwrap();
        for name in [
            "plain.ko",
            "lzma2.ko.xz",
            "bcj.ko.xz",
            "level19.ko.zst",
            "level9.ko.gz",
        ] {
            let whole = fs::read(fixture(name)).unwrap();
            let path = dir.path().join(name);
            for cut in [0, 3, 40, whole.len() / 2] {
                put(&path, &whole[..cut]);
                let error = read(&path).and_then(|elf| info(&path, &elf)).unwrap_err();
                assert!(
                    matches!(error, KernelError::BadModule { .. }),
                    "{name} cut to {cut}: {error}"
                );
                assert!(
                    error.to_string().starts_with(path.to_str().unwrap()),
                    "{error}"
                );
            }
        }
        // A flipped bit in the compressed data is caught by the checksum.
        let mut bytes = fs::read(fixture("lzma2.ko.xz")).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        put(&dir.path().join("flipped.ko.xz"), &bytes);
        assert!(read(&dir.path().join("flipped.ko.xz")).is_err());
    }

    #[test]
    fn a_module_that_unpacks_to_too_much_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bomb.ko.gz");
        let mut packer = flate2::write::GzEncoder::new(
            File::create(&path).unwrap(),
            flate2::Compression::fast(),
        );
        io::copy(&mut io::repeat(0).take(LARGEST_MODULE + 1), &mut packer).unwrap();
        packer.finish().unwrap();
        assert!(
            read(&path)
                .unwrap_err()
                .to_string()
                .contains("more than 64 MiB")
        );
    }

    #[test]
    fn names_are_read_from_files() {
        assert_eq!(
            module_name("virtio-rng.ko.xz").as_deref(),
            Some("virtio_rng")
        );
        assert_eq!(module_name("ext4.ko.zst").as_deref(), Some("ext4"));
        assert_eq!(module_name("9p.ko").as_deref(), Some("9p"));
        for other in [".ko", "modules.dep", "ext4.ko.debug", "ext4.xz", ""] {
            assert_eq!(module_name(other), None, "{other}");
        }
    }

    #[test]
    fn of_two_files_of_a_name_the_choice_is_fixed() {
        let dir = tempfile::tempdir().unwrap();
        for folder in ('b'..='z').chain(['a']) {
            put(
                &dir.path().join(format!("{folder}/a.ko")),
                &module(&["depends="]),
            );
        }
        assert_eq!(
            Tree::open(dir.path()).unwrap().files["a"],
            dir.path().join("a/a.ko")
        );
    }

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
        let info = modinfo(&elf).unwrap();
        assert_eq!(info.depends, ["jbd2", "mb_cache", "crc16"]);
        assert_eq!(info.wishes, ["crypto_crc32c", "zlib", "also"]);
        assert_eq!(info.aliases, ["fs-ext4"]);
        assert_eq!(info.release.as_deref(), Some("6.1.0-56-amd64"));
    }

    #[test]
    fn no_dependency_is_no_empty_name() {
        assert_eq!(
            modinfo(&module(&["depends=", "vermagic="])).unwrap(),
            Modinfo::default()
        );
    }

    #[test]
    fn what_is_no_module_is_told() {
        assert!(matches!(
            modinfo(b"no ELF at all, and longer than a header would be"),
            Err(NotAModule::Elf(_))
        ));
        assert_eq!(modinfo(&module(&[])), Err(NotAModule::NoModinfo));
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
            let _ = modinfo(&elf);
        }
    }
}
