//! Settings in the header of a disk image. Format: `docs/interop/qcow2.txt` of QEMU.

use super::{BACKING, Twin, TwinDisk};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

const MAGIC: [u8; 4] = *b"QFI\xfb";
/// The header of version 3 up to its feature bits.
const HEADER_BYTES: usize = 104;
/// Incompatible feature: L2 entries with subclusters.
const EXTENDED_L2: u64 = 1 << 4;
/// Compatible feature: lazy refcounts.
const LAZY_REFCOUNTS: u64 = 1;

/// The place and bytes by which QEMU finds the format of an image that is not qcow2.
const MAGICS: [(usize, &[u8], &str); 10] = [
    (0, b"KDMV", "vmdk"),
    (0, b"COWD", "vmdk"),
    (0, b"# Disk DescriptorFile", "vmdk"),
    (0, b"QED\0", "qed"),
    (0, b"LUKS\xba\xbe", "luks"),
    (0, b"vhdxfile", "vhdx"),
    (0, b"conectix", "vpc"),
    (0, b"WithoutFreeSpace", "parallels"),
    (0, b"WithouFreSpacExt", "parallels"),
    (64, b"\x7f\x10\xda\xbe", "vdi"),
];

/// A qcow2 image, by its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Qcow2 {
    /// 2 or 3.
    pub version: u32,
    /// Size of a cluster, bytes.
    pub cluster_size: u64,
    /// The guest's disk, bytes.
    pub size: u64,
    /// True if entries of its L2 tables have subclusters.
    pub extended_l2: bool,
    /// True if refcounts are written late.
    pub lazy_refcounts: bool,
    /// True if another image lies behind it.
    pub has_backing: bool,
}

/// Reads the header of a qcow2 image; `None` of other formats.
pub(super) fn qcow2(header: &[u8]) -> Option<Qcow2> {
    let word = |at: usize| {
        header
            .get(at..at + 4)
            .map(|b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]))
    };
    let long = |at: usize| Some(u64::from(word(at)?) << 32 | u64::from(word(at + 4)?));
    if header.get(..4)? != MAGIC {
        return None;
    }
    let version = word(4)?;
    let bits = word(20).filter(|bits| (9..=21).contains(bits))?;
    // Version 2 has no feature bits.
    let features = |at| if version >= 3 { long(at) } else { Some(0) };
    Some(Qcow2 {
        version,
        cluster_size: 1 << bits,
        size: long(24)?,
        extended_l2: features(72)? & EXTENDED_L2 != 0,
        lazy_refcounts: features(80)? & LAZY_REFCOUNTS != 0,
        has_backing: long(8)? != 0,
    })
}

/// Adds what the image itself says: its format where nothing else does, its size, of qcow2 how it was made. One that cannot be
/// read is named.
pub(super) fn add(twin: &mut Twin) {
    let Some(path) = twin.disk.file.clone() else {
        return;
    };
    let image = read(&path);
    let name = path.display();
    if let Some(header) = twin.disk.is_format_probed.then_some(image.as_ref()) {
        match header.map(|(_, header)| format_of(header)) {
            Ok(format) => twin.set_format(format),
            Err(_) => twin.lacks(format!("image format of {name}: unknown, replaced by raw")),
        }
    }
    let set = &twin.disk.set;
    let is_qcow2 = set.get("format").is_some_and(|format| format == "qcow2");
    match image.map(|(bytes, header)| (bytes, qcow2(&header))) {
        Err(why) => twin.lacks(format!(
            "image {name}: {why}; its size and format options are not known"
        )),
        Ok((_, Some(image))) if is_qcow2 => {
            twin.disk.size = Some(image.size);
            made(&mut twin.disk, &image);
            if image.has_backing {
                twin.lacks(BACKING);
            }
        }
        Ok((bytes, _)) => {
            twin.disk.size = Some(bytes).filter(|_| !is_qcow2);
            if is_qcow2 {
                twin.lacks(format!("image {name}: it has no qcow2 header"));
            }
        }
    }
}

/// The format that QEMU finds in the first bytes of an image.
fn format_of(header: &[u8]) -> &'static str {
    let has = |(at, magic, _): &&(usize, &[u8], &str)| {
        header
            .get(*at..)
            .is_some_and(|rest| rest.starts_with(magic))
    };
    match qcow2(header) {
        Some(image) if image.version >= 2 => "qcow2",
        _ if header.starts_with(&MAGIC) => "qcow",
        _ => MAGICS.iter().find(has).map_or("raw", |(.., format)| format),
    }
}

