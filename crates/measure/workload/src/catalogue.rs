//! Which options each workload has, and whether a spec can be run.

use crate::options::{OptionInfo, Values, must_end};
use crate::{WorkloadError, exits, seqread, share, sysbench, syscalls};
use vmtax_model::{WorkloadName, WorkloadSpec};

/// The options of a workload, in the order in which help lists them.
pub fn options(name: WorkloadName) -> &'static [OptionInfo] {
    match name {
        WorkloadName::Cpu => sysbench::cpu::OPTIONS,
        WorkloadName::Threads => sysbench::threads::OPTIONS,
        WorkloadName::Mutex => sysbench::mutex::OPTIONS,
        WorkloadName::Memory => sysbench::memory::OPTIONS,
        WorkloadName::Fileio => sysbench::fileio::OPTIONS,
        WorkloadName::Syscalls => syscalls::OPTIONS,
        WorkloadName::Seqread => seqread::OPTIONS,
        WorkloadName::Tree => share::tree::OPTIONS,
        WorkloadName::Bonnie => share::bonnie::OPTIONS,
        WorkloadName::Fids => share::fids::OPTIONS,
        WorkloadName::Names => share::names::OPTIONS,
        WorkloadName::Meaning => share::meaning::OPTIONS,
        WorkloadName::Exec => &[],
        WorkloadName::Exits => exits::OPTIONS,
        WorkloadName::Habits => exits::HABIT_OPTIONS,
    }
}

/// Validates every option and fills in the defaults: the spec as it will take effect, values in canonical spelling
/// (`65536` becomes `64K`). What comes out goes in again unchanged.
///
/// # Errors
/// An unknown option, a value out of range, or options that do not go together.
pub fn check(spec: &WorkloadSpec) -> Result<WorkloadSpec, WorkloadError> {
    let known = options(spec.name);
    if let Some(option) = spec.options.keys().find(|o| known.iter().all(|k| k.name != o.as_str())) {
        return Err(WorkloadError::UnknownOption {
            workload: spec.name,
            option: option.clone(),
            known: known.iter().map(|o| o.name).collect::<Vec<_>>().join(", "),
        });
    }
    let mut full = WorkloadSpec::new(spec.name);
    for option in known {
        let value = spec.options.get(option.name).map_or(option.default, String::as_str);
        let text = option.kind.canonical(value).ok_or_else(|| bad_value(spec.name, option, value))?;
        full.options.insert(option.name.to_owned(), text);
    }
    match spec.name {
        WorkloadName::Memory => sysbench::memory::reconcile(&mut full)?,
        WorkloadName::Fileio => sysbench::fileio::reconcile(&mut full)?,
        WorkloadName::Cpu | WorkloadName::Threads => must_end(&full, "events")?,
        WorkloadName::Seqread => must_end(&full, "count")?,
        WorkloadName::Bonnie => share::bonnie::reconcile(&full)?,
        _ => {}
    }
    Ok(full)
}

fn bad_value(workload: WorkloadName, option: &OptionInfo, value: &str) -> WorkloadError {
    WorkloadError::BadValue {
        workload,
        option: option.name.to_owned(),
        value: value.to_owned(),
        allowed: option.kind.allowed(),
    }
}

/// Bytes of files that a workload makes, so that room can be seen to beforehand.
///
/// # Errors
/// As [`check`].
pub fn file_bytes(spec: &WorkloadSpec) -> Result<u64, WorkloadError> {
    let full = check(spec)?;
    match full.name {
        WorkloadName::Fileio => Values(&full).number("total-size"),
        _ => Ok(0),
    }
}
