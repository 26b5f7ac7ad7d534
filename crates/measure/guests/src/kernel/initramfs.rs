//! The initramfs that a guest boots from: one program as `/init`, the modules it needs, nothing else.
//!
//! Format: cpio "newc", uncompressed, as `Documentation/driver-api/early-userspace/buffer-format.rst` has it.

use crate::ResultExt;
use crate::error::KernelError;
use crate::kernel::modules::{COMPRESSED, Module, Tree, missing};
use crate::kernel::vmlinux::end_of_segments;
use cpio::newc::{self, ModeFileType};
use object::Endianness;
use object::elf::FileHeader64;
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::mem::offset_of;
use std::path::Path;
use vmtax_model::{KernelFacts, ShareMethod};

/// Modules that every guest needs, unless they are built in: the bus, the disk, the file system of `fileio`.
pub(crate) const WANTED: [&str; 3] = ["virtio_pci", "virtio_blk", "ext4"];
/// The agent's port. A guest without it talks over its serial console.
const PORT: &str = "virtio_console";

/// Purpose of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Workloads, with disks.
    Workloads,
    /// Workloads that have a network card, too.
    Network,
    /// A command on the host's files.
    Command {
        /// True if there is a network card.
        network: bool,
        /// True if there is a disk for what is written.
        disk: bool,
    },
}

/// The program that a guest starts.
#[derive(Debug, Clone, Copy)]
pub struct Init<'a> {
    /// Path of the program's file.
    pub program: &'a Path,
    /// True if it keeps the names of its functions, for a profile inside the guest: a quarter of what is unpacked at each boot.
    pub symbols: bool,
}

/// Contents of an initramfs.
#[derive(Debug)]
pub struct Packed {
    /// Names of the modules, in load order.
    pub modules: Vec<String>,
    /// The shares that this kernel cannot mount, with the reason.
    pub refused: Vec<(ShareMethod, KernelError)>,
}

/// Writes to `out` an initramfs that starts `init`.
///
/// It holds the program of `init` as `/init`; the modules of `kernel` decompressed as `/vmtax/modules/NAME.ko`; and
/// `/vmtax/modules.list` with their absolute paths, one a line, dependencies first. A module of that list may refuse to
/// load with `ENODEV` where it serves a CPU feature that the guest lacks (`crc32c_intel`); that is no fault. A
/// kernel without a modules folder is taken to have everything built in. What each of `shares` takes besides is packed
/// too, with a list of its own, `/vmtax/modules-METHOD.list`, and so is what a command takes.
/// `drivers` are modules that its disks need besides.
///
/// # Errors
/// When the kernel has no virtio, no ext4, or no overlay for a command, a module is damaged, or a file cannot be read or written.
pub fn initramfs(
    kernel: &KernelFacts,
    init: Init<'_>,
    shares: &[ShareMethod],
    purpose: Purpose,
    drivers: &[&str],
    out: &Path,
) -> Result<Packed, KernelError> {
    let Choice {
        modules,
        mut lists,
        refused,
    } = match &kernel.modules {
        Some(root) => Choice::new(&Tree::open(root)?, kernel, shares, purpose, drivers)?,
        None => Choice::default(),
    };
    let mut program = fs::read(init.program).reading(init.program)?;
    if !init.symbols {
        leave_out_symbols(&mut program);
    }
    let mut archive = Archive {
        out: BufWriter::new(File::create(out).writing(out)?),
        entries: 0,
    };
    let names = modules.iter().map(|module| module.name.clone()).collect();
    lists.insert(0, ("vmtax/modules.list".to_owned(), modules));
    write(&mut archive, &program, &lists).writing(out)?;
    Ok(Packed {
        modules: names,
        refused,
    })
}

/// The modules of an initramfs.
#[derive(Default)]
struct Choice {
    /// Loaded in any case.
    modules: Vec<Module>,
    /// Paths of further lists, with their modules: loading all of them takes longer than a guest's whole boot.
    lists: Vec<(String, Vec<Module>)>,
    /// The shares that this kernel cannot mount.
    refused: Vec<(ShareMethod, KernelError)>,
}

