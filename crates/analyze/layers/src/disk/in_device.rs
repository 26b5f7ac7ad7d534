//! The block requests that QEMU's device has, from its pop to its push: all that a host knows of a guest that does not trace.

use super::request::{Ended, GuestRequest, NOWHERE};
use crate::events::event::{Event, HostEvent, Mark};
use std::collections::HashMap;
use vmtax_model::{Checkpoint, RequestKind};
use vmtax_trace::Moment;

/// Requests that QEMU has popped and not pushed, by its address for each. `complete` is not valid yet.
#[derive(Debug, Default)]
pub(crate) struct InDevice(HashMap<u64, GuestRequest>);

impl InDevice {
    /// Takes an event; gives the request that it ends.
    pub fn take(&mut self, event: &Event<HostEvent>) -> Option<Ended> {
        let now = event.moment();
        match event.what {
            HostEvent::Passes(Checkpoint::QemuPop, mark) => {
                let address = mark.address?;
                let others = || self.0.keys().any(|other| *other != address);
                let request = GuestRequest {
                    alone: !others(),
                    ..request(mark, now)
                };
                if !request.alone {
                    self.0.values_mut().for_each(|other| other.alone = false);
                }
                let unseen = self.0.insert(address, request)?;
                Some(Ended::Unseen(
                    GuestRequest {
                        complete: now,
                        ..unseen
                    },
                    Checkpoint::QemuPush,
                ))
            }
            HostEvent::Passes(Checkpoint::QemuPush, mark) => {
                let pushed = self.0.remove(&mark.address?)?;
                Some(Ended::Done(GuestRequest {
                    complete: now,
                    ..pushed
                }))
            }
            _ => None,
        }
    }

    /// When the oldest was popped.
    pub fn oldest(&self) -> Option<u64> {
        self.0.values().map(|request| request.issue.at).min()
    }
}

/// Makes a request from the mark of its pop. `bytes` is 1: the length is not known before the submission.
fn request(mark: Mark, now: Moment) -> GuestRequest {
    let kind = mark.kind.unwrap_or(RequestKind::Other);
    // The header of others has any sector.
    let is_somewhere = matches!(kind, RequestKind::Read | RequestKind::Write);
    let offset = mark.offset.filter(|_| is_somewhere).unwrap_or(NOWHERE);
    GuestRequest {
        offset,
        bytes: 1,
        kind,
        inserted: None,
        issue: now,
        complete: now,
        alone: true,
    }
}
