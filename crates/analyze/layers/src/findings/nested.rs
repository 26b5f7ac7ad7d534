//! The view that published tables have: from each layer's entry to its exit, one inside the other.

use super::distribution::Distribution;
use crate::request::JoinedRequest;
use crate::trial::joined_trial::CommonPath;
use std::collections::BTreeMap;
use vmtax_findings::{Nested, Summary};
use vmtax_model::Checkpoint;

type Times = [Distribution; LEVELS.len()];

/// The nested times of requests, by which levels a trial has.
#[derive(Debug, Clone, Default)]
pub(crate) struct NestedTally(BTreeMap<[bool; LEVELS.len()], Box<Times>>);

impl NestedTally {
    /// Adds a trial's requests. A level counts that more than half of them have; a request, that has all of those.
    pub fn add(&mut self, requests: &[JoinedRequest], common_path: &CommonPath, mhz: f64) {
        // In the micro-guest the driver's stamps are the workload's own: the same level twice.
        let kernel = common_path.checkpoints().contains(&Checkpoint::GuestIssue);
        let has = LEVELS.each_ref().map(|level| {
            let having = requests.iter().filter(|r| level.ticks(r).is_some()).count();
            having * 2 > requests.len() && (kernel || level.label != "guest virtio")
        });
        if !has.contains(&true) {
            return;
        }
        let times = self.0.entry(has).or_default();
        for request in requests {
            let ticks = LEVELS.each_ref().map(|level| level.ticks(request));
            if ticks
                .iter()
                .zip(has)
                .all(|(ticks, has)| !has || ticks.is_some())
            {
                for (time, ticks) in times.iter_mut().zip(ticks) {
                    ticks
                        .into_iter()
                        .for_each(|t| time.add(t as f64 * 1000.0 / mhz));
                }
            }
        }
    }

    /// The table, of the levels that most requests have.
    pub fn table(&self) -> Vec<Nested> {
        let Some((has, times)) = self.0.iter().max_by_key(|(_, times)| times[0].count()) else {
            return Vec::new();
        };
        let levels = LEVELS
            .iter()
            .zip(times.iter())
            .zip(has)
            .filter(|(_, has)| **has);
        nested(
            &levels
                .map(|((level, time), _)| (level.label, time.summary()))
                .collect::<Vec<_>>(),
        )
    }
}

/// Returns the time that each layer takes beyond the next inner one, and its share of the outermost: successive means
/// subtracted.
pub(crate) fn nested(levels: &[(&str, Summary)]) -> Vec<Nested> {
    let whole = levels.first().map_or(0.0, |(_, f)| f.mean_ns);
    let inner = levels.iter().skip(1).map(|(_, f)| f.mean_ns).chain([0.0]);
    let rows = levels.iter().zip(inner);
    rows.map(|((label, cumulative), inner)| {
        let delta_ns = cumulative.mean_ns - inner;
        let percent = if whole > 0.0 {
            100.0 * delta_ns / whole
        } else {
            0.0
        };
        Nested {
            label: (*label).to_owned(),
            cumulative: *cumulative,
            delta_ns,
            percent,
        }
    })
    .collect()
}

/// A layer's entry and exit: the first of each that a request has.
pub(crate) struct Level {
    pub label: &'static str,
    enter: &'static [Checkpoint],
    leave: &'static [Checkpoint],
}

/// From the outermost to the innermost, after the KVM wiki's page on virtio-blk latency (2010).
pub(crate) const LEVELS: [Level; 5] = {
    use Checkpoint as S;
    [
        Level {
            label: "guest benchmark",
            enter: &[S::Begin],
            leave: &[S::End],
        },
        Level {
            label: "guest virtio",
            enter: &[S::GuestNotify, S::GuestIssue],
            leave: &[S::GuestInterrupt, S::GuestComplete],
        },
        Level {
            label: "KVM",
            enter: &[S::KvmNotify],
            leave: &[S::Inject],
        },
        Level {
            label: "QEMU virtio",
            enter: &[S::QemuWake, S::QemuPop],
            leave: &[S::QemuNotify, S::QemuPush],
        },
        Level {
            label: "QEMU AIO",
            enter: &[S::HostCall],
            leave: &[S::QemuReap, S::HostComplete, S::QemuPush],
        },
    ]
};

impl Level {
    /// Returns the time that a request was in the layer and below, in ticks; `None` if the request lacks the entry or
    /// the exit.
    pub fn ticks(&self, request: &JoinedRequest) -> Option<u64> {
        let first = |checkpoints: &[Checkpoint]| checkpoints.iter().find_map(|s| request.at(*s));
        first(self.leave)?.checked_sub(first(self.enter)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// KVM wiki, virtio-blk latency, 2010: its cumulative column gives its deltas and percents.
    #[test]
    fn the_published_table_as_arithmetic() {
        let published = [
            ("guest benchmark", 196_528.0, 25_699.0, 13.08),
            ("guest virtio-pci", 170_829.0, 7_561.0, 3.85),
            ("host kvm.ko", 163_268.0, 3_640.0, 1.85),
            ("QEMU virtio", 159_628.0, 29_393.0, 14.96),
            ("QEMU paio", 130_235.0, 130_235.0, 66.27),
        ];
        let figure = |mean_ns| Summary {
            mean_ns,
            ..Summary::default()
        };
        let table = nested(&published.map(|(label, cumulative, ..)| (label, figure(cumulative))));
        for (row, (label, cumulative, delta, percent)) in table.iter().zip(published) {
            assert_eq!(
                (row.label.as_str(), row.cumulative.mean_ns, row.delta_ns),
                (label, cumulative, delta)
            );
            assert_eq!((row.percent * 100.0).round() / 100.0, percent, "{label}");
        }
        // And the overhead over the host's own 128,862 ns that the page gives: 33 % before, 14.5 % in a later run.
        assert_eq!(((170_829.0_f64 / 128_862.0 - 1.0) * 100.0).round(), 33.0);
        assert_eq!(nested(&[]), []);
    }
}
