//! Counted call by call, where the kernel has no BPF: each begin and each return comes as a record of perf's, which a thread
//! of ours takes in while they come.

use super::in_kernel::ROWS;
use crate::clock::monotonic_ns;
use crate::perf::{Ring, enable, open, tracepoint, write_into};
use crate::perf::{layout, online, records};
use crate::{ProbeError, tracefs};
use linux_perf_event_reader::{EventRecord, RawEventRecord, RecordParseInfo, SampleFormat};
use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use vmtax_model::CallCount;

/// Interval at which records are read: a ring has room for some 28,000 calls.
const DRAIN_INTERVAL: Duration = Duration::from_millis(5);
/// Records this old are in their rings, whichever CPU wrote them.
const SETTLED: Duration = Duration::from_millis(5);

/// Events, and the thread that reads them.
#[derive(Debug)]
pub(super) struct Traced {
    calls: Arc<Mutex<Calls>>,
    stop: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
}

impl Traced {
    pub(super) fn start(by_process: bool) -> Result<Traced, ProbeError> {
        let failed = |e| ProbeError::system("tracing system calls with perf_event_open", e);
        let [enter, exit] = [Point::read("sys_enter")?, Point::read("sys_exit")?];
        let mut calls = Calls::new(by_process, &enter);
        calls.open(&enter, &exit).map_err(failed)?;
        let (calls, stop) = (
            Arc::new(Mutex::new(calls)),
            Arc::new(AtomicBool::new(false)),
        );
        let (shared, stopped) = (Arc::clone(&calls), Arc::clone(&stop));
        let read = move || {
            while !stopped.load(Ordering::Relaxed) {
                thread::sleep(DRAIN_INTERVAL);
                locked(&shared).take(monotonic_ns().saturating_sub(SETTLED.as_nanos() as u64));
            }
        };
        let reader = thread::Builder::new()
            .name("vmtax-calls".to_owned())
            .spawn(read)
            .map_err(ProbeError::Thread)?;
        Ok(Traced {
            calls,
            stop,
            reader: Some(reader),
        })
    }

    pub(super) fn read(&self) -> Vec<CallCount> {
        let now = monotonic_ns();
        thread::sleep(SETTLED);
        let mut calls = locked(&self.calls);
        calls.take(now);
        calls.rows.values().cloned().collect()
    }

    pub(super) fn lost(&self) -> u64 {
        locked(&self.calls).lost
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(reader) = self.reader.take() {
            let _ = reader.join(); // a panic there was told
        }
    }
}

fn locked(calls: &Mutex<Calls>) -> MutexGuard<'_, Calls> {
    calls.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A tracepoint of all system calls.
struct Point {
    id: u64,
    /// Where in its records the call's number is, bytes.
    call: usize,
}

impl Point {
    fn read(name: &str) -> Result<Point, ProbeError> {
        let folder = tracefs()?.join("events/raw_syscalls").join(name);
        let read = |file: &str| {
            let path = folder.join(file);
            fs::read_to_string(&path).map_err(|e| ProbeError::file("reading", &path, e))
        };
        let (id, format) = (read("id")?, read("format")?);
        let offset = format
            .lines()
            .find_map(|line| line.split_once("long id;\toffset:")?.1.split(';').next());
        let numbers = id
            .trim()
            .parse()
            .ok()
            .zip(offset.and_then(|offset| offset.parse().ok()));
        let invalid = || {
            let source = io::ErrorKind::InvalidData.into();
            ProbeError::file("reading", &folder.join("format"), source)
        };
        let (id, call) = numbers.ok_or_else(invalid)?;
        Ok(Point { id, call })
    }
}

/// Counts from the records so far, and the state of each thread.
#[derive(Debug)]
struct Calls {
    events: Vec<OwnedFd>,
    rings: Vec<Ring>,
    layout: RecordParseInfo,
    by_process: bool,
    own: i32,
    /// The event ID of a call's entry, and the offset of the call's number in its record.
    enter: (u16, usize),
    /// Records by time that may have earlier ones still to come.
    fresh: Vec<Step>,
    /// Call that a thread is in, and since when.
    inside: HashMap<i32, (i64, u64)>,
    rows: HashMap<(u32, Option<i32>), CallCount>,
    lost: u64,
}

/// Content of a record.
#[derive(Debug, Clone, Copy)]
struct Step {
    time: u64,
    pid: i32,
    tid: i32,
    call: i64,
    passed: Passed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Passed {
    Begin,
    Return,
    /// Records were lost before the one that comes next.
    Gap,
}

impl Calls {
    fn new(by_process: bool, enter: &Point) -> Calls {
        Calls {
            events: Vec::new(),
            rings: Vec::new(),
            layout: layout(SampleFormat::TID | SampleFormat::TIME | SampleFormat::RAW),
            by_process,
            own: std::process::id() as i32,
            enter: (enter.id as u16, enter.call),
            fresh: Vec::new(),
            inside: HashMap::new(),
            rows: HashMap::new(),
            lost: 0,
        }
    }

    /// Both events on each CPU, into one ring.
    fn open(&mut self, enter: &Point, exit: &Point) -> io::Result<()> {
        for cpu in online() {
            let [begin, end] = [enter, exit].map(|point| open(&mut tracepoint(point.id), -1, cpu));
            let (begin, end) = (begin?, end?);
            self.rings.push(Ring::largest(begin.as_fd())?);
            write_into(&end, &begin)?;
            self.events.extend([begin, end]);
        }
        self.events.iter().try_for_each(|event| enable(event, true))
    }

