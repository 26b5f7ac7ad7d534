//! A folder of kernel modules: which there are, which are built in, and in which order they load.
//!
//! An unpacked package has no `modules.dep` (depmod writes that at installation), so the order comes from the modules.

use crate::ResultExt;
use crate::error::KernelError;
use crate::kernel::modinfo::{self, Modinfo, canonical};
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
    modinfo::parse(elf).map_err(|e| bad_module(path, e.to_string()))
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

#[cfg(test)]
#[path = "modules_tests.rs"]
mod tests;
