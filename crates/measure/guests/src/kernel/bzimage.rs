//! The header of an x86 bzImage, and what a file is that has none.
//!
//! Source: the kernel's own documentation of the boot protocol, `Documentation/arch/x86/boot.rst`; the other
//! architectures' marks from `Documentation/arch/arm64/booting.rst`, `Documentation/arch/riscv/boot-image-header.rst`
//! and the ELF specification.

use crate::apt::version as release;

/// Bytes of a file's beginning that [`parse`] needs: the version string lies in the first 64 KiB after the boot
/// sector.
pub(crate) const HEAD: u64 = 0x200 + 0x1_0000 + 0x100;

/// First protocol whose header says whether the kernel is a 64-bit one (Linux 3.8).
const FIRST_WITH_XLOADFLAGS: u16 = 0x020c;
/// `xloadflags`: there is a 64-bit entry point.
const XLF_KERNEL_64: u16 = 1;

/// Content of a bootable kernel's header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// As `uname -r` will say.
    pub release: String,
    /// Minimum length of the file, in bytes.
    pub size: u64,
}

/// Why a file is not a kernel that an x86-64 guest boots.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotBzImage {
    /// Nothing in it.
    #[error("the file is empty: copy the kernel again, or fetch one with `vmtax get kernel`")]
    Empty,
    /// It breaks off.
    #[error(
        "the kernel is truncated, {have} of {need} bytes: copy it again, or fetch one with `vmtax get kernel`"
    )]
    Truncated {
        /// Length of the file, bytes.
        have: u64,
        /// Length that its header asks for, bytes.
        need: u64,
    },
    /// A 32-bit kernel.
    #[error(
        "a 32-bit x86 kernel, but guests are x86-64: use an amd64 kernel, for example from `vmtax get kernel`"
    )]
    ThirtyTwoBit,
    /// Older than anything that guests can use.
    #[error("a kernel of boot protocol {}.{:02}, older than Linux 3.8: use a newer one", protocol >> 8, protocol & 0xff)]
    TooOld {
        /// Major and minor number in one byte each.
        protocol: u16,
    },
    /// It does not say which kernel it is.
    #[error(
        "a kernel without a release in its header: build it as bzImage, or fetch one with `vmtax get kernel`"
    )]
    NoRelease,
    /// The file is of another format.
    #[error("{what}, not an x86-64 kernel: {fix}")]
    Other {
        /// Description of what the file is.
        what: String,
        /// Next step for the user.
        fix: &'static str,
    },
}

/// Reads the header from the beginning of a kernel image.
///
/// # Errors
/// [`NotBzImage`] says what the file is instead. That the file is as long as [`Header::size`] asks is left to the
/// caller, who need not have read all of it.
pub fn parse(bytes: &[u8]) -> Result<Header, NotBzImage> {
    if bytes.is_empty() {
        return Err(NotBzImage::Empty);
    }
    if bytes.get(0x202..0x206) != Some(b"HdrS") {
        return Err(foreign(bytes));
    }
    // Everything below lies inside the boot sector and the sector after it.
    let have = bytes.len() as u64;
    let truncated = |need| NotBzImage::Truncated { have, need };
    let words = [0x206, 0x236, 0x20e].map(|at| u16_at(bytes, at));
    let ([Some(protocol), Some(flags), Some(version_at)], Some(paragraphs), Some(&sectors)) =
        (words, u32_at(bytes, 0x1f4), bytes.get(0x1f1))
    else {
        return Err(truncated(0x400));
    };
    if protocol < FIRST_WITH_XLOADFLAGS {
        return Err(NotBzImage::TooOld { protocol });
    }
    if flags & XLF_KERNEL_64 == 0 {
        return Err(NotBzImage::ThirtyTwoBit);
    }
    let size = setup_bytes(sectors) as u64 + u64::from(paragraphs) * 16;
    if version_at == 0 {
        return Err(NotBzImage::NoRelease);
    }
    let version = bytes.get(0x200 + usize::from(version_at)..);
    let version = version.ok_or_else(|| truncated(size))?;
    let end = version.iter().position(|b| matches!(b, 0 | b' '));
    let end = end.ok_or(NotBzImage::NoRelease)?;
    let release = std::str::from_utf8(&version[..end]).unwrap_or_default();
    if !release::is_plausible(release) {
        return Err(NotBzImage::NoRelease);
    }
    Ok(Header {
        release: release.into(),
        size,
    })
}

