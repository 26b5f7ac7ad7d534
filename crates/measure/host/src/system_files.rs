//! Parsers of what the kernel shows in /proc and /sys. They take text and never fail: what is not there is `None`, zero or
//! empty, since kernels differ in what they show.

use procfs::{MountEntry, ProcessCGroup, ProcessCGroups};
use std::path::{Path, PathBuf};
use vmtax_model::in_effect;

/// The text of a file of /proc or /sys without the space around it; `None` when it cannot be read.
pub fn read(path: impl AsRef<Path>) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
}

/// The value of `key` for the first CPU in /proc/cpuinfo.
pub fn cpuinfo<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then_some(value.trim())
    })
}

/// Returns true if the first CPU has that flag.
pub fn has_flag(cpuinfo_text: &str, flag: &str) -> bool {
    cpuinfo(cpuinfo_text, "flags")
        .is_some_and(|flags| flags.split_ascii_whitespace().any(|word| word == flag))
}

/// Returns the count of numbers that a list like `0-3,8` names.
pub fn list_length(text: &str) -> u32 {
    let length = |part: &str| -> Option<u32> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        last.checked_sub(first)?.checked_add(1)
    };
    text.split(',')
        .filter_map(length)
        .fold(0, u32::saturating_add)
}

/// Time of all CPUs since boot, from /proc/stat. Guest time is in the user time already, so only the first eight
/// columns count.
pub fn cpu_time(text: &str) -> CpuTime {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("cpu "))
        .unwrap_or_default();
    let ticks: Vec<u64> = line
        .split_ascii_whitespace()
        .take(8)
        .map_while(|word| word.parse().ok())
        .collect();
    CpuTime {
        total: ticks.iter().fold(0, |sum, t| sum.saturating_add(*t)),
        stolen: ticks.get(7).copied().unwrap_or(0),
    }
}

/// Time of all CPUs since boot, in ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuTime {
    total: u64,
    stolen: u64,
}

impl CpuTime {
    /// This host's, now.
    pub fn now() -> CpuTime {
        cpu_time(&read("/proc/stat").unwrap_or_default())
    }

    /// Share that the hypervisor underneath gave to others between `before` and now, 0 to 1.
    pub fn stolen_since(&self, before: &CpuTime) -> f64 {
        let total = self.total.saturating_sub(before.total);
        if total == 0 {
            0.0
        } else {
            (self.stolen.saturating_sub(before.stolen) as f64 / total as f64).min(1.0)
        }
    }
}

/// A value of /proc/meminfo: kiB, or a plain number for the counts of huge pages.
pub fn meminfo(text: &str, key: &str) -> Option<u64> {
    let value = cpuinfo(text, key)?;
    value.split_ascii_whitespace().next()?.parse().ok()
}

/// Reads the value of a setting from a file of the kernel's: of several in a line, the one in brackets.
///
/// # Errors
/// A file that cannot be read.
pub fn value_in_effect(file: &Path) -> std::io::Result<String> {
    std::fs::read_to_string(file).map(|text| in_effect(&text).to_owned())
}

/// PRETTY_NAME of /etc/os-release, or NAME.
pub fn distribution(text: &str) -> Option<String> {
    let value = |key: &str| {
        text.lines().find_map(|line| {
            line.trim()
                .strip_prefix(key)?
                .strip_prefix('=')
                .map(|v| v.trim_matches(['"', '\'']))
        })
    };
    value("PRETTY_NAME")
        .or_else(|| value("NAME"))
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
}

/// Where a file system of that type is mounted; with `option`, only one that has it.
pub fn mount_point(mounts: &[MountEntry], kind: &str, option: Option<&str>) -> Option<PathBuf> {
    let has = |mount: &MountEntry| option.is_none_or(|wanted| mount.fs_mntops.contains_key(wanted));
    let found = mounts
        .iter()
        .find(|mount| mount.fs_vfstype == kind && has(mount))?;
    // The one escape of the kernel's that procfs leaves.
    Some(PathBuf::from(found.fs_file.replace("\\040", " ")))
}

/// The path of this process in a cgroup hierarchy: that of v2, or that of a v1 controller.
pub fn own_cgroup<'a>(groups: &'a ProcessCGroups, v1_controller: Option<&str>) -> Option<&'a str> {
    let fits = |group: &&ProcessCGroup| match v1_controller {
        None => group.hierarchy == 0,
        Some(wanted) => group.controllers.iter().any(|name| name == wanted),
    };
    groups.into_iter().find(fits).map(|group| &*group.pathname)
}

#[cfg(test)]
mod tests {
    use super::*;
    use procfs::FromBufRead;
    use proptest::prelude::*;

    fn since_boot(text: &str) -> f64 {
        cpu_time(text).stolen_since(&CpuTime::default())
    }

    const AMD_GUEST: &str = "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC\nflags\t\t: fpu tsc msr constant_tsc rep_good nonstop_tsc hypervisor lahf_lm\nbugs\t\t: null_seg\n\nprocessor\t: 1\nmodel name\t: other\n";
    const INTEL_HOST: &str = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Intel(R) Core(TM) i7-8650U CPU @ 1.90GHz\nflags\t\t: fpu vme tsc constant_tsc nonstop_tsc ht vmx ept\nvmx flags\t: vnmi preemption_timer ept_x_only\n";
    const NO_FLAGS: &str = "processor\t: 0\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd\n";

