//! Checkpoints of a round trip over the network that depend on the backend.

use super::table::Checkpoint;

/// A packet passes these where vhost-net moves it.
const OF_VHOST: &[Checkpoint] = &[
    Checkpoint::NetVhostWake,
    Checkpoint::NetVhostTake,
    Checkpoint::NetVhostSend,
    Checkpoint::NetVhostReplyWake,
    Checkpoint::NetVhostRead,
];

/// A packet passes these where QEMU reads and writes the tap or the sockets.
const OF_QEMU: &[Checkpoint] = &[
    Checkpoint::NetTx,
    Checkpoint::NetTapWrite,
    Checkpoint::NetRxWake,
    Checkpoint::NetTapRead,
    Checkpoint::NetRx,
    Checkpoint::NetRxFill,
    Checkpoint::NetRxNotify,
];

/// A packet passes some of these where passt moves it.
const OF_PASST: &[Checkpoint] = &[
    Checkpoint::NetStreamWrite,
    Checkpoint::NetPasstWake,
    Checkpoint::NetPasstSend,
    Checkpoint::NetPasstReplyWake,
    Checkpoint::NetPasstRead,
    Checkpoint::NetPasstWrite,
    Checkpoint::NetPasstNotify,
    Checkpoint::NetStreamWake,
    Checkpoint::NetStreamRead,
];

/// The checkpoints that a packet does not pass, in parts: where QEMU itself reads and writes the tap or the sockets, where
/// it passes packets to passt, where passt takes them from the guest's queues, and where vhost-net does.
pub(super) const NOT_PASSED: [&[&[Checkpoint]]; 4] = {
    use Checkpoint::*;
    [
        &[OF_PASST, OF_VHOST],
        &[
            &[NetTapWrite, NetRxWake, NetTapRead, NetPasstNotify],
            OF_VHOST,
        ],
        &[
            OF_QEMU,
            &[NetStreamWrite, NetPasstWake, NetPasstWrite, NetStreamRead],
            OF_VHOST,
        ],
        &[&[NetTxWake], OF_QEMU, OF_PASST],
    ]
};
