//! The kernel proper inside a bzImage, for QEMU to start directly.
//!
//! A bzImage unpacks itself. Under TCG that takes longer than the rest of the boot; here it takes a fraction of a second.
//! QEMU starts an uncompressed kernel that has a PVH entry point (`CONFIG_PVH`, which distributions set).
//! Source: `Documentation/arch/x86/boot.rst` (payload_offset, payload_length) and Xen's `docs/misc/pvh.pandoc`.

use crate::bzimage;
use object::Endianness;
use object::elf::FileHeader64;
use object::read::elf::{FileHeader, ProgramHeader};
use std::fs;
use std::io::Read;
use std::path::Path;
use vmtax_model::KernelFacts;

/// A kernel of a distribution takes about 70 MB uncompressed.
const LARGEST: u64 = 1 << 30;
/// `XEN_ELFNOTE_PHYS32_ENTRY`: where PVH enters.
const PHYS32_ENTRY: u32 = 18;

/// Writes the uncompressed kernel to `out`. `false` when it cannot be had or has no PVH entry; the bzImage itself
/// boots all the same, only later.
pub fn unpack_vmlinux(kernel: &KernelFacts, out: &Path) -> bool {
    let vmlinux = fs::read(&kernel.image).ok().and_then(|image| payload(&image));
    vmlinux.is_some_and(|elf| has_pvh_entry(&elf) && fs::write(out, &elf).is_ok())
}

fn payload(image: &[u8]) -> Option<Vec<u8>> {
    let begin = bzimage::payload(image)?;
    let packed = image.get(begin)?;
    let reader: Box<dyn Read + '_> = match packed {
        [0xfd, b'7', b'z', b'X', b'Z', ..] => Box::new(lzma_rust2::XzReader::new(packed, false)),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Box::new(ruzstd::decoding::StreamingDecoder::new(packed).ok()?),
        [0x1f, 0x8b, ..] => Box::new(flate2::read::GzDecoder::new(packed)),
        _ => return None,
    };
    let mut elf = Vec::new();
    reader.take(LARGEST).read_to_end(&mut elf).ok()?;
    Some(elf)
}

fn has_pvh_entry(elf: &[u8]) -> bool {
    let found = || -> object::Result<bool> {
        let header = FileHeader64::<Endianness>::parse(elf)?;
        let endian = header.endian()?;
        for segment in header.program_headers(endian, elf)? {
            let Some(mut notes) = segment.notes(endian, elf)? else { continue };
            while let Some(note) = notes.next()? {
                if note.name() == b"Xen" && note.n_type(endian) == PHYS32_ENTRY {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    };
    found().unwrap_or(false)
}
