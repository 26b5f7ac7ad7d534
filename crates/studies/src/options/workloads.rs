//! Workloads with their options, and variants with their settings, on a command line, the same in every command: `disk
//! count=2000`, `disk.count=2000`, plan files, `aio=native,cache=none`, `exec make -j2`.

use super::values::OptionsError;
use std::collections::BTreeMap;
use std::fs;
use vmtax_host::find_program;
use vmtax_model::{CommandSpec, MetricPattern, Plan, Variant, WorkloadName, WorkloadSpec};
use vmtax_runner::check_patterns;
use vmtax_workload::{Preset, descriptor};

/// Bytes; no plan that a person writes is longer.
const MAX_PLAN: u64 = 1 << 20;
/// A table with more columns is hard to read.
const MAX_VARIANTS: usize = 16;

/// Key and value of `word`, neither of them empty; `form` says how it is written, with an example.
///
/// # Errors
/// [`OptionsError::Usage`] for any other word.
pub fn key_value<'a>(word: &'a str, form: &str) -> Result<(&'a str, &'a str), OptionsError> {
    let pair = word
        .split_once('=')
        .filter(|(key, value)| !key.is_empty() && !value.is_empty());
    pair.ok_or_else(|| OptionsError::Usage(format!("'{}' is not {form}", word.escape_default())))
}

/// Checks that the patterns of a command's metrics are regular expressions.
///
/// # Errors
/// [`OptionsError::Usage`] for the first invalid one.
pub(crate) fn check_metrics(all: &[MetricPattern]) -> Result<(), OptionsError> {
    check_patterns(all).map_err(|e| OptionsError::Usage(e.to_string()))
}

/// The plan of the file that the words name; `None` where they name none.
///
/// # Errors
/// When the file is not all that they say, or holds no plan.
pub(crate) fn plan_file(words: &[String]) -> Result<Option<Plan>, OptionsError> {
    let is_file =
        |word: &&String| !word.contains('=') && (word.ends_with(".toml") || word.contains('/'));
    let Some(file) = words.iter().find(is_file) else {
        return Ok(None);
    };
    if words.len() > 1 {
        return OptionsError::usage(format!("'{file}' is a whole plan: give it alone"));
    }
    let failed = |e| OptionsError::file(format!("reading the plan {file}"), e);
    if fs::metadata(file).map_err(failed)?.len() > MAX_PLAN {
        return OptionsError::usage(format!("'{file}' is no plan: it is larger than 1 MiB"));
    }
    let text = fs::read_to_string(file).map_err(failed)?;
    Plan::from_toml(&text)
        .map(Some)
        .map_err(|e| OptionsError::Usage(format!("{file}: {e}")))
}

/// Workloads and their options, as they are written.
pub(crate) struct WorkloadArguments {
    /// The workloads that are named, in order.
    pub names: Vec<WorkloadName>,
    options: Vec<Setting>,
}

/// `OPTION=VALUE`, and the workload that it belongs to where one is named before it.
struct Setting {
    workload: Option<WorkloadName>,
    option: String,
    value: String,
}

impl WorkloadArguments {
    /// Reads `WORKLOAD`, `WORKLOAD.OPTION=VALUE`, and `OPTION=VALUE` of the workload named last.
    ///
    /// # Errors
    /// For an unknown workload, and an argument of another form.
    pub fn parse(words: &[String]) -> Result<WorkloadArguments, OptionsError> {
        let (mut names, mut options): (Vec<WorkloadName>, Vec<Setting>) = (Vec::new(), Vec::new());
        for word in words {
            if !word.contains('=') {
                names.push(word.parse()?);
                continue;
            }
            let (key, value) = key_value(word, "OPTION=VALUE, as in disk count=2000")?;
            let (workload, option) = match key.split_once('.') {
                Some((workload, option)) => (Some(workload.parse()?), option),
                None => (names.last().copied(), key),
            };
            options.push(Setting {
                workload,
                option: option.to_owned(),
                value: value.to_owned(),
            });
        }
        Ok(WorkloadArguments { names, options })
    }

