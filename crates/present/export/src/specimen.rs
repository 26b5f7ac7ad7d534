//! Trials to write in tests.

use crate::joined::{Record, Sheet, Slice};
use vmtax_layers::Who;
use vmtax_model::{Checkpoint, Machine, State};

/// From each checkpoint to the next: which state, who, how long in ns; the first stretch begins 500 ns into the operation.
const WAY: &[(Checkpoint, State, Who, u64)] = {
    use Checkpoint as S;
    &[
        (S::GuestIssue, State::Running, Who::Guest, 20_000),
        (S::GuestNotify, State::GuestRunnable, Who::Guest, 4_000),
        (S::QemuWake, State::Waiting, Who::Thread(0), 30_000),
        (S::QemuWake, State::Runnable, Who::Thread(0), 11_000),
        (S::QemuPop, State::Running, Who::Thread(0), 9_000),
        (S::HostIssue, State::Lock, Who::Thread(1), 2_000),
        (S::HostIssue, State::Running, Who::Host, 5_000),
        (S::HostComplete, State::Running, Who::Host, 47_000),
        (S::QemuPush, State::Running, Who::Thread(0), 9_000),
        (S::GuestReturn, State::Running, Who::Guest, 18_000),
    ]
};
/// Time after the last checkpoint that a tracer saw, in ns.
const REST: u64 = 700;

fn request(number: u32, begin: u64) -> Record {
    let mut checkpoints = [None; Checkpoint::COUNT];
    let (mut at, mut from) = (begin + 500, Checkpoint::GuestCall);
    checkpoints[Checkpoint::Begin as usize] = Some(begin);
    checkpoints[from as usize] = Some(at);
    let mut slices: Vec<Slice> = Vec::new();
    for (to, state, who, ns) in WAY {
        if let Some(before) = slices.last().filter(|s| s.to != *to) {
            from = before.to;
        }
        slices.push(Slice {
            from,
            to: *to,
            state: *state,
            who: *who,
            begin: at,
            end: at + ns,
        });
        at += ns;
        checkpoints[*to as usize] = Some(at);
    }
    checkpoints[Checkpoint::End as usize] = Some(at + REST);
    Record {
        number,
        offset: u64::from(number) * 4096,
        checkpoints,
        slices,
    }
}

/// A trial whose requests begin every `apart` ns: below 155,000 they overlap.
pub fn sheet(number: u32, variant: &str, requests: u32, apart: u64) -> Sheet {
    Sheet {
        run: "20261125T091310Z-layers-3f2a91bc0d1e".to_owned(),
        number,
        machine: Machine::TCG,
        variant: variant.to_owned(),
        round: number / 2,
        threads: vec![("main loop".to_owned(), 4242), ("worker".to_owned(), 4250)],
        requests: (0..requests)
            .map(|i| request(i, u64::from(i) * apart))
            .collect(),
    }
}
