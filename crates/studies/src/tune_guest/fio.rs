//! The workload of a fio job file: block requests that vmtax makes as fio would. Format: fio(1).

use crate::options::OptionsError;
use std::collections::BTreeMap;
use std::path::Path;
use vmtax_model::shell_line;

/// A longer file is no job.
const MAX_BYTES: u64 = 1 << 20;
/// Options that change nothing of what is measured here.
const NO_EFFECT: [&str; 16] = [
    "description",
    "disable_clat",
    "disable_lat",
    "disable_slat",
    "group_reporting",
    "gtod_reduce",
    "invalidate",
    "log_avg_msec",
    "loops",
    "name",
    "norandommap",
    "randrepeat",
    "stonewall",
    "thread",
    "time_based",
    "wait_for_previous",
];
/// Options of where and how long, which the tuning decides.
const DECIDED: [(&str, &str); 9] = [
    ("directory", "the requests go to the disk that is tuned"),
    ("end_fsync", "the requests end without a flush"),
    ("filename", "the requests go to the disk that is tuned"),
    ("filesize", "the disk that is tuned has 256 MiB of data"),
    ("nrfiles", "the requests go to the disk that is tuned"),
    ("offset", "the requests go to all of the disk that is tuned"),
    ("ramp_time", "each boot is warm once the guest runs"),
    (
        "runtime",
        "--slice is how long the requests run in each boot",
    ),
    ("size", "the disk that is tuned has 256 MiB of data"),
];

/// A job of fio as a workload of vmtax.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Job {
    /// The workload with its options.
    pub words: Vec<String>,
    /// Differences from the fio job, one line each.
    pub notes: Vec<String>,
}

/// Reads a job file.
///
/// # Errors
/// [`OptionsError`] where it cannot be read, has several jobs, or asks for what vmtax's requests cannot do, by the option's name.
pub(super) fn job(path: &Path) -> Result<Job, OptionsError> {
    let failed = |e| OptionsError::file(format!("reading {}", path.display()), e);
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    std::io::Read::read_to_string(&mut std::io::Read::take(file, MAX_BYTES), &mut text)
        .map_err(failed)?;
    meaning(&options(&text, path)?, path)
}

/// The options of the only job, those of `[global]` first.
fn options(text: &str, path: &Path) -> Result<BTreeMap<String, String>, OptionsError> {
    let (mut all, mut jobs) = (BTreeMap::new(), 0);
    for line in text.lines().map(str::trim) {
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        let section = line.strip_prefix('[');
        if let Some(section) = section.and_then(|line| line.strip_suffix(']')) {
            jobs += usize::from(section != "global");
            continue;
        }
        let (key, value) = line.split_once('=').unwrap_or((line, ""));
        all.insert(key.trim().to_owned(), value.trim().to_owned());
    }
    match jobs {
        1 => Ok(all),
        _ => OptionsError::usage(format!(
            "{} has {jobs} jobs: a tuning is for one; `{}` runs all of them",
            path.display(),
            itself(path)
        )),
    }
}

/// The command that lets fio itself run.
fn itself(path: &Path) -> String {
    let path = path.display().to_string();
    shell_line(&["vmtax", "tune", "--", "exec", "fio", &path].map(str::to_owned))
}

/// The error of an option that vmtax's requests do not have.
fn refused(path: &Path, key: &str, value: &str) -> Result<Job, OptionsError> {
    let option = match value {
        "" => key.to_owned(),
        value => format!("{key}={value}"),
    };
    OptionsError::usage(format!(
        "{}: vmtax's block requests have no {}: leave it out, or let fio itself run, by its wall time: `{}`",
        path.display(),
        option.escape_default(),
        itself(path)
    ))
}

