//! Imports profiles of other tools: `perf.data` and folded stacks.

use crate::{ProfileError, flame};
use linux_perf_event_reader::constants::PERF_RECORD_MISC_COMM_EXEC;
use linux_perf_event_reader::{EventRecord, RawEventRecord, RecordType};
use rustix::process::geteuid;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread::{self, Builder};
use std::time::Duration;
use vmtax_model::Missing;
use vmtax_model::samples::OnCpu;
use vmtax_trace::PerfRecords;
use vmtax_trace::stacks::{self, CodeOwner, FileSource, Kernel, Names, SampledStacks, Space, text};

/// Ancestors of a process that are followed at most.
const MAX_ANCESTORS: usize = 64;

/// An imported file.
#[derive(Debug, Default)]
pub struct Imported {
    /// Imported samples, on CPU.
    pub found: OnCpu,
    /// PID; 0 where unknown.
    pub pid: i32,
    /// Program; empty where unknown.
    pub program: String,
    /// Data of the file that is not in the profile.
    pub missing: Vec<Missing>,
}

/// Imports a perf.data or folded stacks. Of several processes it takes `pid`, or the one with most samples. `force`: root reads
/// another user's file, too.
///
/// # Errors
/// [`ProfileError`] when the file is neither, is damaged, lacks the process, or `symbols` is another program.
pub fn import(
    path: &Path,
    pid: Option<i32>,
    symbols: Option<&Path>,
    force: bool,
) -> Result<Imported, ProfileError> {
    let wrong = |why: String| ProfileError::Damaged {
        file: path.to_owned(),
        why,
    };
    let failed = |e: std::io::Error| wrong(format!("{e}: give a perf.data file or folded stacks"));
    let kind = fs::metadata(path).map_err(failed)?;
    if !kind.is_file() && !kind.is_dir() {
        // It is read more than once.
        return Err(wrong(
            "it is a pipe or a device: write the data to a file and import that".to_owned(),
        ));
    }
    if !force && is_foreign(kind.uid()) {
        let why = "it belongs to another user, who chose the files that it names: give --force to import it as root";
        return Err(wrong(why.to_owned()));
    }
    let mut head = [0; 8];
    let is_perf = File::open(path)
        .map_err(failed)?
        .read_exact(&mut head)
        .is_ok();
    if is_perf && [b"PERFILE2", b"2ELIFREP"].contains(&&head) {
        return perf_data(path, pid, symbols);
    }
    let text = fs::read(path).map_err(failed)?;
    let text = String::from_utf8_lossy(&text);
    let first = text.lines().find(|line| !line.trim().is_empty());
    if first.is_some_and(|line| flame::unfold(line, path).is_err()) {
        return Err(ProfileError::NoRecording(path.to_owned()));
    }
    let profile = flame::unfold(&text, path)?;
    Ok(Imported {
        found: OnCpu {
            profile,
            ..OnCpu::default()
        },
        ..Imported::default()
    })
}

/// Returns true if a file of that user is neither root's nor the caller's, where the caller is root, or has become it.
fn is_foreign(owner: u32) -> bool {
    let caller = std::env::var("SUDO_UID")
        .ok()
        .and_then(|uid| uid.parse().ok());
    geteuid().is_root() && owner != 0 && Some(owner) != caller
}

/// The latest value, with its time, ns: records of several CPUs are in the file's order, not in that of time.
type Latest<T> = (u64, T);

/// Keeps a value of a process, unless a later one is known.
fn learn<T>(known: &mut HashMap<i32, Latest<T>>, pid: i32, time: u64, value: T) {
    if known.get(&pid).is_none_or(|(before, _)| *before <= time) {
        known.insert(pid, (time, value));
    }
}

/// Result of the first pass over a file.
#[derive(Default)]
struct PerfContent {
    /// Samples by process and event.
    samples: HashMap<(i32, usize), u64>,
    /// By process, its parent.
    parents: HashMap<i32, Latest<i32>>,
    names: HashMap<i32, Latest<String>>,
    /// Start address of the kernel.
    kernel: Option<u64>,
    first: Option<u64>,
    last: u64,
    /// Lost samples that perf counted at its end.
    lost: u64,
}

/// Imports a perf.data in two passes over its records: one finds the process, the other reads its samples.
fn perf_data(
    path: &Path,
    pid: Option<i32>,
    symbols: Option<&Path>,
) -> Result<Imported, ProfileError> {
    let mut content = PerfContent::default();
    let file = PerfRecords::open(path, |event, head| content.take(event, &head))?;
    let wrong = |why: String| ProfileError::Damaged {
        file: path.to_owned(),
        why,
    };
    if !matches!(file.arch.as_str(), "x86_64" | "") {
        return Err(wrong(format!(
            "it was recorded on {}, and only x86_64 can be unwound: import folded stacks instead",
            file.arch
        )));
    }
    let pid = pid
        .or_else(|| content.most_sampled())
        .ok_or_else(|| wrong("it has no samples: record longer".to_owned()))?;
    let event = content.main_event(pid);
    let event = event.ok_or_else(|| {
        wrong(format!(
            "it has no sample of process {pid}: {}",
            content.others(0)
        ))
    })?;

    let samples = PerfSamples::read(&file, &content, pid, event)?;
    let build = symbols
        .map(|path| stacks::build(path, &samples.space))
        .transpose()?;
    let missing = samples.missing(&content);
    let names = Names::find(&samples.space, &samples.kernel, build);
    Ok(Imported {
        found: samples.on_cpu(&names, &content, &file),
        pid,
        program: samples.program(&content),
        missing,
    })
}

