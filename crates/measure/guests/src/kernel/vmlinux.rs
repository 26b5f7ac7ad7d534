//! Kernels as ELF files, which QEMU starts directly: one that a person names, and the one inside a bzImage.
//!
//! A bzImage unpacks itself. Under TCG that takes longer than the rest of the boot; here it takes a second, once for each kernel of
//! the cache.
//! QEMU starts an uncompressed kernel that has a PVH entry point (`CONFIG_PVH`, which distributions set).
//! Source: `Documentation/arch/x86/boot.rst` (payload_offset, payload_length) and Xen's `docs/misc/pvh.pandoc`.

use crate::apt::version;
use crate::kernel::bzimage::{self, NotBzImage};
use object::Endianness;
use object::elf::FileHeader64;
use object::read::elf::{FileHeader, ProgramHeader};
use rustix::fs::{AtFlags, CWD, linkat};
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use vmtax_model::{KernelFacts, SourceOfKernel};

/// A kernel of a distribution takes about 70 MB uncompressed.
pub(crate) const MAX_BYTES: u64 = 1 << 30;
/// `XEN_ELFNOTE_PHYS32_ENTRY`: where PVH enters.
const PHYS32_ENTRY: u32 = 18;

/// Text before the release in a kernel (`linux_banner` of init/version.c).
const BANNER: &[u8] = b"Linux version ";

/// Returns true if a file that begins so is an ELF file for x86-64.
pub(crate) fn is_elf(head: &[u8]) -> bool {
    head.starts_with(b"\x7fELF") && bzimage::elf_machine(head) == Some("x86-64")
}

/// The release of an uncompressed kernel.
pub(crate) fn release(elf: &[u8]) -> Result<String, NotBzImage> {
    if !has_pvh_entry(elf) {
        return Err(NotBzImage::Other {
            what: "an uncompressed x86-64 ELF file without a PVH note".to_owned(),
            fix: "build it with CONFIG_PVH=y, or give arch/x86/boot/bzImage of its build",
        });
    }
    let need = end_of_segments(elf).unwrap_or(u64::MAX);
    if need > elf.len() as u64 {
        return Err(NotBzImage::Truncated {
            have: elf.len() as u64,
            need,
        });
    }
    let banners = memchr::memmem::find_iter(elf, BANNER).map(|at| &elf[at + BANNER.len()..]);
    let releases = banners.filter_map(|rest| {
        std::str::from_utf8(rest.get(..rest.iter().position(|b| *b == b' ')?)?).ok()
    });
    let mut plausible = releases.filter(|text| version::is_plausible(text));
    plausible
        .next()
        .map(str::to_owned)
        .ok_or(NotBzImage::NoRelease)
}

/// Writes the uncompressed kernel to `out`. `false` when it is not available or has no PVH entry; the bzImage itself
/// boots all the same, only later. Of a kernel in the cache the cache keeps it, beside the image.
pub fn unpack_vmlinux(kernel: &KernelFacts, out: &Path) -> bool {
    let kept = (kernel.source == SourceOfKernel::Cache).then(|| kernel.image.with_file_name(KEPT));
    let is_whole = |elf: &Vec<u8>| {
        has_pvh_entry(elf) && end_of_segments(elf).is_ok_and(|end| end <= elf.len() as u64)
    };
    let known = kept
        .as_ref()
        .and_then(|kept| fs::read(kept).ok())
        .filter(is_whole);
    let unpacked = || {
        let elf = payload(&fs::read(&kernel.image).ok()?).filter(is_whole)?;
        // Without it the next run unpacks again.
        let _ = kept.as_ref().map(|kept| keep(&elf, kept));
        Some(elf)
    };
    known
        .or_else(unpacked)
        .is_some_and(|elf| fs::write(out, &elf).is_ok())
}

/// The uncompressed kernel's name in the cache.
const KEPT: &str = "vmlinux";

/// Makes a file in one step: a process that is killed meanwhile leaves none.
fn keep(elf: &[u8], path: &Path) -> io::Result<()> {
    let mut file = tempfile::tempfile_in(path.parent().unwrap_or(path))?;
    file.write_all(elf)?;
    file.sync_all()?;
    // A damaged one, if there is any.
    let _ = fs::remove_file(path);
    let nameless = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(linkat(CWD, &nameless, CWD, path, AtFlags::SYMLINK_FOLLOW)?)
}

fn payload(image: &[u8]) -> Option<Vec<u8>> {
    let begin = bzimage::payload(image)?;
    let packed = image.get(begin)?;
    let reader: Box<dyn Read + '_> = match packed {
        [0xfd, b'7', b'z', b'X', b'Z', ..] => Box::new(lzma_rust2::XzReader::new(packed, false)),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            Box::new(ruzstd::decoding::StreamingDecoder::new(packed).ok()?)
        }
        [0x1f, 0x8b, ..] => Box::new(flate2::read::GzDecoder::new(packed)),
        _ => return None,
    };
    let mut elf = Vec::new();
    reader.take(MAX_BYTES).read_to_end(&mut elf).ok()?;
    Some(elf)
}

/// Where the last segment of an ELF file ends.
pub(crate) fn end_of_segments(elf: &[u8]) -> object::Result<u64> {
    let header = FileHeader64::<Endianness>::parse(elf)?;
    let endian = header.endian()?;
    let ends = header.program_headers(endian, elf)?.iter().map(|segment| {
        let (offset, size) = segment.file_range(endian);
        offset.saturating_add(size)
    });
    Ok(ends.max().unwrap_or(0))
}

