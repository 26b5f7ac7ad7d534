//! Mounted file systems, as listed in `/proc/PID/mountinfo`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// A mounted file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Path of the mount point.
    pub at: PathBuf,
    /// Of which kind: `ext4`, `fuse.sshfs`.
    pub kind: String,
}

/// Each line that is one, in order: what comes later may be mounted over what came before.
pub fn mounts(mountinfo: &str) -> Vec<Mount> {
    mountinfo.lines().filter_map(mount).collect()
}

/// "36 35 98:0 / /mnt rw,noatime master:1 - ext3 /dev/root rw": optional fields end with the dash.
fn mount(line: &str) -> Option<Mount> {
    let (before, after) = line.split_once(" - ")?;
    let mut fields = before.split(' ').skip(4);
    let at = unescaped(fields.next()?);
    fields.next()?;
    Some(Mount {
        at,
        kind: after.split(' ').next()?.to_owned(),
    })
}

/// Blanks, line ends and backslashes are `\OOO` in there.
fn unescaped(text: &str) -> PathBuf {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, more @ ..] = rest {
        let octal = more
            .get(..3)
            .filter(|_| *first == b'\\')
            .and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &more[3..];
            }
            None => {
                bytes.push(*first);
                rest = more;
            }
        }
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::Path;

    #[test]
    fn a_mount_has_its_place_and_its_kind() {
        let line = "41 30 8:1 /sub /mnt/a\\040b\\134c rw,nosuid,nodev,relatime shared:1 - ext4 /dev/sda1 rw,noexec";
        let all = mounts(&format!("nonsense\n{line}\n42 30 8:1\n"));
        assert_eq!(all.len(), 1);
        assert_eq!(
            (all[0].at.as_path(), all[0].kind.as_str()),
            (Path::new("/mnt/a b\\c"), "ext4")
        );
        assert_eq!(unescaped("\\04"), Path::new("\\04"));
    }

    proptest! {
        #[test]
        fn any_text_is_survived_and_names_come_through(text in "\\PC{0,200}", name in "[a-z \\\\0-7]{0,20}") {
            mounts(&text);
            let escape = |b: u8| match b {
                b' ' | b'\\' => format!("\\{b:03o}"),
                _ => char::from(b).to_string(),
            };
            let escaped: String = name.bytes().map(escape).collect();
            let line = format!("1 2 0:3 / /{escaped} rw - tmpfs x rw");
            prop_assert_eq!(&mounts(&line)[0].at, &PathBuf::from(format!("/{name}")));
        }
    }
}
