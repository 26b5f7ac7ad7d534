use super::print;
use crate::cli::ListArgs;
use crate::fault::Fault;
use std::process::ExitCode;
use vmtax_recording::{Listing, State};

pub fn list(args: &ListArgs) -> Result<ExitCode, Fault> {
    let listings = vmtax_recording::list(&args.dir)?;
    if args.json {
        let text = serde_json::to_string_pretty(&listings).map_err(|e| Fault::file("the list as JSON", e.into()))?;
        print(&(text + "\n"))?;
    } else if listings.is_empty() {
        print(&format!("no recordings in {}: `vmtax run --quick` makes one\n", args.dir.display()))?;
    } else {
        print(&vmtax_report::printable(&listings.iter().map(line).collect::<String>()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// One recording: its folder, for the next command to copy, then what it holds.
fn line(listing: &Listing) -> String {
    let machines: Vec<&str> = listing.machines.iter().map(|m| m.as_str()).collect();
    let state = match &listing.state {
        State::Finished => String::new(),
        State::Unfinished => ", unfinished".to_owned(),
        State::Damaged { reason } => return format!("{}  damaged: {reason}\n", listing.folder.display()),
    };
    if listing.machines.is_empty() {
        return format!("{}  {}: of what was there already{state}\n", listing.folder.display(), listing.name);
    }
    format!(
        "{}  {} on {}: {} of {} trials{state}\n",
        listing.folder.display(),
        listing.name,
        machines.join(", "),
        listing.trials_done,
        listing.trials_planned,
    )
}