/// Result of the second pass over a file: the samples of one event in one process.
struct PerfSamples {
    pid: i32,
    /// Number of the event in the file.
    event: usize,
    space: Space,
    sampled: SampledStacks,
    kernel: Kernel,
    /// True if stacks include kernel frames.
    in_kernel: bool,
    /// Number of invalid records.
    damaged: u64,
}

impl PerfSamples {
    /// Reads the samples of a process, and its mappings.
    fn read(
        file: &PerfRecords,
        content: &PerfContent,
        pid: i32,
        event: usize,
    ) -> Result<PerfSamples, ProfileError> {
        let mut space = Space::empty(FileSource::Recorded(file.build_ids.clone()));
        let mut sampled = SampledStacks::default();
        let mut line = content.ancestors(pid);
        let mut damaged = 0_u64;
        // A hundred thousand names take a while, which the records need not wait for.
        let kernel = thread::scope(|scope| {
            let naming = || Kernel::recorded(file.kernel.as_deref(), content.kernel);
            let kernel = Builder::new()
                .spawn_scoped(scope, naming)
                .map_err(ProfileError::Thread)?;
            file.each(|of, record| match record.parse() {
                Ok(record) => follow(&record, of == event, &mut line, &mut space, &mut sampled),
                Err(_) => damaged += 1,
            })?;
            // A panic of the thread is a bug.
            Ok::<_, ProfileError>(
                kernel
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            )
        })?;
        let in_kernel = sampled
            .stacks
            .iter()
            .flatten()
            .any(|place| place.owner == CodeOwner::Kernel);
        Ok(PerfSamples {
            pid,
            event,
            space,
            sampled,
            kernel,
            in_kernel,
            damaged,
        })
    }

    /// Returns the data of the file that is not in the profile.
    fn missing(&self, content: &PerfContent) -> Vec<Missing> {
        let mut missing = Vec::new();
        let mut lacking = |what: &str, why: String, fix: &str| {
            missing.push(Missing {
                what: what.to_owned(),
                why,
                fix: fix.to_owned(),
            });
        };
        if content.samples.keys().any(|(p, _)| *p != self.pid) {
            lacking(
                "other processes",
                content.others(self.pid),
                "choose a process with --pid",
            );
        }
        let other_events: u64 = content
            .events(self.pid)
            .filter(|(event, _)| *event != self.event)
            .map(|(_, n)| n)
            .sum();
        if other_events > 0 {
            lacking(
                "other events",
                format!("{other_events} samples of other events were ignored"),
                "record each event in a file of its own",
            );
        }
        if self.in_kernel && !self.kernel.is_named() {
            let why = "the recording is from another kernel or an earlier boot, or /proc/kallsyms is restricted";
            lacking(
                "kernel symbols",
                why.to_owned(),
                "import it as root on the host it was recorded on",
            );
        }
        if self.damaged > 0 {
            lacking(
                "damaged records",
                format!("{} records are invalid", self.damaged),
                "record again",
            );
        }
        missing
    }

    /// Returns the name of the program: of its file, or of the process where no file was mapped.
    fn program(&self, content: &PerfContent) -> String {
        let program = self.space.exe.rsplit('/').next().unwrap_or_default();
        if program.is_empty() {
            let name = content.names.get(&self.pid);
            name.map_or(String::new(), |(_, name)| name.clone())
        } else {
            program.to_owned()
        }
    }

    /// Returns the samples with the names of their functions.
    fn on_cpu(&self, names: &Names<'_>, content: &PerfContent, file: &PerfRecords) -> OnCpu {
        let described = file.events.get(self.event);
        let ns = content.last.saturating_sub(content.first.unwrap_or(0));
        OnCpu {
            profile: names.profile(&self.sampled, |_| None),
            trigger: described.map_or(String::new(), |event| event.name.clone()),
            kernel: self.in_kernel,
            unwound: self.sampled.unwound,
            lost: self.sampled.lost.max(content.lost),
            seconds: Duration::from_nanos(ns).as_secs_f64(),
            hz: described
                .and_then(|event| event.hz)
                .map_or(0, |hz| u32::try_from(hz).unwrap_or(0)),
            unnamed: names.unnamed(),
            ..OnCpu::default()
        }
    }
}

