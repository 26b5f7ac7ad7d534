//! The stamps of each request, kept.

use crate::{Clock, WorkloadError};
use vmtax_model::{Series, Stamped, TimerSource, WorkloadName};

/// The option for the number of requests, of each workload whose requests are kept.
const COUNT: &str = "count";
/// The most requests that are kept: 96 MiB of them.
const MOST: u64 = 4 << 20;
/// No thread makes more requests a second.
const FASTEST: f64 = 1e6;

/// Room for the stamps of requests, there before the first is made, so that keeping one is a store.
pub(crate) struct Recorder {
    room: Vec<Stamped>,
    kept: usize,
}

impl Recorder {
    /// Room for as many requests as are asked for, or as can be made in the time, ns: [`MOST`] at most. Of more that time
    /// allows, the first are kept. 0: no limit.
    pub fn new(
        workload: WorkloadName,
        count: u64,
        time_ns: u64,
        clock: &Clock,
    ) -> Result<Recorder, WorkloadError> {
        let timer = clock.about();
        if timer.source != TimerSource::Tsc {
            let reason = timer.reason.clone().unwrap_or_default();
            return Err(WorkloadError::NoStamps(reason));
        }
        if count > MOST {
            return Err(WorkloadError::TooMany {
                workload,
                asked: count,
                most: MOST,
            });
        }
        let timed = match time_ns {
            0 => MOST,
            _ => ((time_ns as f64 / 1e9 * FASTEST) as u64 + 1).min(MOST),
        };
        let requests = if count == 0 { timed } else { count.min(timed) };
        let mut room = Vec::new();
        room.try_reserve_exact(requests as usize)
            .map_err(|_| WorkloadError::NoMemory {
                workload,
                bytes: requests * size_of::<Stamped>() as u64,
                option: COUNT,
            })?;
        // Not zeros: those the system would only promise.
        let unused = Stamped {
            begin: u64::MAX,
            end: u64::MAX,
            key: u64::MAX,
        };
        room.resize(requests as usize, unused);
        Ok(Recorder { room, kept: 0 })
    }

    #[inline(always)]
    pub fn note(&mut self, begin: u64, end: u64, offset: u64) {
        if let Some(place) = self.room.get_mut(self.kept) {
            *place = Stamped {
                begin,
                end,
                key: offset,
            };
            self.kept += 1;
        }
    }

    /// Returns the recorded requests, in the order in which they began.
    pub fn series(self, clock: &Clock) -> Series {
        let mut operations = self.room;
        operations.truncate(self.kept);
        // Counters of two CPUs may differ by less than would show in figures.
        operations
            .iter_mut()
            .for_each(|o| o.end = o.end.max(o.begin));
        operations.sort_unstable_by_key(|o| o.begin);
        Series {
            mhz: clock.about().mhz,
            operations,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorder(count: u64, time_ns: u64, clock: &Clock) -> Result<Recorder, WorkloadError> {
        Recorder::new(WorkloadName::Disk, count, time_ns, clock)
    }

    #[test]
    fn room_is_for_what_is_asked_for_and_never_for_more_than_can_be_kept() {
        let clock = Clock::calibrate();
        let room = |count, time_ns| recorder(count, time_ns, &clock).map(|r| r.room.len() as u64);
        assert_eq!(room(10, 0).unwrap(), 10);
        assert_eq!(room(MOST, 1_000_000).unwrap(), 1_001);
        assert_eq!(room(0, 3_600_000_000_000).unwrap(), MOST);
        assert!(
            matches!(room(MOST + 1, 0), Err(WorkloadError::TooMany { asked, .. }) if asked == MOST + 1)
        );
    }

    #[test]
    fn what_there_is_no_room_for_is_not_kept_and_the_rest_is_in_order() {
        let clock = Clock::calibrate();
        let mut recorder = recorder(3, 0, &clock).unwrap();
        for (begin, end) in [(20, 30), (10, 40), (50, 49), (60, 70)] {
            recorder.note(begin, end, 0);
        }
        let series = recorder.series(&clock);
        assert_eq!(
            series
                .operations
                .iter()
                .map(|o| (o.begin, o.end))
                .collect::<Vec<_>>(),
            [(10, 40), (20, 30), (50, 50)]
        );
        assert_eq!(Series::from_bytes(&series.to_bytes()).unwrap(), series);
    }

    #[test]
    fn without_a_tsc_the_reason_is_told() {
        let refused = recorder(1, 0, &Clock::without_tsc("the TSC goes backwards"))
            .err()
            .unwrap();
        assert!(
            refused.to_string().contains("here the TSC goes backwards"),
            "{refused}"
        );
    }
}
