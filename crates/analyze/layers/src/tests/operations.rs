//! Operations of fio, which stamps none, by its system calls: what lasts as long as fio's completion latency, and what is none of its
//! operations.

use super::alone;
use super::cases::data;
use crate::disk::NOWHERE;
use crate::disk::operations::CalledOperations;
use crate::events::{Event, GuestEvent};
use crate::findings::column_sums::{ColumnSums, column};
use crate::join::joiner::Join;
use crate::join::{Operation, View};
use crate::synthetic::{BLOCK, Times, World, facts, found, in_guest};
use crate::trial::joined_trial::JoinedTrial;
use proptest::prelude::*;
use vmtax_findings::RequestKind;
use vmtax_model::testing::done;
use vmtax_model::{
    Checkpoint, KernelIdentity, Latency, Machine, Measure, Metric, Timer, TimerSource, TrialResult,
    WorkloadName, WorkloadSpec,
};

const FIO: i32 = 40;
const OTHER: i32 = 41;
const KWORKER: i32 = 42;
const READ: u32 = 0;
const PREAD: u32 = 17;
const OPENAT: u32 = 257;
const IO_SUBMIT: u32 = 209;
const IO_GETEVENTS: u32 = 208;
const IO_URING_ENTER: u32 = 426;

/// Events of a guest, in the order of time.
struct Guest(CalledOperations);

impl Guest {
    fn of_depth(depth: u64) -> Guest {
        Guest(CalledOperations::new(depth))
    }

    fn event(&mut self, at: u64, tid: i32, what: GuestEvent) {
        self.0.take(&Event {
            at,
            cpu: 0,
            tid,
            interrupt: false,
            kind: in_guest(&what),
            what,
        });
    }

    fn enter(&mut self, at: u64, tid: i32, nr: u32, counts: [u64; 2]) {
        let args = [3, counts[0], counts[1], 0];
        self.event(at, tid, GuestEvent::Enter { nr, args });
    }

    fn exit(&mut self, at: u64, tid: i32) {
        self.event(at, tid, GuestEvent::Exit);
    }

    fn insert(&mut self, at: u64, tid: i32, block: u64) {
        let offset = block * BLOCK;
        self.event(at, tid, GuestEvent::Insert { offset });
    }

    fn issue(&mut self, at: u64, tid: i32, block: u64) {
        let (bytes, kind) = (BLOCK, RequestKind::Read);
        let offset = block * BLOCK;
        self.event(
            at,
            tid,
            GuestEvent::Issue {
                offset,
                bytes,
                kind,
            },
        );
    }

    fn complete(&mut self, at: u64, block: u64) {
        let offset = block * BLOCK;
        self.event(at, 0, GuestEvent::Complete { offset });
    }

    /// Submits one block in a call of this length.
    fn submit(&mut self, at: u64, nr: u32, block: u64) {
        self.enter(at, FIO, nr, [1, 0]);
        self.issue(at + 1, FIO, block);
        self.exit(at + 5, FIO);
    }

    /// Block, begin of the latency, end, of each operation.
    fn latencies(self) -> Vec<[u64; 3]> {
        let (operations, _) = self.0.finish();
        let figures = |o: &Operation| [o.key / BLOCK, o.counted_from, o.end];
        operations.iter().map(figures).collect()
    }
}

#[test]
fn a_synchronous_call_lasts_from_its_entry_to_its_return() {
    let mut guest = Guest::of_depth(1);
    guest.enter(100, FIO, PREAD, [0, BLOCK]);
    guest.issue(110, FIO, 7);
    guest.complete(150, 7);
    guest.exit(160, FIO);
    // Of two tasks at once each has its own.
    guest.enter(200, FIO, READ, [0, BLOCK]);
    guest.issue(201, FIO, 1);
    guest.enter(202, OTHER, READ, [0, BLOCK]);
    guest.issue(203, OTHER, 2);
    guest.complete(210, 2);
    guest.exit(215, OTHER);
    guest.complete(220, 1);
    guest.exit(230, FIO);
    assert_eq!(
        guest.latencies(),
        [[7, 100, 160], [1, 200, 230], [2, 202, 215]]
    );
}