impl PerfContent {
    fn take(&mut self, event: usize, record: &RawEventRecord<'_>) {
        if record.record_type == RecordType::LOST_SAMPLES {
            let lost = record
                .data
                .as_slice()
                .first_chunk()
                .map_or(0, |lost| u64::from_le_bytes(*lost));
            self.lost = self.lost.saturating_add(lost);
            return;
        }
        if record.record_type == RecordType::SAMPLE {
            let Ok(sample) = record.common_data() else {
                return;
            };
            *self
                .samples
                .entry((sample.pid.unwrap_or(0), event))
                .or_default() += 1;
            let time = sample.timestamp.unwrap_or(0);
            self.first = Some(self.first.map_or(time, |first| first.min(time)));
            self.last = self.last.max(time);
            return;
        }
        let time = record.timestamp().unwrap_or(0);
        match record.parse() {
            Ok(EventRecord::Fork(fork))
                if fork.pid != fork.ppid && record.misc & PERF_RECORD_MISC_COMM_EXEC == 0 =>
            {
                learn(&mut self.parents, fork.pid, time, fork.ppid);
            }
            Ok(EventRecord::Comm(comm)) if comm.pid == comm.tid => {
                learn(&mut self.names, comm.pid, time, text(&comm.name));
            }
            Ok(EventRecord::Mmap(map))
                if map.pid == -1 && text(&map.path).starts_with("[kernel.kallsyms]") =>
            {
                self.kernel = self.kernel.or(Some(map.address));
            }
            _ => {}
        }
    }

    /// Returns the process with most samples; one without a PID only where there is no other.
    fn most_sampled(&self) -> Option<i32> {
        self.samples
            .iter()
            .max_by_key(|((pid, event), n)| (*pid > 0, **n, -*pid, *event))
            .map(|(key, _)| key.0)
    }

    /// Returns the events of a process with the numbers of their samples.
    fn events(&self, pid: i32) -> impl Iterator<Item = (usize, u64)> {
        self.samples
            .iter()
            .filter(move |((p, _), _)| *p == pid)
            .map(|((_, event), n)| (*event, *n))
    }

    /// Returns the event of which a process has most samples.
    fn main_event(&self, pid: i32) -> Option<usize> {
        self.events(pid)
            .max_by_key(|(event, n)| (*n, *event))
            .map(|(event, _)| event)
    }

    /// The process and its ancestors, oldest last.
    fn ancestors(&self, pid: i32) -> Vec<i32> {
        let mut line = vec![pid];
        while let Some((_, parent)) = line.last().and_then(|last| self.parents.get(last)) {
            if line.contains(parent) || line.len() == MAX_ANCESTORS {
                break;
            }
            line.push(*parent);
        }
        line
    }

    /// "samples are of bash (12): 30, make (13): 4": largest first, without `pid`.
    fn others(&self, pid: i32) -> String {
        let mut by_process: HashMap<i32, u64> = HashMap::new();
        for ((p, _), n) in self.samples.iter().filter(|((p, _), _)| *p != pid) {
            *by_process.entry(*p).or_default() += n;
        }
        let mut all: Vec<(i32, u64)> = by_process.into_iter().collect();
        all.sort_by_key(|(pid, n)| (std::cmp::Reverse(*n), *pid));
        let name = |pid: &i32| {
            self.names
                .get(pid)
                .map_or("a process", |(_, name)| name.as_str())
        };
        let mut counts: Vec<String> = all
            .iter()
            .take(5)
            .map(|(pid, n)| format!("{} ({pid}): {n}", name(pid)))
            .collect();
        if all.len() > counts.len() {
            counts.push(format!("and {} more", all.len() - counts.len()));
        }
        format!("samples are of {}", counts.join(", "))
    }
}

/// Adds a record of the process or of its ancestors; `line` are those, oldest last, and shrinks as they fork.
fn follow(
    record: &EventRecord<'_>,
    wanted: bool,
    line: &mut Vec<i32>,
    space: &mut Space,
    sampled: &mut SampledStacks,
) {
    let (Some(&pid), Some(&now)) = (line.first(), line.last()) else {
        return;
    };
    match record {
        EventRecord::Fork(fork)
            if fork.ppid == now && line.iter().rev().nth(1) == Some(&fork.pid) =>
        {
            line.pop();
        }
        EventRecord::Mmap2(map) if map.pid == now => stacks::take(record, space, sampled),
        EventRecord::Comm(comm) if comm.pid == now => {
            if comm.is_execve {
                space.clear();
            }
            if comm.pid == pid {
                stacks::take(record, space, sampled);
            }
        }
        EventRecord::Sample(sample) if wanted && sample.pid == Some(pid) => {
            stacks::take(record, space, sampled)
        }
        EventRecord::Lost(_) => stacks::take(record, space, sampled),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_last_counts_whatever_comes_last_in_the_file() {
        let mut names = HashMap::new();
        for (pid, time, name) in [(1, 20, "make"), (1, 10, "sh"), (2, 5, "cc"), (2, 6, "ld")] {
            learn(&mut names, pid, time, name);
        }
        assert_eq!((names[&1], names[&2]), ((20, "make"), (6, "ld")));
    }
}