    /// Sets the options. One before the first name belongs to the first workload that is named, or to the only one.
    ///
    /// # Errors
    /// For an option of a workload that does not run, and one of several possible workloads.
    pub fn apply(&self, workloads: &mut [WorkloadSpec]) -> Result<(), OptionsError> {
        for Setting {
            workload,
            option,
            value,
        } in &self.options
        {
            let only = if let [only] = workloads {
                Some(only.name)
            } else {
                None
            };
            let Some(name) = workload.or(self.names.first().copied()).or(only) else {
                return OptionsError::usage(format!(
                    "'{option}={value}' has no workload: name it before, as in `disk {option}={value}`"
                ));
            };
            let Some(spec) = workloads.iter_mut().find(|spec| spec.name == name) else {
                return OptionsError::usage(format!(
                    "'{option}={value}' is of {name}, which does not run: name {name} too"
                ));
            };
            vmtax_workload::set_option(spec, option, value)?;
        }
        Ok(())
    }
}

/// The workloads that are named, or the `default` ones, with the options that are set. `duration` is that of each trial that
/// is bounded by time, s, unless its own `time` is set.
///
/// # Errors
/// As [`WorkloadArguments`] has them.
pub(crate) fn named_workloads(
    words: &[String],
    preset: Preset,
    default: impl IntoIterator<Item = WorkloadName>,
    duration: Option<f64>,
) -> Result<Vec<WorkloadSpec>, OptionsError> {
    let arguments = WorkloadArguments::parse(words)?;
    let mut names = arguments.names.clone();
    if names.is_empty() {
        names.extend(default);
    }
    let mut workloads: Vec<WorkloadSpec> = names
        .into_iter()
        .map(|name| descriptor(name).preset(preset))
        .collect();
    arguments.apply(&mut workloads)?;
    set_duration(&mut workloads, duration)?;
    arguments.apply(&mut workloads)?;
    Ok(workloads)
}

/// Has each trial that is bounded by time last so many seconds; `None` leaves it.
pub(crate) fn set_duration(
    workloads: &mut [WorkloadSpec],
    duration: Option<f64>,
) -> Result<(), OptionsError> {
    for workload in workloads {
        duration.map_or(Ok(()), |seconds| {
            vmtax_workload::set_duration(workload, seconds)
        })?;
    }
    Ok(())
}

/// Where workloads begin in arguments that have something else before them.
pub(crate) fn first_workload(words: &[String]) -> usize {
    let is_workload = |word: &String| {
        let name = word.split_once('=').map_or(word.as_str(), |(key, _)| {
            key.split_once('.').map_or("", |(name, _)| name)
        });
        name.parse::<WorkloadName>().is_ok()
    };
    words.iter().position(is_workload).unwrap_or(words.len())
}

/// Each word `KEY=VALUE`, or several with a comma between them, where a comma within a value is written twice; `form` says how
/// it is written, with an example.
///
/// # Errors
/// For another word, and a key that is set twice.
pub(crate) fn settings<T: AsRef<str>>(
    words: &[T],
    form: &str,
) -> Result<BTreeMap<String, String>, OptionsError> {
    let mut settings = BTreeMap::new();
    for word in words.iter().flat_map(|word| split(word.as_ref())) {
        let (key, value) = key_value(&word, form)?;
        if settings.insert(key.to_owned(), value.to_owned()).is_some() {
            return OptionsError::usage(format!(
                "{} is set twice: set it once",
                key.escape_default()
            ));
        }
    }
    Ok(settings)
}

/// As QEMU splits its own options.
fn split(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            ',' if rest.peek() == Some(&',') => {
                rest.next();
                word.push(',');
            }
            ',' => words.push(std::mem::take(&mut word)),
            c => word.push(c),
        }
    }
    if !word.is_empty() || words.is_empty() {
        words.push(word);
    }
    words
}

