//! The packets that a tap passes on: all that a host knows of those of a guest that does not trace.

use crate::disk::request::{Ended, GuestRequest, NOWHERE};
use crate::events::event::{Event, HostEvent};
use std::collections::HashMap;
use vmtax_model::{Checkpoint, RequestKind};
use vmtax_trace::Moment;

/// Packets that the host's stack has handed to the tap and nobody has read, by the kernel's address for each. `complete` is not valid
/// yet.
#[derive(Debug, Default)]
pub(crate) struct OnTap {
    unread: HashMap<u64, GuestRequest>,
    /// When the last event was.
    latest: u64,
}

impl OnTap {
    /// Takes an event of the host; gives the packet that it ends. One that the guest sends begins and ends with its receipt by the
    /// host's stack: what was before is found there.
    pub fn take(&mut self, event: &Event<HostEvent>) -> Option<Ended> {
        self.latest = event.at;
        let HostEvent::Packet(checkpoint, packet) = event.what else {
            return None;
        };
        let now = event.moment();
        match checkpoint {
            Checkpoint::NetHostXmit => {
                let dropped = self
                    .unread
                    .insert(packet.skb, passed(RequestKind::Receive, now))?;
                Some(Ended::Unseen(
                    GuestRequest {
                        complete: now,
                        ..dropped
                    },
                    Checkpoint::NetTapRead,
                ))
            }
            Checkpoint::NetTapRead => {
                let read = self.unread.remove(&packet.skb)?;
                Some(Ended::Done(GuestRequest {
                    complete: now,
                    ..read
                }))
            }
            Checkpoint::NetTapReceive => Some(Ended::Done(passed(RequestKind::Transmit, now))),
            _ => None,
        }
    }

    /// When the oldest was handed to the tap, of those after `since`: one before that was dropped.
    pub fn oldest(&self, since: u64) -> Option<u64> {
        self.unread
            .values()
            .map(|packet| packet.issue.at)
            .filter(|at| *at >= since)
            .min()
    }

    /// Those that nobody has read for so many ticks.
    pub fn unread(&self, ticks: u64) -> Vec<GuestRequest> {
        let until = self.latest.saturating_sub(ticks);
        self.unread
            .values()
            .filter(|packet| packet.issue.at < until)
            .copied()
            .collect()
    }
}

fn passed(kind: RequestKind, now: Moment) -> GuestRequest {
    GuestRequest {
        offset: NOWHERE,
        bytes: 0,
        kind,
        inserted: None,
        issue: now,
        complete: now,
        alone: false,
    }
}
