//! Short pieces of the campaigns `make chaos` and `make faults`: the same kills and faults each time.

use crate::common::{Outcome, Place, binary, skipped};
use std::path::Path;

/// Runs a script of `campaigns/` with its state in this place; `None` where a program that it needs is missing.
fn campaign(place: &Place, script: &str, words: &str) -> Option<Outcome> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../campaigns")
        .join(script);
    for program in ["python3", "strace"] {
        let found = std::env::split_paths(&std::env::var_os("PATH")?)
            .any(|folder| folder.join(program).exists());
        if !found {
            skipped(&format!("{program} is not installed"));
            return None;
        }
    }
    let start = place
        .program("python3")
        .arg(script)
        .arg("--vmtax")
        .arg(binary());
    Some(
        start
            .arg("--state")
            .arg(place.path("campaign"))
            .words(words)
            .start(300)
            .outcome(),
    )
}

#[test]
#[ignore = "needs root"]
fn six_kills_leave_nothing_and_every_recording_opens() {
    let place = Place::new();
    let words = "--kills 6 --seed 1 --commands run-micro,layers-micro";
    let Some(outcome) = campaign(&place, "chaos.py", words) else {
        return;
    };
    outcome.exits(0).shows("6 kills, seed 1");
    // It goes on where it stopped.
    let again = campaign(&place, "chaos.py", &words.replace('6', "3")).unwrap();
    again.exits(0).shows("6 kills, seed 1");
}

#[test]
#[ignore = "needs root"]
fn twenty_failing_system_calls_are_no_panic() {
    let place = Place::new();
    let words = "--faults 20 --seed 1 --commands run-native,list,history,import";
    let Some(outcome) = campaign(&place, "faults.py", words) else {
        return;
    };
    outcome.exits(0).shows("20 faults, seed 1");
}