/// Every combination of the lists in `vary`, each over `set`.
///
/// # Errors
/// For a word of another form, and more than 16 combinations.
pub(crate) fn variants(vary: &[String], set: &[String]) -> Result<Vec<Variant>, OptionsError> {
    let set = settings(set, "KEY=VALUE, as in --set cache=none")?;
    let mut variants = vec![Variant {
        name: String::new(),
        set,
    }];
    for word in vary {
        let form = "KEY=VALUE,VALUE, as in --vary aio=threads,native";
        let (key, list) = key_value(word, form)?;
        if list.split(',').any(str::is_empty) {
            return OptionsError::usage(format!("'{word}' is not {form}"));
        }
        let variant_with = |variant: &Variant, value: &str| {
            let mut variant = variant.clone();
            variant.set.insert(key.to_owned(), value.to_owned());
            let gap = if variant.name.is_empty() { "" } else { " " };
            variant.name += &format!("{gap}{key}={value}");
            variant
        };
        variants = variants
            .iter()
            .flat_map(|v| list.split(',').map(move |value| variant_with(v, value)))
            .collect();
    }
    if variants.len() > MAX_VARIANTS {
        return OptionsError::usage(format!(
            "--vary makes {} columns, {MAX_VARIANTS} is the limit: vary fewer at a time",
            variants.len()
        ));
    }
    Ok(variants)
}

/// A share method with its options, `9p,msize=524288,cache=loose`, as a variant of that name.
///
/// # Errors
/// For options of another form.
pub(crate) fn share_variant(text: &str) -> Result<Variant, OptionsError> {
    let words: Vec<&str> = text.split(',').collect();
    let options = settings(&words[1..], "OPTION=VALUE, as in 9p,cache=loose")?;
    // The QEMU that shares it may be part of the method.
    let named = |(key, value)| {
        (
            if key == "qemu" {
                key
            } else {
                format!("share.{key}")
            },
            value,
        )
    };
    let method = ("share".to_owned(), words[0].to_owned());
    Ok(Variant {
        name: text.to_owned(),
        set: options.into_iter().map(named).chain([method]).collect(),
    })
}

/// Returns the share method of the host's root that is named, else the one that was measured to be fastest of those on this
/// host (docs/exec.md).
pub(crate) fn root_share(asked: Option<&str>) -> Result<Variant, OptionsError> {
    // An ordinary user's is in a user namespace, where the host's owners are not distinguished.
    let is_served = || rustix::process::geteuid().is_root() && find_program("virtiofsd").is_some();
    let method = match asked {
        Some(method) => method,
        None if is_served() => "virtiofs,cache=always",
        None => "9p,msize=512000,cache=loose,multidevs=remap",
    };
    Ok(Variant {
        name: String::new(),
        ..share_variant(method)?
    })
}

/// Returns the words of the command behind `exec`; `None` for other workloads.
pub(crate) fn argv_of_exec(words: &[String]) -> Option<&[String]> {
    let (first, argv) = words.split_first()?;
    (first.parse() == Ok(WorkloadName::Exec)).then_some(argv)
}

