//! The options of a file, as far as they are of use.

use crate::file::{self, string, wrong};
use std::io;

pub(super) const DONE: u16 = 0;
pub(super) const BUFFER: u16 = 3;
const TRACECLOCK: u16 = 4;
const TRACEID: u16 = 11;
const TIME_SHIFT: u16 = 12;
const GUEST: u16 = 13;
const TSC2NSEC: u16 = 14;
/// `TRACECMD_TSYNC_FLAG_INTERPOLATE`: offsets were measured, and change between two measurements.
const INTERPOLATE: u32 = 1;
/// No host has more guests, no guest more vCPUs.
const MAX_GUESTS: usize = 4096;

/// Corrections that turn a guest's time stamps into those of its host, as trace-cmd determined them while it recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeShift {
    /// The trace ID of the host's file.
    pub peer: u64,
    /// True if offsets were measured; else they are the exact ones that KVM keeps.
    pub measured: bool,
    /// By the guest's CPU; a CPU without has those of the first.
    pub cpus: Vec<Vec<TimeOffset>>,
}

/// A correction from one time on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeOffset {
    /// From when, guest ticks.
    pub time: u64,
    /// Added to scaled ticks.
    pub offset: i64,
    /// Ticks are multiplied by this …
    pub scaling: u64,
    /// … and shifted right by so many bits.
    pub fraction: u32,
}

/// A guest that was traced together with the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracedGuest {
    /// Name of the guest.
    pub name: String,
    /// The trace ID of its file.
    pub trace_id: u64,
    /// vCPU and the host's thread that runs it.
    pub vcpus: Vec<(u32, i32)>,
}

/// The scale of a trace of the time stamp counter: nanoseconds are `ticks * mult >> shift`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TscScale {
    /// Multiplier of the ticks.
    pub mult: u32,
    /// Number of bits of the shift to the right.
    pub shift: u32,
}

/// Options of a file, as far as they are of use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Options {
    pub clock: Option<String>,
    pub trace_id: Option<u64>,
    pub shifts: Vec<TimeShift>,
    pub guests: Vec<TracedGuest>,
    pub tsc: Option<TscScale>,
}

impl Options {
    /// Takes an option; one that is of no use is left out.
    pub fn take(&mut self, id: u16, mut data: &[u8]) -> io::Result<()> {
        let data = &mut data;
        match id {
            TRACECLOCK => self.clock = clock(&String::from_utf8_lossy(data)),
            TRACEID => self.trace_id = Some(file::u64(data)?),
            TIME_SHIFT if self.shifts.len() < MAX_GUESTS => self.shifts.push(time_shift(data)?),
            GUEST if self.guests.len() < MAX_GUESTS => self.guests.push(guest(data)?),
            TSC2NSEC => {
                let (mult, shift) = (file::u32(data)?, file::u32(data)?);
                // Without a multiplier the file has no scale.
                self.tsc = (mult > 0 && shift < 64).then_some(TscScale { mult, shift });
            }
            _ => {}
        }
        Ok(())
    }
}

/// The clock in brackets: `local global [x86-tsc]`.
pub(super) fn clock(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    rest.split_once(']').map(|(clock, _)| clock.to_owned())
}

fn time_shift(data: &mut &[u8]) -> io::Result<TimeShift> {
    let (peer, flags, count) = (file::u64(data)?, file::u32(data)?, file::u32(data)?);
    let mut cpus: Vec<Vec<TimeOffset>> = Vec::new();
    for _ in 0..count {
        let samples = file::u32(data)? as usize;
        // Time, offset, scaling.
        if samples
            .checked_mul(3 * 8)
            .is_none_or(|bytes| bytes > data.len())
        {
            return Err(wrong("a time shift is longer than its option"));
        }
        let mut column = || {
            (0..samples)
                .map(|_| file::u64(data))
                .collect::<io::Result<Vec<u64>>>()
        };
        let (times, offsets, scalings) = (column()?, column()?, column()?);
        let offsets =
            times
                .into_iter()
                .zip(offsets)
                .zip(scalings)
                .map(|((time, offset), scaling)| TimeOffset {
                    time,
                    offset: offset as i64,
                    scaling,
                    fraction: 0,
                });
        cpus.push(offsets.collect());
    }
    // Older files have no fractions.
    if !data.is_empty() {
        for offset in cpus.iter_mut().flatten() {
            offset.fraction = u32::try_from(file::u64(data)?).unwrap_or(u32::MAX);
        }
    }
    if cpus
        .iter()
        .flatten()
        .any(|offset| offset.scaling == 0 || offset.fraction >= 64)
    {
        return Err(wrong("a time shift has no scale"));
    }
    Ok(TimeShift {
        peer,
        measured: flags & INTERPOLATE != 0,
        cpus,
    })
}