/// Length of the code before the kernel proper: the boot sector and the setup sectors, of which 0 stand for 4, for the
/// sake of LILO.
fn setup_bytes(sectors: u8) -> usize {
    (usize::from(if sectors == 0 { 4 } else { sectors }) + 1) * 512
}

/// Where the compressed kernel lies in an image that [`parse`] accepts.
pub(crate) fn payload(image: &[u8]) -> Option<std::ops::Range<usize>> {
    let begin = setup_bytes(*image.get(0x1f1)?).checked_add(u32_at(image, 0x248)? as usize)?;
    Some(begin..begin.checked_add(u32_at(image, 0x24c)? as usize)?)
}

const AMD64: &str = "use an amd64 kernel, for example from `vmtax get kernel`";
const PACKED: &str = "unpack it and give the bzImage (vmlinuz) inside";
const BZIMAGE: &str = "give the kernel's bzImage, which distributions call vmlinuz";
const ARM_ZIMAGE: [u8; 4] = 0x016f_2818_u32.to_le_bytes();

/// Marks of other files at an offset, with what such a file is and what to do; the first that is there counts.
const OTHERS: [(usize, &[u8], &str, &str); 13] = [
    (56, b"ARM\x64", "an arm64 kernel (Image)", AMD64),
    (56, b"RSC\x05", "a RISC-V kernel (Image)", AMD64),
    (48, b"RISCV", "a RISC-V kernel (Image)", AMD64),
    (36, &ARM_ZIMAGE, "a 32-bit ARM kernel (zImage)", AMD64),
    (0, b"\x27\x05\x19\x56", "a U-Boot image (uImage)", AMD64),
    (
        4,
        b"zimg",
        "an EFI zboot kernel, as arm64, RISC-V and LoongArch have them",
        AMD64,
    ),
    (
        0,
        b"MZ",
        "an EFI program (a unified kernel image?)",
        BZIMAGE,
    ),
    (
        0,
        b"\x1f\x8b",
        "gzip-compressed data (as arm64 kernels come, Image.gz)",
        PACKED,
    ),
    (0, b"\xfd7zXZ\0", "xz-compressed data", PACKED),
    (0, b"\x28\xb5\x2f\xfd", "zstd-compressed data", PACKED),
    (
        0,
        b"!<arch>\ndebian-binary",
        "a Debian package",
        "unpack it with `dpkg-deb -x` and give its boot/vmlinuz-…",
    ),
    (0, b"07070", "a cpio archive (an initramfs?)", BZIMAGE),
    (0, b"", "no kernel that vmtax knows", BZIMAGE),
];

/// Says what a file is that has no x86 boot header.
fn foreign(bytes: &[u8]) -> NotBzImage {
    let starts_at = |offset: usize, mark: &[u8]| {
        bytes
            .get(offset..)
            .is_some_and(|rest| rest.starts_with(mark))
    };
    let is = |&&(offset, mark, ..): &&(usize, &[u8], &str, &str)| {
        // Programs of EFI have this mark, too, with theirs of zboot behind it.
        starts_at(offset, mark) && (mark != b"zimg" || starts_at(0, b"MZ"))
    };
    let other = |what: String, fix| NotBzImage::Other { what, fix };
    if !starts_at(0, b"\x7fELF") {
        let (_, _, what, fix) = OTHERS.iter().find(is).unwrap_or(&OTHERS[OTHERS.len() - 1]);
        return other((*what).to_owned(), fix);
    }
    match elf_machine(bytes) {
        Some("x86-64") => other(
            "an uncompressed x86-64 ELF file (vmlinux or a program)".into(),
            "give arch/x86/boot/bzImage of its build",
        ),
        Some(machine) => other(format!("an ELF file for {machine}"), AMD64),
        None => other("an ELF file for an unknown architecture".into(), AMD64),
    }
}

