//! `vmtax layers`: from its command line to a plan.

use super::carry_out::carry_out;
use super::setting::setting;
use super::{doctor, selection};
use crate::cli::LayersArgs;
use crate::fault::Fault;
use std::collections::BTreeMap;
use std::process::ExitCode;
use vmtax_analysis::FEWEST_ROUNDS;
use vmtax_model::{HostFacts, KvmClass, Machine, Plan, Probes, Study, Variant};
use vmtax_runner::default_guest;

/// Requests of a trial. Four trials a turn, two of them observed: six rounds follow 12,000 requests.
const REQUESTS: u64 = 1000;
/// More columns than this nobody reads.
const MOST_VARIANTS: usize = 16;

pub fn layers(args: &LayersArgs) -> Result<ExitCode, Fault> {
    let host = doctor::facts(args.common.qemu.as_deref());
    let plan = plan(args, &host)?;
    carry_out(&plan, host, &args.common.record, args.details)
}

fn plan(args: &LayersArgs, host: &HostFacts) -> Result<Plan, Fault> {
    let mut plan = match selection::file_alone(&args.what)? {
        Some(plan) => plan,
        None => from_words(args, host)?,
    };
    if let Some(guests) = &args.guest {
        plan.machines = machines(guests, host)?;
    }
    if !args.vary.is_empty() || !args.set.is_empty() {
        plan.variants = variants(&args.vary, &args.set)?;
    }
    selection::common(&mut plan, &args.common);
    selection::check(&plan)?;
    Ok(plan)
}

fn from_words(args: &LayersArgs, host: &HostFacts) -> Result<Plan, Fault> {
    let mut work = vmtax_workload::requests(REQUESTS);
    for word in &args.what {
        let (key, value) = setting(word, "OPTION=VALUE, as in depth=32")?;
        work = work.with(key.strip_prefix("seqread.").unwrap_or(key), value);
    }
    // The micro-guest has one request under way at a time.
    let alone = vmtax_workload::block_work(&work)?.depth == 1;
    let guests = if alone { &["micro", "linux"][..] } else { &["linux"] };
    let guests: Vec<String> = guests.iter().map(|&g| g.to_owned()).collect();
    Ok(Plan {
        study: Study::Layers,
        // The control on both sides of the observed, so that what drifts in a turn does not look like the probes.
        probes: vec![Probes::None, Probes::Layers, Probes::Calls, Probes::Layers, Probes::None],
        variants: variants(&[], &args.set)?,
        ..Plan::new("layers", FEWEST_ROUNDS, machines(&guests, host)?, vec![work])
    })
}

/// The host itself, which guests are held against, then the guests.
fn machines(guests: &[String], host: &HostFacts) -> Result<Vec<Machine>, Fault> {
    let kvm_opens = matches!(host.kvm.class, KvmClass::Hardware | KvmClass::EmulatesKernels);
    let mut machines = vec![Machine::NATIVE];
    for guest in guests {
        let machine = match guest.as_str() {
            // What the micro-guest measures runs natively also where a KVM only emulates kernels.
            "micro" if kvm_opens => Machine::MICRO_KVM,
            "micro" => Machine::MICRO_TCG,
            "linux" => default_guest(host),
            name => name.parse().map_err(|e: vmtax_model::UnknownMachine| Fault::Usage(e.to_string()))?,
        };
        if !machines.contains(&machine) {
            machines.push(machine);
        }
    }
    Ok(machines)
}

/// Every combination of the lists in `vary`, each over `set`.
pub(super) fn variants(vary: &[String], set: &[String]) -> Result<Vec<Variant>, Fault> {
    let mut base = BTreeMap::new();
    for word in set {
        let (key, value) = setting(word, "KEY=VALUE, as in --set cache=none")?;
        base.insert(key.to_owned(), value.to_owned());
    }
    let mut variants = vec![Variant { name: String::new(), set: base }];
    for word in vary {
        let form = "KEY=VALUE,VALUE, as in --vary aio=threads,native";
        let (key, list) = setting(word, form)?;
        if list.split(',').any(str::is_empty) {
            return Err(Fault::Usage(format!("'{word}' is not {form}")));
        }
        let with = |variant: &Variant, value: &str| {
            let mut made = variant.clone();
            made.set.insert(key.to_owned(), value.to_owned());
            let gap = if made.name.is_empty() { "" } else { " " };
            made.name += &format!("{gap}{key}={value}");
            made
        };
        variants = variants.iter().flat_map(|v| list.split(',').map(move |value| with(v, value))).collect();
    }
    if variants.len() > MOST_VARIANTS {
        return Err(Fault::Usage(format!(
            "--vary makes {} columns, {MOST_VARIANTS} is the limit: vary fewer at a time",
            variants.len()
        )));
    }
    Ok(variants)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_is_a_column() {
        let words = |list: &[&str]| list.iter().map(|&w| w.to_owned()).collect::<Vec<_>>();
        let all = variants(&words(&["aio=threads,native", "iothread=off,on"]), &words(&["cache=none"])).unwrap();
        let names: Vec<&str> = all.iter().map(|v| v.name.as_str()).collect();
        let wanted = ["aio=threads iothread=off", "aio=threads iothread=on", "aio=native iothread=off"];
        assert_eq!(names[..3], wanted);
        assert!(all.iter().all(|v| v.set["cache"] == "none"));
        assert_eq!(variants(&[], &[]).unwrap(), [Variant::default()]);
        for bad in ["aio", "aio=", "=native", "aio=a,,b"] {
            assert!(variants(&words(&[bad]), &[]).is_err(), "{bad}");
        }
        assert!(variants(&words(&["a=1,2,3,4,5", "b=1,2,3,4,5"]), &[]).is_err());
    }
}
