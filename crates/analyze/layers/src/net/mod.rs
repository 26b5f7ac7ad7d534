//! Code for the network alone: the packets of a round trip, and how they are followed; likewise a packet of a guest
//! that the host alone shows.

pub(crate) mod follow;
pub(crate) mod from_both;
pub(crate) mod from_host;
mod in_host;
pub(crate) mod in_queues;
pub(crate) mod packets;
mod response;
#[cfg(test)]
mod tests;

use crate::request::JoinedRequest;
use std::collections::BTreeSet;
use vmtax_model::{Checkpoint, Missing, thread_of_round_trip};

/// The calls by which threads send packets. Kernels record them by name alone, so who called tells what was sent where: the
/// server, passt, or QEMU.
pub(crate) const SENDS: [Checkpoint; 3] = [
    Checkpoint::NetTapWrite,
    Checkpoint::NetStreamWrite,
    Checkpoint::NetPasstSend,
];

/// The returns of calls by which threads receive packets, likewise.
pub(crate) const RECEIVES: [Checkpoint; 2] =
    [Checkpoint::NetServerReceive, Checkpoint::NetPasstRead];

/// Returns true if a single system call is this checkpoint of a round trip: a call that sends or notifies, or the
/// return of one that receives.
pub(crate) fn is_call_of_network(checkpoint: Checkpoint) -> bool {
    SENDS.contains(&checkpoint)
        || RECEIVES.contains(&checkpoint)
        || checkpoint == Checkpoint::NetPasstNotify
}

/// Returns the part of several connections' round trips that is not followed; `None` if there is no such part.
pub(crate) fn not_followed(requests: &[JoinedRequest]) -> Option<Missing> {
    let clients: BTreeSet<i32> = requests
        .iter()
        .map(|request| thread_of_round_trip(request.key))
        .collect();
    let has = |checkpoint| {
        requests
            .iter()
            .any(|request| request.at(checkpoint).is_some())
    };
    let is_cut = clients.len() > 1 && has(Checkpoint::NetRx) && !has(Checkpoint::NetServerReceive);
    is_cut.then(|| Missing {
        what: "the server's part of a round trip, and with passt what lies between it and QEMU".to_owned(),
        why: format!(
            "with {} connections at once the events of this backend do not say whose a packet on the host is",
            clients.len()
        ),
        fix: "measure one connection (connections=1), or backend=tap".to_owned(),
    })
}
