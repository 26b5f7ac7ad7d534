//! The trace, read again: by its own messages, and by protoc with the field numbers that Perfetto's readers know.

use super::*;
use crate::joined::specimen::sheet;
use crate::perfetto::Trace;
use std::collections::{BTreeMap, HashSet};
use std::process::{Command, Stdio};
use vmtax_model::testing::skipped;

fn trace(sheets: &[Sheet]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Perfetto::new(&mut bytes);
    sheets.iter().for_each(|s| writer.sheet(s).unwrap());
    writer.finish().unwrap();
    bytes
}

/// A slice as a reader puts it together: track, name, category, begin, end, flow, whether the flow ends.
type Read = (u64, String, String, u64, u64, u64, bool);

/// Reads as trace CPUs do: a stack of open slices on each track, numbers resolved to names.
fn read(bytes: &[u8]) -> (Vec<Read>, BTreeMap<u64, TrackDescriptor>) {
    let trace = Trace::decode(bytes).unwrap();
    let (mut names, mut categories) = (HashMap::new(), HashMap::new());
    let mut tracks = BTreeMap::new();
    let mut open: HashMap<u64, Vec<Read>> = HashMap::new();
    let (mut slices, mut latest) = (Vec::new(), HashMap::new());
    for (i, packet) in trace.packet.into_iter().enumerate() {
        assert_eq!(packet.trusted_packet_sequence_id, Some(SEQUENCE));
        assert_eq!(
            packet.sequence_flags == Some(INCREMENTAL_STATE_CLEARED),
            i == 0
        );
        for (known, new) in packet
            .interned_data
            .iter()
            .flat_map(|d| [(0, &d.event_names), (1, &d.event_categories)])
        {
            for interned in new {
                let known = if known == 0 {
                    &mut names
                } else {
                    &mut categories
                };
                let (iid, name) = (interned.iid.unwrap(), interned.name.clone().unwrap());
                assert!(
                    iid > 0 && known.insert(iid, name).is_none(),
                    "a number stands for two names"
                );
            }
        }
        if let Some(descriptor) = packet.track_descriptor {
            let uuid = descriptor.uuid.unwrap();
            assert!(
                descriptor
                    .parent_uuid
                    .is_none_or(|p| tracks.contains_key(&p)),
                "a parent comes first"
            );
            assert!(
                tracks.insert(uuid, descriptor).is_none(),
                "a track is described twice"
            );
        }
        let Some(event) = packet.track_event else {
            continue;
        };
        assert_eq!(
            packet.sequence_flags.unwrap() & NEEDS_INCREMENTAL_STATE,
            NEEDS_INCREMENTAL_STATE
        );
        let (track, at) = (event.track_uuid.unwrap(), packet.timestamp.unwrap());
        assert!(
            tracks.contains_key(&track),
            "an event on a track that is not described"
        );
        let trial = track / TRACKS;
        assert!(
            latest.insert(trial, at).is_none_or(|before| before <= at),
            "time runs backwards"
        );
        let stack = open.entry(track).or_default();
        if event.r#type() == Kind::SliceBegin {
            assert!(stack.is_empty(), "slices of one track overlap");
            let flow = event
                .flow_ids
                .iter()
                .chain(&event.terminating_flow_ids)
                .copied()
                .collect::<Vec<_>>();
            assert_eq!(flow.len(), 1);
            let (name, category) = (
                &names[&event.name_iid.unwrap()],
                &categories[&event.category_iids[0]],
            );
            let ends = !event.terminating_flow_ids.is_empty();
            stack.push((track, name.clone(), category.clone(), at, 0, flow[0], ends));
        } else {
            let mut slice = stack.pop().expect("an end without a begin");
            slice.4 = at;
            slices.push(slice);
        }
    }
    assert!(open.values().all(Vec::is_empty), "a slice does not end");
    (slices, tracks)
}

fn label(track: &TrackDescriptor) -> String {
    let thread = track.thread.as_ref().and_then(|t| t.thread_name.clone());
    thread
        .or(track.process.as_ref().and_then(|p| p.process_name.clone()))
        .or(track.name.clone())
        .unwrap()
}

