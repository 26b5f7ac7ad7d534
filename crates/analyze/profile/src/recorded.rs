//! A profile read from the files in the folder of its trial.

use crate::exits::{self, Devices};
use crate::inside::{self, GuestClock, by_host_clock, join};
use crate::schedule::{self, Schedule};
use crate::states::SampledByWall;
use crate::{ProfileError, code, states, summary, waits};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use vmtax_findings::{GuestExits, GuestFindings, ProfileFindings, StateFindings, VmExits, WaitFor};
use vmtax_model::samples::{
    CodeSamples, CpuUses, ExitCounts, GuestProfile, OnCpu, Profile, ProfileFacts, ScheduleFacts,
    WallClock,
};
use vmtax_model::{CallCounts, InsideFacts, Missing, RoleSource, RunState, VmFacts, files};

/// Largest file that is read, bytes; vmtax writes far smaller ones.
const MAX_FILE: u64 = 1 << 30;

/// Reason of a file that is needed and not there.
const MISSING: &str = "the file is missing";

/// A profile with its findings.
#[derive(Debug)]
pub struct Recorded {
    /// Samples of threads on a CPU.
    pub on_cpu: OnCpu,
    /// Samples of all threads by the wall clock; `None` where they were not taken.
    pub wall: Option<WallClock>,
    /// Samples inside the guest, by the host's clock; `None` without samples, or where the clocks could not be compared.
    pub guest: Option<Profile>,
    /// QEMU's samples joined with the guest's stacks.
    pub joined: Option<Profile>,
    pub findings: ProfileFindings,
}

impl Recorded {
    /// Reads the files in a trial's folder.
    ///
    /// # Errors
    /// [`ProfileError`] with the file that is missing or damaged.
    pub fn read(folder: &Path) -> Result<Recorded, ProfileError> {
        let mut observed: ProfileFacts = needed(folder, files::OBSERVED)?;
        let mut samples = SampleFiles::read(folder)?;
        if let Some(vm) = &observed.vm {
            samples.name_by_role(vm);
            let is_guess = vm.roles_from == RoleSource::CpuTime;
            observed.missing.extend(is_guess.then(guessed_roles));
        }
        let SampleFiles {
            on_cpu,
            wall,
            schedule,
        } = samples;
        let schedule = schedule
            .map(|facts| Schedule::read(&folder.join(files::SCHEDULE_TRACE), facts))
            .transpose()?;

        let mut findings = summary::findings(&on_cpu, observed.pid, &observed.program);
        findings.wall = wall.as_ref().map(waits::findings);
        findings.schedule = schedule.map(|schedule| schedule::findings(&schedule, wall.as_ref()));
        add_observed(&mut findings, observed, folder)?;
        let mut recorded = Recorded {
            on_cpu,
            wall,
            guest: None,
            joined: None,
            findings,
        };
        // Without the guest's files, QEMU's profile is still valid.
        if let Err(why) = recorded.add_inside(folder) {
            recorded.findings.missing.push(Missing {
                what: "samples and system calls inside the guest".to_owned(),
                why: why.to_string(),
                fix: "record the profile again".to_owned(),
            });
        }
        Ok(recorded)
    }

    /// Adds what was observed inside the guest, if anything was.
    fn add_inside(&mut self, folder: &Path) -> Result<(), ProfileError> {
        let Some(facts) = read::<InsideFacts>(folder, files::INSIDE)? else {
            return Ok(());
        };
        let profile = guest_profile(folder)?;
        let calls: Option<CallCounts> = read(folder, files::GUEST_CALLS)?;
        self.findings.missing.extend(facts.missing.iter().cloned());
        let mut findings: Option<GuestFindings> = None;
        if let Some(mut guest) = profile {
            let mut joined = None;
            match GuestClock::new(guest.beats, &facts) {
                Ok(clock) => {
                    by_host_clock(&mut guest, &clock);
                    let host = &self.on_cpu.profile;
                    joined = Some(join(host, &guest.profile, guest.hz, &facts.threads));
                }
                Err(why) => self.findings.missing.push(Missing {
                    what: "guest stacks joined with QEMU's".to_owned(),
                    why: why.to_string(),
                    fix: "use a guest kernel with PCI devices in sysfs".to_owned(),
                }),
            }
            findings = Some(inside::summary(&guest, joined.as_ref()));
            self.guest = joined.is_some().then_some(guest.profile);
            self.joined = joined.map(|joined| joined.profile);
        }
        if let Some(counts) = calls {
            findings.get_or_insert_default().calls = Some(inside::calls(&counts));
        }
        self.findings.guest = findings;
        Ok(())
    }
}