/// Adds the creation options of a qcow2 image that are not `qemu-img create`'s defaults.
fn made(disk: &mut TwinDisk, image: &Qcow2) {
    if image.cluster_size != 65536 {
        disk.set("image.cluster_size", image.cluster_size.to_string());
    }
    if image.version < 3 {
        disk.set("image.compat", "0.10");
    }
    for (key, is_on) in [
        ("image.extended_l2", image.extended_l2),
        ("image.lazy_refcounts", image.lazy_refcounts),
    ] {
        if is_on {
            disk.set(key, "on");
        }
    }
}

/// The bytes of an image and its header.
fn read(path: &Path) -> std::io::Result<(u64, Vec<u8>)> {
    let kind = path.metadata()?.file_type();
    // Opening a FIFO would wait for a writer.
    if !kind.is_file() && !std::os::unix::fs::FileTypeExt::is_block_device(&kind) {
        return Err(std::io::Error::other(
            "it is neither a file nor a block device",
        ));
    }
    let mut file = File::open(path)?;
    let mut header = Vec::with_capacity(HEADER_BYTES);
    file.by_ref()
        .take(HEADER_BYTES as u64)
        .read_to_end(&mut header)?;
    Ok((file.seek(SeekFrom::End(0))?, header))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header(version: u32, cluster_bits: u32, incompatible: u64, compatible: u64) -> Vec<u8> {
        let mut all = MAGIC.to_vec();
        all.extend(version.to_be_bytes());
        all.extend([0; 12]);
        all.extend(cluster_bits.to_be_bytes());
        all.extend((8_u64 << 30).to_be_bytes());
        all.extend([0; 40]);
        all.extend(incompatible.to_be_bytes());
        all.extend(compatible.to_be_bytes());
        all.resize(HEADER_BYTES, 0);
        all
    }

    #[test]
    fn a_header_says_how_the_image_was_made() {
        let usual = qcow2(&header(3, 16, 0, 0)).unwrap();
        assert_eq!(
            (usual.cluster_size, usual.size, usual.has_backing),
            (65536, 8 << 30, false)
        );
        let other = qcow2(&header(3, 17, EXTENDED_L2, LAZY_REFCOUNTS)).unwrap();
        assert!(other.extended_l2 && other.lazy_refcounts);
        let mut disk = TwinDisk::default();
        made(&mut disk, &other);
        assert_eq!(
            disk.set.get("image.cluster_size").map(String::as_str),
            Some("131072")
        );
        assert_eq!(disk.set.len(), 3);
        let old = qcow2(&header(2, 16, u64::MAX, u64::MAX)).unwrap();
        assert!(!old.extended_l2 && !old.lazy_refcounts);
        assert_eq!(
            (qcow2(b"QFI\xfb"), qcow2(&header(3, 64, 0, 0)), qcow2(b"")),
            (None, None, None)
        );
    }

    #[test]
    fn a_format_that_nothing_names_is_that_of_the_image() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let read = |bytes: &[u8]| {
            std::fs::write(file.path(), bytes).unwrap();
            let mut twin = Twin::default();
            twin.disk.file = Some(file.path().to_owned());
            twin.disk.is_format_probed = true;
            add(&mut twin);
            (
                twin.disk.set.get("format").cloned(),
                twin.disk.size,
                twin.not_twinned,
            )
        };
        let (format, size, lacks) = read(&header(3, 17, 0, 0));
        assert_eq!((format.as_deref(), size), (Some("qcow2"), Some(8 << 30)));
        assert!(lacks.is_empty(), "{lacks:?}");
        assert_eq!(read(b"any bytes"), (None, Some(9), Vec::new()));
        let (_, _, lacks) = read(b"KDMV");
        assert_eq!(lacks, ["image format vmdk: replaced by raw"]);
        assert_eq!(format_of(&header(1, 16, 0, 0)), "qcow");
        let mut gone = Twin::default();
        gone.disk.file = Some("/nonexistent/a".into());
        gone.disk.is_format_probed = true;
        add(&mut gone);
        let unknown = "image format of /nonexistent/a: unknown, replaced by raw";
        assert_eq!(gone.not_twinned[0], unknown);
    }

    proptest! {
        #[test]
        fn any_header_is_survived(mut bytes in proptest::collection::vec(any::<u8>(), 0..120), is_qcow2 in any::<bool>()) {
            if is_qcow2 {
                bytes.splice(0..bytes.len().min(4), MAGIC);
            }
            let _ = format_of(&bytes);
        }
    }
}