impl Choice {
    fn new(
        tree: &Tree,
        kernel: &KernelFacts,
        shares: &[ShareMethod],
        purpose: Purpose,
        drivers: &[&str],
    ) -> Result<Choice, KernelError> {
        let port = tree.has(PORT).then_some(PORT);
        // A command has the host's files: without a disk for what it writes it needs the bus alone.
        let diskless = matches!(purpose, Purpose::Command { disk: false, .. });
        let base = if diskless { &WANTED[..1] } else { &WANTED[..] };
        let card = (purpose == Purpose::Network).then_some(CARD);
        let wanted = base.iter().chain(drivers).copied().chain(card).chain(port);
        let modules = tree.load_order(kernel, &wanted.collect::<Vec<_>>())?;
        let further = |wanted: &[&str]| {
            let order = tree.load_order(kernel, wanted);
            order.map(|order| without(order, &modules))
        };
        let (mut lists, mut refused) = (Vec::new(), Vec::new());
        for &method in shares {
            match further(method.driver().modules) {
                Ok(found) => lists.push((format!("vmtax/modules-{method}.list"), found)),
                Err(error) => refused.push((method, error)),
            }
        }
        if let Purpose::Command { network, .. } = purpose {
            let found = further(if network { &[LAYER, CARD] } else { &[LAYER] })?;
            lists.push(("vmtax/modules-command.list".to_owned(), found));
        }
        Ok(Choice {
            modules,
            lists,
            refused,
        })
    }
}

/// Checks that everything in [`WANTED`] is available, without reading the modules.
pub(crate) fn check(kernel: &KernelFacts) -> Result<(), KernelError> {
    let Some(root) = &kernel.modules else {
        return Ok(());
    };
    // The usual places are asked first: the whole tree has hundreds of folders, and each command checks each kernel that is here.
    let is_there = |place| {
        let file = format!("kernel/{place}.ko");
        COMPRESSED
            .iter()
            .chain(&[""])
            .any(|end| root.join(format!("{file}{end}")).is_file())
    };
    if [
        "drivers/virtio/virtio_pci",
        "drivers/block/virtio_blk",
        "fs/ext4/ext4",
    ]
    .into_iter()
    .all(is_there)
    {
        return Ok(());
    }
    let tree = Tree::open(root)?;
    match WANTED.iter().find(|name| !tree.has(name)) {
        Some(name) => Err(missing(kernel, name)),
        None => Ok(()),
    }
}

/// Shortens an ELF file to what is loaded when it is started: symbols lie behind the last segment, and the table of sections, too.
fn leave_out_symbols(elf: &mut Vec<u8>) {
    let end = end_of_segments(elf)
        .ok()
        .and_then(|end| usize::try_from(end).ok());
    let Some(end) = end.filter(|end| (1..elf.len()).contains(end)) else {
        return;
    };
    elf.truncate(end);
    let sections = [
        offset_of!(FileHeader64<Endianness>, e_shoff)
            ..offset_of!(FileHeader64<Endianness>, e_flags),
        offset_of!(FileHeader64<Endianness>, e_shnum)..size_of::<FileHeader64<Endianness>>(),
    ];
    for field in sections {
        elf[field].fill(0);
    }
}

fn write(archive: &mut Archive, program: &[u8], lists: &[(String, Vec<Module>)]) -> io::Result<()> {
    for folder in ["dev", "proc", "sys", "run", "tmp", "vmtax", "vmtax/modules"] {
        archive.folder(folder)?;
    }
    archive.device("dev/console", 5, 1)?;
    archive.device("dev/null", 1, 3)?;
    archive.file("init", 0o755, program)?;
    let mut packed = HashSet::new();
    for (name, modules) in lists {
        let mut list = String::new();
        for Module { name, elf } in modules {
            let path = format!("vmtax/modules/{name}.ko");
            // Two shares may take the same one.
            if packed.insert(name) {
                archive.file(&path, 0o644, elf)?;
            }
            list += &format!("/{path}\n");
        }
        archive.file(name, 0o644, list.as_bytes())?;
    }
    newc::trailer(&mut archive.out)?;
    archive.out.flush()
}

