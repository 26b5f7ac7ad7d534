//! A file of `vmtax agent observe`, whose guest may be hostile: it stays in its folder, and what it leaves there is read.

use super::recording::golden;
use crate::trace_events;
use std::fs;
use std::path::Path;
use vmtax_import::read_guest_file;
use vmtax_model::files;
use vmtax_trace::Folder;
use vmtax_wire::piece;

/// Ends the name of a piece, or a piece, where the input is the pieces of a file: a fuzzer hardly ever guesses a checksum.
const END: u8 = 0xff;

pub fn run(data: &[u8]) {
    read(data);
    let mut parts = data.split(|byte| *byte == END);
    let mut stream = Vec::new();
    while let (Some(name), Some(bytes)) = (parts.next(), parts.next()) {
        stream.extend(piece(&String::from_utf8_lossy(name), bytes).unwrap_or_default());
    }
    read(&stream);
}

fn read(stream: &[u8]) {
    let recording = vmtax_recording::open(&golden()).expect("a sound recording");
    let trial = recording.trial_folder(0);
    let before = names(&trial);
    let read = read_guest_file(
        Path::new("guest.trace"),
        stream,
        &mut recording.trial_files(0),
    );
    let folder = trial.join(files::GUEST);
    if let Ok(trace) = Folder::open(&folder) {
        if let Ok(events) = trace.events() {
            trace_events::read(trace.formats(), events);
        }
    }
    let _ = fs::remove_dir_all(&folder);
    assert_eq!(
        names(&trial),
        before,
        "a file outside of the guest's folder"
    );
    match read {
        Ok(guest) => assert!(guest.check().is_ok()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder").flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}
