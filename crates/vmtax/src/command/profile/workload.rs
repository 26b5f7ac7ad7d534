//! `vmtax profile -- WORKLOAD`: a machine of its own, profiled while it runs the workload.

use super::settings::{inside, settings};
use crate::cli::ProfileArgs;
use crate::command::folder::Folder;
use crate::command::progress::Display;
use crate::command::record::{Recorded, record_into};
use crate::command::report::show;
use crate::command::{doctor, print, selection, share_method};
use crate::fault::Fault;
use std::process::ExitCode;
use vmtax_model::{HostFacts, Machine, Plan, ProfileSpec, Study, Tree};
use vmtax_runner::{Ended, default_guest};
use vmtax_workload::Preset;

/// What a shared tree has where nothing says more.
const FILES: u64 = 1000;
const SHARE: &str = "9p,cache=loose";

pub fn of_workload(args: &ProfileArgs) -> Result<ExitCode, Fault> {
    let host = doctor::facts(args.common.qemu.as_deref());
    let plan = plan(args, &host)?;
    let record = &args.common.record;
    if record.dry_run {
        print(&plan.to_toml()?)?;
        return Ok(ExitCode::SUCCESS);
    }
    Folder::check(args.out.as_deref())?;
    let into = Folder { runs: &record.runs, named: args.out.as_deref() };
    let Recorded { folder, ended } = record_into(&into, &plan, host, &Display::new(1), None, &mut |_, _| true)?;
    match ended {
        Ended::Interrupted => Err(Fault::Interrupted { folder }),
        Ended::Incomplete(first) => Err(Fault::Incomplete { folder, first: first.to_string() }),
        Ended::Complete => show(&vmtax_recording::open(&folder)?, record.json, false, None),
    }
}

/// One guest, one workload, once.
fn plan(args: &ProfileArgs, host: &HostFacts) -> Result<Plan, Fault> {
    if args.common.rounds.is_some_and(|rounds| rounds != 1) {
        return Err(Fault::Usage(
            "profile runs a workload once: leave --rounds out; `vmtax run` and `vmtax compare` have rounds".to_owned(),
        ));
    }
    let mut plan = match selection::file_alone(&args.workload)? {
        Some(_) if args.share.is_some() => {
            return Err(Fault::Usage("a plan's file says itself how its tree is shared: leave --share out".to_owned()));
        }
        Some(plan) => plan,
        None => from_words(args)?,
    };
    let machine = args.machine.unwrap_or_else(|| default_guest(host));
    if !machine.is_guest() {
        return Err(Fault::Usage(format!(
            "{machine} is no guest to look at: choose kvm, tcg, micro-kvm or micro-tcg with --machine; `vmtax profile \
             --pid` looks at a process of the host"
        )));
    }
    plan.machines = vec![machine];
    selection::common(&mut plan, &args.common);
    plan.rounds = 1;
    if !machine.has_kernel() {
        // It has no kernel that could look.
        if args.syscalls.is_some() {
            return Err(Fault::Usage(format!("{machine} has no system calls: choose tcg or kvm with --machine")));
        }
    } else {
        plan.probes = vec![inside(args.guest_hz, args.syscalls)];
    }
    if plan.workloads.len() != 1 || plan.ladder().is_some() || plan.variants.len() > 1 {
        return Err(Fault::Usage(
            "profile runs one workload once in one guest: name one workload, as in `vmtax profile -- seqread`"
                .to_owned(),
        ));
    }
    let command = plan.command().cloned().map(Box::new);
    plan.study = Study::Profile(ProfileSpec { settings: settings(args, args.seconds)?, command });
    selection::check(&plan)?;
    Ok(plan)
}

fn from_words(args: &ProfileArgs) -> Result<Plan, Fault> {
    // An option that names no workload is the first one's.
    let first = args.workload.iter().find(|word| !word.contains('='));
    let whole = |word: &String| match (first, word.split_once('=')) {
        (Some(first), Some((key, _))) if !key.contains('.') => format!("{first}.{word}"),
        _ => word.clone(),
    };
    let words: Vec<String> = args.workload.iter().map(whole).collect();
    let workloads = selection::workloads(&words, Preset::Default, [])?;
    let shared = workloads.iter().find(|w| w.name.needs_share());
    let names = shared.map(vmtax_workload::check).transpose()?.map_or(0, |w| w.room(0).known_names);
    let files = names.max(FILES);
    let tree = shared.map(|_| Tree { files, bytes: files.saturating_mul(Tree::SMALL), path: None });
    let way = shared.map(|_| share_method::variant(args.share.as_deref().unwrap_or(SHARE))).transpose()?;
    let mut plan = Plan { tree, ..Plan::new("profile", 1, vec![Machine::TCG], workloads) };
    if let Some(way) = way {
        plan.variants = vec![way];
    } else if args.share.is_some() {
        return Err(Fault::Usage("--share is for a workload that works in a tree: leave it out".to_owned()));
    }
    Ok(plan)
}
