//! The system calls of x86-64 by number: the one table of them. A guest and its host are of one architecture, and so is
//! whatever traced them. And durations of threads' calls, and of the user time until the next one.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;
use vmtax_model::CallRow;

pub use syscalls::x86_64::Sysno as SystemCall;

/// `futex`, by which threads wait for locks and conditions.
pub const FUTEX: i64 = SystemCall::futex as i64;

/// The system call of a number as the kernel's events give it; `None` for one that this table does not know.
pub fn system_call(number: i64) -> Option<SystemCall> {
    usize::try_from(number).ok().and_then(SystemCall::new)
}

/// The kernel's name of a system call: "ppoll"; "syscall 9999" for a number without one.
pub fn system_call_name(number: i64) -> Cow<'static, str> {
    match system_call(number) {
        Some(call) => call.name().into(),
        None => format!("syscall {number}").into(),
    }
}

/// A system call, or the user time after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallPhase<C> {
    /// The call, by what distinguishes calls.
    pub call: C,
    /// True for the user time after the call, false for the call itself.
    pub after: bool,
}

/// Sums over the system calls of threads, from their entries and exits in the order of time.
#[derive(Debug, Clone)]
pub struct CallTimes<C> {
    /// By thread and phase, in the ticks of the events.
    pub times: BTreeMap<(i32, CallPhase<C>), Moments>,
    /// By thread: its present phase, and since when, if that was seen.
    present: HashMap<i32, (CallPhase<C>, Option<u64>)>,
    during: RangeInclusive<u64>,
}

impl<C> Default for CallTimes<C> {
    fn default() -> Self {
        CallTimes::new(0..=u64::MAX)
    }
}

impl<C> CallTimes<C> {
    /// Counts only what begins and ends within a time.
    pub fn new(during: RangeInclusive<u64>) -> Self {
        CallTimes {
            times: BTreeMap::new(),
            present: HashMap::new(),
            during,
        }
    }
}

impl<C: Copy + Ord> CallTimes<C> {
    /// A thread is in a call whose entry was not traced.
    pub fn inside(&mut self, tid: i32, call: C) {
        self.present
            .insert(tid, (CallPhase { call, after: false }, None));
    }

    /// A thread enters a call. After another entry, whose exit was lost or never came (`execve`), nothing is counted.
    pub fn enter(&mut self, tid: i32, at: u64, call: C) {
        let before = self
            .present
            .insert(tid, (CallPhase { call, after: false }, Some(at)));
        if let Some((phase @ CallPhase { after: true, .. }, since)) = before {
            self.count(tid, phase, since, at);
        }
    }

    /// A thread leaves its call.
    pub fn exit(&mut self, tid: i32, at: u64) {
        let Some((phase @ CallPhase { after: false, call }, since)) =
            self.present.get(&tid).copied()
        else {
            return;
        };
        self.present
            .insert(tid, (CallPhase { call, after: true }, Some(at)));
        self.count(tid, phase, since, at);
    }

    fn count(&mut self, tid: i32, phase: CallPhase<C>, since: Option<u64>, at: u64) {
        let counts =
            |since: &u64| self.during.contains(since) && self.during.contains(&at) && at >= *since;
        if let Some(since) = since.filter(counts) {
            self.times
                .entry((tid, phase))
                .or_default()
                .add((at - since) as f64);
        }
    }
}

/// Count, mean, spread and extremes of durations. The variance is updated as B. P. Welford does it
/// (*Technometrics* 4, 1962), which loses no digits however long the run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moments {
    count: u64,
    mean: f64,
    /// Sum of squared distances from the mean.
    squares: f64,
    min: f64,
    max: f64,
    total: f64,
}

impl Default for Moments {
    fn default() -> Self {
        Moments {
            count: 0,
            mean: 0.0,
            squares: 0.0,
            min: f64::INFINITY,
            max: 0.0,
            total: 0.0,
        }
    }
}

impl Moments {
    /// Adds a value.
    pub fn add(&mut self, value: f64) {
        self.count += 1;
        let off = value - self.mean;
        self.mean += off / self.count as f64;
        self.squares += off * (value - self.mean);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        self.total += value;
    }

    /// Adds all of another: T. F. Chan and others, *Updating formulae*, 1979.
    pub fn merge(&mut self, other: &Moments) {
        if other.count == 0 {
            return;
        }
        let (n, m) = (self.count as f64, other.count as f64);
        let off = other.mean - self.mean;
        self.count += other.count;
        self.mean += off * m / (n + m);
        self.squares += other.squares + off * off * n * m / (n + m);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.total += other.total;
    }

