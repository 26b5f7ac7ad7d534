//! The VMM's part of a packet where no probe shows it: by its system calls on the tap, by who woke its thread, and by the
//! interrupts that the thread delivers.

use super::from_host::{FromHost, Kick};

impl FromHost<'_> {
    /// The kick for which a thread of any VMM took a packet, if the doorbell's address is not known: a vCPU's thread woke it last, or
    /// woke the thread that did. A packet that it found when it woke for something else has been in the ring for an unknown time.
    pub(super) fn kick_of_turn(&self, tid: i32, previous: u64, taken: u64) -> Option<Kick> {
        let turn = self.turn(tid, previous, taken)?;
        let is_kick = |turn: &Turn| self.host.vcpus.contains(&turn.by);
        let (turn, woken) = match is_kick(&turn) {
            true => (turn, tid),
            false => (self.turn(turn.by, previous, turn.at)?, turn.by),
        };
        is_kick(&turn).then_some(Kick {
            at: turn.at,
            vcpu: turn.by,
            woke: turn.woke,
            woken,
        })
    }

    /// The last wake-up of a thread after `previous`, up to `until`. `None` where its wait returned at once, or an interrupt
    /// ended it.
    fn turn(&self, tid: i32, previous: u64, until: u64) -> Option<Turn> {
        let host = self.host;
        let woke = host.resumed(tid, previous.saturating_add(1), until)?;
        let before = host.woke_before(tid, previous, woke).unwrap_or(previous);
        let (at, by) = host.woken_by(tid, woke).filter(|(at, _)| *at > before)?;
        Some(Turn { at, by, woke })
    }

    /// When a thread turns to the tap again after it read a packet at `read`: at the latest for the `next`. QEMU notifies the guest of
    /// each packet before that. Another VMM may do so once for all that it has read, and has told the guest of each by then.
    pub(super) fn next_on_tap(&self, tid: i32, read: u64, next: u64) -> u64 {
        let mut calls = self.host.calls_within(tid, read.saturating_add(1), next);
        let call = calls.find(|(_, call)| self.host.is_of_tap(call.args[0]));
        call.map_or(next, |(enter, _)| enter)
    }
}

/// A thread's wake-up by another one.
#[derive(Debug, Clone, Copy)]
struct Turn {
    at: u64,
    by: i32,
    /// When the thread went on.
    woke: u64,
}
