//! Recordings of profiles whose files are damaged or gone; the scripts that the page of a profile may run.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use vmtax_findings::ProfileFindings;
use vmtax_model::samples::{OnCpu, WallClock};
use vmtax_model::{HostFacts, ProfileSettings, VmIdentity, files};
use vmtax_profile::flame;
use vmtax_recording::Writer;
use vmtax_report::profile::{Pictures, report};

/// A recording of a profile with nothing in it, and the folder of its files.
fn recording(folder: &Path) -> PathBuf {
    let host: HostFacts = serde_json::from_str(include_str!("../host.json")).unwrap();
    let settings = ProfileSettings {
        process: Some(VmIdentity {
            pid: 1,
            started: None,
            name: None,
        }),
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

/// The lowest and the highest level of a name: neither may leave the picture, nor run.
const STACKS: &str = "a;<script>alert(1)</script> 3\na;\u{fffe}\u{ffff}b]]> 4\n";

#[test]
fn the_page_runs_the_flame_graphs_own_script_and_no_other() {
    let profile = flame::unfold(STACKS, Path::new("x")).unwrap();
    let svg = flame::draw(&profile, "a title;\u{fffe}", "and \u{ffff} more").unwrap();
    assert!(
        !svg.contains(['\u{fffe}', '\u{ffff}']),
        "not well-formed XML"
    );
    let (scripts, handlers) = (
        parts(&svg, "<script", "</script>"),
        parts(&svg, " onload=\"", "\""),
    );
    assert_eq!((scripts.len(), handlers.len()), (1, 1), "{svg}");
    // Another handler would not run.
    assert_eq!(
        svg.replace(scripts[0], "").matches(" on").count(),
        handlers.len(),
        "{svg}"
    );
    let script = scripts[0]
        .split_once('>')
        .unwrap()
        .1
        .replace("<![CDATA[", "")
        .replace("]]>", "");
    let pictures = Pictures {
        on_cpu: Some(svg.clone()),
        ..Pictures::default()
    };
    let findings = ProfileFindings {
        samples: 7,
        ..ProfileFindings::default()
    };
    let page = report(&findings, &pictures, vmtax_report::Origin::default()).html();
    let policy = page
        .split_once("Content-Security-Policy\" content=\"")
        .unwrap()
        .1
        .split_once('"')
        .unwrap()
        .0;
    let allowed = policy.split("script-src ").nth(1).unwrap();
    let hashes: Vec<&str> = allowed
        .split_whitespace()
        .filter(|word| word.contains("sha256-"))
        .collect();
    let own = [sha256(handlers[0]), sha256(&script)].map(|hash| format!("sha256-{hash}"));
    assert!(
        !allowed.contains("unsafe-inline") && hashes.len() == own.len(),
        "{policy}"
    );
    for (allowed, own) in hashes.iter().zip(own) {
        assert!(
            allowed.contains(&own),
            "the page allows {allowed}, the flame graph has {own}"
        );
    }
}

fn parts<'a>(text: &'a str, begin: &str, end: &str) -> Vec<&'a str> {
    text.split(begin)
        .skip(1)
        .map(|rest| rest.split(end).next().unwrap())
        .collect()
}

/// In base64, by coreutils and no crate.
fn sha256(text: &str) -> String {
    let mut child = Command::new("sh")
        .args([
            "-c",
            "sha256sum | cut -d ' ' -f 1 | tr a-f A-F | basenc --base16 -d | base64",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    String::from_utf8(child.wait_with_output().unwrap().stdout)
        .unwrap()
        .trim()
        .to_owned()
}
