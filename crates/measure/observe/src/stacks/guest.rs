//! In the guest: whatever runs is sampled while a workload runs, and unwound and named when it is over.

use super::trigger;
use crate::process::{has_ended, thread_names};
use crate::{ProbeError, SampleSettings, Sampler, entries};
use linux_perf_event_reader::{EventRecord, RawData, RawEventRecord, RecordParseInfo, RecordType};
use std::collections::HashMap;
use std::fs;
use std::ops::Range;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use vmtax_clock::beat;
use vmtax_model::samples::{CodeOrigin, GuestProfile, Profile, Unwound};
use vmtax_model::{ClockReading, Inside};
use vmtax_trace::stacks::{self, FileSource, Kernel, LocalFiles, Names, SampledStacks, Space};

/// Interval at which the rings are read.
const DRAIN_INTERVAL: Duration = Duration::from_millis(250);
/// Samples are kept in at most this part of the memory.
const PART_OF_MEMORY: usize = 8;

/// A guest that is being sampled.
#[derive(Debug)]
pub struct GuestSampler {
    over: Arc<AtomicBool>,
    taking: JoinHandle<RecordBuffer>,
    hz: u32,
    trigger: &'static str,
    begun: ClockReading,
    names: HashMap<i32, String>,
    roots: Vec<PathBuf>,
}

impl GuestSampler {
    /// Begins to sample all that runs here. `roots`: folders that processes may have for their root.
    ///
    /// # Errors
    /// [`ProbeError`] when this kernel lets nobody sample.
    pub fn begin(inside: Inside, roots: Vec<PathBuf>) -> Result<GuestSampler, ProbeError> {
        let names = all_names();
        let begun = beat();
        let sampler = Sampler::of_all(SampleSettings {
            hz: inside.hz,
            stack: inside.stack,
        })?;
        let trigger = trigger(&sampler);
        let over = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&over);
        let follow = move || RecordBuffer::follow(sampler, &told);
        let taking = std::thread::Builder::new()
            .spawn(follow)
            .map_err(ProbeError::Thread)?;
        Ok(GuestSampler {
            over,
            taking,
            hz: inside.hz,
            trigger,
            begun,
            names,
            roots,
        })
    }

    /// Ends it: what was sampled.
    pub fn end(self) -> GuestProfile {
        self.over.store(true, Ordering::Relaxed);
        self.taking.thread().unpark();
        // A panic there is a bug here.
        let kept = self
            .taking
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let beats = [self.begun, beat()];
        let mut names = self.names;
        names.extend(all_names());
        let (profile, unwound, lost) = kept.named(names, &self.roots);
        GuestProfile {
            profile,
            hz: self.hz,
            trigger: self.trigger.to_owned(),
            unwound,
            lost,
            beats,
        }
    }
}

/// Records as they came.
#[derive(Default)]
struct RecordBuffer {
    bytes: Vec<u8>,
    /// When, of which kind, with which flags, and where in the bytes.
    records: Vec<(u64, RecordType, u16, Range<usize>)>,
    layout: Option<RecordParseInfo>,
    full: bool,
    lost: u64,
}

impl RecordBuffer {
    fn follow(mut sampler: Sampler, over: &AtomicBool) -> RecordBuffer {
        let (mut kept, room) = (RecordBuffer::default(), memory() / PART_OF_MEMORY);
        while !over.load(Ordering::Relaxed) {
            std::thread::park_timeout(DRAIN_INTERVAL);
            sampler.drain(|record| kept.take(&record, room));
        }
        sampler.stop();
        sampler.drain(|record| kept.take(&record, room));
        kept
    }

    fn take(&mut self, record: &RawEventRecord<'_>, room: usize) {
        let body = record.data.as_slice();
        // Without one record what comes after may be called by the wrong names: nothing more is taken.
        self.full |= self.bytes.len() + body.len() > room;
        if self.full {
            self.lost += u64::from(record.record_type == RecordType::SAMPLE);
            return;
        }
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(&body);
        self.layout = Some(record.parse_info);
        let (time, at) = (record.timestamp().unwrap_or(0), begin..self.bytes.len());
        self.records
            .push((time, record.record_type, record.misc, at));
    }

    /// Returns the profile of all processes together, the counts of unwound stacks, and the number of lost samples.
    fn named(mut self, names: HashMap<i32, String>, roots: &[PathBuf]) -> (Profile, Unwound, u64) {
        self.records.sort_by_key(|(time, ..)| *time); // each CPU has its own
        let files = Rc::new(LocalFiles::new(roots));
        let mut processes = Processes {
            files,
            names,
            programs: Vec::new(),
            running: HashMap::new(),
        };
        for (_, kind, misc, at) in self.records {
            let Some(layout) = self.layout else { break };
            let body = RawData::Single(&self.bytes[at]);
            if let Ok(record) = RawEventRecord::new(kind, misc, body, layout).parse() {
                processes.take(&record);
            }
        }
        let kernel = Kernel::read();
        let (mut unwound, mut lost) = (Unwound::default(), self.lost);
        for (_, sampled) in &processes.programs {
            unwound.add(sampled.unwound);
            lost += sampled.lost;
        }
        // Most programs of a build were never seen running.
        let sampled = processes
            .programs
            .iter()
            .filter(|(_, sampled)| !sampled.samples.is_empty());
        let profiles = sampled
            .map(|(space, sampled)| Names::find(space, &kernel, None).profile(sampled, |_| None));
        let mut profile = Profile::together(profiles, inside);
        let names = profile
            .functions
            .iter_mut()
            .flat_map(|f| [&mut f.name, &mut f.module]);
        names
            .chain(profile.threads.iter_mut().map(|t| &mut t.name))
            .for_each(cut);
        (profile, unwound, lost)
    }
}

