//! Files of perf, damaged.

use super::{Perf, PerfRecords};
use crate::{Counts, TraceError};
use linux_perf_data::linux_perf_event_reader::RawEventRecord;
use proptest::prelude::*;
use std::path::Path;

const SOUND: &[u8] = include_bytes!("../../../tests/data/perf/perf.data");

fn read(file: &[u8]) -> Result<Counts, TraceError> {
    let stored = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(stored.path(), file).unwrap();
    let perf = Perf::open(stored.path())?;
    let mut events = perf.events()?;
    while events.next()?.is_some() {}
    Ok(*events.counts())
}

/// The record at which the data begin.
fn first_record() -> usize {
    u64::from_le_bytes(*SOUND[40..].first_chunk().unwrap()) as usize
}

#[test]
fn what_is_wrong_is_told() {
    let says = |change: &dyn Fn(&mut Vec<u8>), expected: &str| {
        let mut file = SOUND.to_vec();
        change(&mut file);
        let error = read(&file).unwrap_err();
        assert!(
            matches!(error, TraceError::Damaged { .. }) && error.to_string().contains(expected),
            "{error}"
        );
    };
    // Nothing is wrong with these, so that recording again in the same way would not help.
    let advises = |change: &dyn Fn(&mut Vec<u8>), expected: &str| {
        let mut file = SOUND.to_vec();
        change(&mut file);
        let error = read(&file).unwrap_err();
        assert!(
            matches!(error, TraceError::Unsupported { .. })
                && error.to_string().ends_with(expected),
            "{error}"
        );
    };
    let first = first_record();
    says(&|file| file.truncate(7), "truncated");
    says(&|file| file.truncate(first + 100), "truncated");
    says(&|file| file[0] = b'Q', "not a perf.data file");
    advises(
        &|file| file[..8].copy_from_slice(b"2ELIFREP"),
        "record on x86-64",
    );
    advises(
        &|file| file[8..16].copy_from_slice(&16_u64.to_le_bytes()),
        "record with `perf record -o FILE`",
    );
    advises(&|file| file[first] = 81, "record without `perf record -z`");
    says(&|file| file[48..56].fill(0), "did not finish");
    says(&|file| file[48..56].fill(0xff), "truncated");
    says(&|file| file[72] &= !2, "invalid size"); // The sections no longer belong to their features.
    says(
        &|file| file[first + 6..first + 8].fill(0),
        "without a length",
    );
    // The size of an event's attributes, which the file and the event itself tell.
    let number = |at: usize| u32::from_le_bytes(*SOUND[at..].first_chunk().unwrap());
    let told_twice = |at: &usize| (64..200).contains(&number(*at)) && number(*at) == number(at + 8);
    let end = first + number(48) as usize;
    let attributes = (end..SOUND.len() - 12).find(told_twice).unwrap() + 8;
    says(
        &|file| file[attributes] = 68,
        "invalid size of an event's attributes: 68",
    );
    says(
        &|file| file[attributes] += 8,
        "invalid size of an event's attributes",
    );
    says(&|file| file[first] = 68, "FINISHED_ROUND with a body");
    says(
        &|file| {
            file[first..first + 16].copy_from_slice(&[
                71, 0, 0, 0, 0, 0, 16, 0, 255, 255, 255, 255, 255, 255, 255, 127,
            ])
        },
        "truncated",
    );
    assert!(matches!(
        Perf::open(Path::new("/nonexistent/perf.data")).map(|_| ()),
        Err(TraceError::Read { .. })
    ));
}

#[test]
fn a_look_at_the_heads_sees_what_the_records_say() {
    let stored = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(stored.path(), SOUND).unwrap();
    let said = |event, record: &RawEventRecord<'_>| {
        let common = record.common_data().unwrap();
        (
            common.timestamp,
            event,
            record.record_type.0,
            common.pid,
            common.tid,
            record.misc,
        )
    };
    let (mut heads, mut whole) = (Vec::new(), Vec::new());
    let records =
        PerfRecords::open(stored.path(), |event, head| heads.push(said(event, &head))).unwrap();
    records
        .each(|event, record| whole.push(said(event, &record)))
        .unwrap();
    heads.sort_unstable();
    whole.sort_unstable();
    assert_eq!(heads, whole);
    let events = |number| {
        heads
            .iter()
            .filter(|(_, event, kind, ..)| (*event, *kind) == (number, 9))
            .count()
    };
    assert_eq!(
        (
            records.events.len(),
            [0, 1, 2].map(events).iter().sum::<usize>()
        ),
        (3, 113)
    );
    assert!(
        [0, 1, 2].map(events).iter().all(|&n| n > 0),
        "of one event only"
    );
}

/// The recording with samples, by their place, made records of another kind that tell of lost events.
fn losing(kinds: &[(usize, u8, u64)]) -> Counts {
    let mut file = SOUND.to_vec();
    let end = first_record() + u64::from_le_bytes(*SOUND[48..].first_chunk().unwrap()) as usize;
    let (mut at, mut sample) = (first_record(), 0);
    while at < end {
        let length = usize::from(u16::from_le_bytes([file[at + 6], file[at + 7]]));
        if file[at] == 9 {
            if let Some((_, kind, lost)) = kinds.iter().find(|(place, ..)| *place == sample) {
                file[at] = *kind;
                // The count is the second word of LOST, the first of LOST_SAMPLES.
                let count = at + if *kind == 2 { 16 } else { 8 };
                file[count..count + 8].copy_from_slice(&lost.to_le_bytes());
            }
            sample += 1;
        }
        at += length;
    }
    read(&file).unwrap()
}

#[test]
fn lost_events_are_counted_once() {
    assert_eq!(losing(&[]).losses, 0);
    let counts = losing(&[(3, 2, 77), (9, 2, 3)]);
    assert_eq!((counts.events, counts.losses, counts.lost), (111, 2, 80));
    // perf's sum at the end has what the records told, and what no record told.
    let counts = losing(&[(3, 2, 77), (9, 2, 3), (20, 13, 70), (21, 13, 15)]);
    assert_eq!((counts.events, counts.losses, counts.lost), (109, 3, 85));
    let counts = losing(&[(3, 2, 77), (20, 13, 50)]);
    assert_eq!((counts.losses, counts.lost), (1, 77));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_change_is_survived(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), any::<bool>()), 1..6),
        cut in proptest::option::of(any::<prop::sample::Index>()),
    ) {
        let mut file = SOUND.to_vec();
        for (at, with, head) in changes {
            // Half of the changes in the header, whose lengths do the most harm.
            let at = at.index(if head { 600 } else { file.len() });
            file[at] = with;
        }
        if let Some(cut) = cut {
            file.truncate(cut.index(file.len()));
        }
        let _ = read(&file);
    }
}
