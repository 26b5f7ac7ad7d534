//! A recorded profile as a table, a page and pictures: made of the recording alone, and written into its folder.

use crate::command::{print, style};
use crate::fault::Fault;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use vmtax_model::{Outcome, ProfileFindings};
use vmtax_profile::{Recorded, firefox, flame, fold, pprof};
use vmtax_recording::Recording;
use vmtax_report::profile::{Pictures, report};
use vmtax_report::{Origin, counted};

/// Prints what a recorded profile says, and writes its page, into `html` where that is given, and its pictures.
pub fn show(recording: &Recording, json: bool, html: Option<&Path>) -> Result<ExitCode, Fault> {
    let recorded = read(recording)?;
    if json {
        print(&(vmtax_report::profile::json(&recorded.findings)? + "\n"))?;
    } else {
        print(&report(&recorded.findings, &Pictures::default(), Origin::default()).terminal(style(), false))?;
    }
    // Last, so that a recording that only others may write to is shown all the same.
    let files = write(recording, &recorded, html)?;
    if !json {
        let folder = vmtax_report::printable(&recording.folder.display().to_string());
        print(&format!("\n{folder}: {}\n", files.join(", ")))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the page and the pictures.
pub fn render(recording: &Recording) -> Result<(), Fault> {
    write(recording, &read(recording)?, None).map(drop)
}

/// The plan's one trial, or what was there already.
fn read(recording: &Recording) -> Result<Recorded, Fault> {
    let trial = recording.trials.iter().find(|trial| trial.result().is_some());
    if trial.is_none() && !recording.plan.is_attached() {
        let failed = recording.trials.iter().find_map(|trial| match &trial.outcome {
            Outcome::Failed { error } => Some(error.clone()),
            Outcome::Done { .. } | Outcome::Interrupted => None,
        });
        let first = failed.unwrap_or_else(|| "the workload was not run to its end".to_owned());
        return Err(Fault::Incomplete { folder: recording.folder.clone(), first });
    }
    Ok(Recorded::read(&recording.trial_folder(trial.map_or(0, |trial| trial.number)))?)
}

/// The folder of a recording, as files are put into it.
struct Files<'a> {
    folder: &'a Path,
    names: Vec<&'static str>,
}

impl Files<'_> {
    fn put(&mut self, name: &'static str, content: impl AsRef<[u8]>) -> Result<(), Fault> {
        put(&self.folder.join(name), content)?;
        self.names.push(name);
        Ok(())
    }
}

fn put(path: &Path, content: impl AsRef<[u8]>) -> Result<(), Fault> {
    fs::write(path, content).map_err(|e| Fault::file(format!("writing {}", path.display()), e))
}

/// Writes the page and the pictures: the names of the files.
fn write(recording: &Recording, recorded: &Recorded, html: Option<&Path>) -> Result<Vec<&'static str>, Fault> {
    let Recorded { on_cpu, wall, guest, joined, findings } = recorded;
    let mut files = Files { folder: &recording.folder, names: vec!["report.html"] };
    let (of, profile) = (vmtax_report::profile::of(findings), &on_cpu.profile);
    let time = Duration::from_secs_f64(on_cpu.seconds.max(0.0));
    let mut pictures = Pictures::default();
    if findings.samples > 0 {
        let title = match (&findings.file, findings.trigger.as_str()) {
            (None, _) => format!("{of}, on CPU"),
            (Some(_), "") => of.clone(),
            (Some(_), event) => format!("{of}, {event}"),
        };
        let svg = flame::draw(profile, &title, &subtitle(findings))?;
        files.put("on-cpu.svg", &svg)?;
        files.put("on-cpu.folded", fold::fold(profile).join("\n") + "\n")?;
        pictures.on_cpu = Some(svg);
        let bytes = pprof::bytes(joined.as_ref().unwrap_or(profile), findings.hz, time);
        files.put("profile.pb.gz", bytes.map_err(|e| Fault::file("writing profile.pb.gz", e))?)?;
    }
    // Over time, so only where that is known.
    if findings.seconds > 0.0 && findings.samples > 0 {
        let json = firefox::json(profile, guest.as_ref(), &findings.program, findings.pid, findings.hz, time)
            .map_err(|e| Fault::file("writing firefox.json", e.into()))?;
        files.put("firefox.json", &json)?;
    }
    if let (Some(wall), Some(found)) = (wall, &findings.wall) {
        let subtitle = counted(found.moments, "moment") + ", every thread at each";
        let svg = flame::draw(&wall.profile, &format!("{of}, by the clock"), &subtitle)?;
        files.put("wall.svg", &svg)?;
        files.put("wall.folded", fold::fold(&wall.profile).join("\n") + "\n")?;
        pictures.wall = Some(svg);
    }
    if let Some(joined) = joined {
        let svg = flame::draw(joined, &format!("{of} and its guest, on CPU"), &subtitle(findings))?;
        files.put("whole.svg", &svg)?;
        files.put("whole.folded", fold::fold(joined).join("\n") + "\n")?;
        pictures.whole = Some(svg);
    }
    if let Some(calls) = findings.guest.as_ref().and_then(|guest| guest.calls.as_ref()) {
        files.put("guest-syscalls.jsonl", &vmtax_report::profile::call_lines(calls)?)?;
    }
    files.put("profile.json", &vmtax_report::profile::json(findings)?)?;
    let manifest = &recording.manifest;
    let (version, begun, command) = (&manifest.vmtax, &manifest.started, manifest.command.join(" "));
    let origin = Origin { vmtax: version.to_owned(), started: begun.to_owned(), command };
    let page = report(findings, &pictures, origin).html();
    put(&html.map_or_else(|| recording.folder.join("report.html"), PathBuf::from), page)?;
    Ok(files.names)
}

fn subtitle(findings: &ProfileFindings) -> String {
    let time = if findings.seconds > 0.0 { format!(" in {:.1} s", findings.seconds) } else { String::new() };
    let rate = if findings.hz > 0 { format!(", {} a second", findings.hz) } else { String::new() };
    counted(findings.samples, "sample") + &time + &rate
}