/// The job that these options mean.
fn meaning(all: &BTreeMap<String, String>, path: &Path) -> Result<Job, OptionsError> {
    // fio's own engine has one request under way.
    let mut all = all.clone();
    all.entry("ioengine".to_owned())
        .or_insert_with(|| "psync".to_owned());
    let depth = all.get("iodepth").map_or("1", String::as_str);
    let (mut words, mut notes) = (vec!["disk".to_owned()], Vec::new());
    let mut rw = "read".to_owned();
    let mut is_direct = false;
    for (key, value) in &all {
        match (key.as_str(), value.as_str()) {
            ("rw" | "readwrite", "read" | "write" | "randread" | "randwrite") => {
                rw.clone_from(value)
            }
            ("bs" | "blocksize", size) if !size.contains([',', '-', ':']) => {
                words.push(format!("bs={}", size.to_uppercase()))
            }
            ("iodepth", depth) => words.push(format!("iodepth={depth}")),
            ("direct", "1") | ("buffered", "0") => is_direct = true,
            ("numjobs", "1") | ("fsync" | "fdatasync" | "thinktime" | "zero_buffers", "0") => {}
            ("ioengine", "psync" | "sync" | "pvsync" | "pvsync2") if depth == "1" => {}
            ("ioengine", "io_uring") => {}
            ("ioengine", "libaio" | "posixaio") if depth == "1" => {
                notes.push(format!(
                    "ioengine={value}: pread and pwrite, as one request is under way at a time"
                ));
            }
            ("ioengine", "libaio" | "posixaio") => {
                notes.push(format!("ioengine={value}: io_uring in its place"))
            }
            ("ioengine", "psync" | "sync" | "pvsync" | "pvsync2") => {
                notes.push(format!(
                    "ioengine={value} has one request under way: iodepth={depth} does not count"
                ));
                words.retain(|word| !word.starts_with("iodepth="));
            }
            (key, _) if NO_EFFECT.contains(&key) => {}
            (key, value) => match DECIDED.iter().find(|(known, _)| *known == key) {
                Some((_, why)) => notes.push(format!("{key}={value}: {why}")),
                None => return refused(path, key, value),
            },
        }
    }
    if !is_direct {
        return refused(path, "buffered requests (direct=0)", "");
    }
    words.push(format!("rw={rw}"));
    Ok(Job { words, notes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn job_of(text: &str) -> Result<Job, String> {
        let path = Path::new("job.fio");
        options(text, path)
            .and_then(|all| meaning(&all, path))
            .map_err(|e| e.to_string())
    }

    #[test]
    fn a_job_is_the_same_requests() {
        let text = "; a comment\n[global]\nioengine=libaio\ndirect=1\nruntime=60\ntime_based\n[db]\nrw=randwrite\nbs=16k\niodepth=8\nsize=4G\n";
        let job = job_of(text).unwrap();
        assert_eq!(job.words, ["disk", "bs=16K", "iodepth=8", "rw=randwrite"]);
        assert_eq!(job.notes.len(), 3, "{:?}", job.notes);
        let plain = job_of("[a]\ndirect=1\n").unwrap();
        assert_eq!(
            (plain.words.join(" ").as_str(), plain.notes.len()),
            ("disk rw=read", 0)
        );
        let one = job_of("[a]\ndirect=1\nioengine=psync\niodepth=32\n").unwrap();
        assert_eq!(one.words, ["disk", "rw=read"]);
        let flushed = job_of("[a]\ndirect=1\nrw=write\nend_fsync=1\n").unwrap();
        assert!(
            flushed.notes[0].contains("end_fsync=1"),
            "{:?}",
            flushed.notes
        );
    }

    #[test]
    fn a_path_is_quoted_as_a_shell_needs_it() {
        let why = options("[a]\n[b]\n", Path::new("my job's.fio"))
            .unwrap_err()
            .to_string();
        let line = why.split('`').nth(1).unwrap();
        let output = std::process::Command::new("sh")
            .args(["-c", &format!("printf '%s|' {line}")])
            .output()
            .unwrap();
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "vmtax|tune|--|exec|fio|my job's.fio|"
        );
    }

    #[test]
    fn what_cannot_be_done_is_refused_by_its_name() {
        for (text, named) in [
            ("[a]\ndirect=1\nrw=randrw\n", "rw=randrw"),
            ("[a]\ndirect=1\nfsync=1\n", "fsync=1"),
            ("[a]\ndirect=1\nrate_iops=500\n", "rate_iops=500"),
            ("[a]\ndirect=1\nnumjobs=4\n", "numjobs=4"),
            ("[a]\nrw=read\n", "direct=0"),
            ("[a]\ndirect=1\nbs=4k,8k\n", "bs=4k,8k"),
            ("[a]\n[b]\n", "2 jobs"),
            ("", "0 jobs"),
        ] {
            let why = job_of(text).unwrap_err();
            assert!(
                why.contains(named) && why.contains("exec fio job.fio"),
                "{text}: {why}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "(\\[[a-z]*\\]|[a-z_]{1,10}=?[a-z0-9]{0,6}|\n){0,20}") {
            let _ = job_of(&text);
        }
    }
}