#[test]
fn every_segment_is_a_slice_and_arrows_follow_each_request_to_its_end() {
    let sheets = [
        sheet(3, "aio=native", 5, 200_000),
        sheet(4, "aio=threads", 4, 200_000),
    ];
    let (slices, tracks) = read(&trace(&sheets));
    let segments: usize = sheets
        .iter()
        .flat_map(|s| &s.requests)
        .map(|r| r.slices.len() + 1)
        .sum();
    assert_eq!(slices.len(), segments);
    let processes: Vec<String> = tracks
        .values()
        .filter(|t| t.process.is_some())
        .map(label)
        .collect();
    assert_eq!(
        processes,
        [
            "tcg aio=native, round 2, trial 3",
            "tcg aio=threads, round 3, trial 4"
        ]
    );
    let mut flows: BTreeMap<u64, Vec<&Read>> = BTreeMap::new();
    slices
        .iter()
        .for_each(|s| flows.entry(s.5).or_default().push(s));
    assert_eq!(flows.len(), 9);
    for (i, request) in flows.values().enumerate() {
        let record = sheets.iter().flat_map(|s| &s.requests).nth(i).unwrap();
        let (whole, mut way): (Vec<&Read>, Vec<&Read>) =
            request.iter().partition(|s| s.1 == "operation");
        assert_eq!((whole[0].3, whole[0].4), (record.begin(), record.end()));
        way.sort_by_key(|s| s.3);
        let ends: Vec<bool> = way.iter().map(|s| s.6).collect();
        assert_eq!(ends.iter().filter(|e| **e).count(), 1, "an arrow ends once");
        assert!(ends.last().unwrap() & !whole[0].6);
        for (read, slice) in way.iter().zip(&record.slices) {
            assert_eq!(
                (read.3, read.4, read.2.as_str()),
                (slice.begin, slice.end, slice.state.label())
            );
        }
    }
    let first = &flows.values().next().unwrap();
    let track_label =
        |name: &str| label(&tracks[&first.iter().find(|s| s.1.starts_with(name)).unwrap().0]);
    assert_eq!(track_label("operation"), "guest application");
    assert_eq!(
        track_label("guest system call to guest block issue"),
        "guest"
    );
    assert_eq!(
        track_label("QEMU event loop wakes to QEMU takes request"),
        "main loop (tid 4242)"
    );
    assert_eq!(
        track_label("QEMU takes request to host block issue (waiting for a lock)"),
        "worker (tid 4250)"
    );
    assert_eq!(
        track_label("host block issue to host block complete"),
        "device"
    );
    assert_eq!(
        track_label("QEMU takes request to host block issue"),
        "worker (tid 4250)"
    );
}

#[test]
fn requests_at_once_lie_in_lanes_that_do_not_overlap() {
    let deep = sheet(0, "", 40, 5_000);
    let (slices, tracks) = read(&trace(std::slice::from_ref(&deep)));
    assert_eq!(slices.len(), 40 * 11);
    let named = |name: &str| {
        tracks
            .values()
            .filter(|t| t.name.as_deref() == Some(name))
            .count()
    };
    // An operation takes 156.2 µs, one begins every 5 µs.
    assert_eq!(named("guest application"), 32);
    assert!(named("main loop, more at once") > 4 && named("device") > 4);
    let threads: HashSet<(i32, i32)> = tracks
        .values()
        .filter_map(|t| t.thread.as_ref())
        .map(|t| (t.pid.unwrap(), t.tid.unwrap()))
        .collect();
    assert_eq!(threads.len(), 2, "one thread track for each thread");
}

#[test]
fn protoc_knows_every_field() {
    let bytes = trace(&[sheet(0, "", 3, 200_000)]);
    let proto = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/perfetto.proto");
    let mut command = Command::new("protoc");
    command
        .args(["--decode=perfetto.protos.Trace", "--proto_path"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests"));
    let child = command
        .arg(proto)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        skipped("protoc is not here (apt install protobuf-compiler)");
        return;
    };
    child.stdin.take().unwrap().write_all(&bytes).unwrap();
    let out = child.wait_with_output().unwrap();
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    let text = String::from_utf8(out.stdout).unwrap();
    let unknown = text
        .lines()
        .find(|l| l.trim_start().starts_with(|c: char| c.is_ascii_digit()));
    assert_eq!(unknown, None, "a field that Perfetto does not know");
    assert_eq!(text.matches("TYPE_SLICE_BEGIN").count(), 33);
    assert_eq!(text.matches("terminating_flow_ids:").count(), 3);
    assert!(
        text.contains("name: \"QEMU event loop wakes to QEMU takes request\"")
            && text.contains("thread_name: \"main loop (tid 4242)\"")
    );
}
