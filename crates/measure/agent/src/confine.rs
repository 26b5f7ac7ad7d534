//! Limits a native trial to the guest's number of CPUs and memory.

use crate::AgentError;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::fs;
use std::path::PathBuf;

/// The limits of a native agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Confinement {
    /// Use only this many of the CPUs that are allowed now.
    pub cpus: Option<u32>,
    /// Use these CPUs, where there are any here.
    pub pinned: Vec<u32>,
    /// Join this control group (its folder), which carries the memory limit.
    pub cgroup: Option<PathBuf>,
}

/// Confines this process and its future children.
///
/// # Errors
/// [`AgentError::System`] naming what could not be done.
pub fn confine(to: &Confinement) -> Result<(), AgentError> {
    if let Some(group) = &to.cgroup {
        let procs = group.join("cgroup.procs");
        fs::write(&procs, "0")
            .map_err(|e| AgentError::system(format!("joining {}", procs.display()), e))?;
    }
    if !to.pinned.is_empty() {
        let mut chosen = CpuSet::new();
        to.pinned.iter().for_each(|&cpu| chosen.set(cpu as usize));
        sched_setaffinity(None, &chosen)
            .map_err(|e| AgentError::system(format!("using CPUs {:?}", to.pinned), e))?;
    } else if let Some(cpus) = to.cpus {
        let allowed = sched_getaffinity(None)
            .map_err(|e| AgentError::system("reading the CPUs allowed", e))?;
        let mut chosen = CpuSet::new();
        (0..CpuSet::MAX_CPU)
            .filter(|&cpu| allowed.is_set(cpu))
            .take(cpus as usize)
            .for_each(|cpu| chosen.set(cpu));
        sched_setaffinity(None, &chosen)
            .map_err(|e| AgentError::system(format!("using only {cpus} CPUs"), e))?;
    }
    Ok(())
}