#[test]
fn what_is_no_operation_of_fio_is_left_out() {
    let mut guest = Guest::of_depth(1);
    // The partition table is read when the disk is opened; a kernel thread writes the page cache back.
    guest.enter(10, FIO, OPENAT, [0, 0]);
    guest.issue(12, FIO, 0);
    guest.complete(14, 0);
    guest.exit(15, FIO);
    guest.issue(20, KWORKER, 90);
    guest.complete(22, 90);
    // A flush is in none of fio's latencies.
    guest.enter(30, FIO, IO_SUBMIT, [1, 0]);
    let flush = GuestEvent::Issue {
        offset: NOWHERE,
        bytes: 0,
        kind: RequestKind::Flush,
    };
    guest.event(31, FIO, flush);
    guest.event(33, 0, GuestEvent::Complete { offset: NOWHERE });
    guest.exit(34, FIO);
    // A read that the page cache answers, and one that reads ahead beyond its return.
    guest.enter(40, FIO, READ, [0, BLOCK]);
    guest.exit(41, FIO);
    guest.enter(42, FIO, READ, [0, BLOCK]);
    guest.issue(43, FIO, 5);
    guest.exit(44, FIO);
    guest.complete(50, 5);
    guest.enter(60, FIO, PREAD, [0, BLOCK]);
    guest.issue(61, FIO, 8);
    guest.complete(62, 8);
    guest.exit(63, FIO);
    let (operations, has_others) = guest.0.finish();
    assert_eq!(operations.len(), 1);
    assert_eq!((operations[0].begin, operations[0].end), (60, 63));
    assert!(has_others);
}

#[test]
fn an_asynchronous_request_lasts_from_its_submission_to_the_call_that_reaps_it() {
    let mut guest = Guest::of_depth(2);
    guest.submit(100, IO_SUBMIT, 1);
    guest.submit(110, IO_SUBMIT, 2);
    // Both are complete, but one call reaps one.
    guest.enter(120, FIO, IO_GETEVENTS, [1, 1]);
    guest.complete(130, 2);
    guest.complete(131, 1);
    guest.exit(140, FIO);
    guest.submit(150, IO_SUBMIT, 3);
    guest.enter(160, FIO, IO_GETEVENTS, [1, 1]);
    guest.exit(162, FIO);
    guest.enter(170, FIO, IO_GETEVENTS, [1, 1]);
    guest.complete(180, 3);
    guest.exit(190, FIO);
    assert_eq!(
        guest.latencies(),
        [[1, 105, 162], [2, 115, 140], [3, 155, 190]]
    );
}

#[test]
fn what_is_reaped_without_a_call_was_reaped_before_its_place_was_taken() {
    let mut guest = Guest::of_depth(2);
    guest.submit(100, IO_URING_ENTER, 1);
    guest.submit(110, IO_URING_ENTER, 2);
    guest.complete(118, 1);
    // fio sees the completion in the ring, and submits the next.
    guest.submit(120, IO_URING_ENTER, 3);
    guest.enter(130, FIO, IO_URING_ENTER, [0, 1]);
    guest.complete(140, 2);
    guest.complete(141, 3);
    guest.exit(150, FIO);
    // Another that came with the one it waited for.
    guest.submit(160, IO_URING_ENTER, 4);
    guest.submit(170, IO_URING_ENTER, 5);
    guest.complete(171, 4);
    // The last ones are reaped, though nothing is submitted any more.
    guest.enter(180, FIO, IO_URING_ENTER, [0, 1]);
    guest.exit(181, FIO);
    guest.complete(185, 5);
    guest.enter(190, FIO, IO_URING_ENTER, [0, 1]);
    guest.exit(191, FIO);
    assert_eq!(
        guest.latencies(),
        [
            [1, 105, 118],
            [2, 115, 150],
            [3, 125, 165],
            [4, 165, 181],
            [5, 175, 191]
        ]
    );
}