/// Samples of a process, and the facts of its scheduler trace.
struct SampleFiles {
    on_cpu: OnCpu,
    wall: Option<WallClock>,
    schedule: Option<ScheduleFacts>,
}

impl SampleFiles {
    /// Reads the files in a trial's folder, and checks the indices of their samples.
    fn read(folder: &Path) -> Result<SampleFiles, ProfileError> {
        let on_cpu = samples(folder, files::ON_CPU, |found: &OnCpu| &found.profile)?;
        Ok(SampleFiles {
            on_cpu: on_cpu.ok_or_else(|| damaged(folder, files::ON_CPU, MISSING))?,
            wall: samples(folder, files::WALL_CLOCK, |found: &WallClock| {
                &found.profile
            })?,
            schedule: read(folder, files::SCHEDULE)?,
        })
    }

    /// Names the threads of a VM by their roles.
    fn name_by_role(&mut self, vm: &VmFacts) {
        let roles = roles(vm);
        let sampled = [
            Some(&mut self.on_cpu.profile),
            self.wall.as_mut().map(|w| &mut w.profile),
        ];
        let threads = sampled.into_iter().flatten().flat_map(|p| &mut p.threads);
        let named = threads.map(|thread| (thread.tid, &mut thread.name));
        let traced = self.schedule.iter_mut().flat_map(|facts| &mut facts.names);
        for (tid, name) in named.chain(traced.map(|(tid, name)| (*tid, name))) {
            if let Some(role) = roles.get(&tid) {
                name.clone_from(role);
            }
        }
    }
}

/// The roles of a VM's threads by TID.
pub(crate) fn roles(vm: &VmFacts) -> BTreeMap<i32, String> {
    let threads = vm.threads.iter();
    threads.map(|t| (t.tid, t.role.label())).collect()
}

/// Adds the facts of the observation, and the findings from its other files.
fn add_observed(
    findings: &mut ProfileFindings,
    observed: ProfileFacts,
    folder: &Path,
) -> Result<(), ProfileError> {
    let ProfileFacts {
        pid,
        file,
        vm,
        state,
        process_stop,
        mut missing,
        ..
    } = observed;
    findings.file = file;
    let uses: Option<CpuUses> = read(folder, files::CPU_USE)?;
    findings.states = thread_states(findings, vm.as_ref(), uses.as_ref());
    if matches!(state, Some(RunState::Stopped(_))) {
        findings.states.iter_mut().for_each(wait_for_resume);
    }
    (findings.state, findings.process_stop) = (state, process_stop);
    let sampled: Option<CodeSamples> = read(folder, files::GUEST_CODE)?;
    findings.code = sampled.and_then(|sampled| code::findings(&sampled));
    let exits: Option<ExitCounts> = read(folder, files::EXITS)?;
    findings.exits = exits.and_then(|counts| exits_of(&counts, pid, false, &mut missing));
    findings.missing = missing;
    Ok(())
}

/// Returns the states of the threads from the scheduler's events and the wall-clock samples.
fn thread_states(
    findings: &ProfileFindings,
    vm: Option<&VmFacts>,
    uses: Option<&CpuUses>,
) -> Option<StateFindings> {
    // Wall-clock samples begin when the scheduler's events end.
    let traced_s = findings
        .schedule
        .as_ref()
        .map_or(0.0, |schedule| schedule.seconds);
    let by_wall = findings.wall.as_ref().map(|found| SampledByWall {
        found,
        seconds: (findings.seconds - traced_s).max(0.0),
    });
    states::findings(by_wall, findings.schedule.as_ref(), vm, uses)
}

/// Makes a paused guest's resume the reason of its vCPUs' waits.
fn wait_for_resume(states: &mut StateFindings) {
    // The vCPU of a guest that is paused waits as that of one that is halted does.
    let waits = states
        .threads
        .iter_mut()
        .flat_map(|thread| &mut thread.waits)
        .filter(|wait| wait.reason == WaitFor::Guest);
    waits.for_each(|wait| wait.reason = WaitFor::Resume);
    let slices = states
        .threads
        .iter_mut()
        .flat_map(|thread| &mut thread.slices);
    for slice in slices {
        if let Some(halted) = slice.waits.remove(&WaitFor::Guest) {
            *slice.waits.entry(WaitFor::Resume).or_default() += halted;
        }
    }
}

