//! The host's cores: SMT siblings, NUMA nodes and shared caches, as the kernel has them below /sys/devices/system.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use vmtax_model::{HostCore, cpu_list};

/// Returns the cores that have a CPU of this list, in the order of their first CPUs.
pub(crate) fn host_cores(cpus: &str) -> Vec<HostCore> {
    cores_below(Path::new("/sys/devices/system"), cpus)
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
    fn each_cpu_of_this_host_is_in_one_core() {
        let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
        let cores = host_cores(&online);
        let cpus = cores
            .iter()
            .flat_map(|core| cpu_list::parse(&core.cpus).unwrap());
        let cpus: Vec<usize> = cpus.collect();
        let all: BTreeSet<usize> = cpus.iter().copied().collect();
        assert_eq!(cpus.len(), all.len());
        assert_eq!(cpu_list::format(all.into_iter()), online.trim());
    }
}
