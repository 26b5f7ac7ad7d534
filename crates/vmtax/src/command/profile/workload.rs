//! `vmtax profile -- WORKLOAD`: a machine of its own, looked at while it runs the workload.

use super::exits::Exits;
use super::take::{self, Taken, Ways};
use super::{Folder, folder, inside, present, settings, ways};
use crate::cli::{ProfileArgs, RecordArgs};
use crate::command::progress::Display;
use crate::command::record::{Recorded, record};
use crate::command::{doctor, print, selection, share};
use crate::fault::Fault;
use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use vmtax_model::{HostFacts, Machine, Missing, Plan, ProfileSpec, Study, Tree};
use vmtax_observe::StackSampling;
use vmtax_runner::{Ended, Progress, default_guest};
use vmtax_vm::{Streams, descendants};
use vmtax_workload::Preset;

/// A trial is never looked at any longer.
pub const LONGEST_S: f64 = 86_400.0;
/// What a shared tree has where nothing says more.
const FILES: u64 = 1000;
const SHARE: &str = "9p,cache=loose";

pub fn of_workload(args: &ProfileArgs) -> Result<ExitCode, Fault> {
    let host = doctor::facts(args.common.qemu.as_deref());
    let plan = plan(args, &host)?;
    if args.common.record.dry_run {
        print(&plan.to_toml()?)?;
        return Ok(ExitCode::SUCCESS);
    }
    // Of the process, only its number comes later.
    let settings = settings(args, 0, args.seconds.unwrap_or(LONGEST_S))?;
    Folder::check(args.out.as_deref())?;
    let Looked { taken, .. } = look(&plan, host, &args.common.record, Display::new(1), (settings, ways(args)?), None)?;
    present(&folder(args, &taken)?, args.common.record.json, &taken)
}

/// A guest's QEMU that was looked at while it worked.
pub struct Looked {
    pub taken: Taken,
    /// The recording of that run.
    pub run: PathBuf,
}

/// Carries out a plan of one trial, and looks at its guest's QEMU in these ways.
pub fn look(
    plan: &Plan,
    host: HostFacts,
    args: &RecordArgs,
    display: Display,
    (settings, ways): (StackSampling, Ways),
    streams: Option<&Streams>,
) -> Result<Looked, Fault> {
    // The micro-guest makes no breakpoints.
    let ways =
        Ways { processors: ways.processors || plan.machines.iter().all(|machine| !machine.has_kernel()), ..ways };
    let over = Arc::new(AtomicBool::new(false));
    let watch = Rc::new(RefCell::new(Watch { settings, ways, over, looking: None }));
    let hears = Rc::clone(&watch);
    let display = display.heard_by(move |progress| hears.borrow_mut().on(progress));
    let recorded = record(plan, host, args, &display, streams, &mut |_, _| true);
    let taken = watch.borrow_mut().end();
    let Recorded { folder: run, ended } = recorded?;
    match (ended, taken) {
        (Ended::Interrupted, _) => Err(Fault::Interrupted { folder: run }),
        (Ended::Incomplete(first), _) => Err(Fault::Incomplete { folder: run, first: first.to_string() }),
        (Ended::Complete, Some(taken)) => {
            let mut taken = taken?;
            taken.name_exits(memory_tree(&run).as_deref());
            // What cannot be read of the guest is no reason to throw away what was seen of its QEMU.
            match inside::read(&run, &taken.on_cpu.profile) {
                Ok(inside) => taken.add_inside(inside),
                Err(why) => taken.findings.missing.push(Missing {
                    what: "what the guest saw of itself".to_owned(),
                    why: why.to_string(),
                    mend: "Look again".to_owned(),
                }),
            }
            Ok(Looked { taken, run })
        }
        (Ended::Complete, None) => Err(Fault::Usage(format!("{} has no guest to look at", plan.name))),
    }
}

/// QEMU's memory tree, as the run noted it of its only guest.
fn memory_tree(run: &Path) -> Option<String> {
    let mut turns = fs::read_dir(run.join("turns")).ok()?.flatten();
    turns.find_map(|turn| fs::read_to_string(turn.path().join(vmtax_model::files::MEMORY_TREE)).ok())
}

/// Looks at a QEMU from the beginning of its trial to the end.
struct Watch {
    settings: StackSampling,
    ways: Ways,
    over: Arc<AtomicBool>,
    looking: Option<JoinHandle<Result<Taken, Fault>>>,
}

impl Watch {
    fn on(&mut self, progress: Progress<'_>) {
        match progress {
            Progress::Working { monitor, .. } if self.looking.is_none() => {
                let below = descendants(std::process::id() as i32);
                let is_qemu = |pid: &i32| take::program(*pid).starts_with("qemu-system");
                let Some(pid) = below.into_iter().find(is_qemu) else { return };
                let (settings, ways) = (StackSampling { pid, ..self.settings.clone() }, self.ways);
                let over = Arc::clone(&self.over);
                // Before the workload begins, so that each of its exits is counted.
                let exits = Exits::begin(pid, monitor.cloned());
                self.looking = Some(std::thread::spawn(move || take::take(&settings, ways, exits, &over)));
            }
            Progress::Over { .. } | Progress::Failed { .. } => self.over.store(true, Ordering::Relaxed),
            _ => {}
        }
    }

    fn end(&mut self) -> Option<Result<Taken, Fault>> {
        self.over.store(true, Ordering::Relaxed);
        // A panic there is a bug here.
        self.looking.take().map(|looking| looking.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
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
        plan.probes = vec![inside::probes(args.guest_hz, args.syscalls)];
    }
    if plan.workloads.len() != 1 || plan.ladder().is_some() || plan.variants.len() > 1 {
        return Err(Fault::Usage(
            "profile runs one workload once in one guest: name one workload, as in `vmtax profile -- seqread`"
                .to_owned(),
        ));
    }
    let command = plan.command().cloned().map(Box::new);
    plan.study = Study::Profile(ProfileSpec { command });
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
    let way = shared.map(|_| share::variant(args.share.as_deref().unwrap_or(SHARE))).transpose()?;
    let mut plan = Plan { tree, ..Plan::new("profile", 1, vec![Machine::TCG], workloads) };
    if let Some(way) = way {
        plan.variants = vec![way];
    } else if args.share.is_some() {
        return Err(Fault::Usage("--share is for a workload that works in a tree: leave it out".to_owned()));
    }
    Ok(plan)
}
