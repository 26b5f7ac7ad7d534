//! Counters of control groups.

use crate::process::stat;
use crate::{entries, read_number, read_text};
use procfs::ProcessCGroups;
use procfs::process::Process;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use vmtax_model::{
    Counter, CounterMap, CounterSource, CpuQuota, CpuWeight, MemoryLimit, ThreadGroup,
};

/// Where hosts with both versions mount version 2.
const ROOTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

/// The control groups whose counters are about a process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cgroups {
    /// Groups whose CPU quota limits one of its threads: each thread's own and all above.
    pub cpu: BTreeSet<PathBuf>,
    /// The group that accounts for its memory; none where that is the root.
    pub memory: Option<PathBuf>,
}

impl Cgroups {
    /// Returns the control groups of a process: for the CPU those of these threads, since libvirt has a group for each
    /// vCPU.
    pub fn of(pid: i32, tids: &[i32]) -> Cgroups {
        let Ok(process) = Process::new(pid) else {
            return Cgroups::default();
        };
        let own = tids
            .iter()
            .filter_map(|tid| thread_folder(pid, *tid, "cpu"));
        let groups = process.cgroups().ok();
        Cgroups {
            cpu: own.flat_map(|own| with_parents(&own)).collect(),
            memory: groups.and_then(|groups| memory_folder(&groups)),
        }
    }
}

/// Control groups of a single thread of a process each, by its TID: libvirt has one for each vCPU and iothread.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ThreadCgroups(BTreeMap<i32, PathBuf>);

impl ThreadCgroups {
    /// Returns the groups of these threads, without those of several. The main loop's has the process's other threads, too.
    pub fn of(pid: i32, tids: &[i32]) -> ThreadCgroups {
        let folder = |tid: &i32| Some((*tid, thread_folder(pid, *tid, "cpu")?));
        ThreadCgroups::alone(pid, &tids.iter().filter_map(folder).collect())
    }

    fn alone(pid: i32, groups: &BTreeMap<i32, PathBuf>) -> ThreadCgroups {
        let is_of_one = |(tid, folder): &(&i32, &PathBuf)| {
            let mut others = groups.iter().filter(|(other, _)| other != tid);
            **tid != pid && !others.any(|(_, other)| other.starts_with(folder))
        };
        let alone = groups.iter().filter(is_of_one);
        ThreadCgroups(alone.map(|(tid, folder)| (*tid, folder.clone())).collect())
    }

    /// Returns the time in which the CPU quota of a thread's group was used up, ns; `None` where it shares its group.
    pub fn throttled_ns(&self, tid: i32) -> Option<u64> {
        let folder = self.0.get(&tid)?;
        let stat = fs::read_to_string(folder.join("cpu.stat")).ok()?;
        cpu_time_ns(&stat, "throttled_usec")
    }
}

/// Returns the time in which a CPU quota of the groups was used up, summed over CPUs and groups, µs.
pub fn throttled_us(groups: &Cgroups) -> Option<u64> {
    const THROTTLED: &Counter = Counter::named("throttled");
    Some(cgroup_counters(groups).get(THROTTLED)? / 1000)
}

/// Reads the counters of the groups.
pub fn cgroup_counters(groups: &Cgroups) -> CounterMap<u64> {
    let read = |folder: &Path, file: &str| fs::read_to_string(folder.join(file)).ok();
    let cpu = groups.cpu.iter();
    let cpu: Vec<String> = cpu.filter_map(|folder| read(folder, "cpu.stat")).collect();
    let memory = |file: &str| read(groups.memory.as_deref()?, file);
    let (pressure, events) = (memory("memory.pressure"), memory("memory.events"));
    CounterMap::read(|source| match source {
        CounterSource::CpuStat(key) => cpu
            .iter()
            .filter_map(|text| cpu_time_ns(text, key))
            .reduce(u64::saturating_add),
        CounterSource::MemoryEvents(key) => value(events.as_deref()?, key),
        CounterSource::MemoryPressure(kind) => {
            pressure_us(pressure.as_deref()?, kind)?.checked_mul(1000)
        }
        _ => None,
    })
}

