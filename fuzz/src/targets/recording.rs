//! A recording that a stranger sent: one of its files is the input, the others are as they should be.

use crate::scratch;
use std::fs;
use std::path::PathBuf;

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

pub fn run(data: &[u8]) {
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