fn has_pvh_entry(elf: &[u8]) -> bool {
    let found = || -> object::Result<bool> {
        let header = FileHeader64::<Endianness>::parse(elf)?;
        let endian = header.endian()?;
        for segment in header.program_headers(endian, elf)? {
            let Some(mut notes) = segment.notes(endian, elf)? else {
                continue;
            };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use flate2::Compression;
    use flate2::write::GzEncoder;

    /// An ELF file with one note in a PT_NOTE segment.
    fn elf_with_note(name: &[u8; 4], kind: u32) -> Vec<u8> {
        let mut elf = vec![0; 64];
        elf[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1]);
        let mut put = |at: usize, bytes: &[u8]| elf[at..at + bytes.len()].copy_from_slice(bytes);
        put(16, &2u16.to_le_bytes()); // an executable
        put(18, &62u16.to_le_bytes()); // x86-64
        put(32, &64u64.to_le_bytes()); // program headers begin here,
        put(54, &56u16.to_le_bytes()); // each of this size,
        put(56, &1u16.to_le_bytes()); // one of them
        let mut header = vec![0; 56];
        header[0] = 4; // PT_NOTE
        header[8..16].copy_from_slice(&120u64.to_le_bytes());
        header[32..40].copy_from_slice(&20u64.to_le_bytes());
        header[48] = 4;
        elf.extend(header);
        for word in [4u32, 4, kind] {
            elf.extend(word.to_le_bytes());
        }
        elf.extend(name);
        elf.extend([0; 4]);
        elf
    }

    fn bzimage_around(packed: &[u8]) -> Vec<u8> {
        let mut image = testing::bzimage("6.1.0-1-amd64");
        let offset = image.len() - 2 * 512;
        image[0x248..0x24c].copy_from_slice(&(offset as u32).to_le_bytes());
        image[0x24c..0x250].copy_from_slice(&(packed.len() as u32).to_le_bytes());
        image.extend(packed);
        image
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn only_a_kernel_with_a_pvh_entry_is_started_directly() {
        let pvh = elf_with_note(b"Xen\0", PHYS32_ENTRY);
        assert_eq!(
            payload(&bzimage_around(&gzip(&pvh))).as_deref(),
            Some(&pvh[..])
        );
        assert!(has_pvh_entry(&pvh));
        assert!(
            !has_pvh_entry(&elf_with_note(b"Xen\0", 5))
                && !has_pvh_entry(&elf_with_note(b"GNU\0", PHYS32_ENTRY))
        );
    }

    #[test]
    fn a_kernel_of_the_cache_is_unpacked_once() {
        let folder = tempfile::tempdir().unwrap();
        let [image, kept, out] =
            ["vmlinuz-6.1.0-1-amd64", "vmlinux", "out"].map(|name| folder.path().join(name));
        let pvh = elf_with_note(b"Xen\0", PHYS32_ENTRY);
        let mut kernel = KernelFacts {
            image: image.clone(),
            modules: None,
            release: "6.1.0-1-amd64".into(),
            source: SourceOfKernel::Given,
        };
        fs::write(&image, bzimage_around(&gzip(&pvh))).unwrap();
        assert!(
            unpack_vmlinux(&kernel, &out) && !kept.exists(),
            "beside a kernel of somebody's nothing is written"
        );
        kernel.source = SourceOfKernel::Cache;
        for damaged in [b"".as_slice(), &pvh[..130]] {
            fs::write(&kept, damaged).unwrap();
            assert!(unpack_vmlinux(&kernel, &out));
            assert_eq!(
                (fs::read(&out).unwrap(), fs::read(&kept).unwrap()),
                (pvh.clone(), pvh.clone())
            );
        }
        fs::write(&image, b"").unwrap();
        fs::remove_file(&out).unwrap();
        assert!(unpack_vmlinux(&kernel, &out), "it was unpacked again");
        assert_eq!(fs::read(&out).unwrap(), pvh);
        fs::remove_file(&kept).unwrap();
        assert!(!unpack_vmlinux(&kernel, &out));
        assert_eq!(
            fs::read_dir(folder.path()).unwrap().count(),
            2,
            "image and out"
        );
    }

    #[test]
    fn an_elf_kernel_tells_its_release() {
        let pvh = elf_with_note(b"Xen\0", PHYS32_ENTRY);
        assert!(is_elf(&pvh) && !is_elf(&testing::bzimage("6.1.0")));
        let banner = b"Linux version %s\0Linux version 6.12.1-guest (someone@host) #1";
        assert_eq!(
            release(&[&pvh[..], banner].concat()).as_deref(),
            Ok("6.12.1-guest")
        );
        assert_eq!(release(&pvh), Err(NotBzImage::NoRelease));
        let other = release(&elf_with_note(b"GNU\0", PHYS32_ENTRY)).unwrap_err();
        assert!(other.to_string().contains("CONFIG_PVH"), "{other}");
        // The same with a segment behind the note's, of which the file has nothing.
        let mut load = pvh[64..120].to_vec();
        (load[0], load[33]) = (1, 4);
        let mut cut = [&pvh[..], &[0; 4], &pvh[64..120], &load].concat();
        (cut[32], cut[56]) = (144, 2);
        assert_eq!(
            release(&cut),
            Err(NotBzImage::Truncated {
                have: 256,
                need: 120 + 4 * 256 + 20
            })
        );
    }

    #[test]
    fn what_cannot_be_unpacked_is_left_as_it_is() {
        let packed = gzip(&elf_with_note(b"Xen\0", PHYS32_ENTRY));
        let mut cut = bzimage_around(&packed);
        cut.truncate(cut.len() - 10);
        assert_eq!(payload(&cut), None);
        assert_eq!(payload(&bzimage_around(&packed[..20])), None);
        assert_eq!(payload(&bzimage_around(b"another compression")), None);
        assert_eq!(payload(&[]), None);
        assert!(!has_pvh_entry(b"\x7fELF"));
    }
}
