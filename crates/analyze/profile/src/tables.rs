//! Observations of a trial, as rows: VM exits with their devices, and stacks with how often each was sampled. For
//! tables of many runs; the findings of one run are in [`crate::Recorded`].

use crate::ProfileError;
use crate::exits::{Devices, NamedExits, named};
use crate::flame::{clean, frame};
use crate::recorded::{guest_profile, read, roles, samples, tree_devices};
use std::collections::BTreeMap;
use std::path::Path;
use vmtax_model::samples::{CodeOrigin, ExitCounts, OnCpu, Profile, ProfileFacts, WallClock};
use vmtax_model::{InsideFacts, VmFacts, files};

/// Observations of a trial, or of a VM or a process that ran already.
#[derive(Debug, Default)]
pub struct ObservedRows {
    /// The VM that was observed; `None` of a trial without facts of its guest, and of a process.
    pub vm: Option<VmFacts>,
    /// Time for which exits were counted, in s.
    pub seconds: f64,
    /// VM exits of the VM.
    pub exits: Vec<NamedExits>,
    /// Stacks of the threads.
    pub stacks: Vec<SampledStack>,
}

/// Method by which stacks were sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sampling {
    /// Of threads that ran, on the host.
    OnCpu,
    /// Of all threads at each moment, on the host.
    WallClock,
    /// Of threads that ran, in the guest by its own kernel.
    Guest,
}

/// A stack of a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SampledStack {
    /// Method by which it was sampled.
    pub sampling: Sampling,
    /// The thread's role in QEMU, or its name.
    pub thread: String,
    /// The function that ran, or waited; empty where nothing is known.
    pub function: String,
    /// Whose code it is.
    pub origin: CodeOrigin,
    /// From the outermost function to that one, `;` between them.
    pub stack: String,
    /// Number of samples.
    pub count: u64,
}

/// Reads what was observed from the files in a trial's folder; empty where nothing was.
///
/// # Errors
/// [`ProfileError`] with the file that is damaged.
pub fn observed_rows(folder: &Path) -> Result<ObservedRows, ProfileError> {
    let facts: Option<ProfileFacts> = read(folder, files::OBSERVED)?;
    let vm = facts.and_then(|facts| facts.vm);
    let counts: Option<ExitCounts> = read(folder, files::EXITS)?;
    let roles = vm.as_ref().map(roles).unwrap_or_default();
    let mut stacks = Vec::new();
    let on_cpu = samples(folder, files::ON_CPU, |found: &OnCpu| &found.profile)?;
    if let Some(on_cpu) = on_cpu {
        stacks.extend(sampled(&on_cpu.profile, Sampling::OnCpu, &roles));
    }
    let wall = samples(folder, files::WALL_CLOCK, |found: &WallClock| {
        &found.profile
    })?;
    if let Some(wall) = wall {
        stacks.extend(sampled(&wall.profile, Sampling::WallClock, &roles));
    }
    // Threads of the guest have numbers of their own.
    if read::<InsideFacts>(folder, files::INSIDE)?.is_some() {
        if let Some(guest) = guest_profile(folder)? {
            stacks.extend(sampled(&guest.profile, Sampling::Guest, &BTreeMap::new()));
        }
    }
    let (mut seconds, mut exits) = (0.0, Vec::new());
    if let Some(counts) = counts {
        let devices = tree_devices(&counts).unwrap_or_else(Devices::usual);
        (seconds, exits) = (counts.seconds, named(&counts, &devices));
    }
    Ok(ObservedRows {
        vm,
        seconds,
        exits,
        stacks,
    })
}