/// The CPU quotas of these groups of a process.
pub fn cpu_quotas(groups: &Cgroups, pid: i32) -> Vec<CpuQuota> {
    let limited = |folder: &PathBuf| {
        let quota = |name: &str, unlimited: &str, is_limited: fn(&str) -> bool| {
            let file = folder.join(name);
            let quota = read_text(&file)?;
            is_limited(&quota).then(|| CpuQuota {
                file,
                quota,
                unlimited: unlimited.to_owned(),
                is_shared: has_others(folder, pid, 0),
            })
        };
        quota("cpu.max", "max 100000", |text| !text.starts_with("max"))
            .or_else(|| quota("cpu.cfs_quota_us", "-1", |text| text != "-1"))
    };
    groups.cpu.iter().filter_map(limited).collect()
}

/// The CPU weights of these groups of a process that are below the kernel's default. A group of `cpu.idle` has none.
pub fn low_cpu_weights(groups: &Cgroups, pid: i32) -> Vec<CpuWeight> {
    let low = |folder: &PathBuf| {
        [("cpu.weight", 100), ("cpu.shares", 1024)]
            .into_iter()
            .find_map(|(name, default)| {
                let file = folder.join(name);
                let weight = read_number(&file).filter(|weight| (1..default).contains(weight))?;
                Some(CpuWeight {
                    file,
                    weight,
                    default,
                    is_shared: has_others(folder, pid, 0),
                })
            })
    };
    groups.cpu.iter().filter_map(low).collect()
}

/// The memory limit of the group that accounts for a process; `None` where it has none.
pub fn memory_limit(groups: &Cgroups, pid: i32) -> Option<MemoryLimit> {
    let folder = groups.memory.as_deref()?;
    let file = folder.join("memory.high");
    // Without a limit it is "max".
    let bytes = read_number(&file)?;
    Some(MemoryLimit {
        file,
        bytes,
        is_shared: has_others(folder, pid, 0),
    })
}

/// The groups that decide where these threads of a process may run. In a threaded group a thread may have one of its own, as
/// libvirt's vCPUs do.
pub fn thread_groups(pid: i32, tids: &[i32]) -> Vec<ThreadGroup> {
    let group = |tid: &i32| Some((*tid, thread_folder(pid, *tid, "cpuset")?));
    let groups: Vec<(i32, PathBuf)> = tids.iter().filter_map(group).collect();
    let folders: BTreeSet<&PathBuf> = groups.iter().map(|(_, folder)| folder).collect();
    let shared: BTreeSet<&PathBuf> = folders
        .into_iter()
        .filter(|folder| has_others(folder, pid, 0))
        .collect();
    let found = |(tid, folder): &(i32, PathBuf)| ThreadGroup {
        tid: *tid,
        folder: folder.clone(),
        cpus: read_text(folder.join("cpuset.cpus")),
        quota: thread_folder(pid, *tid, "cpu").and_then(|folder| quota_file(&folder)),
        is_shared: shared.contains(folder),
    };
    groups.iter().map(found).collect()
}

/// Returns the file of a group's CPU quota; the root group has none.
fn quota_file(folder: &Path) -> Option<PathBuf> {
    let files = ["cpu.max", "cpu.cfs_quota_us"].map(|name| folder.join(name));
    files.into_iter().find(|file| file.exists())
}

/// Groups below this depth are not read.
const MAX_DEPTH: u32 = 8;

/// The parent of all threads of the kernel.
const KTHREADD: i32 = 2;

