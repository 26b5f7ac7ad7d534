//! The VMM's part of a packet where no probe shows it: by its system calls on the tap, by who woke its thread, and by the
//! interrupts that the thread delivers.

use super::from_host::{FromHost, Kick};
use crate::join::RequestPath;
use vmtax_model::Checkpoint as C;

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

    /// To the interrupt by which a thread tells the guest of a packet that it read at `read`: before it waits again, or writes to
    /// the tap. QEMU does so for each packet before it turns to the tap again, also for the `next`. Another VMM may do so once
    /// for all that it has read, and has told the guest of each by then.
    pub(super) fn delivered(
        &self,
        path: &mut RequestPath,
        tid: i32,
        read: u64,
        next: u64,
        is_qemu: bool,
    ) {
        let after = read.saturating_add(1);
        let is_own = |by| by == tid;
        let latest = if is_qemu {
            next
        } else {
            read.saturating_add(self.slack)
        };
        let write = self.host.first_by(C::NetTapWrite, after, latest, is_own);
        let mut calls = self.host.calls_within(tid, after, latest);
        let call = calls.find(|(_, call)| is_qemu && self.host.is_of_tap(call.args[0]));
        let turns = write.map(|(at, _)| at).into_iter();
        let turns = turns.chain(call.map(|(enter, _)| enter)).min();
        let told = self
            .host
            .first_by(C::NetInject, after, turns.unwrap_or(latest), is_own)
            .filter(|(at, _)| self.host.resumed(tid, after, *at).is_none());
        if let Some((at, _)) = told {
            path.set_thread(C::NetInject, at, tid);
        }
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
