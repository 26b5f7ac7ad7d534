//! `fio`: the host's own fio, natively and in a guest, with jobs that somebody pasted, on the measured disk. fio makes and times the
//! requests; the figures are those of its JSON, of all jobs together.

use crate::descriptor::{Workload, Yield, options_of, workload};
use crate::fio::{FioJob, FioPaste, FioPrinted, INSTALL_FIO, Sandboxed, Summary, fio_output, run};
use crate::options::{self, seconds, text};
use crate::overwrite::claim;
use crate::workloads::disk::file_type;
use crate::{BlockWork, Clock, WorkloadError};
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::{Path, PathBuf};
use vmtax_model::{Metric, Places, Unsupported, WorkloadName, WorkloadSpec};

workload! {
    Fio: "the host's fio, with jobs that you paste, on the measured disk";
    job: String = text(JOB, "--name=fio --rw=randread --direct=1", "jobs as fio's command line has them");
    time: f64 = seconds(
        options::TIME, "1", 0.0..=86_400.0, "seconds for which each job runs; 0: as the job says",
    );
}

/// Name of the option that has the jobs.
const JOB: &str = "job";
/// A longer output is read and not kept, bytes: it is part of a message.
const MAX_KEPT: usize = 1 << 20;
/// More messages of fio, and more letters of one, are no notes.
const MAX_MESSAGES: usize = 8;
const MAX_MESSAGE: usize = 200;
const BYTES_PER_MIB: f64 = 1_048_576.0;
/// Folders in which a guest looks for fio, whose environment has no PATH of the host's.
const FOLDERS: [&str; 5] = [
    "/usr/local/bin",
    "/usr/bin",
    "/bin",
    "/usr/local/sbin",
    "/usr/sbin",
];

/// `fio` with these jobs, each for `time_s` seconds.
pub fn fio_work(job: &FioJob, time_s: f64) -> WorkloadSpec {
    WorkloadSpec::new(WorkloadName::Fio)
        .with(JOB, job.command_line())
        .with(options::TIME, time_s)
}

/// Returns the requests of a spec of `fio`, as far as its options tell.
///
/// # Errors
/// As [`crate::check`].
pub fn fio_requests(spec: &WorkloadSpec) -> Result<BlockWork, WorkloadError> {
    Ok(options_of::<Fio>(spec, Fio::OPTIONS)?.jobs()?.work())
}

/// The exit status of fio in an error of its run, as [`WorkloadError::Program`] words it.
pub fn fio_status(error: &str) -> Option<i32> {
    let (_, rest) = error.split_once("fio ended with exit status ")?;
    rest.split(':').next()?.parse().ok()
}

impl Fio {
    fn jobs(&self) -> Result<FioJob, WorkloadError> {
        let read = FioPaste::read(&self.job, None).map_err(WorkloadError::Fio)?;
        Ok(read.job)
    }
}

impl Workload for Fio {
    fn reconcile(&mut self) -> Result<(), WorkloadError> {
        // What may run is checked wherever the spec comes from: a plan's file, a recording.
        let job = self.jobs()?;
        self.job = job.command_line();
        Ok(())
    }

    fn run(&self, _: &Clock, places: &Places) -> Result<Yield, WorkloadError> {
        let missing = WorkloadError::no_place(
            WorkloadName::Fio,
            "a block device or a written file",
            "--disk FILE",
        );
        let disk = places.disk.as_deref().ok_or(missing)?;
        let base = places.share.as_deref().unwrap_or(Path::new("/"));
        let program = program(base).ok_or(WorkloadError::NoProgram {
            program: "fio",
            remedy: INSTALL_FIO,
        })?;
        let (job, bytes) = (self.jobs()?, size(disk)?);
        let writes = job.writing_option();
        let claimed = writes
            .as_deref()
            .map(|option| claim(disk, places, WorkloadName::Fio, option))
            .transpose()?;
        let output = run(&Sandboxed {
            program: &program,
            base,
            disk,
            job: &job.file(crate::fio::DISK, bytes, self.time),
            is_read_only: writes.is_none(),
            is_native: !is_in_guest(places),
        })?;
        drop(claimed);
        let mut figures = figures(&output)?;
        figures.notes.extend(job.differences(bytes, 0.0));
        keep(&output, &mut figures);
        Ok(figures)
    }
}