    /// Each value multiplied.
    pub fn scaled(&self, by: f64) -> Moments {
        Moments {
            count: self.count,
            mean: self.mean * by,
            squares: self.squares * by * by,
            min: self.min * by,
            max: self.max * by,
            total: self.total * by,
        }
    }

    /// As a report has it; the values are nanoseconds.
    pub fn row(&self, name: String) -> CallRow {
        let variance = if self.count > 1 {
            self.squares / (self.count - 1) as f64
        } else {
            0.0
        };
        CallRow {
            name,
            count: self.count,
            mean_ns: self.mean,
            stddev_ns: variance.sqrt(),
            min_ns: if self.count > 0 { self.min } else { 0.0 },
            max_ns: self.max,
            total_ns: self.total,
        }
    }
}

/// Rows of a report, the longest in all first; user time has `_post` behind the name of the call before it.
pub fn call_rows<'a, C: Copy + 'a>(
    times: impl Iterator<Item = (CallPhase<C>, &'a Moments)>,
    name: impl Fn(C) -> Cow<'static, str>,
) -> Vec<CallRow> {
    let row = |(phase, moments): (CallPhase<C>, &Moments)| {
        moments.row(format!(
            "{}{}",
            name(phase.call),
            if phase.after { "_post" } else { "" }
        ))
    };
    let mut rows: Vec<CallRow> = times.map(row).collect();
    rows.sort_by(|a, b| b.total_ns.total_cmp(&a.total_ns));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_without_a_name_is_named_by_itself() {
        let names = [0, 202, 271, 426, 9999, -1].map(system_call_name);
        assert_eq!(
            names,
            [
                "read",
                "futex",
                "ppoll",
                "io_uring_enter",
                "syscall 9999",
                "syscall -1"
            ]
        );
    }

    #[test]
    fn user_time_counts_for_the_call_before_it() {
        let mut times = CallTimes::new(10..=90);
        times.enter(7, 5, 271);
        times.exit(7, 30);
        times.enter(7, 35, 1);
        times.exit(7, 36);
        times.enter(7, 99, 271);
        let time_in_phase = |call, after| {
            times
                .times
                .get(&(7, CallPhase { call, after }))
                .map(|m| m.row(String::new()).total_ns)
        };
        // The wait began before the time that counts, and what follows the write ends after it.
        assert_eq!(
            (
                time_in_phase(271, false),
                time_in_phase(271, true),
                time_in_phase(1, false),
                time_in_phase(1, true)
            ),
            (None, Some(5.0), Some(1.0), None)
        );
    }

    #[test]
    fn what_was_not_seen_whole_is_not_counted() {
        let mut times = CallTimes::default();
        times.inside(1, "poll");
        times.exit(1, 10);
        times.exit(1, 20);
        times.enter(1, 30, "execve");
        times.enter(1, 40, "brk");
        let rows = call_rows(
            times.times.iter().map(|((_, phase), m)| (*phase, m)),
            Cow::from,
        );
        let rows: Vec<_> = rows
            .iter()
            .map(|row| (row.name.as_str(), row.total_ns))
            .collect();
        assert_eq!(rows, [("poll_post", 20.0)]);
    }

    #[test]
    fn moments_by_hand_and_merged() {
        let values = [4.0, 9.0, 4.0, 2.0, 5.0, 5.0, 7.0, 4.0];
        let all = |v: &[f64]| {
            let mut m = Moments::default();
            v.iter().for_each(|v| m.add(*v));
            m
        };
        let whole = all(&values).row("x".into());
        assert_eq!(
            (
                whole.count,
                whole.mean_ns,
                whole.min_ns,
                whole.max_ns,
                whole.total_ns
            ),
            (8, 5.0, 2.0, 9.0, 40.0)
        );
        assert!((whole.stddev_ns - (32.0_f64 / 7.0).sqrt()).abs() < 1e-12);
        for cut in 0..=values.len() {
            let mut merged = all(&values[..cut]);
            merged.merge(&all(&values[cut..]));
            let merged = merged.row("x".into());
            assert!(
                (merged.mean_ns - 5.0).abs() < 1e-12
                    && (merged.stddev_ns - whole.stddev_ns).abs() < 1e-12
            );
            assert_eq!((merged.count, merged.min_ns, merged.max_ns), (8, 2.0, 9.0));
        }
        assert_eq!(Moments::default().row("x".into()).min_ns, 0.0);
    }
}
