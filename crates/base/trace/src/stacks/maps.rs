//! Memory mappings of a process.

/// A line of /proc/PID/maps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// First address of the mapping.
    pub start: u64,
    /// The one after the last.
    pub end: u64,
    /// True if code may run there.
    pub executable: bool,
    /// True if it can be written to.
    pub writable: bool,
    /// Where in the file it begins, bytes.
    pub offset: u64,
    /// The file's number on its file system; 0 where it is no file.
    pub inode: u64,
    /// The file, as the process sees it, or the kernel's name in brackets; empty for plain memory.
    pub path: String,
    /// The file was removed, or another put in its place.
    pub deleted: bool,
}

/// All lines that are well formed.
pub fn parse(text: &str) -> Vec<Mapping> {
    text.lines().filter_map(line).collect()
}

fn line(line: &str) -> Option<Mapping> {
    // "55d0-55d4 r-xp 00001000 fe:00 1234    /usr/bin/qemu (deleted)": the path may have blanks.
    let mut rest = line;
    let mut word = || {
        let trimmed = rest.trim_start();
        let (word, after) = trimmed.split_at(trimmed.find(' ').unwrap_or(trimmed.len()));
        rest = after;
        word
    };
    let (range, rights, offset, _device, inode) = (word(), word(), word(), word(), word());
    let path = rest.trim_start();
    let (start, end) = range.split_once('-')?;
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let (start, end) = (hex(start)?, hex(end)?);
    let kept = path.strip_suffix(" (deleted)");
    (start < end).then_some(())?;
    Some(Mapping {
        start,
        end,
        executable: rights.as_bytes().get(2) == Some(&b'x'),
        writable: rights.as_bytes().get(1) == Some(&b'w'),
        offset: hex(offset)?,
        inode: inode.parse().ok()?,
        path: kept.unwrap_or(path).to_owned(),
        deleted: kept.is_some(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_of_a_process() {
        let all = parse(
            "55d0-55d4 r-xp 00001000 fe:00 1234     /usr/bin/a b (deleted)\n7f00-7f01 rwxp 00000000 00:00 0 \n\
             7ffd-7ffe r-xp 00000000 00:00 0          [vdso]\nnonsense\n5-4 r-xp 0 0:0 0\n",
        );
        assert_eq!(all.len(), 3);
        assert_eq!(
            (all[0].path.as_str(), all[0].deleted, all[0].offset),
            ("/usr/bin/a b", true, 0x1000)
        );
        assert!(all[1].path.is_empty() && all[1].executable && all[1].writable);
        assert_eq!(all[2].path, "[vdso]");
    }

    proptest! {
        #[test]
        fn nothing_breaks_it(text in "[0-9a-f rwxp:./()\n-]{0,400}") {
            parse(&text);
        }
    }
}