/// Keeps fio's JSON, and what it says besides as notes.
fn keep(output: &str, figures: &mut Yield) {
    let Some(printed) = FioPrinted::of(output) else {
        return;
    };
    let messages = printed.messages.iter().take(MAX_MESSAGES);
    figures.notes.extend(messages.map(|line| {
        let text = line.strip_prefix("fio: ").unwrap_or(line);
        format!(
            "fio says: {}",
            text.chars().take(MAX_MESSAGE).collect::<String>()
        )
    }));
    match printed.json.len() {
        ..=MAX_KEPT => figures.output = Some(printed.json.to_owned()),
        long => figures.notes.push(format!(
            "fio's output has {} MiB, and is not kept",
            long >> 20
        )),
    }
}

/// Returns true in a guest of vmtax, whose first process is the agent, which shares the host's files.
fn is_in_guest(places: &Places) -> bool {
    places.share.is_some() && std::os::unix::process::parent_id() == 1
}

/// fio below the root of the host's files.
fn program(base: &Path) -> Option<PathBuf> {
    let own = std::env::var_os("PATH").filter(|_| base == Path::new("/"));
    let own: Vec<PathBuf> =
        own.map_or_else(Vec::new, |path| std::env::split_paths(&path).collect());
    let folders = own.into_iter().chain(FOLDERS.map(PathBuf::from));
    let mut programs = folders.map(|folder| folder.join("fio"));
    let is_there = |path: &PathBuf| {
        path.is_absolute() && base.join(path.strip_prefix("/").unwrap_or(path)).is_file()
    };
    programs.find(is_there)
}

/// Size of a disk or file, bytes.
fn size(disk: &Path) -> Result<u64, WorkloadError> {
    file_type(disk)?;
    // A device's metadata say nothing of its size; its end does.
    let end = File::open(disk).and_then(|mut file| file.seek(SeekFrom::End(0)));
    end.map_err(|e| {
        WorkloadError::unreadable(
            disk,
            format!("cannot be opened ({e}): give another with --disk"),
        )
    })
}

/// The figures in fio's output.
fn figures(output: &str) -> Result<Yield, WorkloadError> {
    let failed = |said: &str| WorkloadError::Program {
        program: "fio",
        status: 0,
        said: said.to_owned(),
    };
    let read = fio_output(output).ok_or_else(|| failed("its output has no JSON of fio"))?;
    let all = Summary::of(&read.jobs);
    if all.iops <= 0.0 {
        return Err(failed(
            "it made no requests: let its jobs run longer, or name another engine",
        ));
    }
    let mut found = Yield {
        total_s: all.seconds,
        ..Yield::default()
    };
    found.measure(Metric::FioRate, all.iops);
    found.measure(Metric::FioBandwidth, all.bytes / BYTES_PER_MIB);
    if all.is_sequence {
        found.notes.push(format!(
            "fio's jobs ran one after the other: fio.iops and fio.bandwidth are of all requests over {:.3} s",
            all.seconds
        ));
    }
    let ns = |part| all.percentile(part).map(|ns| ns as f64);
    for (metric, value) in [
        (Metric::FioMean, all.mean_ns),
        (Metric::FioMedian, ns(0.5)),
        (Metric::FioTail, ns(0.99)),
    ] {
        match value {
            Some(value) => found.measure(metric, value),
            None => found.unsupported.push(Unsupported {
                metric,
                reason: "the job switches fio's completion latencies off".to_owned(),
            }),
        }
    }
    for (name, latency) in all.latencies {
        found.operation(name, latency);
    }
    Ok(found)
}