pub(crate) fn elf_machine(bytes: &[u8]) -> Option<&'static str> {
    let field: [u8; 2] = bytes.get(18..20)?.try_into().ok()?;
    let big_endian = bytes.get(5) == Some(&2);
    let machine = if big_endian {
        u16::from_be_bytes(field)
    } else {
        u16::from_le_bytes(field)
    };
    Some(match machine {
        3 => "32-bit x86",
        8 => "MIPS",
        20 | 21 => "PowerPC",
        22 => "s390",
        40 => "32-bit ARM",
        62 => "x86-64",
        183 => "arm64",
        243 => "RISC-V",
        258 => "LoongArch",
        _ => return None,
    })
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let field = bytes.get(at..at + 2)?;
    field.try_into().ok().map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let field = bytes.get(at..at + 4)?;
    field.try_into().ok().map(u32::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::bzimage;
    use proptest::prelude::*;

    fn message(bytes: &[u8]) -> String {
        parse(bytes).unwrap_err().to_string()
    }

    #[test]
    fn a_kernel_tells_its_release_and_length() {
        let image = bzimage("6.1.0-56-amd64");
        let header = parse(&image).unwrap();
        assert_eq!(header.release, "6.1.0-56-amd64");
        assert_eq!(header.size, image.len() as u64);
    }

    #[test]
    fn no_setup_sectors_stand_for_four() {
        let mut image = bzimage("6.1.0");
        image[0x1f1] = 0;
        assert_eq!(parse(&image).unwrap().size, 5 * 512 + 4 * 16);
    }

    #[test]
    fn a_32_bit_kernel_is_refused() {
        let mut image = bzimage("6.1.0-686");
        image[0x236] &= !1;
        assert_eq!(parse(&image), Err(NotBzImage::ThirtyTwoBit));
    }

    #[test]
    fn a_kernel_before_the_flag_is_too_old() {
        let mut image = bzimage("2.6.32");
        image[0x206..0x208].copy_from_slice(&0x020a_u16.to_le_bytes());
        assert_eq!(parse(&image), Err(NotBzImage::TooOld { protocol: 0x020a }));
        assert!(message(&image).contains("protocol 2.10"));
    }

    #[test]
    fn a_release_must_be_one() {
        for release in ["", "../../etc", "-o"] {
            assert_eq!(
                parse(&bzimage(release)),
                Err(NotBzImage::NoRelease),
                "{release:?}"
            );
        }
        let mut image = bzimage("6.1.0");
        image[0x20e..0x210].copy_from_slice(&0_u16.to_le_bytes());
        assert_eq!(parse(&image), Err(NotBzImage::NoRelease));
    }

    #[test]
    fn a_header_that_breaks_off_is_truncated() {
        let image = bzimage("6.1.0");
        assert!(matches!(
            parse(&image[..0x210]),
            Err(NotBzImage::Truncated { .. })
        ));
        assert!(matches!(
            parse(&image[..0x240]),
            Err(NotBzImage::Truncated { .. })
        ));
    }

    #[test]
    fn other_files_are_called_by_their_name() {
        let mut arm64 = vec![0; 64];
        arm64[56..60].copy_from_slice(b"ARM\x64");
        assert!(message(&arm64).contains("arm64 kernel"));
        let mut elf = b"\x7fELF\x02\x01\x01".to_vec();
        elf.resize(64, 0);
        for (machine, name) in [
            (62_u8, "x86-64 ELF"),
            (183, "arm64"),
            (243, "RISC-V"),
            (77, "unknown architecture"),
        ] {
            elf[18] = machine;
            assert!(message(&elf).contains(name), "{}", message(&elf));
        }
        let mut s390 = elf.clone();
        s390[5] = 2;
        s390[18..20].copy_from_slice(&[0, 22]);
        assert!(message(&s390).contains("s390"));
        assert!(message(b"\x1f\x8b\x08").contains("gzip"));
        assert!(message(b"!<arch>\ndebian-binary   ").contains("Debian package"));
        assert!(message(b"#!/bin/sh\n").contains("no kernel that vmtax knows"));
        assert_eq!(parse(b""), Err(NotBzImage::Empty));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2048)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn a_damaged_header_is_read_without_panic(at in 0x1f0_usize..0x260, with in any::<[u8; 4]>(), cut in 0_usize..4096) {
            let mut image = bzimage("6.1.0-56-amd64");
            image[at..at + 4].copy_from_slice(&with);
            image.truncate(cut);
            if let Ok(header) = parse(&image) {
                prop_assert!(release::is_plausible(&header.release));
            }
        }
    }
}