/// A cpio archive being written. Every entry belongs to root and to no time, so the same input gives the same bytes.
struct Archive {
    out: BufWriter<File>,
    entries: u32,
}

impl Archive {
    fn entry(&mut self, name: &str, kind: ModeFileType, mode: u32) -> newc::Builder {
        self.entries += 1;
        newc::Builder::new(name)
            .ino(self.entries)
            .mode(mode)
            .set_mode_file_type(kind)
    }

    fn folder(&mut self, name: &str) -> io::Result<()> {
        self.entry(name, ModeFileType::Directory, 0o755)
            .write(&mut self.out, 0)
            .finish()
            .map(drop)
    }

    fn device(&mut self, name: &str, major: u32, minor: u32) -> io::Result<()> {
        let entry = self
            .entry(name, ModeFileType::Char, 0o600)
            .rdev_major(major)
            .rdev_minor(minor);
        entry.write(&mut self.out, 0).finish().map(drop)
    }

    fn file(&mut self, name: &str, mode: u32, data: &[u8]) -> io::Result<()> {
        let too_large = |_| {
            io::Error::new(
                io::ErrorKind::FileTooLarge,
                "a cpio archive takes files of up to 4 GiB",
            )
        };
        let length = u32::try_from(data.len()).map_err(too_large)?;
        let mut entry = self
            .entry(name, ModeFileType::Regular, mode)
            .write(&mut self.out, length);
        entry.write_all(data)?;
        entry.finish().map(drop)
    }
}

/// The layer above the host's files.
const LAYER: &str = "overlay";
/// A network card's driver.
const CARD: &str = "virtio_net";