    #[test]
    fn cpus() {
        assert_eq!(cpuinfo(AMD_GUEST, "model name"), Some("AMD EPYC"));
        assert_eq!(
            cpuinfo(INTEL_HOST, "model name"),
            Some("Intel(R) Core(TM) i7-8650U CPU @ 1.90GHz")
        );
        assert_eq!(cpuinfo(NO_FLAGS, "model name"), None);
        assert!(has_flag(AMD_GUEST, "hypervisor") && !has_flag(AMD_GUEST, "svm"));
        assert!(has_flag(INTEL_HOST, "vmx") && !has_flag(INTEL_HOST, "hypervisor"));
        assert!(
            !has_flag(INTEL_HOST, "vnmi"),
            "the list of vmx flags is another one"
        );
        assert!(!has_flag(NO_FLAGS, "fp") && !has_flag("", "vmx"));
        assert!(!has_flag(AMD_GUEST, "tsc msr"));
    }

    #[test]
    fn lists_of_numbers() {
        for (text, length) in [
            ("0", 1),
            ("0-3", 4),
            ("0-3,8,10-11\n", 7),
            ("", 0),
            ("x", 0),
            ("3-1", 0),
            ("0-4294967295", 0),
        ] {
            assert_eq!(list_length(text), length, "{text:?}");
        }
    }

    #[test]
    fn stolen_time() {
        assert_eq!(
            since_boot("cpu  60 0 20 10 0 0 0 10 60 0\ncpu0 1 1 1 1\n"),
            0.1
        );
        assert_eq!(
            since_boot("cpu  60 0 20 10\n"),
            0.0,
            "kernels before 2.6.11"
        );
        assert_eq!(since_boot("cpu  0 0 0 0 0 0 0 0 0 0\n"), 0.0);
        assert_eq!(since_boot("cpu0 0 0 0 0 0 0 0 5\n"), 0.0);
        assert_eq!(since_boot(""), 0.0);
    }

    #[test]
    fn memory() {
        let text = "MemTotal:       24692340 kB\nMemFree:  1 kB\nHugePages_Total:       3\nHugepagesize:       2048 kB\nOdd\n";
        assert_eq!(meminfo(text, "MemTotal"), Some(24_692_340));
        assert_eq!(meminfo(text, "HugePages_Total"), Some(3));
        assert_eq!(meminfo(text, "Mem"), None);
        assert_eq!(meminfo("MemTotal: many kB", "MemTotal"), None);
    }

    #[test]
    fn distributions() {
        assert_eq!(
            distribution(
                "NAME=\"Debian GNU/Linux\"\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n"
            )
            .as_deref(),
            Some("Debian GNU/Linux 12 (bookworm)")
        );
        assert_eq!(
            distribution("ID=alpine\nNAME='Alpine Linux'\n").as_deref(),
            Some("Alpine Linux")
        );
        assert_eq!(distribution("PRETTY_NAME=\"\"\n"), None);
    }

    #[test]
    fn mounts() {
        let text = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\ncgroup /a\\040b\\134 cgroup rw,memory 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let mounts = Vec::<MountEntry>::from_buf_read(text.as_bytes()).unwrap();
        assert_eq!(
            mount_point(&mounts, "cgroup2", None),
            Some("/sys/fs/cgroup/unified".into())
        );
        assert_eq!(
            mount_point(&mounts, "cgroup", Some("memory")),
            Some("/a b\\".into())
        );
        assert_eq!(mount_point(&mounts, "cgroup", Some("mem")), None);
        assert_eq!(mount_point(&mounts, "tracefs", None), None);
    }

    #[test]
    fn cgroups() {
        let hybrid = "9:name=systemd:/\n4:memory:/box/3374\n2:cpu,cpuacct:/x:y\n0::/user.slice\n";
        let hybrid = ProcessCGroups::from_buf_read(hybrid.as_bytes()).unwrap();
        assert_eq!(own_cgroup(&hybrid, Some("memory")), Some("/box/3374"));
        assert_eq!(own_cgroup(&hybrid, Some("cpuacct")), Some("/x:y"));
        assert_eq!(own_cgroup(&hybrid, None), Some("/user.slice"));
        assert_eq!(
            own_cgroup(&ProcessCGroups(Vec::new()), Some("memory")),
            None
        );
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "([a-z0-9:=,\\[\\]\\\\ \t\n-]|\\PC){0,300}", key in "[a-z]{0,8}") {
            let _ = cpuinfo(&text, &key);
            let _ = has_flag(&text, &key);
            let _ = list_length(&text);
            let _ = meminfo(&text, &key);
            let _ = distribution(&text);
            let share = since_boot(&format!("cpu {text}"));
            prop_assert!((0.0..=1.0).contains(&share));
        }

        #[test]
        fn steal_is_a_share(ticks in proptest::collection::vec(any::<u64>(), 0..12)) {
            let line = ticks.iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
            let share = since_boot(&format!("cpu  {line}\n"));
            prop_assert!((0.0..=1.0).contains(&share));
        }
    }
}
