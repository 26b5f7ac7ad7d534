//! The libvirt daemons of the sampled VMs, each asked once for all of its domains.

use super::pause::Pause;
use super::sampler::Sampler;
use crate::vmm::qemu::domain_stats::DomainStats;
use crate::vmm::qemu::libvirt::DaemonId;
use std::collections::BTreeMap;

/// Statistics of the domains of each daemon, by the domains' names.
pub(super) type Stats = BTreeMap<DaemonId, BTreeMap<String, DomainStats>>;

/// The daemons that did not answer.
#[derive(Debug, Default)]
pub(super) struct LibvirtDaemons(BTreeMap<DaemonId, Pause>);

impl LibvirtDaemons {
    /// Asks the daemons of the VMs whose own monitor is not asked.
    pub fn ask<'a>(&mut self, vms: impl Iterator<Item = &'a Sampler>) -> Stats {
        let mut stats = Stats::new();
        for (monitor, daemon) in
            vms.filter_map(|sampler| Some((sampler.vm.monitor()?, sampler.daemon()?)))
        {
            if stats.contains_key(&daemon) || self.0.get(&daemon).is_some_and(|pause| pause.is_on())
            {
                continue;
            }
            let answer = monitor.domain_stats().unwrap_or_else(|_| {
                self.0.insert(daemon, Pause::begin());
                BTreeMap::new()
            });
            stats.insert(daemon, answer);
        }
        stats
    }
}

/// Returns the statistics of one VM from its daemon.
pub(super) fn stats_of<'a>(stats: &'a Stats, sampler: &Sampler) -> Option<&'a DomainStats> {
    stats
        .get(&sampler.daemon()?)?
        .get(sampler.facts.name.as_ref()?)
}
