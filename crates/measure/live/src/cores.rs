//! The host's cores: SMT siblings, NUMA nodes and shared caches, as the kernel has them below /sys/devices/system, and those to which
//! other VMs are pinned.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use vmtax_model::{HostCore, cpu_list};

/// Returns the cores that have a CPU of this list, in the order of their first CPUs. Those to which another VM's vCPUs are pinned are
/// marked as taken; `own` is the process of the VM that they are for.
pub(crate) fn host_cores(cpus: &str, own: i32) -> Vec<HostCore> {
    let mut cores = cores_below(Path::new("/sys/devices/system"), cpus);
    // A VM on a host of one core is not pinned to it.
    if cores.len() > 1 {
        let others = vmtax_vmm::running()
            .into_iter()
            .filter(|other| *other != own);
        for other in others {
            mark_taken(&mut cores, &allowed_cpus(Path::new("/proc"), other));
        }
    }
    cores
}

/// Marks the cores to which a VM is pinned whose vCPU threads may run on these CPUs. One that may use more cores than it has vCPUs
/// shares them, as a VM that is bound to a NUMA node does, and needs none of them for itself.
fn mark_taken(cores: &mut [HostCore], threads: &[BTreeSet<usize>]) {
    let all: BTreeSet<usize> = threads.iter().flatten().copied().collect();
    let is_allowed = |core: &HostCore| {
        let cpus = cpu_list::parse(&core.cpus).unwrap_or_default();
        cpus.iter().any(|cpu| all.contains(cpu))
    };
    let count = cores.iter().filter(|core| is_allowed(core)).count();
    if count > threads.len() || count == cores.len() {
        return;
    }
    for core in cores.iter_mut().filter(|core| is_allowed(core)) {
        core.is_taken = true;
    }
}

/// Returns the CPUs on which each vCPU thread of a VM may run. Where its VMM gave the threads no names of QEMU's, it has as many vCPUs as
/// its first thread may use CPUs, as far as is known. Empty where the VM has ended.
fn allowed_cpus(proc: &Path, pid: i32) -> Vec<BTreeSet<usize>> {
    let directory = proc.join(format!("{pid}/task"));
    let tasks = numbered(&directory, "");
    let status = |tid: u32| vmtax_observe::proc_text(directory.join(format!("{tid}/status")));
    let all: Vec<String> = tasks.filter_map(status).collect();
    let field = |text: &str, name: &str| {
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(name));
        lines.next().map(|value| value.trim().to_owned())
    };
    let is_vcpu =
        |text: &&String| field(text, "Name:").is_some_and(|name| name.starts_with("CPU "));
    let cpus = |text: &String| -> Option<BTreeSet<usize>> {
        let list = field(text, "Cpus_allowed_list:")?;
        Some(cpu_list::parse(&list)?.into_iter().collect())
    };
    let vcpus: Vec<BTreeSet<usize>> = all.iter().filter(is_vcpu).filter_map(cpus).collect();
    if !vcpus.is_empty() {
        return vcpus;
    }
    let first = all.first().and_then(cpus).unwrap_or_default();
    vec![first.clone(); first.len()]
}

fn cores_below(root: &Path, cpus: &str) -> Vec<HostCore> {
    let nodes = numbered(&root.join("node"), "node");
    let nodes = nodes.map(|node| {
        (
            node,
            cpus_in(&root.join(format!("node/node{node}/cpulist"))),
        )
    });
    let nodes: Vec<(u32, BTreeSet<usize>)> = nodes.collect();
    let mut left: BTreeSet<usize> = cpu_list::parse(cpus)
        .unwrap_or_default()
        .into_iter()
        .collect();
    let mut cores = Vec::new();
    while let Some(cpu) = left.pop_first() {
        let directory = root.join(format!("cpu/cpu{cpu}"));
        let siblings = cpus_in(&directory.join("topology/thread_siblings_list"));
        let others = siblings.into_iter().filter(|sibling| left.remove(sibling));
        let of_core: BTreeSet<usize> = others.chain([cpu]).collect();
        let node = nodes.iter().find(|(_, cpus)| cpus.contains(&cpu));
        cores.push(HostCore {
            cpus: cpu_list::format(of_core.into_iter()),
            node: node.map_or(0, |(node, _)| *node),
            cache: last_level_cache(&directory).unwrap_or(0),
            is_taken: false,
        });
    }
    cores
}

/// Returns the first CPU that shares the last-level cache of the CPU in this directory.
fn last_level_cache(directory: &Path) -> Option<u32> {
    let caches = directory.join("cache");
    let level = |index: &u32| {
        let text = fs::read_to_string(caches.join(format!("index{index}/level")));
        text.ok()?.trim().parse::<u32>().ok()
    };
    let last = numbered(&caches, "index").max_by_key(level)?;
    let shared = cpus_in(&caches.join(format!("index{last}/shared_cpu_list")));
    u32::try_from(*shared.first()?).ok()
}

/// Returns the numbers of a directory's entries that have this name before them.
fn numbered(directory: &Path, name: &str) -> impl Iterator<Item = u32> + use<> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| {
        let entry = entry.file_name();
        entry.to_str()?.strip_prefix(name)?.parse().ok()
    });
    numbers.collect::<BTreeSet<u32>>().into_iter()
}