fn guessed_roles() -> Missing {
    Missing {
        what: "which threads are vCPUs".to_owned(),
        why: "neither QEMU's monitor nor the threads' names say, so those with most CPU time are taken for them"
            .to_owned(),
        fix: "Start QEMU with -name debug-threads=on".to_owned(),
    }
}

/// The exits of a running VM alone, from the files in the folder of its trial.
///
/// # Errors
/// [`ProfileError`] with the file that is missing or damaged.
pub fn vm_exits(folder: &Path) -> Result<VmExits, ProfileError> {
    let ProfileFacts {
        pid,
        vm,
        file,
        mut missing,
        ..
    } = needed(folder, files::OBSERVED)?;
    let counts: ExitCounts = needed(folder, files::EXITS)?;
    let vm = vm.ok_or_else(|| damaged(folder, files::OBSERVED, "it names no VM"))?;
    let exits = exits_of(&counts, pid, file.is_some(), &mut missing);
    let exits = exits.ok_or_else(|| damaged(folder, files::EXITS, "it holds no counts"))?;
    Ok(VmExits { vm, exits, missing })
}

/// `None` where neither tracepoints nor counters told anything.
fn exits_of(
    counts: &ExitCounts,
    pid: i32,
    is_imported: bool,
    missing: &mut Vec<Missing>,
) -> Option<GuestExits> {
    if counts.traced.is_none() && counts.counters.is_empty() {
        return None;
    }
    let devices = tree_devices(counts);
    if devices.is_none() && counts.traced.is_some() {
        let why = match is_imported {
            true => "a trace has no memory tree of QEMU, so device names are guessed from a PC's standard address map"
                .to_owned(),
            false => format!(
                "process {pid} has no QMP monitor that vmtax can use, so device names are guessed from a PC's standard address map"
            ),
        };
        missing.push(Missing {
            what: "device names for MMIO and port addresses".to_owned(),
            why,
            fix: counts.monitor_advice.clone(),
        });
    }
    Some(exits::summary(
        counts,
        &devices.unwrap_or_else(Devices::usual),
    ))
}

/// The devices of QEMU's memory tree; `None` without one.
pub(crate) fn tree_devices(counts: &ExitCounts) -> Option<Devices> {
    Devices::of_memory_tree(counts.memory_tree.as_deref()?)
}

/// Reads samples, and checks their indices; `None` where the trial has none.
pub(crate) fn samples<T: DeserializeOwned>(
    folder: &Path,
    name: &str,
    profile: fn(&T) -> &Profile,
) -> Result<Option<T>, ProfileError> {
    let found: Option<T> = read(folder, name)?;
    if let Some(found) = &found {
        let checked = profile(found).check();
        checked.map_err(|why| damaged(folder, name, &why))?;
    }
    Ok(found)
}

/// Reads a guest's samples of itself; `None` where the trial has none.
pub(crate) fn guest_profile(folder: &Path) -> Result<Option<GuestProfile>, ProfileError> {
    let guest = bytes(folder, files::GUEST_PROFILE)?.map(|bytes| inside::parse(&bytes));
    let guest = guest.transpose();
    guest.map_err(|why| damaged(folder, files::GUEST_PROFILE, &why))
}

pub(crate) fn read<T: DeserializeOwned>(
    folder: &Path,
    name: &str,
) -> Result<Option<T>, ProfileError> {
    let read = bytes(folder, name)?.map(|bytes| serde_json::from_slice(&bytes));
    read.transpose()
        .map_err(|e| damaged(folder, name, &e.to_string()))
}

fn needed<T: DeserializeOwned>(folder: &Path, name: &str) -> Result<T, ProfileError> {
    read(folder, name)?.ok_or_else(|| damaged(folder, name, MISSING))
}

/// A file of the trial; `None` where it has none.
fn bytes(folder: &Path, name: &str) -> Result<Option<Vec<u8>>, ProfileError> {
    let mut bytes = Vec::new();
    match File::open(folder.join(name)).and_then(|file| file.take(MAX_FILE).read_to_end(&mut bytes))
    {
        Ok(_) => Ok(Some(bytes)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(damaged(folder, name, &e.to_string())),
    }
}

fn damaged(folder: &Path, name: &str, why: &str) -> ProfileError {
    ProfileError::Damaged {
        file: folder.join(name),
        why: format!("{why}: record the profile again"),
    }
}