/// Names of templates have no end.
fn cut(name: &mut String) {
    let end = (0..=GuestProfile::MAX_NAME)
        .rev()
        .find(|&end| name.is_char_boundary(end))
        .unwrap_or(0);
    name.truncate(end.min(name.len()));
}

/// Whose code it is when seen from the host.
fn inside(origin: CodeOrigin) -> CodeOrigin {
    if origin == CodeOrigin::Kernel {
        CodeOrigin::GuestKernel
    } else {
        CodeOrigin::GuestUser
    }
}

/// The address spaces: a process has its parent's until it runs a program of its own.
struct Processes {
    files: Rc<LocalFiles>,
    programs: Vec<(Space, SampledStacks)>,
    /// Index of `programs`, by process.
    running: HashMap<i32, usize>,
    /// Names of threads: as those that they began as a copy of, until they say otherwise.
    names: HashMap<i32, String>,
}

impl Processes {
    fn take(&mut self, record: &EventRecord<'_>) {
        let pid = match record {
            EventRecord::Fork(fork) => {
                if let Some(name) = self.names.get(&fork.ptid).cloned() {
                    self.names.insert(fork.tid, name);
                }
                if let Some(&program) = self
                    .running
                    .get(&fork.ppid)
                    .filter(|_| fork.pid != fork.ppid)
                {
                    self.running.insert(fork.pid, program);
                }
                return;
            }
            EventRecord::Comm(comm) => {
                if comm.is_execve {
                    self.begin(comm.pid, self.ended());
                }
                self.names.insert(comm.tid, stacks::text(&comm.name));
                comm.pid
            }
            EventRecord::Mmap2(map) => map.pid,
            EventRecord::Sample(sample) => sample.pid.unwrap_or(0),
            EventRecord::Lost(_) => 0,
            _ => return,
        };
        let program = match self.running.get(&pid) {
            Some(&program) => program,
            // There before, and there still; or a thread of the kernel's.
            None if has_ended(pid) => self.begin(pid, self.ended()),
            None => self.begin(pid, Space::of_process(pid)),
        };
        let (space, sampled) = &mut self.programs[program];
        stacks::take(record, space, sampled);
        if let Some((tid, name @ None)) = sampled.threads.last_mut() {
            *name = self.names.get(tid).cloned(); // a thread that is new here
        }
    }

    /// Returns the empty address space of a process that has ended: only records describe its content.
    fn ended(&self) -> Space {
        Space::empty(FileSource::LocalFiles(Rc::clone(&self.files)))
    }

    fn begin(&mut self, pid: i32, space: Space) -> usize {
        self.programs.push((space, SampledStacks::default()));
        self.running.insert(pid, self.programs.len() - 1);
        self.programs.len() - 1
    }
}

/// The names of all threads here.
fn all_names() -> HashMap<i32, String> {
    let pids = entries("/proc").filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.flat_map(thread_names).collect()
}

/// This machine's memory, bytes.
fn memory() -> usize {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib: usize = total
        .and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok())
        .unwrap_or(0);
    kib << 10
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmtax_model::testing::skipped;

    #[test]
    fn memory_is_told() {
        assert!(memory() > 16 << 20);
    }

    #[test]
    fn names_are_cut_between_characters() {
        let mut name = "é".repeat(GuestProfile::MAX_NAME);
        cut(&mut name);
        assert!(
            name.len() <= GuestProfile::MAX_NAME
                && name.len() > GuestProfile::MAX_NAME - 2
                && name.ends_with('é')
        );
        let mut short = "main".to_owned();
        cut(&mut short);
        assert_eq!(short, "main");
    }

    /// Needs the right to sample the whole machine; the guest's kernel is put to the test in tests/it.
    #[test]
    fn a_program_that_ended_is_named() {
        let inside = Inside {
            hz: 999,
            stack: 8192,
            calls: None,
        };
        let taking = match GuestSampler::begin(inside, Vec::new()) {
            Err(error) => return skipped(&error.to_string()),
            taking => taking.unwrap(),
        };
        let script =
            "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done; exec sha256sum /proc/self/exe";
        let mut shell = std::process::Command::new("sh");
        let mut shell = shell
            .args(["-c", script])
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let pid = shell.id() as i32;
        assert!(shell.wait().unwrap().success());
        let guest = taking.end();
        // There are other shells on this machine.
        let shell = guest
            .profile
            .threads
            .iter()
            .position(|t| t.tid == pid && t.name == "sh")
            .unwrap();
        let of_shell = guest
            .profile
            .samples
            .iter()
            .filter(|s| s.thread == shell)
            .count();
        assert!(of_shell > 3, "{:?}", guest.profile.threads);
        let modules: Vec<&str> = guest
            .profile
            .functions
            .iter()
            .map(|f| f.module.as_str())
            .collect();
        assert!(modules.iter().any(|m| m.ends_with("sh")), "{modules:?}");
        assert!(
            guest
                .profile
                .functions
                .iter()
                .all(|f| matches!(f.origin, CodeOrigin::GuestUser | CodeOrigin::GuestKernel))
        );
        assert_eq!(guest.check(), Ok(()));
    }
}