fn cpus_in(file: &Path) -> BTreeSet<usize> {
    let text = fs::read_to_string(file).unwrap_or_default();
    cpu_list::parse(&text)
        .unwrap_or_default()
        .into_iter()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmtax_model::testing::put;

    #[test]
    fn cores_have_their_siblings_node_and_cache() {
        let root = tempfile::tempdir().unwrap();
        let files = [
            ("node/node0/cpulist", "0-1,4-5\n"),
            ("node/node1/cpulist", "2-3,6-7\n"),
        ];
        for (file, text) in files {
            put(root.path(), file, text).unwrap();
        }
        for cpu in 0..8 {
            let first = cpu % 4;
            let of_node = if first < 2 { "0-1,4-5" } else { "2-3,6-7" };
            for (file, text) in [
                (
                    "topology/thread_siblings_list",
                    format!("{first},{}", first + 4),
                ),
                ("cache/index0/level", "1".to_owned()),
                (
                    "cache/index0/shared_cpu_list",
                    format!("{first},{}", first + 4),
                ),
                ("cache/index3/level", "3".to_owned()),
                ("cache/index3/shared_cpu_list", of_node.to_owned()),
            ] {
                put(root.path(), &format!("cpu/cpu{cpu}/{file}"), &text).unwrap();
            }
        }
        let found = |cpus: &str| {
            let cores = cores_below(root.path(), cpus).into_iter();
            let cores = cores.map(|core| (core.cpus, core.node, core.cache));
            cores.collect::<Vec<_>>()
        };
        let core = |cpus: &str, node, cache| (cpus.to_owned(), node, cache);
        assert_eq!(
            found("0-7"),
            [
                core("0,4", 0, 0),
                core("1,5", 0, 0),
                core("2,6", 1, 2),
                core("3,7", 1, 2)
            ]
        );
        assert_eq!(
            found("1,6"),
            [core("1", 0, 0), core("6", 1, 2)],
            "a VM's cpuset"
        );
        assert_eq!(found(""), []);
    }

    #[test]
    fn cores_to_which_another_vm_is_pinned_are_taken() {
        let core = |cpus: &str| HostCore {
            cpus: cpus.to_owned(),
            node: 0,
            cache: 0,
            is_taken: false,
        };
        let taken = |threads: &[&str]| {
            let mut cores: Vec<HostCore> = ["0,4", "1,5", "2,6", "3,7"].map(core).into();
            let cpus = |list: &&str| cpu_list::parse(list).unwrap().into_iter().collect();
            mark_taken(&mut cores, &threads.iter().map(cpus).collect::<Vec<_>>());
            let cores = cores.into_iter().filter(|core| core.is_taken);
            cores.map(|core| core.cpus).collect::<Vec<_>>()
        };
        assert_eq!(taken(&["2", "7"]), ["2,6", "3,7"], "a CPU for each vCPU");
        assert_eq!(taken(&["1,5"]), ["1,5"], "a core");
        assert_eq!(
            taken(&["0-1", "0-1"]),
            ["0,4", "1,5"],
            "a set for all of them"
        );
        assert!(taken(&["0-7", "0-7"]).is_empty(), "all CPUs");
        assert!(taken(&["0-2"]).is_empty(), "more cores than vCPUs");
        assert!(taken(&["0-3", "0-3", "0-3", "0-3"]).is_empty(), "all cores");
        assert!(taken(&[]).is_empty());
    }

    #[test]
    fn a_vms_vcpu_threads_are_found_by_their_names() {
        let root = tempfile::tempdir().unwrap();
        for (file, name, cpus) in [
            ("7/task/7/status", "qemu-system-x86", "0-3"),
            ("7/task/8/status", "CPU 0/KVM", "2"),
            ("7/task/9/status", "CPU 1/KVM", "3"),
            ("7/task/10/status", "IO mon_iothread", "0"),
            ("8/task/8/status", "kvm", "1"),
            ("8/task/9/status", "kvm", "1-3"),
            ("6/task/6/status", "fc_vcpu 0", "2-3"),
        ] {
            let text =
                format!("Name:\t{name}\nState:\tS\nCpus_allowed:\tf\nCpus_allowed_list:\t{cpus}\n");
            put(root.path(), file, &text).unwrap();
        }
        put(root.path(), "9/task/9/status", "").unwrap();
        let found = |pid| {
            let all = allowed_cpus(root.path(), pid).into_iter();
            let all = all.map(|cpus| cpu_list::format(cpus.into_iter()));
            all.collect::<Vec<_>>()
        };
        assert_eq!(found(7), ["2", "3"]);
        assert_eq!((found(8).len(), found(6).len()), (1, 2));
        assert_eq!((&*found(8)[0], &*found(6)[1]), ("1", "2-3"));
        assert!(found(9).is_empty() && found(10).is_empty());
    }

    #[test]
    fn each_cpu_of_this_host_is_in_one_core() {
        let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
        let cores = host_cores(&online, 0);
        let cpus = cores
            .iter()
            .flat_map(|core| cpu_list::parse(&core.cpus).unwrap());
        let cpus: Vec<usize> = cpus.collect();
        let all: BTreeSet<usize> = cpus.iter().copied().collect();
        assert_eq!(cpus.len(), all.len());
        assert_eq!(cpu_list::format(all.into_iter()), online.trim());
    }
}