/// A command in the working directory.
pub(crate) fn command_here(words: &[String]) -> Result<CommandSpec, OptionsError> {
    let directory =
        std::env::current_dir().map_err(|e| OptionsError::file("the working directory", e))?;
    Ok(CommandSpec::new(words.to_vec(), directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    fn disk(line: &str) -> Result<WorkloadSpec, String> {
        let all = named_workloads(&words(line), Preset::Quick, [WorkloadName::Disk], None);
        all.map_err(|e| e.to_string()).map(|all| {
            all.into_iter()
                .find(|w| w.name == WorkloadName::Disk)
                .unwrap()
        })
    }

    #[test]
    fn an_option_is_written_in_one_of_two_ways() {
        let expected = disk("disk disk.count=2000").unwrap();
        assert_eq!(expected.options["count"], "2000");
        for line in [
            "disk count=2000",
            "count=2000 disk",
            "count=2000",
            "cpu disk count=2000",
        ] {
            assert_eq!(disk(line).unwrap(), expected, "{line}");
        }
        assert!(disk("cpu disk cpu.count=1 time=1").unwrap().options["time"] == "1");
        for (line, why) in [
            ("count=1 x", "unknown"),
            ("disk cpu.time=1", "name cpu too"),
            ("disk =1", "OPTION=VALUE"),
        ] {
            assert!(
                disk(line).unwrap_err().contains(why),
                "{line}: {}",
                disk(line).unwrap_err()
            );
        }
        let several = named_workloads(
            &words("count=1"),
            Preset::Quick,
            [WorkloadName::Cpu, WorkloadName::Disk],
            None,
        );
        assert!(several.unwrap_err().to_string().contains("name it before"));
    }

    #[test]
    fn names_of_fio_mean_the_same() {
        let expected = disk("disk block-size=64K mode=random operation=write depth=8").unwrap();
        assert_eq!(
            disk("disk bs=64K rw=randwrite iodepth=8").unwrap(),
            expected
        );
        assert!(disk("disk rw=trim").unwrap_err().contains("randread"));
    }

    #[test]
    fn a_duration_is_below_what_a_workload_sets_itself() {
        let all =
            named_workloads(&words("cpu threads time=2"), Preset::Quick, [], Some(0.5)).unwrap();
        assert_eq!(
            (
                all[0].options["time"].as_str(),
                all[1].options["time"].as_str()
            ),
            ("0.5", "2")
        );
    }

    #[test]
    fn workloads_begin_at_the_first_name() {
        assert_eq!(first_workload(&words("aio=native default disk count=1")), 2);
        assert_eq!(first_workload(&words("aio=native disk.count=1 disk")), 1);
        assert_eq!(first_workload(&words("a=b runs/x")), 2);
    }

    #[test]
    fn every_combination_is_a_column() {
        let words = |list: &[&str]| list.iter().map(|&w| w.to_owned()).collect::<Vec<_>>();
        let all = variants(
            &words(&["aio=threads,native", "iothread=off,on"]),
            &words(&["cache=none"]),
        )
        .unwrap();
        let names: Vec<&str> = all.iter().map(|v| v.name.as_str()).collect();
        let wanted = [
            "aio=threads iothread=off",
            "aio=threads iothread=on",
            "aio=native iothread=off",
        ];
        assert_eq!(names[..3], wanted);
        assert!(all.iter().all(|v| v.set["cache"] == "none"));
        assert_eq!(variants(&[], &[]).unwrap(), [Variant::default()]);
        for bad in ["aio", "aio=", "=native", "aio=a,,b"] {
            assert!(variants(&words(&[bad]), &[]).is_err(), "{bad}");
        }
        assert!(variants(&words(&["a=1,2,3,4,5", "b=1,2,3,4,5"]), &[]).is_err());
        assert!(variants(&[], &words(&["a=1", "a=2"])).is_err());
    }

    #[test]
    fn one_word_has_several_settings() {
        let set = settings(&["cache=none,aio=native", "model=max,,-la57"], "KEY=VALUE").unwrap();
        let pairs: Vec<_> = set
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect();
        assert_eq!(
            pairs,
            [("aio", "native"), ("cache", "none"), ("model", "max,-la57")]
        );
        for bad in ["", ",", "cache=none,aio", "cache=none,cache=none"] {
            assert!(settings(&[bad], "KEY=VALUE").is_err(), "{bad}");
        }
    }

    #[test]
    fn a_share_method_has_options() {
        let method = share_variant("9p,msize=524288,qemu=5.2").unwrap();
        assert_eq!(method.name, "9p,msize=524288,qemu=5.2");
        assert_eq!(method.set["share"], "9p");
        assert_eq!(
            (
                method.set["share.msize"].as_str(),
                method.set["qemu"].as_str()
            ),
            ("524288", "5.2")
        );
        assert!(share_variant("9p,msize").is_err() && share_variant("9p,=1").is_err());
    }
}
