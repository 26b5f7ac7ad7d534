use super::*;

fn since_boot(text: &str) -> f64 {
    cpu_time(text).stolen_since(&CpuTime::default())
}
use procfs::FromBufRead;
use proptest::prelude::*;

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
fn choices() {
    assert_eq!(chosen("always [madvise] never\n"), Some("madvise"));
    assert_eq!(chosen("always madvise"), None);
    assert_eq!(chosen("[always"), None);
}

#[test]
fn distributions() {
    assert_eq!(
        distribution("NAME=\"Debian GNU/Linux\"\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n")
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
        let _ = chosen(&text);
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