#[test]
fn a_split_operation_is_one_and_a_batch_is_several() {
    let mut guest = Guest::of_depth(4);
    guest.enter(100, FIO, IO_SUBMIT, [1, 0]);
    guest.issue(101, FIO, 10);
    guest.issue(102, FIO, 11);
    guest.exit(105, FIO);
    guest.enter(106, FIO, IO_GETEVENTS, [1, 1]);
    guest.complete(110, 11);
    // The driver's ring was full.
    guest.issue(112, KWORKER, 10);
    guest.complete(120, 10);
    guest.exit(125, FIO);
    guest.enter(200, FIO, IO_SUBMIT, [2, 0]);
    guest.issue(201, FIO, 20);
    guest.insert(202, FIO, 30);
    guest.issue(203, KWORKER, 30);
    guest.exit(205, FIO);
    guest.enter(206, FIO, IO_GETEVENTS, [2, 2]);
    guest.complete(210, 30);
    guest.complete(211, 20);
    guest.exit(215, FIO);
    // The I/O scheduler's kernel thread issues it when the call has returned.
    guest.enter(300, FIO, IO_SUBMIT, [1, 0]);
    guest.insert(301, FIO, 40);
    guest.exit(305, FIO);
    guest.issue(310, KWORKER, 40);
    guest.enter(311, FIO, IO_GETEVENTS, [1, 1]);
    guest.complete(320, 40);
    guest.exit(325, FIO);
    let (operations, _) = guest.0.finish();
    let figures = |o: &Operation| [o.key / BLOCK, o.bytes / BLOCK, o.counted_from, o.end];
    assert_eq!(
        operations.iter().map(figures).collect::<Vec<_>>(),
        [
            [10, 2, 105, 125],
            [20, 1, 205, 215],
            [30, 1, 205, 215],
            [40, 1, 305, 325]
        ]
    );
}

/// The requests of a world whose reader is fio, by its calls alone.
fn joined(world: &World) -> JoinedTrial {
    let mut called = CalledOperations::new(1);
    world.guest.iter().for_each(|event| called.take(event));
    let (operations, _) = called.finish();
    let mut join = Join::of_operations(&facts(), operations, View::Kernel, 0);
    world.feed(&mut join, |t| t, |_| {});
    JoinedTrial::new(data(join.finish()))
}

#[test]
fn a_planted_request_of_fio_comes_out_as_it_was_planted_from_call_to_return() {
    let world = alone(&[Times::default(); 20]);
    let trial = joined(&world);
    assert_eq!((trial.matched.operations, trial.matched.joined), (20, 20));
    for (request, truth) in trial.requests.iter().zip(&world.truth) {
        let mut truth = truth.clone();
        let at = |c| truth.checkpoints[&c];
        let (call, back) = (at(Checkpoint::GuestCall), at(Checkpoint::GuestReturn));
        truth.checkpoints.insert(Checkpoint::Begin, call);
        truth.checkpoints.insert(Checkpoint::End, back);
        assert_eq!(found(request), truth);
        let segments: u64 = request.segments.iter().map(|segment| segment.ticks).sum();
        assert_eq!((segments, request.total()), (back - call, back - call));
    }
}

