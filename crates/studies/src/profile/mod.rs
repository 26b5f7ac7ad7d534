//! Where the time of a guest's VMM, or of any process, goes.

mod options;

pub use options::{ProfileOptions, attached, profiles_of_guests};

use crate::analysis::{Analysis, ReportFile, StudyError};
use crate::reproduce::Evidence;
use std::fs;
use std::path::Path;
use std::time::Duration;
use vmtax_findings::ProfileFindings;
use vmtax_model::{Outcome, samples};
use vmtax_profile::{Recorded, firefox, flame, pprof};
use vmtax_recording::Recording;
use vmtax_report::profile::Pictures;
use vmtax_report::{Origin, Report, ReportError, counted};

pub(crate) struct Profile<'a> {
    recording: &'a Recording,
    recorded: Recorded,
    pictures: Pictures,
}

impl<'a> Profile<'a> {
    pub(crate) fn new(recording: &'a Recording) -> Result<Profile<'a>, StudyError> {
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
    let findings = &recorded.findings;
    let mut drawing = Drawing {
        recorded,
        of: vmtax_report::profile::subject(findings),
        time: Duration::from_secs_f64(recorded.on_cpu.seconds.max(0.0)),
        pictures: Pictures::default(),
        files: Vec::new(),
    };
    if findings.samples > 0 {
        drawing.draw_on_cpu()?;
    }
    // Over time, so only where that is known.
    if findings.seconds > 0.0 && findings.samples > 0 {
        drawing.put_firefox()?;
    }
    drawing.draw_wall_clock()?;
    drawing.draw_with_guest()?;
    if let Some(calls) = findings
        .guest
        .as_ref()
        .and_then(|guest| guest.calls.as_ref())
    {
        drawing.put(
            "guest-syscalls.jsonl",
            vmtax_report::profile::call_lines(calls)?.into_bytes(),
        );
    }
    drawing.put(
        "profile.json",
        vmtax_report::plain_json(findings)?.into_bytes(),
    );
    Ok((drawing.pictures, drawing.files))
}

/// Pictures and files of a profile, as far as they are drawn.
struct Drawing<'a> {
    recorded: &'a Recorded,
    /// Name of the profiled process or file, for titles.
    of: String,
    /// Sampling time.
    time: Duration,
    pictures: Pictures,
    files: Vec<ReportFile>,
}

impl Drawing<'_> {
    /// Adds a file.
    fn put(&mut self, name: &'static str, content: Vec<u8>) {
        self.files.push(ReportFile { name, content });
    }

    /// Draws the samples on a CPU, and adds them as folded stacks and for pprof.
    fn draw_on_cpu(&mut self) -> Result<(), StudyError> {
        let recorded = self.recorded;
        let (findings, profile) = (&recorded.findings, &recorded.on_cpu.profile);
        let title = match (&findings.file, findings.trigger.as_str()) {
            (None, _) => format!("{}, on CPU", self.of),
            (Some(_), "") => self.of.clone(),
            (Some(_), event) => format!("{}, {event}", self.of),
        };
        let svg = flame::draw(profile, &title, &subtitle(findings))?;
        self.put("on-cpu.svg", svg.clone().into_bytes());
        self.put("on-cpu.folded", folded(profile));
        self.pictures.on_cpu = Some(svg);
        let joined = recorded.joined.as_ref();
        let bytes = pprof::bytes(joined.unwrap_or(profile), findings.hz, self.time);
        self.put(
            "profile.pb.gz",
            bytes.map_err(|source| StudyError::File {
                file: "profile.pb.gz",
                source,
            })?,
        );
        Ok(())
    }

    /// Adds the samples on a CPU for Firefox Profiler.
    fn put_firefox(&mut self) -> Result<(), StudyError> {
        let recorded = self.recorded;
        let findings = &recorded.findings;
        let json = firefox::json(
            &recorded.on_cpu.profile,
            recorded.guest.as_ref(),
            &findings.program,
            findings.pid,
            findings.hz,
            self.time,
        )
        .map_err(|e| StudyError::File {
            file: "firefox.json",
            source: e.into(),
        })?;
        self.put("firefox.json", json.into_bytes());
        Ok(())
    }

    /// Draws the samples by the wall clock, where there are any, and adds them as folded stacks.
    fn draw_wall_clock(&mut self) -> Result<(), StudyError> {
        let recorded = self.recorded;
        let (Some(wall), Some(found)) = (&recorded.wall, &recorded.findings.wall) else {
            return Ok(());
        };
        let title = format!("{}, wall-clock", self.of);
        let subtitle = counted(found.moments, "wall-clock sample") + " of every thread";
        let svg = flame::draw(&wall.profile, &title, &subtitle)?;
        self.put("wall.svg", svg.clone().into_bytes());
        self.put("wall.folded", folded(&wall.profile));
        self.pictures.wall = Some(svg);
        Ok(())
    }

    /// Draws QEMU's samples with the guest's stacks, where they are joined, and adds them as folded stacks.
    fn draw_with_guest(&mut self) -> Result<(), StudyError> {
        let recorded = self.recorded;
        let Some(joined) = &recorded.joined else {
            return Ok(());
        };
        let title = format!("{} and its guest, on CPU", self.of);
        let svg = flame::draw(joined, &title, &subtitle(&recorded.findings))?;
        self.put("with-guest.svg", svg.clone().into_bytes());
        self.put("with-guest.folded", folded(joined));
        self.pictures.whole = Some(svg);
        Ok(())
    }
}

/// Returns the folded stacks of a profile, one a line.
fn folded(profile: &samples::Profile) -> Vec<u8> {
    (flame::fold(profile).join("\n") + "\n").into_bytes()
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

/// Reports the functions whose shares changed between two profiles, each a recording or a file of folded stacks.
///
/// # Errors
/// [`StudyError`] for a profile that cannot be read.
pub fn changes(before: &Path, after: &Path) -> Result<Report<'static>, StudyError> {
    let changes = vmtax_profile::changes(&stacks(before)?, &stacks(after)?);
    let unlike = match (findings_of(before), findings_of(after)) {
        (Some(before), Some(after)) => vmtax_report::profile::unlike(&before, &after),
        _ => Vec::new(),
    };
    Ok(vmtax_report::profile::changes(&changes, &unlike))
}

/// The differential flame graph of two profiles, as SVG.
///
/// # Errors
/// [`StudyError`] for a profile that cannot be read or drawn.
pub fn draw_difference(before: &Path, after: &Path) -> Result<String, StudyError> {
    let title = format!("{} against {}", after.display(), before.display());
    Ok(flame::draw_difference(
        &stacks(before)?,
        &stacks(after)?,
        &title,
    )?)
}

/// Returns the further findings in a profile's directory; `None` if there are none, or they are of another version.
fn findings_of(path: &Path) -> Option<ProfileFindings> {
    serde_json::from_slice(&fs::read(path.join("profile.json")).ok()?).ok()
}

/// The folded stacks of a profile.
fn stacks(path: &Path) -> Result<samples::Profile, StudyError> {
    let file = if path.is_dir() {
        path.join("on-cpu.folded")
    } else {
        path.to_path_buf()
    };
    let text = fs::read_to_string(&file).map_err(|source| StudyError::Unreadable {
        file: file.clone(),
        source,
    })?;
    Ok(flame::unfold(&text, &file)?)
}
