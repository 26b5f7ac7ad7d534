//! Counters of a block device, and its queue.

use std::fs;
use std::path::{Path, PathBuf};
use vmtax_model::BlockDevice;

/// More devices on top of each other are not followed.
const MAX_STACKED: usize = 8;

/// The counters of a block device by its number, as the kernel's block events print it; `None` where there is none.
pub fn block_device(number: u64) -> Option<BlockDevice> {
    let (major, minor) = (number >> 20, number & 0xf_ffff);
    let folder = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    let (requests, total_ms) = stat(&fs::read_to_string(folder.join("stat")).ok()?)?;
    Some(BlockDevice { name: folder.file_name()?.to_str()?.to_owned(), requests, total_ms })
}

/// The disk in whose queue requests for a block device wait, by the device's number: its name in /sys/block. Of a partition that is its
/// disk, of a logical volume the disk below. `None` where there is none, or several.
pub fn disk_with_queue(number: u64) -> Option<String> {
    disk_below(Path::new("/sys"), number)
}

fn disk_below(sys: &Path, number: u64) -> Option<String> {
    let (major, minor) = (number >> 20, number & 0xf_ffff);
    let mut device = fs::canonicalize(sys.join(format!("dev/block/{major}:{minor}"))).ok()?;
    for _ in 0..MAX_STACKED {
        if device.join("partition").exists() {
            device.pop();
        }
        let below = fs::read_dir(device.join("slaves")).into_iter().flatten().flatten();
        let below: Vec<PathBuf> = below.map(|entry| entry.path()).collect();
        device = match below.as_slice() {
            [] => return Some(device.file_name()?.to_str()?.to_owned()),
            [one] => fs::canonicalize(one).ok()?,
            _ => return None,
        };
    }
    None
}

/// Completed requests and the sum of their times, ms: reads, writes, since 4.18 discards, since 5.5 flushes, each with count,
/// merges, sectors, time; behind the first two three fields of the queue.
fn stat(text: &str) -> Option<(u64, u64)> {
    let fields: Vec<u64> = text.split_ascii_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    let of = |at: usize| fields.get(at).copied().unwrap_or(0);
    (fields.len() >= 11).then(|| {
        let kinds = [(0, 3), (4, 7), (11, 14), (15, 16)];
        kinds
            .into_iter()
            .fold((0u64, 0u64), |(count, ms), (at, time)| (count.saturating_add(of(at)), ms.saturating_add(of(time))))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn requests_of_all_kinds_are_summed() {
        let old = "100 5 800 40 50 5 400 60 0 90 100\n";
        assert_eq!(stat(old), Some((150, 100)));
        let new = "100 5 800 40 50 5 400 60 0 90 100 10 0 80 7 3 2\n";
        assert_eq!(stat(new), Some((163, 109)));
        assert_eq!((stat("1 2 3"), stat("x"), block_device(u64::MAX)), (None, None, None));
    }

    #[test]
    fn the_disk_below_partitions_and_volumes_has_the_queue() {
        let root = tempfile::tempdir().unwrap();
        let sys = root.path().canonicalize().unwrap();
        let link = |from: &str, to: &str| std::os::unix::fs::symlink(sys.join(to), sys.join(from)).unwrap();
        for folder in ["dev/block", "sda/sda1", "dm-0/slaves", "dm-1/slaves", "sdb"] {
            fs::create_dir_all(sys.join(folder)).unwrap();
        }
        fs::write(sys.join("sda/sda1/partition"), "1").unwrap();
        for (number, device) in [("8:0", "sda"), ("8:1", "sda/sda1"), ("253:0", "dm-0"), ("253:1", "dm-1")] {
            link(&format!("dev/block/{number}"), device);
        }
        link("dm-0/slaves/sda1", "sda/sda1");
        let disk = |major: u64, minor| disk_below(&sys, major << 20 | minor);
        assert_eq!([disk(8, 0), disk(8, 1), disk(253, 0)], [(); 3].map(|()| Some("sda".to_owned())));
        link("dm-1/slaves/dm-0", "dm-0");
        assert_eq!(disk(253, 1).as_deref(), Some("sda"));
        link("dm-1/slaves/sdb", "sdb");
        assert_eq!([disk(253, 1), disk(9, 9)], [None, None]);
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "[0-9 \n-]{0,200}") {
            let _ = stat(&text);
        }
    }
}
