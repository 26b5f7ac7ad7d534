//! For tests: synthetic kernels and modules, and an archive of a distribution on this disk, for those that run the real apt.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Options for apt's configuration in tests: nobody here has the key of a distribution.
pub(crate) const UNSIGNED: &str =
    "Acquire::AllowInsecureRepositories \"true\";\nAPT::Get::AllowUnauthenticated \"true\";\n";

/// Puts a suite into an archive, with this list of packages. Like backports, it is preferred only where it is asked for, if
/// it is called so.
pub(crate) fn suite(archive: &Path, name: &str, packages: &str) {
    let folder = archive.join("dists").join(name);
    let list = folder.join("main/binary-amd64/Packages");
    fs::create_dir_all(list.parent().unwrap()).unwrap();
    fs::write(&list, packages).unwrap();
    let sum = String::from_utf8(
        Command::new("sha256sum")
            .arg(&list)
            .output()
            .unwrap()
            .stdout,
    )
    .unwrap();
    let (sum, size) = (sum.split(' ').next().unwrap(), packages.len());
    let automatic = if name.ends_with("-backports") {
        "NotAutomatic: yes\nButAutomaticUpgrades: yes\n"
    } else {
        ""
    };
    let release = format!(
        "Origin: Test\nSuite: {name}\nCodename: {name}\nArchitectures: amd64\nComponents: main\n{automatic}\
         Date: Sat, 01 Jan 2022 00:00:00 UTC\nSHA256:\n {sum} {size} main/binary-amd64/Packages\n"
    );
    fs::write(folder.join("Release"), release).unwrap();
}

/// The smallest file that passes for an x86-64 bzImage of this release: one setup sector, four paragraphs.
pub(crate) fn bzimage(release: &str) -> Vec<u8> {
    const VERSION_AT: usize = 0x300;
    let mut image = vec![0; 2 * 512 + 4 * 16];
    image[0x1f1] = 1;
    image[0x1f4..0x1f8].copy_from_slice(&4_u32.to_le_bytes());
    image[0x1fe..0x200].copy_from_slice(&[0x55, 0xaa]);
    image[0x202..0x206].copy_from_slice(b"HdrS");
    image[0x206..0x208].copy_from_slice(&0x020f_u16.to_le_bytes());
    image[0x20e..0x210].copy_from_slice(&((VERSION_AT - 0x200) as u16).to_le_bytes());
    image[0x236] = 0x7f;
    let version = format!("{release} (someone@host) #1 SMP\0");
    image[VERSION_AT..VERSION_AT + version.len()].copy_from_slice(version.as_bytes());
    image
}

/// A relocatable ELF file with these entries in `.modinfo`; without entries there is no such section.
pub(crate) fn module(entries: &[&str]) -> Vec<u8> {
    const HEADER: usize = 64;
    const NAMES: &[u8] = b"\0.shstrtab\0.modinfo\0";
    const PROGBITS: u32 = 1;
    const STRTAB: u32 = 3;
    let info: Vec<u8> = entries
        .iter()
        .flat_map(|entry| entry.bytes().chain([0]))
        .collect();
    let mut content = [NAMES, &info].concat();
    content.resize(content.len().next_multiple_of(8), 0);
    // Section 0 is none, section 1 has the names.
    let mut sections = vec![section(0, 0, 0, 0), section(1, STRTAB, HEADER, NAMES.len())];
    if !entries.is_empty() {
        sections.push(section(11, PROGBITS, HEADER + NAMES.len(), info.len()));
    }
    let mut elf = vec![0; HEADER];
    elf[..7].copy_from_slice(b"\x7fELF\x02\x01\x01"); // 64 bits, little-endian, version 1
    elf[16] = 1; // relocatable
    elf[18] = 62; // x86-64
    elf[20] = 1;
    elf[40..48].copy_from_slice(&((HEADER + content.len()) as u64).to_le_bytes());
    elf[52] = HEADER as u8;
    elf[58] = sections[0].len() as u8;
    elf[60] = sections.len() as u8;
    elf[62] = 1; // the section with the names
    elf.extend(content);
    elf.extend(sections.concat());
    elf
}

/// The header of a section, whose name is so far into the names.
fn section(name: u32, kind: u32, offset: usize, size: usize) -> [u8; 64] {
    let mut header = [0; 64];
    header[..4].copy_from_slice(&name.to_le_bytes());
    header[4..8].copy_from_slice(&kind.to_le_bytes());
    header[24..32].copy_from_slice(&(offset as u64).to_le_bytes());
    header[32..40].copy_from_slice(&(size as u64).to_le_bytes());
    header[48] = 1; // alignment
    header
}

/// Writes a file and the folders above it.
pub(crate) fn put(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// A module tree as Debian 12 lays it out, of this release, into `root`.
pub(crate) fn tree(root: &Path, release: &str) {
    let vermagic = format!("vermagic={release} SMP preempt mod_unload modversions ");
    for (path, entries) in [
        ("drivers/virtio/virtio.ko", &["depends="][..]),
        ("drivers/virtio/virtio_ring.ko", &["depends=virtio"]),
        (
            "drivers/virtio/virtio_pci.ko",
            &["depends=virtio_ring,virtio"],
        ),
        (
            "drivers/block/virtio_blk.ko",
            &["depends=virtio,virtio_ring"],
        ),
        (
            "drivers/char/virtio-console.ko",
            &["depends=virtio,virtio-ring"],
        ),
        ("fs/jbd2/jbd2.ko", &["depends="]),
        (
            "fs/ext4/ext4.ko",
            &["softdep=pre: crypto-crc32c", "depends=jbd2"],
        ),
        (
            "crypto/crc32c_generic.ko",
            &["alias=crypto-crc32c", "depends="],
        ),
        (
            "arch/x86/crypto/crc32c-intel.ko",
            &["alias=crypto-crc32c", "depends="],
        ),
        ("lib/crc32c_other.ko", &["alias=crypto-other", "depends="]),
    ] {
        let entries: Vec<&str> = entries.iter().copied().chain([vermagic.as_str()]).collect();
        put(&root.join("kernel").join(path), &module(&entries));
    }
    put(&root.join("modules.builtin"), b"kernel/crypto/crypto.ko\n");
}