fn guest(data: &mut &[u8]) -> io::Result<TracedGuest> {
    let (name, trace_id, count) = (string(data)?, file::u64(data)?, file::u32(data)?);
    let vcpus = (0..count).map(|_| Ok((file::u32(data)?, file::u32(data)? as i32)));
    Ok(TracedGuest {
        name,
        trace_id,
        vcpus: vcpus.collect::<io::Result<_>>()?,
    })
}

impl TimeShift {
    /// A time stamp of the guest's trace on the host's clock.
    pub fn host(&self, cpu: u32, ticks: u64) -> u64 {
        let of_cpu = self
            .cpus
            .get(cpu as usize)
            .filter(|offsets| !offsets.is_empty());
        let Some(offsets) = of_cpu.or_else(|| self.cpus.iter().find(|offsets| !offsets.is_empty()))
        else {
            return ticks;
        };
        let after = offsets.partition_point(|offset| offset.time <= ticks);
        let at = offsets[after.saturating_sub(1)];
        let offset = match offsets.get(after).filter(|_| self.measured && after > 0) {
            Some(next) if next.time > at.time => {
                let (took, since) = (
                    i128::from(next.time - at.time),
                    i128::from(ticks) - i128::from(at.time),
                );
                let grows = since
                    .checked_mul(i128::from(next.offset) - i128::from(at.offset))
                    .unwrap_or(0);
                i128::from(at.offset) + grows / took
            }
            _ => i128::from(at.offset),
        };
        let scaled = (u128::from(ticks) * u128::from(at.scaling)) >> at.fraction;
        let host = i128::try_from(scaled)
            .unwrap_or(i128::MAX)
            .saturating_add(offset);
        u64::try_from(host.max(0)).unwrap_or(u64::MAX)
    }

    /// By how much the measured offsets of one CPU differ from one another, ticks: what the measurements may be wrong by.
    pub fn spread(&self) -> u64 {
        let spread = |offsets: &Vec<TimeOffset>| {
            let all = || offsets.iter().map(|offset| offset.offset);
            all()
                .max()
                .zip(all().min())
                .map_or(0, |(max, min)| max.abs_diff(min))
        };
        self.cpus.iter().map(spread).max().unwrap_or(0)
    }
}

impl TscScale {
    /// Ticks in a microsecond.
    pub fn mhz(self) -> f64 {
        1000.0 * 2_f64.powi(self.shift as i32) / f64::from(self.mult)
    }
}

