//! One line, cut into its parts.

/// `TRACE_FLAG_HARDIRQ`, `TRACE_FLAG_SOFTIRQ`, `TRACE_FLAG_NMI`.
const FLAGS: [u8; 3] = [0x08, 0x10, 0x40];

/// An event's line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Line<'a> {
    pub comm: &'a str,
    pub tid: i32,
    /// The thread group, where it is printed.
    pub process: Option<i32>,
    pub cpu: u32,
    /// `common_flags`, as far as they are printed.
    pub flags: u8,
    pub time: Time,
    /// Without its subsystem.
    pub name: &'a str,
    pub arguments: &'a str,
}

/// A time stamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Time {
    /// Printed as seconds.
    Nanoseconds(u64),
    /// Printed without a point: of a clock such as `x86-tsc`, or nanoseconds of `trace-cmd report -t`.
    Ticks(u64),
}

/// Cuts an event's line; `None` for any other.
pub(super) fn event(line: &str) -> Option<Line<'_>> {
    // A thread's name may have brackets, too.
    line.match_indices(" [").find_map(|(at, _)| {
        let (left, right) = (&line[..at], &line[at + 2..]);
        let (cpu, right) = right.split_once("] ")?;
        let cpu = cpu.parse().ok()?;
        let (comm, tid, process) = thread(left)?;
        let (flags, time, right) = stamp(right.trim_start())?;
        let (name, arguments) = named(right)?;
        Some(Line {
            comm,
            tid,
            process,
            cpu,
            flags,
            time,
            name,
            arguments,
        })
    })
}

/// Returns the CPU and the number of its events that are missing at a line such as `CPU:1 [LOST 123 EVENTS]`; `None` for any
/// other.
pub(super) fn lost(line: &str) -> Option<(u32, u64)> {
    let (cpu, rest) = line.strip_prefix("CPU:")?.split_once('[')?;
    let words = rest.strip_suffix(']')?;
    let number = words
        .strip_prefix("LOST ")
        .and_then(|w| w.strip_suffix(" EVENTS"));
    let number = number.or_else(|| words.strip_suffix(" EVENTS DROPPED"))?;
    Some((cpu.trim().parse().ok()?, number.trim().parse().ok()?))
}

/// `name-12`, `name-12 (  10)` of the kernel, `name 12`, `name 10/12` of perf: name, thread, process.
fn thread(text: &str) -> Option<(&str, i32, Option<i32>)> {
    let text = text.trim_end();
    let (text, process) = match text
        .strip_suffix(')')
        .and_then(|text| text.rsplit_once('('))
    {
        Some((text, process)) => (text.trim_end(), process.trim().parse().ok()),
        None => (text, None),
    };
    let (comm, tid) = text.rsplit_once(['-', ' '])?;
    let (process, tid) = match tid.split_once('/') {
        Some((process, tid)) => (process.parse().ok(), tid),
        None => (process, tid),
    };
    // trace-cmd puts the name of an instance or a file before it.
    let comm = comm
        .trim()
        .rsplit_once(": ")
        .map_or(comm, |(_, comm)| comm)
        .trim();
    Some((comm, tid.parse().ok()?, process))
}

/// Flags, where there are some, time, and what is behind.
fn stamp(text: &str) -> Option<(u8, Time, &str)> {
    let (word, rest) = text.split_once(' ')?;
    let (flags, word, rest) = match word.strip_suffix(':').and_then(time) {
        Some(time) => return Some((0, time, rest)),
        None => {
            let (next, rest) = rest.trim_start().split_once(' ')?;
            (flags(word), next, rest)
        }
    };
    Some((flags, time(word.strip_suffix(':')?)?, rest))
}

/// The third letter of `d.h1.`: in which kind of interrupt.
fn flags(word: &str) -> u8 {
    let [hard, soft, nmi] = FLAGS;
    match word.as_bytes().get(2) {
        Some(b'h') => hard,
        Some(b's') => soft,
        Some(b'H') => hard | soft,
        Some(b'z') => nmi,
        Some(b'Z') => nmi | hard,
        _ => 0,
    }
}

fn time(text: &str) -> Option<Time> {
    let number = |digits: &str| {
        digits
            .parse::<u64>()
            .ok()
            .filter(|_| digits.bytes().all(|b| b.is_ascii_digit()))
    };
    let Some((seconds, fraction)) = text.split_once('.') else {
        return Some(Time::Ticks(number(text)?));
    };
    let scale = 9_u32
        .checked_sub(u32::try_from(fraction.len()).ok()?)
        .filter(|scale| *scale < 9)?;
    let nanos = number(fraction)? * 10_u64.pow(scale);
    Some(Time::Nanoseconds(
        number(seconds)?
            .checked_mul(1_000_000_000)?
            .checked_add(nanos)?,
    ))
}

/// The event's name and its arguments.
fn named(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    // perf may print the period before it.
    let (word, rest) = match word.bytes().all(|b| b.is_ascii_digit()) {
        true => rest.trim_start().split_once(' ')?,
        false => (word, rest),
    };
    let name = word.strip_suffix(':')?;
    let name = name.rsplit_once(':').map_or(name, |(_, name)| name);
    let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    is_name.then(|| (name, rest.trim()))
}
