//! A recording that a stranger sent: one of its files is the input, the others are as they should be.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

macro_rules! golden {
    ($($file:literal),*) => {
        [$(($file, include_bytes!(concat!("../../crates/base/recording/tests/golden/schema-1/", $file)) as &[u8])),*]
    };
}

const FILES: [(&str, &[u8]); 5] =
    golden!["run.json", "plan.toml", "host.json", "trials/0000/trial.json", "trials/0000/ops.hlog"];

/// Made once: a folder for each input would cost more than reading it. `scripts/fuzz` removes it.
static FOLDER: OnceLock<PathBuf> = OnceLock::new();

fuzz_target!(|data: &[u8]| {
    let Some((which, content)) = data.split_first() else { return };
    let (file, sound) = FILES[usize::from(*which) % FILES.len()];
    let folder = FOLDER.get_or_init(|| {
        let folder = std::env::temp_dir().join("recording");
        fs::create_dir_all(folder.join("trials/0000")).expect("a temporary folder");
        FILES.iter().for_each(|(file, sound)| put(&folder, file, sound));
        folder
    });

    put(folder, file, content);
    let opened = vmtax_recording::open(folder);
    put(folder, file, sound);

    match opened {
        Ok(recording) => assert!(recording.trials.len() + recording.damaged.len() <= 1),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});

fn put(folder: &Path, file: &str, content: &[u8]) {
    fs::write(folder.join(file), content).expect("a temporary file");
}