    /// Takes in what came, as far as it was before a moment: by then it is whole.
    fn take(&mut self, before: u64) {
        let mut rings = std::mem::take(&mut self.rings);
        let mut copied = Vec::new();
        for ring in &mut rings {
            let mut gap = false;
            records(ring, &mut copied, self.layout, |record| {
                self.keep(&record, &mut gap)
            });
        }
        self.rings = rings;
        self.settle(before);
    }

    /// Counts what was before a moment, in the order of time.
    fn settle(&mut self, before: u64) {
        self.fresh.sort_by_key(|step| step.time);
        let settled = self.fresh.partition_point(|step| step.time < before);
        let rest = self.fresh.split_off(settled);
        for step in std::mem::replace(&mut self.fresh, rest) {
            self.count(step);
        }
    }

    /// `gap`: whether records were lost before this one, of the same CPU.
    fn keep(&mut self, record: &RawEventRecord<'_>, gap: &mut bool) {
        match record.parse() {
            Ok(EventRecord::Sample(sample)) => {
                let step = sample.raw.and_then(|raw| {
                    let raw = raw.as_slice();
                    let kind = u16::from_ne_bytes(*raw.first_chunk()?);
                    // The number lies at the same place in both.
                    let call = i64::from_ne_bytes(*raw.get(self.enter.1..)?.first_chunk()?);
                    let passed = if kind == self.enter.0 {
                        Passed::Begin
                    } else {
                        Passed::Return
                    };
                    let (pid, tid, time) = (sample.pid?, sample.tid?, sample.timestamp?);
                    Some(Step {
                        time,
                        pid,
                        tid,
                        call,
                        passed,
                    })
                });
                let Some(step) = step else { return };
                if std::mem::take(gap) {
                    self.fresh.push(Step {
                        passed: Passed::Gap,
                        ..step
                    });
                }
                if step.pid != self.own {
                    self.fresh.push(step);
                }
            }
            Ok(EventRecord::Lost(lost)) => {
                self.lost = self.lost.saturating_add(lost.count);
                *gap = true;
            }
            _ => {}
        }
    }

    fn count(&mut self, step: Step) {
        let begun = match step.passed {
            Passed::Begin => {
                self.inside.insert(step.tid, (step.call, step.time));
                return;
            }
            // Who returned meanwhile is not known: none of the calls under way is counted.
            Passed::Gap => return self.inside.clear(),
            Passed::Return => self.inside.remove(&step.tid),
        };
        // Of a call that began before, nobody knows how long it took. A return from a signal has no number.
        let begun = begun.filter(|(call, _)| [-1, *call].contains(&step.call));
        let Some((Ok(call), begun)) = begun.map(|(call, begun)| (u32::try_from(call), begun))
        else {
            return;
        };
        let key = (call, self.by_process.then_some(step.pid));
        if self.rows.len() == ROWS && !self.rows.contains_key(&key) {
            self.lost += 1;
            return;
        }
        let ns = step.time.saturating_sub(begun);
        let row = self.rows.entry(key).or_insert(CallCount {
            call,
            pid: key.1,
            count: 0,
            total_ns: 0,
            min_ns: u64::MAX,
            max_ns: 0,
        });
        row.count += 1;
        row.total_ns += ns;
        row.min_ns = row.min_ns.min(ns);
        row.max_ns = row.max_ns.max(ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_moves_between_cpus_is_followed_in_time() {
        let mut calls = Calls::new(true, &Point { id: 1, call: 8 });
        let step = |time, tid, call, begins| Step {
            time,
            pid: 7,
            tid,
            call,
            passed: if begins {
                Passed::Begin
            } else {
                Passed::Return
            },
        };
        // One CPU's records, then another's: it entered there, and returned here.
        calls.fresh = vec![
            step(50, 8, 1, false),
            step(90, 8, 0, true),
            step(10, 8, 1, true),
            step(20, 9, 1, true),
        ];
        calls.settle(60);
        assert_eq!(
            calls
                .rows
                .values()
                .map(|row| (row.count, row.total_ns))
                .collect::<Vec<_>>(),
            [(1, 40)]
        );
        // A return whose begin was lost is of no call that is known.
        calls
            .fresh
            .extend([step(95, 9, 3, false), step(97, 8, 0, false)]);
        calls.settle(100);
        let count_and_times = |call| {
            calls
                .rows
                .get(&(call, Some(7)))
                .map(|row| (row.count, row.min_ns, row.max_ns))
        };
        assert_eq!(
            [count_and_times(0), count_and_times(1), count_and_times(3)],
            [Some((1, 7, 7)), Some((1, 40, 40)), None]
        );
        // Between both, the thread may have returned and begun again. A return from a signal comes without its number.
        let gap = Step {
            passed: Passed::Gap,
            ..step(110, 9, 0, true)
        };
        calls
            .fresh
            .extend([step(105, 8, 0, true), gap, step(120, 8, 0, false)]);
        calls
            .fresh
            .extend([step(130, 8, 15, true), step(133, 8, -1, false)]);
        calls.settle(200);
        let count_and_max = |call| {
            calls
                .rows
                .get(&(call, Some(7)))
                .map(|row| (row.count, row.max_ns))
        };
        assert_eq!(
            [count_and_max(0), count_and_max(15)],
            [Some((1, 7)), Some((1, 3))]
        );
    }
}
