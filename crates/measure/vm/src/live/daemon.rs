//! A program that serves a vhost-user device of a VM.

use std::collections::BTreeMap;
use std::path::PathBuf;
use vmtax_model::{DaemonCounters, Role, ShareServer, ThreadCounters, VmSettings};
use vmtax_observe::counters::{
    Cgroups, ThreadTimes, cgroup_counters, cpu_quotas, is_stopped, socket_server, started,
    thread_times,
};
use vmtax_observe::thread_names;

/// The program, by its process.
#[derive(Debug)]
pub(super) struct Daemon {
    pid: i32,
    started: u64,
    tag: String,
    cgroups: Cgroups,
    /// The folder of the group that has no other process and a CPU quota.
    limited: Option<PathBuf>,
}

impl Daemon {
    /// Those that serve shared trees of a VM's process, as far as this user may see them.
    pub fn serving(vm: i32, settings: &VmSettings) -> Vec<Daemon> {
        let served = settings
            .shares
            .iter()
            .filter_map(|share| match &share.server {
                ShareServer::Daemon(socket) => Some((&share.tag, socket)),
                ShareServer::Qemu => None,
            });
        let daemon = |(tag, socket): (&String, &PathBuf)| {
            let pid = socket_server(vm, socket)?;
            let tids: Vec<i32> = thread_times(pid).iter().map(|thread| thread.tid).collect();
            let cgroups = Cgroups::of(pid, &tids);
            let own = cpu_quotas(&cgroups, pid)
                .into_iter()
                .find(|quota| !quota.is_shared);
            let limited = own.and_then(|quota| Some(quota.file.parent()?.to_path_buf()));
            Some(Daemon {
                pid,
                started: started(pid)?,
                tag: tag.clone(),
                cgroups,
                limited,
            })
        };
        served.filter_map(daemon).collect()
    }

    /// Returns the daemon's counters; `None` if it has ended.
    pub fn counters(&self) -> Option<DaemonCounters> {
        if started(self.pid) != Some(self.started) {
            return None;
        }
        let names: BTreeMap<i32, String> = thread_names(self.pid).into_iter().collect();
        let named = |thread: ThreadTimes| {
            let name = names.get(&thread.tid).cloned().unwrap_or_default();
            counted(thread, Role::Other(name))
        };
        Some(DaemonCounters {
            pid: self.pid,
            tag: self.tag.clone(),
            is_stopped: is_stopped(self.pid),
            threads: thread_times(self.pid).into_iter().map(named).collect(),
            throttled_us: cgroup_counters(&self.cgroups).throttled_us,
            cgroup: self
                .limited
                .as_ref()
                .map(|folder| folder.to_string_lossy().into_owned()),
        })
    }
}

/// A thread's counters.
pub(super) fn counted(thread: ThreadTimes, role: Role) -> ThreadCounters {
    let ThreadTimes {
        tid,
        cpu_ns,
        wait_ns,
        turns,
    } = thread;
    ThreadCounters {
        tid,
        role,
        cpu_ns,
        wait_ns,
        turns,
    }
}
