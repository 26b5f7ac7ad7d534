//! Host CPUs for the vCPUs of a VM: a core for each, as near to each other as the host has them.

use std::collections::BTreeMap;
use vmtax_model::{HostCore, cpu_list};

/// Cores for a VM's vCPUs.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CpuSet {
    /// CPUs of the cores, SMT siblings included, as a list.
    pub cpus: String,
    /// "2 cores that share a cache", for people.
    pub what: String,
}

/// Returns as many cores as there are vCPUs, of those to which no other VM's vCPUs are pinned: of one last-level cache, else of one
/// NUMA node, else of several. Of several caches or nodes that have as many it takes the last, as interrupts and services usually
/// have the first CPUs. `None` where the host has no more cores than that, as then no set is smaller than all CPUs, or where other
/// VMs leave fewer.
pub(super) fn cpu_set(vcpus: usize, cores: &[HostCore]) -> Option<CpuSet> {
    let free: Vec<&HostCore> = cores.iter().filter(|core| !core.is_taken).collect();
    if vcpus == 0 || cores.len() <= vcpus || free.len() < vcpus {
        return None;
    }
    let of_cache = last_group(vcpus, &free, |core| (core.node, core.cache));
    let of_node = || last_group(vcpus, &free, |core| (core.node, 0));
    let near = of_cache.map(|group| (group, " that share a cache"));
    let near = near.or_else(|| of_node().map(|group| (group, " of one NUMA node")));
    let (group, near) = near.unwrap_or((free, ""));
    let chosen = &group[group.len() - vcpus..];
    let mut cpus: Vec<usize> = chosen
        .iter()
        .flat_map(|core| cpu_list::parse(&core.cpus).unwrap_or_default())
        .collect();
    cpus.sort_unstable();
    let what = match vcpus {
        1 => "a core".to_owned(),
        several => format!("{several} cores{near}"),
    };
    Some(CpuSet {
        cpus: cpu_list::format(cpus.into_iter()),
        what,
    })
}

/// Returns the last group with at least so many cores.
fn last_group<'a, K: Ord>(
    least: usize,
    cores: &[&'a HostCore],
    key: impl Fn(&HostCore) -> K,
) -> Option<Vec<&'a HostCore>> {
    let mut groups: BTreeMap<K, Vec<&HostCore>> = BTreeMap::new();
    for &core in cores {
        groups.entry(key(core)).or_default().push(core);
    }
    groups.into_values().rfind(|group| group.len() >= least)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two nodes of four cores with two CPUs each; two cores share a cache.
    fn host() -> Vec<HostCore> {
        let core = |number: u32| HostCore {
            cpus: format!("{number},{}", number + 8),
            node: number / 4,
            cache: number / 2 * 2,
            is_taken: false,
        };
        (0..8).map(core).collect()
    }

    fn set(vcpus: usize) -> Option<(String, String)> {
        cpu_set(vcpus, &host()).map(|set| (set.cpus, set.what))
    }

    #[test]
    fn cores_are_as_near_as_the_host_has_them() {
        let of = |cpus: &str, what: &str| Some((cpus.to_owned(), what.to_owned()));
        assert_eq!(set(1), of("7,15", "a core"));
        assert_eq!(set(2), of("6-7,14-15", "2 cores that share a cache"));
        assert_eq!(set(3), of("5-7,13-15", "3 cores of one NUMA node"));
        assert_eq!(set(5), of("3-7,11-15", "5 cores"));
    }

    #[test]
    fn there_is_no_set_where_all_cores_are_needed() {
        assert_eq!((set(8), set(9), set(0)), (None, None, None));
        assert_eq!(cpu_set(1, &host()[..1]), None);
        assert_eq!(cpu_set(1, &[]), None);
    }

    #[test]
    fn cores_of_other_vms_are_left_to_them() {
        let mut cores = host();
        let found = |cores: &[HostCore], vcpus| cpu_set(vcpus, cores).map(|set| set.cpus);
        cores[7].is_taken = true;
        assert_eq!(found(&cores, 1), Some("6,14".to_owned()));
        assert_eq!(found(&cores, 2), Some("4-5,12-13".to_owned()));
        assert_eq!(found(&cores, 7), Some("0-6,8-14".to_owned()));
        // The core that is left is a set smaller than all CPUs.
        assert_eq!(found(&cores[6..], 1), Some("6,14".to_owned()));
        cores[6].is_taken = true;
        assert_eq!((found(&cores[6..], 1), found(&cores, 7)), (None, None));
    }

    #[test]
    fn a_cache_that_is_too_small_is_passed_over() {
        // The VM may use one core of the last cache alone.
        let cores = &host()[..7];
        let found = cpu_set(2, cores).unwrap();
        assert_eq!(found.cpus, "4-5,12-13");
    }
}
