//! Choice of the VM of a trace that is analyzed, and its facts in the trace.

use crate::error::ImportError;
use crate::source::SourceFile;
use crate::survey::Survey;
use std::collections::BTreeMap;
use std::path::Path;
use vmtax_model::{Accelerator, Missing, QemuThread, Role, RoleSource, VmFacts};

/// The VM, and what is known of others.
pub(crate) struct TracedVm {
    pub facts: VmFacts,
    /// Other VMs in the trace.
    pub missing: Vec<Missing>,
}

impl TracedVm {
    /// Chooses the VM of a process or vCPU thread, else the one with most exits; `None` where no thread runs a guest.
    pub fn choose(
        file: &SourceFile,
        survey: &Survey,
        pid: Option<i32>,
    ) -> Result<Option<TracedVm>, ImportError> {
        let mut vms = vms(file, survey);
        if vms.is_empty() {
            return Ok(None);
        }
        let events = |vm: &[i32]| {
            vm.iter()
                .map(|tid| survey.vcpus.get(tid).map_or(0, |vcpu| vcpu.events))
                .sum::<u64>()
        };
        vms.sort_by_key(|vm| std::cmp::Reverse(events(vm)));
        let at = match pid {
            None => 0,
            Some(pid) => {
                let is = |vm: &Vec<i32>| {
                    vm.contains(&pid) || vm.iter().any(|tid| process(file, *tid) == Some(pid))
                };
                vms.iter()
                    .position(is)
                    .ok_or_else(|| ImportError::Process {
                        path: file.path.clone(),
                        pid,
                        known: survey
                            .vcpus
                            .keys()
                            .take(20)
                            .map(i32::to_string)
                            .collect::<Vec<_>>()
                            .join(", "),
                    })?
            }
        };
        let chosen = vms.remove(at);
        let missing = (!vms.is_empty()).then(|| Missing {
            what: format!("other VMs in {}", file.path.display()),
            why: format!(
                "one is analyzed; vCPU threads of others: {}",
                vms.iter()
                    .take(20)
                    .filter_map(|vm| vm.first())
                    .map(i32::to_string)
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
            fix: "choose with --pid".to_owned(),
        });
        Ok(Some(TracedVm {
            facts: facts(file, survey, &chosen),
            missing: missing.into_iter().collect(),
        }))
    }
}

fn process(file: &SourceFile, tid: i32) -> Option<i32> {
    file.threads()?.get(&tid)?.process
}

/// The vCPU threads of each VM: by process, where the trace has them; else a VM begins where a number of a vCPU is not above
/// that of the thread before, since QEMU starts them in their order.
fn vms(file: &SourceFile, survey: &Survey) -> Vec<Vec<i32>> {
    let mut by_process: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    let mut others: Vec<Vec<i32>> = Vec::new();
    let mut last = None;
    for (tid, vcpu) in &survey.vcpus {
        if let Some(process) = process(file, *tid) {
            by_process.entry(process).or_default().push(*tid);
            continue;
        }
        match others
            .last_mut()
            .filter(|_| vcpu.number > last || vcpu.number.is_none())
        {
            Some(vm) => vm.push(*tid),
            None => others.push(vec![*tid]),
        }
        last = vcpu.number;
    }
    by_process.into_values().chain(others).collect()
}

/// A VM of which no trace of the host's kernel tells.
pub(crate) fn unknown(file: &Path) -> VmFacts {
    VmFacts {
        name: Some(format!("VM of {}", file.display())),
        ..VmFacts::unknown(0)
    }
}

fn facts(file: &SourceFile, survey: &Survey, vcpus: &[i32]) -> VmFacts {
    let first = vcpus.first().copied().unwrap_or(0);
    let pid = process(file, first);
    let guests = file.dat().into_iter().flat_map(|dat| dat.guests());
    let name = guests
        .into_iter()
        .find(|guest| guest.vcpus.iter().any(|(_, tid)| vcpus.contains(tid)));
    let name = name
        .map(|guest| guest.name.clone())
        .filter(|name| !name.is_empty());
    let of_process = file
        .threads()
        .into_iter()
        .flatten()
        .filter(|(tid, thread)| pid.is_some() && thread.process == pid && !vcpus.contains(tid));
    let others = of_process.map(|(tid, thread)| QemuThread {
        tid: *tid,
        role: if Some(*tid) == pid {
            Role::Main
        } else {
            Role::of_thread_name(&thread.name)
        },
    });
    let number = |(at, tid): (usize, &i32)| {
        survey
            .vcpus
            .get(tid)
            .and_then(|vcpu| vcpu.number)
            .unwrap_or(at as u32)
    };
    let vcpu = |(at, tid): (usize, &i32)| QemuThread {
        tid: *tid,
        role: Role::Vcpu(number((at, tid))),
    };
    VmFacts {
        pid: pid.unwrap_or(0),
        name: name.or_else(|| {
            pid.is_none()
                .then(|| format!("VM with vCPU thread {first}"))
        }),
        accelerator: Some(Accelerator::Kvm),
        vcpus: vcpus.len(),
        roles_from: RoleSource::KvmRun,
        threads: vcpus.iter().enumerate().map(vcpu).chain(others).collect(),
        ..VmFacts::unknown(0)
    }
}