/// Returns true if a group, or one below it, has a process other than this one. One that cannot be read may have.
fn has_others(folder: &Path, pid: i32, depth: u32) -> bool {
    let list = |file: &str| fs::read_to_string(folder.join(file));
    // A threaded group has no list of processes.
    let Ok(members) = list("cgroup.procs").or_else(|_| list("cgroup.threads")) else {
        return true;
    };
    let is_thread = |id: i32| Path::new(&format!("/proc/{pid}/task/{id}")).exists();
    // The kernel puts its threads that work for a VM into the VM's group: `vhost-PID`, `kvm-nx-lpage-re`.
    let is_of_kernel = |id: i32| stat(id).is_some_and(|stat| stat.ppid == KTHREADD);
    let is_other = |line: &str| {
        let id = line.trim().parse();
        !id.is_ok_and(|id| id == pid || is_thread(id) || is_of_kernel(id))
    };
    let below = entries(folder).map(|entry| entry.path());
    members.lines().any(is_other)
        || below
            .filter(|path| path.is_dir())
            .any(|path| depth >= MAX_DEPTH || has_others(&path, pid, depth + 1))
}

/// The CPUs on which a process may run by its control group, as a list; `None` where no group says.
pub fn cpuset(pid: i32) -> Option<String> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let own = folder(&groups, "cpuset")?;
    let read = |folder: &Path| {
        let names = ["cpuset.cpus.effective", "cpuset.effective_cpus"];
        names.iter().find_map(|name| read_text(folder.join(name)))
    };
    own.ancestors()
        .take_while(|folder| folder.starts_with(ROOTS[0]))
        .find_map(read)
}

/// The folder of a thread's group of a controller.
fn thread_folder(pid: i32, tid: i32, controller: &str) -> Option<PathBuf> {
    let groups = fs::read_to_string(format!("/proc/{pid}/task/{tid}/cgroup")).ok()?;
    folder(&groups, controller)
}

/// The folder of a controller, by the text of `/proc/PID/cgroup`: version 1's where the host has it, else version 2's.
fn folder(groups: &str, controller: &str) -> Option<PathBuf> {
    let mut lines = groups.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        rest.split_once(':')
    });
    let of_version_1 = lines
        .clone()
        .find(|(names, _)| names.split(',').any(|name| name == controller));
    let below = |root: &str, path: &str| Path::new(root).join(path.trim_start_matches('/'));
    match of_version_1 {
        Some((_, path)) => Some(below(&format!("/sys/fs/cgroup/{controller}"), path)),
        None => lines
            .find(|(names, _)| names.is_empty())
            .map(|(_, path)| below(ROOTS[0], path)),
    }
}

/// A group and those above it, without the root, which has no limits.
fn with_parents(own: &Path) -> Vec<PathBuf> {
    let is_group = |folder: &&Path| folder.join("cpu.stat").exists();
    let mut all: Vec<PathBuf> = own
        .ancestors()
        .take_while(is_group)
        .map(Path::to_path_buf)
        .collect();
    all.pop();
    all
}

/// The nearest group of version 2 that accounts for memory, else its own one, which has the pressure alone.
fn memory_folder(groups: &ProcessCGroups) -> Option<PathBuf> {
    let group = groups.0.iter().find(|group| group.hierarchy == 0)?;
    let below = group.pathname.trim_start_matches('/');
    let own = ROOTS
        .iter()
        .map(|root| Path::new(root).join(below))
        .find(|own| own.join("cgroup.procs").exists())?;
    let own = Some(own).filter(|_| !below.is_empty())?;
    let accounts = own.ancestors().take(Path::new(below).components().count());
    let mut with_events = accounts.filter(|folder| folder.join("memory.events").exists());
    Some(with_events.next().unwrap_or(&own).to_path_buf())
}

/// A time in a `cpu.stat`, ns, by its name in version 2. Version 1 has another name and ns.
fn cpu_time_ns(text: &str, key: &str) -> Option<u64> {
    match value(text, key) {
        Some(us) => us.checked_mul(1000),
        None => value(text, &format!("{}_time", key.strip_suffix("_usec")?)),
    }
}

/// The value of a line `KEY VALUE`.
fn value(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        line.strip_prefix(key)?
            .strip_prefix(' ')?
            .trim()
            .parse()
            .ok()
    })
}

