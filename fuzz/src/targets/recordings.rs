//! Recordings and datasets that a stranger sent, and their parts.

use super::traces::read_events;
use crate::scratch;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use jiff::civil::date;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use vmtax_import::read_guest_file;
use vmtax_model::{Latency, files};
use vmtax_trace::Folder;
use vmtax_wire::piece;

macro_rules! golden {
    ($($file:literal),*) => {
        [$(($file, include_bytes!(concat!("../../../crates/base/recording/tests/golden/schema-1/", $file)) as &[u8])),*]
    };
}

const FILES: [(&str, &[u8]); 5] = golden![
    "run.json",
    "plan.toml",
    "host.json",
    "trials/0000/trial.json",
    "trials/0000/ops.hlog"
];

/// The folder of a sound recording. Made once: a folder for each input would cost more than reading it.
pub fn golden() -> PathBuf {
    let folder = scratch::folder().join("recording");
    if !folder.exists() {
        fs::create_dir_all(folder.join("trials/0000")).expect("a temporary folder");
        FILES
            .iter()
            .for_each(|(file, sound)| scratch::write(&folder.join(file), sound));
    }
    folder
}

/// A recording that a stranger sent: one of its files is the input, the others are as they should be.
pub fn recording(data: &[u8]) {
    let Some((which, content)) = data.split_first() else {
        return;
    };
    let (file, sound) = FILES[usize::from(*which) % FILES.len()];
    let folder = golden();
    scratch::write(&folder.join(file), content);
    let opened = vmtax_recording::open(&folder);
    scratch::write(&folder.join(file), sound);

    match opened {
        Ok(recording) => assert!(recording.trials.len() + recording.damaged.len() <= 1),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Ends the name of a piece, or a piece, where the input is the pieces of a file: a fuzzer hardly ever guesses a checksum.
const END: u8 = 0xff;

/// A file of `vmtax agent observe`, whose guest may be hostile: it stays in its folder, and what it leaves there is read.
pub fn guest_file(data: &[u8]) {
    read_file(data);
    let mut parts = data.split(|byte| *byte == END);
    let mut stream = Vec::new();
    while let (Some(name), Some(bytes)) = (parts.next(), parts.next()) {
        stream.extend(piece(&String::from_utf8_lossy(name), bytes).unwrap_or_default());
    }
    read_file(&stream);
}

fn read_file(stream: &[u8]) {
    let recording = vmtax_recording::open(&golden()).expect("a sound recording");
    let trial = recording.trial_folder(0);
    let before = file_names(&trial);
    let read = read_guest_file(
        Path::new("guest.trace"),
        stream,
        &mut recording.trial_files(0),
    );
    let folder = trial.join(files::GUEST);
    if let Ok(trace) = Folder::open(&folder) {
        if let Ok(events) = trace.events() {
            read_events(trace.formats(), events);
        }
    }
    let _ = fs::remove_dir_all(&folder);
    assert_eq!(
        file_names(&trial),
        before,
        "a file outside of the guest's folder"
    );
    match read {
        Ok(guest) => assert!(guest.check().is_ok()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn file_names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder").flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

const TABLES: [(&str, &[u8]); 2] = [
    ("figures", include_bytes!("../../corpus/dataset/figures")),
    ("facts", include_bytes!("../../corpus/dataset/facts")),
];

/// A stranger's dataset: one of its two tables is the input, the other one as it should be.
pub fn dataset(data: &[u8]) {
    let Some((which, content)) = data.split_first() else {
        return;
    };
    let dataset = scratch::folder().join("dataset");
    for (i, (table, sound)) in TABLES.iter().enumerate() {
        let folder = dataset.join(table).join("schema=1/date=2026-11-26/host=a");
        fs::create_dir_all(&folder).expect("a temporary folder");
        // The first byte of an input says which table it is.
        let content = if usize::from(*which) % TABLES.len() == i {
            content
        } else {
            &sound[1..]
        };
        scratch::write(&folder.join("run.parquet"), content);
    }
    match vmtax_export::read_dataset(&dataset, date(2026, 11, 27)) {
        Ok(data) => {
            assert!(
                data.figures
                    .iter()
                    .all(|figure| figure.value.is_finite() && figure.value > 0.0)
            );
            assert!(
                data.figures
                    .iter()
                    .all(|figure| (figure.run as usize) < data.runs.len())
            );
            assert!(data.warnings.iter().all(|warning| !warning.is_empty()));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// A histogram from a guest or a file: a distribution or an error, in bounded memory.
pub fn latency(data: &[u8]) {
    let _ = Latency::from_text(&STANDARD.encode(data));
    // A fuzzer hardly ever guesses a deflate stream: the counts, and what is around them as it should be.
    let Ok(latency) = Latency::from_text(&STANDARD.encode(v2(data))) else {
        return;
    };

    let again = Latency::from_text(&latency.to_text().expect("what was read can be written"));
    assert_eq!(again.as_ref(), Ok(&latency));
    assert_eq!(latency.summary().map_or(0, |s| s.count), latency.count());
    let mut sum = Latency::new();
    sum.add(&latency);
    sum.add(&latency);
    assert_eq!(sum.count(), 2 * latency.count());
}

/// `counts` as the body of a deflated V2 histogram of vmtax's bounds.
fn v2(counts: &[u8]) -> Vec<u8> {
    let mut plain = 0x1c84_9313_u32.to_be_bytes().to_vec();
    for word in [counts.len() as u32, 0, 3] {
        plain.extend(word.to_be_bytes());
    }
    plain.extend(1_u64.to_be_bytes());
    plain.extend(3_600_000_000_000_u64.to_be_bytes());
    plain.extend(1.0_f64.to_be_bytes());
    plain.extend(counts);

    let mut deflated = ZlibEncoder::new(Vec::new(), Compression::fast());
    deflated.write_all(&plain).expect("memory");
    let deflated = deflated.finish().expect("memory");
    let mut packed = 0x1c84_9314_u32.to_be_bytes().to_vec();
    packed.extend((deflated.len() as u32).to_be_bytes());
    packed.extend(deflated);
    packed
}
