//! Files that trace-cmd made from the recording in `data/host`: the same events must come out.

use crate::common::data;
use vmtax_trace::{Counts, Dat, Entry, Events, Folder};

/// Time, CPU, thread, kind and record.
type Whole = (u64, u32, i32, u16, Vec<u8>);

/// Everything of each event but its input.
fn all(mut events: Events<'_>) -> (Vec<Whole>, Counts) {
    let mut got = Vec::new();
    while let Some(entry) = events.next().unwrap() {
        let Entry::Event(event) = entry else {
            panic!("{entry:?}")
        };
        got.push((
            event.ticks,
            event.cpu,
            event.pid,
            event.id.0,
            event.data.to_vec(),
        ));
    }
    (got, *events.counts())
}

#[test]
fn trace_cmds_files_hold_the_same_events() {
    let folder = Folder::open(&data("host")).unwrap();
    let expected = all(folder.events().unwrap());
    for name in ["dat/v6.dat", "dat/v7zstd.dat"] {
        let dat = Dat::open(&data(name)).unwrap();
        assert_eq!(all(dat.events().unwrap()), expected, "{name}");
        // trace-cmd restore, by which they were made, does not know the clock.
        assert_eq!(dat.clock(), "local");
        let switch = dat.formats().event("sched", "sched_switch").unwrap();
        assert_eq!(
            Some(switch),
            folder.formats().event("sched", "sched_switch")
        );
        assert_eq!(
            dat.formats().field(switch, "prev_state"),
            folder.formats().field(switch, "prev_state")
        );
        assert!(dat.formats().event("ftrace", "function").is_some());
    }
}

/// The first trace-cmd with zstd left the magic number of its frames out.
#[test]
fn zstd_without_its_magic_number() {
    let file = std::fs::read(data("dat/v7zstd.dat")).unwrap();
    let magic = [0x28, 0xb5, 0x2f, 0xfd];
    // Where a frame begins, a part of the head that is not moved: its bytes are taken out, the rest of the block filled up.
    let at = file.windows(4).position(|window| window == magic).unwrap();
    let length = u32::from_le_bytes(*file[at - 8..].first_chunk().unwrap()) as usize;
    let mut changed = file.clone();
    changed[at - 8..at - 4].copy_from_slice(&(length as u32 - 4).to_le_bytes());
    changed.copy_within(at + 4..at + length, at);
    let stored = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(stored.path(), &changed).unwrap();
    let expected = all(Dat::open(&data("dat/v7zstd.dat"))
        .unwrap()
        .events()
        .unwrap());
    assert_eq!(
        all(Dat::open(stored.path()).unwrap().events().unwrap()),
        expected
    );
}
