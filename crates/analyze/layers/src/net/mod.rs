//! What is a round trip's over the network alone: which packets are its own, and how it is followed.

mod by_key;
mod by_order;
pub(crate) mod follow;
pub(crate) mod frames;
pub(crate) mod packets;
mod response;
#[cfg(test)]
mod tests;

use vmtax_model::Checkpoint;

/// The calls by which threads send packets. Kernels record them by name alone, so who called tells what was sent where: the
/// server, passt, or QEMU.
pub(crate) const SENDS: [Checkpoint; 3] =
    [Checkpoint::NetTapWrite, Checkpoint::NetStreamWrite, Checkpoint::NetPasstSend];

/// The returns of calls by which threads receive packets, likewise.
pub(crate) const RECEIVES: [Checkpoint; 2] = [Checkpoint::NetServerReceive, Checkpoint::NetPasstRead];

/// Whether a single system call is this checkpoint of a round trip: one that sends, or the return of one that receives.
pub(crate) fn is_call_of_network(checkpoint: Checkpoint) -> bool {
    SENDS.contains(&checkpoint) || RECEIVES.contains(&checkpoint)
}
