//! What is a round trip's over the network alone: which packets are its own, and how it is followed.

pub(crate) mod follow;
pub(crate) mod frames;
#[cfg(test)]
mod tests;

use vmtax_model::Checkpoint;

/// Whether a single system call is this checkpoint of a round trip: QEMU's write to the tap, the server's calls.
pub(crate) fn is_call_of_network(checkpoint: Checkpoint) -> bool {
    matches!(checkpoint, Checkpoint::NetTapWrite | Checkpoint::NetServerReceive | Checkpoint::NetServerSend)
}