/// The names of threads, lines `12 name`.
pub(super) fn threads(text: &str) -> crate::TracedThreads {
    let line = |line: &str| {
        let (tid, name) = line.trim_start().split_once(' ')?;
        Some((
            tid.parse().ok()?,
            crate::TracedThread {
                process: None,
                name: name.to_owned(),
            },
        ))
    };
    text.lines()
        .filter_map(line)
        .take(crate::import::MAX_THREADS)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// One CPU's corrections as trace-cmd writes them: peer 77.
    fn shift(flags: u32, offsets: &[(u64, i64)], scaling: u64, fraction: Option<u64>) -> Vec<u8> {
        let mut data = 77_u64.to_le_bytes().to_vec();
        data.extend(
            [flags, 1, offsets.len() as u32]
                .into_iter()
                .flat_map(u32::to_le_bytes),
        );
        data.extend(offsets.iter().flat_map(|(time, _)| time.to_le_bytes()));
        data.extend(offsets.iter().flat_map(|(_, offset)| offset.to_le_bytes()));
        data.extend(offsets.iter().flat_map(|_| scaling.to_le_bytes()));
        data.extend(
            offsets
                .iter()
                .filter_map(|_| fraction)
                .flat_map(u64::to_le_bytes),
        );
        data
    }

    fn taken(options: &[(u16, &[u8])]) -> Options {
        let mut taken = Options::default();
        options
            .iter()
            .for_each(|(id, data)| taken.take(*id, data).unwrap());
        taken
    }

    #[test]
    fn a_guests_times_become_its_hosts() {
        // What KVM keeps is exact: one offset for all, also before and after.
        let exact = taken(&[(TIME_SHIFT, &shift(0, &[(100, 5000)], 1, None))])
            .shifts
            .remove(0);
        assert_eq!((exact.peer, exact.measured, exact.spread()), (77, false, 0));
        assert_eq!(
            [0, 100, 900].map(|at| exact.host(3, at)),
            [5000, 5100, 5900]
        );
        // What was measured is interpolated.
        let measured = taken(&[(
            TIME_SHIFT,
            &shift(1, &[(100, 5000), (200, 5010)], 1, Some(0)),
        )])
        .shifts
        .remove(0);
        assert_eq!(
            [50, 100, 150, 200, 300].map(|at| measured.host(0, at)),
            [5050, 5100, 5155, 5210, 5310]
        );
        assert_eq!(measured.spread(), 10);
        // A guest whose counter is half as fast, and one that is ahead.
        let scaled = taken(&[(TIME_SHIFT, &shift(0, &[(0, -10)], 32, Some(4)))])
            .shifts
            .remove(0);
        assert_eq!([0, 4, 100].map(|at| scaled.host(0, at)), [0, 0, 190]);
    }

    #[test]
    fn a_session_names_its_guests_and_the_rate_of_its_counter() {
        let mut guest = b"web01\0".to_vec();
        guest.extend(78_u64.to_le_bytes());
        guest.extend(
            [2_u32, 0, 1000, 1, 1001]
                .into_iter()
                .flat_map(u32::to_le_bytes),
        );
        let scale = [1_u32 << 22, 23, 0, 0]
            .into_iter()
            .flat_map(u32::to_le_bytes)
            .collect::<Vec<u8>>();
        let options = taken(&[
            (TRACEID, &77_u64.to_le_bytes()),
            (GUEST, &guest),
            (TSC2NSEC, &scale),
            (99, b"x"),
        ]);
        assert_eq!(options.trace_id, Some(77));
        let expected = TracedGuest {
            name: "web01".to_owned(),
            trace_id: 78,
            vcpus: vec![(0, 1000), (1, 1001)],
        };
        assert_eq!(options.guests, [expected]);
        assert_eq!(options.tsc.map(TscScale::mhz), Some(2000.0));
        let threads = threads("  12 CPU 0/KVM\nx y\n13 a\n");
        let names: Vec<(i32, &str)> = threads
            .iter()
            .map(|(tid, thread)| (*tid, thread.name.as_str()))
            .collect();
        assert_eq!(names, [(12, "CPU 0/KVM"), (13, "a")]);
    }

    proptest! {
        #[test]
        fn any_option_is_survived(id in 0..16_u16, data in proptest::collection::vec(any::<u8>(), 0..120), cut in 0..90_usize, at: u64) {
            let whole = shift(1, &[(at, 5), (at.saturating_add(9), -7)], at | 1, Some(at % 64));
            for data in [&data[..], &whole[..cut.min(whole.len())], &whole] {
                let mut options = Options::default();
                let _ = options.take(id, data);
                let _ = options.take(TIME_SHIFT, data);
                for shift in &options.shifts {
                    let _ = (shift.host(0, at), shift.host(9, u64::MAX), shift.spread());
                }
            }
        }
    }
}
