//! Recordings of profiles whose files are damaged or gone.

use std::fs;
use std::path::{Path, PathBuf};
use vmtax_model::samples::{OnCpu, WallClock};
use vmtax_model::{HostFacts, ProfileSettings, files};
use vmtax_recording::Writer;

/// A recording of a profile with nothing in it, and the folder of its files.
fn recording(folder: &Path) -> PathBuf {
    let host: HostFacts = serde_json::from_str(include_str!("../host.json")).unwrap();
    let settings = ProfileSettings {
        pid: Some(1),
        time_ms: Some(1),
        events_ms: 0,
        stack: 4096,
        ..ProfileSettings::default()
    };
    let plan = vmtax_studies::attached(settings, "qemu-1");
    let writer = Writer::create_at(folder, &plan, &host, &[], "0").unwrap();
    let mut trial = writer.trial_files(0).unwrap();
    for (name, file) in [
        (files::OBSERVED, FACTS.to_vec()),
        (
            files::ON_CPU,
            serde_json::to_vec(&OnCpu::default()).unwrap(),
        ),
        (
            files::WALL_CLOCK,
            serde_json::to_vec(&WallClock::default()).unwrap(),
        ),
    ] {
        trial.append(name, &file).unwrap();
    }
    writer.finish().unwrap();
    vmtax_recording::open(folder).unwrap().trial_folder(0)
}

const FACTS: &[u8] = br#"{"pid":1,"program":"qemu","file":null,"missing":[]}"#;

#[test]
fn a_damaged_file_is_named_with_what_to_do() {
    for (name, content) in [
        (files::OBSERVED, None),
        (files::ON_CPU, None),
        (files::OBSERVED, Some("{")),
        (files::ON_CPU, Some("{\"profile\": 1}")),
        (files::ON_CPU, Some("")),
        (files::WALL_CLOCK, Some("[]")),
        (files::SCHEDULE, Some("no JSON")),
        (files::EXITS, Some("\u{0}")),
        (files::GUEST_CODE, Some("{}")),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("profile");
        let trial = recording(&folder);
        let whole = vmtax_recording::open(&folder).unwrap();
        assert!(vmtax_studies::analyze(&whole).is_ok());
        match content {
            Some(content) => fs::write(trial.join(name), content).unwrap(),
            None => fs::remove_file(trial.join(name)).unwrap(),
        }
        let damaged = vmtax_recording::open(&folder).unwrap();
        let error = vmtax_studies::analyze(&damaged).err().unwrap().to_string();
        assert!(
            error.contains(name) && error.ends_with(": record the profile again"),
            "{name}: {error}"
        );
    }
}