/// The total of a line of a pressure file: `some avg10=0.00 avg60=0.00 avg300=0.00 total=12`, µs.
fn pressure_us(text: &str, kind: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(kind)?.strip_prefix(' '))?;
    line.rsplit_once("total=")?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn both_versions_of_the_files_are_read() {
        let throttled_ns = |text: &str| cpu_time_ns(text, "throttled_usec");
        assert_eq!(
            throttled_ns("usage_usec 5\nnr_throttled 3\nthrottled_usec 1200\n"),
            Some(1_200_000)
        );
        assert_eq!(
            throttled_ns("nr_throttled 3\nthrottled_time 1200000\n"),
            Some(1_200_000)
        );
        assert_eq!(throttled_ns("usage_usec 5\n"), None);
        let pressure = "some avg10=0.00 avg60=0.00 avg300=0.00 total=12\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(
            (pressure_us(pressure, "some"), pressure_us(pressure, "full")),
            (Some(12), Some(7))
        );
        assert_eq!(
            (
                value("low 1\nhigh 2\noom_kill 3\n", "oom_kill"),
                value("oom_kills 3", "oom_kill")
            ),
            (Some(3), None)
        );
    }

    #[test]
    fn the_group_of_a_controller_is_found_in_both_versions() {
        let hybrid = "2:cpuacct:/\n1:cpu,cpuacct:/a:b/c\n0::/d\n";
        assert_eq!(
            folder(hybrid, "cpu"),
            Some("/sys/fs/cgroup/cpu/a:b/c".into())
        );
        assert_eq!(
            folder("0::/machine.slice/vm\n", "cpu"),
            Some("/sys/fs/cgroup/machine.slice/vm".into())
        );
        assert_eq!(folder("nonsense", "cpu"), None);
    }

    #[test]
    fn the_groups_above_count_and_the_root_does_not() {
        let root = tempfile::tempdir().unwrap();
        let own = root.path().join("a/b");
        fs::create_dir_all(&own).unwrap();
        for folder in [root.path(), &root.path().join("a"), &own] {
            fs::write(folder.join("cpu.stat"), "throttled_usec 1000\n").unwrap();
        }
        let cpu: BTreeSet<PathBuf> = with_parents(&own).into_iter().collect();
        assert_eq!(cpu, [root.path().join("a"), own.clone()].into());
        fs::write(own.join("cpu.max"), "20000 100000\n").unwrap();
        fs::write(root.path().join("a/cpu.cfs_quota_us"), "-1\n").unwrap();
        let vm = std::process::id() as i32;
        fs::write(own.join("cgroup.procs"), format!("{vm}\n")).unwrap();
        let quotas = |pid| {
            cpu_quotas(
                &Cgroups {
                    cpu: cpu.clone(),
                    memory: None,
                },
                pid,
            )
        };
        let quota = |is_shared| {
            let (quota, unlimited) = ("20000 100000".to_owned(), "max 100000".to_owned());
            [CpuQuota {
                file: own.join("cpu.max"),
                quota,
                unlimited,
                is_shared,
            }]
        };
        assert_eq!(
            (quotas(vm), quotas(1)),
            (quota(false).to_vec(), quota(true).to_vec())
        );
        fs::write(own.join("cpu.weight"), "100\n").unwrap();
        fs::write(root.path().join("a/cpu.weight"), "10\n").unwrap();
        let weight = CpuWeight {
            file: root.path().join("a/cpu.weight"),
            weight: 10,
            default: 100,
            is_shared: true,
        };
        assert_eq!(
            low_cpu_weights(
                &Cgroups {
                    cpu: cpu.clone(),
                    memory: None
                },
                vm
            ),
            [weight]
        );
        fs::write(own.join("memory.events"), "high 4\noom_kill 0\n").unwrap();
        let groups = Cgroups {
            cpu,
            memory: Some(own.clone()),
        };
        assert_eq!(memory_limit(&groups, vm), None, "no file");
        fs::write(own.join("memory.high"), "max\n").unwrap();
        assert_eq!(memory_limit(&groups, vm), None);
        fs::write(own.join("memory.high"), "4096\n").unwrap();
        let limit = MemoryLimit {
            file: own.join("memory.high"),
            bytes: 4096,
            is_shared: false,
        };
        assert_eq!(memory_limit(&groups, vm), Some(limit));
        let counters = cgroup_counters(&groups);
        let found = [("throttled", 2_000_000), ("memory_high", 4)];
        assert_eq!(counters, found.into_iter().collect());
        assert_eq!(cgroup_counters(&Cgroups::default()), CounterMap::default());
    }

    #[test]
    fn a_threads_group_counts_its_throttling_where_no_other_thread_is_in_it_or_below() {
        let root = tempfile::tempdir().unwrap();
        let group = |name: &str| root.path().join(name);
        let alone = |groups: &[(i32, &str)]| {
            let own = groups.iter().map(|(tid, name)| (*tid, group(name)));
            ThreadCgroups::alone(5, &own.collect())
        };
        let libvirts = alone(&[(5, "vm/emulator"), (6, "vm/vcpu0"), (7, "vm/vcpu1")]);
        assert_eq!(
            libvirts.0.keys().collect::<Vec<_>>(),
            [&6, &7],
            "the emulator's has workers, too"
        );
        let shared = [(5, "vm"), (6, "vm")];
        let above = [(5, "vm/emulator"), (6, "vm")];
        assert_eq!(
            (alone(&shared), alone(&above)),
            (ThreadCgroups::default(), ThreadCgroups::default())
        );
        fs::create_dir_all(group("vm/vcpu0")).unwrap();
        fs::write(group("vm/vcpu0/cpu.stat"), "throttled_usec 7\n").unwrap();
        assert_eq!(
            [6, 7, 5].map(|tid| libvirts.throttled_ns(tid)),
            [Some(7000), None, None]
        );
    }

    #[test]
    fn a_group_of_the_vms_threads_and_the_kernels_is_its_own() {
        let root = tempfile::tempdir().unwrap();
        let (own, pid) = (std::process::id() as i32, std::process::id());
        let (name, shell) = ("cgroup.threads", stat(1).unwrap().pid);
        let is_shared = |file: &str, members: &str| {
            let group = tempfile::tempdir_in(root.path()).unwrap();
            fs::write(group.path().join(file), members).unwrap();
            has_others(group.path(), own, 0)
        };
        assert!(
            !is_shared(name, &format!("{pid}\n")),
            "a threaded group, as libvirt's of a vCPU"
        );
        assert!(
            is_shared(name, &format!("{pid}\n{shell}\n")),
            "a session's scope"
        );
        assert!(
            is_shared("cgroup.procs", &format!("{pid}\n0\n")),
            "a process outside of this PID namespace"
        );
        assert!(is_shared("other", ""), "no list");
        let thread_of_kernel = crate::processes().find(|stat| stat.ppid == KTHREADD);
        if let Some(thread) = thread_of_kernel {
            assert!(
                !is_shared("cgroup.procs", &format!("{pid}\n{}\n", thread.pid)),
                "{}",
                thread.comm
            );
        }
    }

    #[test]
    fn each_thread_has_the_group_of_its_own() {
        let pid = std::process::id() as i32;
        let groups = thread_groups(pid, &[pid, i32::MAX]);
        assert_eq!(
            groups.iter().map(|group| group.tid).collect::<Vec<_>>(),
            [pid],
            "one that has ended has none"
        );
        assert!(groups[0].folder.starts_with("/sys/fs/cgroup"), "{groups:?}");
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "(.|\n){0,120}") {
            let _ = (cpu_time_ns(&text, "throttled_usec"), pressure_us(&text, "some"), folder(&text, "cpu"));
        }
    }
}
