//! A section of a job: its name and options.

use super::options;

/// An option with its value, empty for a flag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FioOption {
    /// Name of the option, fio's own.
    pub name: String,
    /// Value of the option as text.
    pub value: String,
}

/// A section with the options that it has itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Section {
    /// Name of the job.
    pub name: String,
    /// Options in their order.
    pub options: Vec<FioOption>,
}

impl FioOption {
    /// `key=value`, or a key alone.
    pub fn of(text: &str) -> FioOption {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        FioOption {
            name: options::canonical(name.trim()).to_owned(),
            value: value.trim().to_owned(),
        }
    }
}

/// The name of a section, of letters that mean nothing in a job file or a shell.
pub(super) fn plain_name(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || " -_.,:+@%/()".contains(c);
    let plain = |c| if is_plain(c) { c } else { '_' };
    let short: String = name.trim().chars().take(64).map(plain).collect();
    short.trim_end().to_owned()
}

impl Section {
    /// The value of an option.
    pub fn get(&self, name: &str) -> Option<&str> {
        let mut all = self.options.iter();
        all.find(|option| option.name == name)
            .map(|option| option.value.as_str())
    }

    /// A number above 0; 1 where there is none.
    fn number(&self, name: &str) -> u32 {
        self.get(name)
            .and_then(|text| text.parse().ok())
            .filter(|number| *number > 0)
            .unwrap_or(1)
    }

    /// Requests that its processes have in flight at most: synchronous engines have one each.
    pub fn depth(&self) -> u32 {
        let is_synchronous = self.get("ioengine").is_none_or(|engine| {
            [
                "sync", "psync", "vsync", "pvsync", "pvsync2", "mmap", "splice",
            ]
            .contains(&engine)
        });
        let depth = if is_synchronous {
            1
        } else {
            self.number("iodepth")
        };
        depth.saturating_mul(self.number("numjobs"))
    }

    /// Returns true if its requests do not begin where the disk does.
    pub fn has_offset(&self) -> bool {
        let mut options = self.options.iter();
        options.any(|option| ["offset", "offset_increment"].contains(&option.name.as_str()))
    }

    /// Method by which the job verifies what it writes, where that begins when all is written; `None` of other jobs.
    pub fn unverified(&self) -> Option<&str> {
        let writes = self.get("rw").is_some_and(|rw| !is_read(rw));
        let is_later = self.get("verify_backlog").is_none() && self.get("do_verify") != Some("0");
        let verify = self
            .get("verify")
            .filter(|how| !["none", "null"].contains(how));
        verify.filter(|_| writes && is_later)
    }

    /// Returns the job's size where that is more than a disk of `bytes` has; the engine `null` has no disk.
    pub fn size_over(&self, bytes: u64) -> Option<&str> {
        if self.get("ioengine") == Some("null") {
            return None;
        }
        self.get("size")
            .filter(|text| size(text).is_some_and(|size| size > bytes))
    }
}

/// Returns true for a value of `rw` that only reads.
pub(super) fn is_read(rw: &str) -> bool {
    matches!(rw.split(':').next(), Some("read" | "randread"))
}

/// Bytes, with a suffix of fio's of which the first letter counts; `None` for a percentage and what is no size.
pub(super) fn size(text: &str) -> Option<u64> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let shift = match unit.chars().next().map(|c| c.to_ascii_lowercase()) {
        None | Some('b') => 0,
        Some('k') => 10,
        Some('m') => 20,
        Some('g') => 30,
        Some('t') => 40,
        Some('p') => 50,
        Some(_) => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}