#[test]
fn time_before_a_submissions_return_does_not_count() {
    // As if io_submit had returned between the doorbell and QEMU's wake-up.
    let world = alone(&[Times::default()]);
    let truth = &world.truth[0].checkpoints;
    let counted_from = truth[&Checkpoint::KvmNotify] + 7;
    let operation = Operation {
        begin: truth[&Checkpoint::GuestCall],
        counted_from,
        end: truth[&Checkpoint::GuestReturn],
        key: world.truth[0].offset,
        bytes: BLOCK,
    };
    let mut join = Join::of_operations(&facts(), vec![operation], View::Kernel, 0);
    world.feed(&mut join, |t| t, |_| {});
    let joined = join.finish();
    assert_eq!(joined.rejected, []);
    let request = &joined.requests[0];
    let sum: u64 = request.segments.iter().map(|segment| segment.ticks).sum();
    assert_eq!(
        (request.begin(), request.total()),
        (counted_from, operation.end - counted_from)
    );
    assert_eq!(sum, request.total());
    assert_eq!(request.segments[0].to, Checkpoint::QemuWake);
}

/// A traced run of fio with that mean completion latency.
fn run_of_fio(mean_ns: f64) -> TrialResult {
    let measure = Measure {
        metric: Metric::FioMean,
        value: mean_ns,
    };
    let (timer, kernel) = (
        Timer {
            source: TimerSource::Tsc,
            mhz: 1000.0,
            error: 0.0,
            pair_ns: 0.0,
            reason: None,
        },
        KernelIdentity {
            system: "Linux".to_owned(),
            release: "6.1".to_owned(),
            version: "1".to_owned(),
        },
    );
    TrialResult {
        measures: vec![measure],
        ..TrialResult::new(WorkloadSpec::new(WorkloadName::Fio), timer, kernel)
    }
}

#[test]
fn the_rows_and_fios_own_part_are_fios_mean_to_the_digit() {
    const MEAN: f64 = 2_345.678_901;
    let trial = joined(&alone(&[Times::default(); 20]));
    let mut sums = ColumnSums::default();
    sums.add(0, &trial);
    let mut latency = Latency::new();
    latency.record_many(2000, 21);
    sums.add_fio(&done(Machine::TCG, run_of_fio(MEAN)), &latency);
    let column = column(Machine::TCG, "", &sums);
    assert_eq!(
        (column.traced.mean_ns, column.fio_requests),
        (MEAN, Some(21))
    );
    let rows: f64 = column.rows.iter().map(|row| row.time.mean_ns).sum();
    let joined: f64 = trial.requests.iter().map(|r| trial.ns(r.total())).sum();
    assert!((rows - joined / 20.0).abs() < 1e-6);
    assert!((rows + column.unexplained_ns - MEAN).abs() < 1e-9);
    let percent: f64 = column.rows.iter().map(|row| row.percent).sum();
    assert!((percent - 100.0 * rows / MEAN).abs() < 1e-9);
    // Two runs count by their requests.
    latency.record_many(2000, 21);
    sums.add_fio(&done(Machine::TCG, run_of_fio(MEAN + 3.0)), &latency);
    let both = crate::findings::column_sums::column(Machine::TCG, "", &sums);
    assert!((both.traced.mean_ns - (MEAN + 2.0)).abs() < 1e-9);
}

proptest! {
    /// Whatever a guest's trace says: times follow each other, and nothing is found that was not issued.
    #[test]
    fn any_events_make_operations_in_order(
        events in prop::collection::vec((17_u8..25, 0_i32..4, 0_u64..6, any::<bool>()), 0..300),
        depth in 0_u64..4,
    ) {
        let mut world = World::new(0);
        for (at, (kind, tid, place, interrupt)) in (1_u64..).zip(events) {
            world.any(at * 10, kind, tid, place, interrupt);
        }
        let mut called = CalledOperations::new(depth);
        world.guest.iter().for_each(|event| called.take(event));
        let (operations, _) = called.finish();
        let issued = world.guest.iter().filter(|e| matches!(e.what, GuestEvent::Issue { .. }));
        prop_assert!(operations.len() <= issued.count());
        prop_assert!(operations.windows(2).all(|pair| pair[0].begin <= pair[1].begin));
        for operation in operations {
            prop_assert!(operation.begin <= operation.counted_from && operation.counted_from <= operation.end);
        }
    }
}
