//! The libvirt daemons of the sampled VMs, each asked once for all of its domains.

use super::sampler::{MONITOR_PAUSE, Sampler};
use crate::vmm::qemu::domain_stats::DomainStats;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

/// What each daemon, by its socket, says of its domains, by their names.
pub(super) type Stats = BTreeMap<PathBuf, BTreeMap<String, DomainStats>>;

/// The daemons that do not answer, and until when they are left alone.
#[derive(Debug, Default)]
pub(super) struct LibvirtDaemons(BTreeMap<PathBuf, Instant>);

impl LibvirtDaemons {
    /// Asks the daemons of the VMs whose own monitor is not asked.
    pub fn ask<'a>(&mut self, vms: impl Iterator<Item = &'a Sampler>) -> Stats {
        let mut stats = Stats::new();
        for (monitor, daemon) in vms.filter_map(|sampler| Some((sampler.vm.monitor()?, sampler.daemon()?))) {
            let is_paused = self.0.get(daemon).is_some_and(|until| Instant::now() < *until);
            if is_paused || stats.contains_key(daemon) {
                continue;
            }
            let answer = monitor.domain_stats().unwrap_or_else(|_| {
                self.0.insert(daemon.to_owned(), Instant::now() + MONITOR_PAUSE);
                BTreeMap::new()
            });
            stats.insert(daemon.to_owned(), answer);
        }
        stats
    }
}

/// What its daemon says of one VM.
pub(super) fn stats_of<'a>(stats: &'a Stats, sampler: &Sampler) -> Option<&'a DomainStats> {
    stats.get(sampler.daemon()?)?.get(sampler.facts.name.as_ref()?)
}
