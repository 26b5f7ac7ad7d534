//! The rows of checkpoints, and the paths of requests: which of them one request may pass, over the network by its backend.

use super::table::{Checkpoint, CheckpointInfo, DISK, NETWORK, ROWS};

/// The tables of all classes of devices. What they share, the begin and the end, stands in the first.
const TABLES: [&[CheckpointInfo]; 2] = [DISK, NETWORK];

impl Checkpoint {
    /// Every checkpoint, in the order of declaration: `ALL[c as usize] == c`.
    pub const ALL: [Checkpoint; Checkpoint::COUNT] = {
        let mut all = [Checkpoint::Begin; Checkpoint::COUNT];
        let mut i = 0;
        while i < all.len() {
            all[i] = ROWS[i].checkpoint;
            i += 1;
        }
        all
    };

    /// Returns true if a request may pass both checkpoints: they are of one class of device, where begin and end
    /// belong to all classes, and of one backend.
    pub fn is_on_path_with(self, other: Checkpoint) -> bool {
        let has_both = |table: &[CheckpointInfo]| {
            let has = |checkpoint| {
                matches!(checkpoint, Checkpoint::Begin | Checkpoint::End)
                    || table.iter().any(|info| info.checkpoint == checkpoint)
            };
            has(self) && has(other)
        };
        let passes =
            |not: &[&[Checkpoint]], one: Checkpoint| !not.iter().any(|part| part.contains(&one));
        let passes_both = |not: &[&[Checkpoint]]| passes(not, self) && passes(not, other);
        TABLES.into_iter().any(has_both) && NOT_PASSED.into_iter().any(passes_both)
    }

    /// Returns the checkpoint's row.
    pub const fn info(self) -> &'static CheckpointInfo {
        &ROWS[self as usize]
    }

    /// Returns the checkpoint's name in JSON and, with underscores, in exported columns.
    pub fn id(self) -> &'static str {
        self.into()
    }

    /// As tables name it.
    pub const fn label(self) -> &'static str {
        self.info().label
    }
}

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
const NOT_PASSED: [&[&[Checkpoint]]; 4] = {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::EventSource;

    #[test]
    fn checkpoints_are_listed_in_their_order_with_the_names_that_json_has() {
        for (i, checkpoint) in Checkpoint::ALL.into_iter().enumerate() {
            assert_eq!(
                (checkpoint as usize, checkpoint.info().checkpoint),
                (i, checkpoint)
            );
            assert_eq!(serde_json::to_value(checkpoint).unwrap(), checkpoint.id());
        }
    }

    /// The rows of the tables in docs/layers.md and docs/network.md.
    #[test]
    fn the_documented_tables_are_these() {
        let disk = include_str!("../../../../../docs/layers.md");
        let network = include_str!("../../../../../docs/network.md");
        for (docs, table) in [(disk, DISK), (network, NETWORK)] {
            let (_, rows) = docs
                .split_once("| checkpoint | event | source |\n|---|---|---|\n")
                .unwrap();
            let rows: Vec<&str> = rows
                .lines()
                .take_while(|line| line.starts_with('|'))
                .collect();
            assert_eq!(rows.len(), table.len());
            for (row, info) in rows.into_iter().zip(table) {
                assert!(
                    row.starts_with(&format!("| {} |", info.label)),
                    "{}: {row}",
                    info.label
                );
                for source in info.sources {
                    let named = match source {
                        EventSource::Tracepoint { names, .. } => row.contains(names[0]),
                        EventSource::Calls(calls) => row.contains(calls[0][0]),
                        EventSource::Functions(functions) => row.contains(functions[0]),
                        EventSource::Qemu(_) => row.contains("uprobe"),
                        EventSource::QemuLog(_) => docs.contains("QEMU's own log"),
                    };
                    assert!(named, "{source:?} is not in: {row}");
                }
            }
        }
    }

    #[test]
    fn paths_share_their_begin_and_end_alone() {
        use Checkpoint as C;
        assert!(
            C::GuestCall.is_on_path_with(C::End) && C::Begin.is_on_path_with(C::NetGuestReturn)
        );
        assert!(C::NetTx.is_on_path_with(C::NetRx) && !C::NetTx.is_on_path_with(C::QemuPop));
        // A packet goes by passt or does not.
        assert!(
            C::NetPasstSend.is_on_path_with(C::NetRx)
                && C::NetPasstSend.is_on_path_with(C::NetPasstRead)
        );
        assert!(
            C::NetPasstNotify.is_on_path_with(C::NetPasstRead)
                && C::NetPasstNotify.is_on_path_with(C::NetInject)
        );
        assert!(
            !C::NetPasstNotify.is_on_path_with(C::NetRx)
                && !C::NetPasstNotify.is_on_path_with(C::NetPasstWrite)
        );
        assert!(
            !C::NetPasstSend.is_on_path_with(C::NetTapRead)
                && !C::NetTapWrite.is_on_path_with(C::NetStreamRead)
        );
    }
}