/// The stacks of a profile, each once for threads of a name.
fn sampled(
    profile: &Profile,
    sampling: Sampling,
    roles: &BTreeMap<i32, String>,
) -> Vec<SampledStack> {
    let mut counts: BTreeMap<(String, usize), u64> = BTreeMap::new();
    for ((thread, stack), count) in profile.counts() {
        let thread = &profile.threads[thread];
        let name = roles.get(&thread.tid).unwrap_or(&thread.name);
        *counts.entry((clean(name), stack)).or_default() += count;
    }
    let frames: Vec<String> = profile.functions.iter().map(frame).collect();
    let stack = |((thread, stack), count): ((String, usize), u64)| {
        let functions = &profile.stacks[stack];
        let innermost = functions
            .last()
            .map(|function| &profile.functions[*function]);
        SampledStack {
            sampling,
            thread,
            function: innermost.map_or_else(String::new, |function| clean(&function.name)),
            origin: innermost.map_or(CodeOrigin::Unknown, |function| function.origin),
            stack: functions
                .iter()
                .map(|function| frames[*function].as_str())
                .collect::<Vec<_>>()
                .join(";"),
            count,
        }
    };
    counts.into_iter().map(stack).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use vmtax_model::AddressSpace;
    use vmtax_model::samples::{Access, ExitRow, Function, Sample, Thread, TracedExits};

    #[test]
    fn exits_have_devices_and_stacks_of_threads_of_a_name_are_one() {
        let folder = tempfile::tempdir().unwrap();
        assert!(observed_rows(folder.path()).unwrap().exits.is_empty());
        let access = Access {
            space: AddressSpace::Port,
            address: 0x3f8,
            write: true,
        };
        let row = ExitRow {
            tid: 7,
            reason: "IO_INSTRUCTION".to_owned(),
            access: Some(access),
            count: 3,
            user: 2,
            timed: 1,
            ticks: 500,
        };
        let traced = TracedExits {
            rows: vec![row],
            mhz: 1000.0,
            ..TracedExits::default()
        };
        let counts = ExitCounts {
            seconds: 2.0,
            traced: Some(traced),
            ..ExitCounts::default()
        };
        let function = |name: &str, origin| Function {
            name: name.to_owned(),
            module: String::new(),
            origin,
            named: true,
        };
        let sample = |thread| Sample {
            thread,
            stack: 0,
            time: 0,
            weight: 2,
            cpu: 0,
        };
        let profile = Profile {
            functions: vec![
                function("main", CodeOrigin::Program),
                function("do;io", CodeOrigin::Kernel),
            ],
            stacks: vec![vec![0, 1]],
            threads: [1, 2]
                .map(|tid| Thread {
                    tid,
                    name: "worker".to_owned(),
                })
                .into(),
            samples: vec![sample(0), sample(1)],
        };
        let on_cpu = OnCpu {
            profile,
            ..OnCpu::default()
        };
        fs::write(
            folder.path().join(files::EXITS),
            serde_json::to_vec(&counts).unwrap(),
        )
        .unwrap();
        fs::write(
            folder.path().join(files::ON_CPU),
            serde_json::to_vec(&on_cpu).unwrap(),
        )
        .unwrap();
        let found = observed_rows(folder.path()).unwrap();
        let exits = NamedExits {
            vcpu: None,
            reason: "IO_INSTRUCTION".to_owned(),
            access: Some(access),
            device: "serial".to_owned(),
            register: "data".to_owned(),
            count: 3,
            user: Some(2),
            timed: 1,
            total_ns: 500.0,
        };
        assert_eq!((found.seconds, found.exits), (2.0, vec![exits]));
        let stack = SampledStack {
            sampling: Sampling::OnCpu,
            thread: "worker".to_owned(),
            function: "do,io".to_owned(),
            origin: CodeOrigin::Kernel,
            stack: "main;do,io_[k]".to_owned(),
            count: 4,
        };
        assert_eq!(found.stacks, [stack]);
        fs::write(folder.path().join(files::EXITS), "{").unwrap();
        assert!(
            observed_rows(folder.path())
                .unwrap_err()
                .to_string()
                .contains(files::EXITS)
        );
    }
}
