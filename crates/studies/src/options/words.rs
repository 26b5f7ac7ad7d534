//! Words of a command line: plan files, workloads, `KEY=VALUE`.

use super::error::OptionsError;
use std::fs;
use vmtax_model::{Plan, WorkloadName, WorkloadSpec};
use vmtax_workload::{Preset, descriptor};

/// Bytes; no plan that a person writes is longer.
const MAX_PLAN: u64 = 1 << 20;

/// Key and value of `word`, neither of them empty; `form` says how it is written, with an example.
///
/// # Errors
/// [`OptionsError::Usage`] for any other word.
pub fn key_value<'a>(word: &'a str, form: &str) -> Result<(&'a str, &'a str), OptionsError> {
    let pair = word.split_once('=').filter(|(key, value)| !key.is_empty() && !value.is_empty());
    pair.ok_or_else(|| OptionsError::Usage(format!("'{}' is not {form}", word.escape_default())))
}

/// The plan of the file that the words name; `None` where they name none.
///
/// # Errors
/// When the file is not all that they say, or holds no plan.
pub(crate) fn plan_file(words: &[String]) -> Result<Option<Plan>, OptionsError> {
    let is_file = |word: &&String| !word.contains('=') && (word.ends_with(".toml") || word.contains('/'));
    let Some(file) = words.iter().find(is_file) else { return Ok(None) };
    if words.len() > 1 {
        return OptionsError::usage(format!("'{file}' is a whole plan: give it alone"));
    }
    let failed = |e| OptionsError::file(format!("reading the plan {file}"), e);
    if fs::metadata(file).map_err(failed)?.len() > MAX_PLAN {
        return OptionsError::usage(format!("'{file}' is no plan: it is larger than 1 MiB"));
    }
    let text = fs::read_to_string(file).map_err(failed)?;
    Plan::from_toml(&text).map(Some).map_err(|e| OptionsError::Usage(format!("{file}: {e}")))
}

/// The workloads that the words name, or the `usual` ones, with the options that the words set.
///
/// # Errors
/// For an unknown workload, and an option of one that does not run.
pub(crate) fn named_workloads(
    words: &[String],
    preset: Preset,
    usual: impl IntoIterator<Item = WorkloadName>,
) -> Result<Vec<WorkloadSpec>, OptionsError> {
    let (options, names): (Vec<&String>, Vec<&String>) = words.iter().partition(|w| w.contains('='));
    let mut names: Vec<WorkloadName> = names.into_iter().map(|name| name.parse()).collect::<Result<_, _>>()?;
    if names.is_empty() {
        names.extend(usual);
    }
    let mut workloads: Vec<WorkloadSpec> = names.into_iter().map(|name| descriptor(name).preset(preset)).collect();
    options.into_iter().try_for_each(|option| set_option(&mut workloads, option))?;
    Ok(workloads)
}

/// Applies `WORKLOAD.OPTION=VALUE`.
fn set_option(workloads: &mut [WorkloadSpec], text: &str) -> Result<(), OptionsError> {
    let form = "WORKLOAD.OPTION=VALUE, as in cpu.max-prime=2000";
    let (key, value) = key_value(text, form)?;
    let Some((workload, option)) = key.split_once('.') else {
        return OptionsError::usage(format!("'{}' is not {form}", text.escape_default()));
    };
    let name: WorkloadName = workload.parse()?;
    match workloads.iter_mut().find(|w| w.name == name) {
        Some(spec) => spec.options.insert(option.to_owned(), value.to_owned()),
        None => return OptionsError::usage(format!("'{text}' is for {name}, which is not run: name {name} too")),
    };
    Ok(())
}

/// Has each trial last so many seconds, where it has a time; what `words` say of a workload alone stands above it.
pub(crate) fn set_duration(workloads: &mut [WorkloadSpec], seconds: f64, words: &[String]) -> Result<(), OptionsError> {
    for workload in workloads {
        let sets = |word: &String| word.split_once(".time=").is_some_and(|(name, _)| name.parse() == Ok(workload.name));
        if !words.iter().any(sets) {
            vmtax_workload::set_duration(workload, seconds)?;
        }
    }
    Ok(())
}
