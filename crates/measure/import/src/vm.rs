//! Choice of the VM of a trace that is analyzed, its facts in the trace, and its exits in that of the host's kernel.

use crate::error::ImportError;
use crate::source::SourceFile;
use crate::survey::Survey;
use std::collections::BTreeMap;
use vmtax_model::samples::{ApicFeatures, ExitCounts, KvmFeatures, TracedExits};
use vmtax_model::{Accelerator, Missing, QemuThread, Role, RoleSource, VmFacts};
use vmtax_observe::ExitCounter;
use vmtax_trace::Entry;

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
        let is_wanted = |vm: &Vec<i32>| {
            let is_of = |pid: i32| vm.iter().any(|tid| process(file, *tid) == Some(pid));
            pid.is_none_or(|pid| vm.contains(&pid) || is_of(pid))
        };
        let at = vms.iter().position(is_wanted);
        let at = at.ok_or_else(|| ImportError::Process {
            path: file.path.clone(),
            pid: pid.unwrap_or_default(),
            known: listed(survey.vcpus.keys()),
        })?;
        let chosen = vms.remove(at);
        let missing = (!vms.is_empty()).then(|| Missing {
            what: format!("other VMs in {}", file.path.display()),
            why: format!(
                "one is analyzed; vCPU threads of others: {}",
                listed(vms.iter().filter_map(|vm| vm.first()))
            ),
            fix: "choose with --pid".to_owned(),
        });
        Ok(Some(TracedVm {
            facts: facts(file, survey, &chosen),
            missing: missing.into_iter().collect(),
        }))
    }
}

/// The first threads of a list, as a text.
fn listed<'a>(tids: impl Iterator<Item = &'a i32>) -> String {
    let tids: Vec<String> = tids.take(20).map(i32::to_string).collect();
    tids.join(", ")
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

fn facts(file: &SourceFile, survey: &Survey, vcpus: &[i32]) -> VmFacts {
    let first = vcpus.first().copied().unwrap_or(0);
    let pid = process(file, first);
    let guest = file
        .guests()
        .find(|guest| guest.vcpus.iter().any(|(_, tid)| vcpus.contains(tid)));
    let name = guest.map(|guest| guest.name.clone());
    let name = name.filter(|name| !name.is_empty());
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
    let threads = (0..).zip(vcpus).map(|(at, tid)| {
        let number = survey.vcpus.get(tid).and_then(|vcpu| vcpu.number);
        QemuThread {
            tid: *tid,
            role: Role::Vcpu(number.unwrap_or(at)),
        }
    });
    VmFacts {
        pid: pid.unwrap_or(0),
        name: name.or_else(|| {
            pid.is_none()
                .then(|| format!("VM with vCPU thread {first}"))
        }),
        accelerator: Some(Accelerator::Kvm),
        vcpus: vcpus.len(),
        roles_from: RoleSource::KvmRun,
        threads: threads.chain(others).collect(),
        ..VmFacts::unknown(0)
    }
}

/// Counts the exits of a VM. `mhz`: ticks of the file's clock in a microsecond.
pub(crate) fn count_exits(
    file: &SourceFile,
    survey: &Survey,
    vm: &VmFacts,
    mhz: f64,
) -> Result<ExitCounts, ImportError> {
    let mut counter = ExitCounter::new(file.formats());
    if survey.counts.lost > 0 {
        counter.expect_losses();
    }
    let mut events = file.events()?;
    while let Some(entry) = events.next()? {
        match entry {
            Entry::Event(event) if vm.threads.iter().any(|thread| thread.tid == event.pid) => {
                counter.take(&event);
            }
            Entry::Event(_) => {}
            Entry::Lost(lost) => counter.lost(&lost),
        }
    }
    let ticks = survey.span.map_or(0, |(first, last)| last - first);
    Ok(ExitCounts {
        seconds: ticks as f64 / mhz / 1e6,
        traced: Some(TracedExits {
            user_unknown: !tells_user_exits(file, survey),
            ..counter.finish(vm.threads.clone(), mhz, survey.counts.lost)
        }),
        counters: BTreeMap::new(),
        memory_tree: None,
        monitor_advice: "use `vmtax exits --vm` while the VM runs".to_owned(),
        apic: ApicFeatures::default(),
        kvm: KvmFeatures::default(),
        configuration: None,
    })
}

/// Returns true if the file says which exits KVM handed to QEMU. Text does not say which events were recorded.
fn tells_user_exits(file: &SourceFile, survey: &Survey) -> bool {
    let is_recorded = || file.formats().event("kvm", "kvm_userspace_exit").is_some();
    survey.has_user_exits || (!file.is_text() && is_recorded())
}

/// Returns the data about exits that the file lacks.
pub(crate) fn missing_exits(file: &SourceFile, survey: &Survey) -> Vec<Missing> {
    let mut missing = Vec::new();
    let mut not_in_trace = |what: &str, event: &str| {
        missing.push(Missing {
            what: what.to_owned(),
            why: format!("{event} is not in the trace"),
            fix: "record `-e kvm`".to_owned(),
        });
    };
    if survey.has_brackets && !survey.has_entries {
        not_in_trace("times of exits", "kvm_entry");
    }
    if !tells_user_exits(file, survey) {
        not_in_trace("exits handed to QEMU", "kvm_userspace_exit");
    }
    if !survey.has_brackets {
        missing.push(Missing {
            what: "exits that KVM handles itself".to_owned(),
            why: format!("{} has no kvm_exit", file.path.display()),
            fix: "record all events of KVM: `trace-cmd record -e kvm`".to_owned(),
        });
        if !survey.has_calls {
            missing.push(Missing {
                what: "times of exits".to_owned(),
                why: format!(
                    "{} has neither kvm_exit and kvm_entry nor sys_enter",
                    file.path.display()
                ),
                fix: "record `-e kvm -e raw_syscalls:sys_enter`".to_owned(),
            });
        }
    }
    missing
}