/// The modules that are not loaded in any case.
fn without(order: Vec<Module>, base: &[Module]) -> Vec<Module> {
    let loaded: HashSet<&str> = base.iter().map(|m| m.name.as_str()).collect();
    let is_new = |module: &Module| !loaded.contains(module.name.as_str());
    order.into_iter().filter(is_new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{put, tree};
    use std::collections::BTreeMap;
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;
    use vmtax_model::SourceOfKernel;

    fn kernel(modules: Option<&Path>) -> KernelFacts {
        let (image, modules) = ("/k/vmlinuz".into(), modules.map(Into::into));
        KernelFacts {
            image,
            modules,
            release: "6.1.0".into(),
            source: SourceOfKernel::Given,
        }
    }

    /// An initramfs for workloads, without symbols.
    fn pack(modules: Option<&Path>, program: &Path, out: &Path) -> Result<Packed, KernelError> {
        initramfs(
            &kernel(modules),
            Init {
                program,
                symbols: false,
            },
            &[],
            Purpose::Workloads,
            &[],
            out,
        )
    }

    /// Mode, device numbers, contents.
    type Entry = (u32, (u32, u32), Vec<u8>);

    /// Everything in an archive, by name.
    fn unpack(archive: &Path) -> BTreeMap<String, Entry> {
        let mut entries = BTreeMap::new();
        let mut rest = File::open(archive).unwrap();
        loop {
            let mut reader = newc::Reader::new(rest).unwrap();
            if reader.entry().is_trailer() {
                return entries;
            }
            let mut data = Vec::new();
            io::copy(&mut reader, &mut data).unwrap();
            let entry = reader.entry();
            let device = (entry.rdev_major(), entry.rdev_minor());
            entries.insert(entry.name().to_owned(), (entry.mode(), device, data));
            rest = reader.finish().unwrap();
        }
    }

    #[test]
    fn the_archive_holds_init_devices_and_modules_in_order() {
        let dir = tempfile::tempdir().unwrap();
        tree(dir.path(), "6.1.0");
        let (init, out) = (dir.path().join("agent"), dir.path().join("initramfs"));
        put(&init, b"\x7fELF, not a multiple of four bytes!!");
        let packed = pack(Some(dir.path()), &init, &out).unwrap();
        let expected = [
            "virtio",
            "virtio_ring",
            "virtio_pci",
            "virtio_blk",
            "crc32c_generic",
            "crc32c_intel",
            "jbd2",
            "ext4",
            "virtio_console",
        ];
        assert_eq!(packed.modules, expected);

        let entries = unpack(&out);
        assert_eq!(
            entries["init"],
            (0o100_755, (0, 0), std::fs::read(&init).unwrap())
        );
        assert_eq!(entries["dev"].0, 0o040_755);
        assert_eq!(entries["dev/console"], (0o020_600, (5, 1), vec![]));
        assert_eq!(entries["dev/null"].1, (1, 3));
        let list = String::from_utf8(entries["vmtax/modules.list"].2.clone()).unwrap();
        assert_eq!(list.lines().count(), expected.len());
        for (line, name) in list.lines().zip(expected) {
            assert_eq!(line, format!("/vmtax/modules/{name}.ko"));
            assert!(entries[&line[1..]].2.starts_with(b"\x7fELF"), "{line}");
        }
    }

    #[test]
    fn without_modules_the_list_is_empty() {
        let dir = tempfile::tempdir().unwrap();
        let (init, out) = (dir.path().join("agent"), dir.path().join("initramfs"));
        put(&init, b"agent");
        assert_eq!(
            pack(None, &init, &out).unwrap().modules,
            Vec::<String>::new()
        );
        assert_eq!(unpack(&out)["vmtax/modules.list"].2, b"");
    }

    #[test]
    fn a_kernel_without_virtio_is_named() {
        let dir = tempfile::tempdir().unwrap();
        tree(dir.path(), "6.1.0");
        std::fs::remove_file(dir.path().join("kernel/drivers/block/virtio_blk.ko")).unwrap();
        let init = dir.path().join("agent");
        put(&init, b"agent");
        let error = pack(Some(dir.path()), &init, &dir.path().join("out")).unwrap_err();
        assert!(
            matches!(&error, KernelError::NoVirtio { module, .. } if module == "virtio_blk"),
            "{error}"
        );
        assert!(check(&kernel(Some(dir.path()))).is_err());
        let text = error.to_string();
        assert!(
            text.contains("6.1.0")
                && text.contains("/k/vmlinuz")
                && text.contains("vmtax get kernel"),
            "{text}"
        );
    }

    #[test]
    fn a_kernel_without_the_port_is_packed_all_the_same() {
        let dir = tempfile::tempdir().unwrap();
        tree(dir.path(), "6.1.0");
        std::fs::remove_file(dir.path().join("kernel/drivers/char/virtio-console.ko")).unwrap();
        let init = dir.path().join("agent");
        put(&init, b"agent");
        assert!(check(&kernel(Some(dir.path()))).is_ok());
        let packed = pack(Some(dir.path()), &init, &dir.path().join("out")).unwrap();
        assert!(
            !packed.modules.iter().any(|name| name == "virtio_console"),
            "{packed:?}"
        );
    }

    #[test]
    fn a_missing_init_and_an_unwritable_place_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let error = pack(None, &dir.path().join("none"), &dir.path().join("out")).unwrap_err();
        assert!(error.to_string().contains("/none: "), "{error}");
        put(&dir.path().join("agent"), b"agent");
        let error = pack(None, &dir.path().join("agent"), &dir.path().join("no/out")).unwrap_err();
        assert!(matches!(error, KernelError::File(_)), "{error}");
    }

    #[test]
    fn a_program_without_symbols_is_shorter_and_starts() {
        let (dir, own) = (
            tempfile::tempdir().unwrap(),
            std::env::current_exe().unwrap(),
        );
        let size = |symbols| {
            let (out, copy) = (dir.path().join("out"), dir.path().join("init"));
            initramfs(
                &kernel(None),
                Init {
                    program: &own,
                    symbols,
                },
                &[],
                Purpose::Workloads,
                &[],
                &out,
            )
            .unwrap();
            let init = unpack(&out).remove("init").unwrap().2;
            put(&copy, &init);
            fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
            assert!(
                Command::new(&copy)
                    .arg("--list")
                    .output()
                    .unwrap()
                    .status
                    .success(),
                "symbols: {symbols}"
            );
            init.len()
        };
        let (with, without) = (size(true), size(false));
        assert_eq!(with as u64, fs::metadata(&own).unwrap().len());
        assert!(
            without * 20 < with * 19,
            "{without} of {with} bytes are left"
        );
    }
}
