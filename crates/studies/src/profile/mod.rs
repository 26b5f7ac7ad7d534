//! Where the time of a guest's VMM, or of any process, goes.

mod difference;
mod options;
mod settings;

pub use difference::{changes, draw_difference};
pub use options::ProfileOptions;
pub use settings::{attached, profiles_of_guests};

use crate::analysis::{Analysis, ReportFile, StudyError};
use crate::reproduce::Evidence;
use std::time::Duration;
use vmtax_model::{Outcome, ProfileFindings};
use vmtax_profile::{Recorded, firefox, flame, fold, pprof};
use vmtax_recording::Recording;
use vmtax_report::profile::Pictures;
use vmtax_report::{Origin, Report, ReportError, counted};

pub(crate) struct Profile<'a> {
    recording: &'a Recording,
    recorded: Recorded,
    pictures: Pictures,
}

impl<'a> Profile<'a> {
    pub(crate) fn of(recording: &'a Recording) -> Result<Profile<'a>, StudyError> {
        Ok(Profile {
            recording,
            recorded: read(recording)?,
            pictures: Pictures::default(),
        })
    }
}

/// The plan's one trial, or what was there already.
fn read(recording: &Recording) -> Result<Recorded, StudyError> {
    let trial = recording
        .trials
        .iter()
        .find(|trial| trial.result().is_some());
    if trial.is_none() && !recording.plan.is_attached() {
        let failed = recording
            .trials
            .iter()
            .find_map(|trial| match &trial.outcome {
                Outcome::Failed { error } => Some(error.clone()),
                Outcome::Done { .. } | Outcome::Interrupted => None,
            });
        let first = failed.unwrap_or_else(|| "the workload was not run to its end".to_owned());
        return Err(StudyError::Damaged {
            folder: recording.folder.clone(),
            first,
        });
    }
    Ok(Recorded::read(
        &recording.trial_folder(trial.map_or(0, |trial| trial.number)),
    )?)
}

/// The pictures of the page, and the files beside it with their names.
fn draw(recorded: &Recorded) -> Result<(Pictures, Vec<ReportFile>), StudyError> {
    let Recorded {
        on_cpu,
        wall,
        guest,
        joined,
        findings,
    } = recorded;
    let (of, profile) = (vmtax_report::profile::of(findings), &on_cpu.profile);
    let time = Duration::from_secs_f64(on_cpu.seconds.max(0.0));
    let mut pictures = Pictures::default();
    let mut files: Vec<ReportFile> = Vec::new();
    let mut put = |name, content| files.push(ReportFile { name, content });
    let folded = |profile| (fold::fold(profile).join("\n") + "\n").into_bytes();
    if findings.samples > 0 {
        let title = match (&findings.file, findings.trigger.as_str()) {
            (None, _) => format!("{of}, on CPU"),
            (Some(_), "") => of.clone(),
            (Some(_), event) => format!("{of}, {event}"),
        };
        let svg = flame::draw(profile, &title, &subtitle(findings))?;
        put("on-cpu.svg", svg.clone().into_bytes());
        put("on-cpu.folded", folded(profile));
        pictures.on_cpu = Some(svg);
        let bytes = pprof::bytes(joined.as_ref().unwrap_or(profile), findings.hz, time);
        put(
            "profile.pb.gz",
            bytes.map_err(|source| StudyError::File {
                file: "profile.pb.gz",
                source,
            })?,
        );
    }
    // Over time, so only where that is known.
    if findings.seconds > 0.0 && findings.samples > 0 {
        let json = firefox::json(
            profile,
            guest.as_ref(),
            &findings.program,
            findings.pid,
            findings.hz,
            time,
        )
        .map_err(|e| StudyError::File {
            file: "firefox.json",
            source: e.into(),
        })?;
        put("firefox.json", json.into_bytes());
    }
    if let (Some(wall), Some(found)) = (wall, &findings.wall) {
        let subtitle = counted(found.moments, "wall-clock sample") + " of every thread";
        let svg = flame::draw(&wall.profile, &format!("{of}, wall-clock"), &subtitle)?;
        put("wall.svg", svg.clone().into_bytes());
        put("wall.folded", folded(&wall.profile));
        pictures.wall = Some(svg);
    }
    if let Some(joined) = joined {
        let svg = flame::draw(
            joined,
            &format!("{of} and its guest, on CPU"),
            &subtitle(findings),
        )?;
        put("with-guest.svg", svg.clone().into_bytes());
        put("with-guest.folded", folded(joined));
        pictures.whole = Some(svg);
    }
    if let Some(calls) = findings
        .guest
        .as_ref()
        .and_then(|guest| guest.calls.as_ref())
    {
        put(
            "guest-syscalls.jsonl",
            vmtax_report::profile::call_lines(calls)?.into_bytes(),
        );
    }
    put(
        "profile.json",
        vmtax_report::plain_json(findings)?.into_bytes(),
    );
    Ok((pictures, files))
}

fn subtitle(findings: &ProfileFindings) -> String {
    let time = if findings.seconds > 0.0 {
        format!(" in {:.1} s", findings.seconds)
    } else {
        String::new()
    };
    let rate = if findings.hz > 0 {
        format!(", {}/s of each thread that runs", findings.hz)
    } else {
        String::new()
    };
    counted(findings.samples, "sample") + &time + &rate
}

impl Analysis for Profile<'_> {
    fn report(&self) -> Report<'_> {
        let manifest = &self.recording.manifest;
        let (vmtax, started) = (manifest.vmtax.clone(), manifest.started.clone());
        let command = format!("vmtax report {}", self.recording.folder.display());
        let origin = Origin {
            vmtax,
            started,
            command,
        };
        vmtax_report::profile::report(&self.recorded.findings, &self.pictures, origin)
    }

    fn json(&self) -> Result<String, ReportError> {
        Ok(vmtax_report::plain_json(&self.recorded.findings)? + "\n")
    }

    fn draw(&mut self) -> Result<Vec<ReportFile>, StudyError> {
        let (pictures, files) = draw(&self.recorded)?;
        self.pictures = pictures;
        Ok(files)
    }

    fn evidence(&self) -> &dyn Evidence {
        self
    }
}

/// No published result claims anything of it.
impl Evidence for Profile<'_> {}
