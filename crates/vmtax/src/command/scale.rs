//! `vmtax scale`: from its command line to a plan with a ladder.

use super::carry_out::carry_out;
use super::layers::variants;
use super::{doctor, selection};
use crate::cli::ScaleArgs;
use crate::fault::Fault;
use std::process::ExitCode;
use vmtax_analysis::FEWEST_ROUNDS;
use vmtax_model::{Grows, HostFacts, Ladder, Plan, Study, WorkloadName, parse_size};
use vmtax_runner::default_machines;
use vmtax_workload::{Preset, descriptor};

/// Of a ladder whose ends are no power of two apart.
const RUNGS: usize = 8;

pub fn scale(args: &ScaleArgs) -> Result<ExitCode, Fault> {
    let host = doctor::facts(args.common.qemu.as_deref());
    let plan = plan(args, &host)?;
    carry_out(&plan, host, &args.common.record, false)
}

fn plan(args: &ScaleArgs, host: &HostFacts) -> Result<Plan, Fault> {
    let mut plan = match selection::file_alone(&args.what)? {
        Some(plan) => plan,
        None => from_words(args, host)?,
    };
    if let Some(machines) = &args.machines {
        plan.machines.clone_from(machines);
    }
    if let Some(ladder) = &args.ladder {
        let option = plan.ladder().map_or("", |l| l.option.as_str()).to_owned();
        plan.study = Study::Scale(self::ladder(&option, ladder, args.rungs)?);
    }
    if plan.ladder().is_none() {
        return Err(Fault::Usage("nothing grows: give --ladder FROM..TO, or a plan with a [ladder]".to_owned()));
    }
    if !args.vary.is_empty() || !args.set.is_empty() {
        plan.variants = variants(&args.vary, &args.set)?;
    }
    selection::common(&mut plan, &args.common);
    selection::check(&plan)?;
    Ok(plan)
}

/// What grows comes first; its workload runs, and those that are named.
fn from_words(args: &ScaleArgs, host: &HostFacts) -> Result<Plan, Fault> {
    let usage = || Fault::Usage("name what grows first: `vmtax scale seqread.depth --ladder 1..32`".to_owned());
    let (option, words) = args.what.split_first().ok_or_else(usage)?;
    let ladder = Ladder { option: option.clone(), rungs: Vec::new() };
    let (set, named): (Vec<&String>, Vec<&String>) = words.iter().partition(|w| w.contains('='));
    let mut names: Vec<WorkloadName> = match ladder.grows()? {
        Grows::Workload(name, _) => vec![name],
        Grows::Guest(_) if named.is_empty() => {
            return Err(Fault::Usage(format!("name what runs while {option} grows: `vmtax scale {option} threads`")));
        }
        Grows::Guest(_) => Vec::new(),
    };
    let mut machines = default_machines(host);
    if matches!(ladder.grows()?, Grows::Guest(size) if !size.is_hosts_too()) {
        machines.retain(|machine| machine.is_linux_guest());
    }
    for name in named {
        let name: WorkloadName = name.parse()?;
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let mut workloads = names.iter().map(|&name| descriptor(name).preset(Preset::Quick)).collect::<Vec<_>>();
    for word in set {
        selection::set(&mut workloads, word)?;
    }
    let plan = Plan::new("scale", FEWEST_ROUNDS, machines, workloads);
    Ok(if args.ladder.is_some() { Plan { study: Study::Scale(ladder), ..plan } } else { plan })
}

/// `FROM..TO` or `A,B,C`; sizes may end in K, M, G.
fn ladder(option: &str, text: &str, rungs: Option<usize>) -> Result<Ladder, Fault> {
    let size = |word: &str| {
        parse_size(word.trim()).filter(|n| *n > 0).ok_or_else(|| {
            Fault::Usage(format!("--ladder {text}: '{word}' is no size above 0: write 1..32, 4K..64M or 1,2,3"))
        })
    };
    let Some((from, to)) = text.split_once("..") else {
        if rungs.is_some() {
            return Err(Fault::Usage(format!(
                "--ladder {text} names every rung: leave --rungs out, or write FROM..TO"
            )));
        }
        let rungs = text.split(',').map(size).collect::<Result<_, _>>()?;
        return Ok(Ladder { option: option.to_owned(), rungs });
    };
    let (from, to) = (size(from)?, size(to)?);
    if from >= to {
        return Err(Fault::Usage(format!("--ladder {text} does not rise: write the smaller size first")));
    }
    // Doublings where they fit: they stay whole, and multiples of what the ladder begins with.
    let doublings = (to / from).ilog2() as usize;
    let doubles = to == from << doublings && (2..=10).contains(&doublings);
    Ok(Ladder::geometric(option, from, to, rungs.unwrap_or(if doubles { doublings + 1 } else { RUNGS })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ladders_as_people_write_them() {
        let rungs = |text: &str, n| ladder("seqread.depth", text, n).map(|l| l.rungs).map_err(|e| e.to_string());
        assert_eq!(rungs("1..32", None).unwrap(), [1, 2, 4, 8, 16, 32]);
        assert_eq!(rungs("4K..64K", None).unwrap(), [4096, 8192, 16384, 32768, 65536]);
        assert_eq!(rungs("1,3,9", None).unwrap(), [1, 3, 9]);
        assert_eq!(rungs("1000..278000", None).unwrap().len(), 8);
        assert_eq!(rungs("1..1000", Some(4)).unwrap(), [1, 10, 100, 1000]);
        for (text, n, why) in [
            ("32..1", None, "does not rise"),
            ("4..4", None, "does not rise"),
            ("0..4", None, "no size"),
            ("a..4", None, "no size"),
            ("", None, "no size"),
            ("1,2,4", Some(3), "leave --rungs out"),
        ] {
            let error = rungs(text, n).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
