//! Changes of a running VM under its own load: each is set and restored again and again, and measured both ways.

use super::observer::{Stop, failed, unstorable, wait};
use crate::{Decide, RunError};
use std::process::Command;
use std::time::Duration;
use vmtax_host::ask_command_unless;
use vmtax_live::{ChangeError, Changes, Fleet, Level};
use vmtax_model::{
    PairPlan, TuneBlock, TuneMetric, TuneRecord, TuneSpec, TuneStep, VmCounters, files,
};
use vmtax_recording::TrialFiles;
use vmtax_vm::MachineError;
use vmtax_vmm::Vm;

/// Between a change and the measurement: requests under way end, caches begin to fill.
const SETTLE: Duration = Duration::from_millis(250);
/// Timeout of the user's command.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

/// Measures what `decide` asks for, from what was recorded so far, until it ends, the VM ends, somebody else changes a setting, or
/// `stop` says so. What is not kept is restored. Where the plan changes nothing, the VM alone is recorded.
///
/// # Errors
/// [`RunError`] for a process that is no VM, and where what is changed cannot be written down.
pub(crate) fn tune(
    vm: &Vm,
    spec: &TuneSpec,
    files: TrialFiles,
    decide: &mut dyn Decide,
    stop: &Stop<'_>,
) -> Result<(), RunError> {
    let pid = vm.pid();
    let mut log = Log {
        files,
        records: Vec::new(),
    };
    // Without a folder in which to write down what is set, nothing is set.
    let mut fleet = Fleet::of(vm.clone(), Level::Histograms)
        .or_else(|_| Fleet::of(vm.clone(), Level::Counters))?;
    let (samples, _) = fleet.sample()?;
    let facts = samples.first().ok_or(RunError::NoVm { pid })?.facts.clone();
    log.add(TuneRecord::Vm(Box::new(facts)))?;
    if !spec.apply {
        return Ok(());
    }
    let vm = fleet.vm(pid).ok_or(RunError::NoVm { pid })?.clone();
    let folder = log.files.folder();
    let recording = folder.ancestors().nth(2).unwrap_or(folder);
    let mut bench = Bench {
        spec,
        fleet,
        changes: Changes::new(vm, recording)?,
        on: Vec::new(),
        stop,
    };
    loop {
        let done = match decide.next_of_vm(spec, &log.records) {
            TuneStep::End(kept) => {
                let done = bench.switch(&kept).and_then(|()| bench.keep());
                let kept = done.map(|()| TuneRecord::Kept { candidates: kept });
                return Ok(log.add(kept.unwrap_or_else(|why| bench.end(why)))?);
            }
            TuneStep::Pair(plan) => bench.pair(plan),
        };
        match done {
            Ok(pair) => log.add(pair)?,
            Err(Stopped::Refused(candidate, why)) => {
                log.add(TuneRecord::Refused { candidate, why })?
            }
            Err(why) => return Ok(log.add(bench.end(why))?),
        }
    }
}

/// Records of the tuning, in memory and in the file.
struct Log {
    files: TrialFiles,
    records: Vec<TuneRecord>,
}

impl Log {
    fn add(&mut self, record: TuneRecord) -> Result<(), MachineError> {
        let mut line = serde_json::to_vec(&record).map_err(failed("storing what was measured"))?;
        line.push(b'\n');
        self.records.push(record);
        self.files
            .append(files::TUNE, &line)
            .map_err(|e| unstorable(&e))
    }
}

/// Why a pair was not measured.
enum Stopped {
    /// A candidate cannot be set.
    Refused(usize, String),
    /// Nothing more can be measured.
    Ended(String),
}

impl Stopped {
    fn ended(why: impl ToString) -> Stopped {
        Stopped::Ended(why.to_string())
    }

    fn interrupted() -> Stopped {
        Stopped::ended("it was interrupted")
    }

    fn why(self) -> String {
        match self {
            Stopped::Refused(_, why) | Stopped::Ended(why) => why,
        }
    }
}

/// The VM with what is changed in it now.
struct Bench<'a> {
    spec: &'a TuneSpec,
    fleet: Fleet,
    changes: Changes,
    /// The candidates that are on.
    on: Vec<usize>,
    stop: &'a Stop<'a>,
}

impl Bench<'_> {
    /// Two measurements: without the change, with it.
    fn pair(&mut self, plan: PairPlan) -> Result<TuneRecord, Stopped> {
        let with_changed: Vec<usize> = plan.base.iter().chain(&plan.changed).copied().collect();
        let mut measured = |is_changed: bool| {
            self.switch(if is_changed {
                &with_changed
            } else {
                &plan.base
            })?;
            self.block()
        };
        let first = Box::new(measured(plan.changed_first)?);
        let second = Box::new(measured(!plan.changed_first)?);
        let (without, with) = if plan.changed_first {
            (second, first)
        } else {
            (first, second)
        };
        Ok(TuneRecord::Pair {
            plan,
            without,
            with,
        })
    }

    /// Lets these candidates be on, and no others.
    fn switch(&mut self, wanted: &[usize]) -> Result<(), Stopped> {
        let spec = self.spec;
        let settings = |candidate: usize| &spec.candidates[candidate].change.settings;
        let mut others = self.on.clone();
        others.retain(|on| !wanted.contains(on));
        for candidate in others {
            for value in settings(candidate).iter().rev() {
                self.changes
                    .restore(&value.setting)
                    .map_err(Stopped::ended)?;
            }
            self.on.retain(|on| *on != candidate);
        }
        let mut more = wanted.to_vec();
        more.retain(|candidate| !self.on.contains(candidate));
        for candidate in more {
            self.on.push(candidate);
            for value in settings(candidate) {
                match self.changes.set(value) {
                    Ok(()) => {}
                    Err(why @ ChangeError::Refused { .. }) => {
                        let mut without = self.on.clone();
                        without.retain(|on| *on != candidate);
                        self.switch(&without)?;
                        return Err(Stopped::Refused(candidate, why.to_string()));
                    }
                    Err(why) => return Err(Stopped::ended(why)),
                }
            }
        }
        Ok(())
    }

    /// Measures for a while, or for as long as the user's command takes.
    fn block(&mut self) -> Result<TuneBlock, Stopped> {
        wait(SETTLE, self.stop);
        let before = self.sample()?;
        let printed = match &self.spec.metric {
            Some(TuneMetric::Command { line, .. }) => Some(self.ask(line)?),
            _ => {
                wait(self.spec.block(), self.stop);
                None
            }
        };
        if (self.stop)() {
            return Err(Stopped::interrupted());
        }
        Ok(TuneBlock {
            before,
            after: self.sample()?,
            printed,
        })
    }

    fn sample(&mut self) -> Result<VmCounters, Stopped> {
        let (samples, _) = self.fleet.sample().map_err(Stopped::ended)?;
        let first = samples.into_iter().next();
        first
            .map(|sample| sample.counters)
            .ok_or_else(|| Stopped::ended("the VM exited while it was measured"))
    }

    /// The last number that the user's command prints.
    fn ask(&self, line: &str) -> Result<f64, Stopped> {
        let failed = |why: String| {
            Stopped::ended(format!("the command of --metric-command, `{line}`, {why}"))
        };
        let mut command = Command::new("sh");
        command.arg("-c").arg(line);
        let answer = ask_command_unless(command, COMMAND_TIMEOUT, self.stop)
            .map_err(|e| failed(format!("could not be run: {e}")))?;
        if (self.stop)() {
            return Err(Stopped::interrupted());
        }
        let answer = answer.ok_or_else(|| failed("did not end within 60 s".to_owned()))?;
        if !answer.success {
            return Err(failed(format!(
                "failed: {}",
                answer.text.lines().next().unwrap_or_default()
            )));
        }
        let mut numbers = answer
            .text
            .split_whitespace()
            .filter_map(|word| word.parse::<f64>().ok());
        let last = numbers.rfind(|number| number.is_finite());
        last.ok_or_else(|| failed("printed no number".to_owned()))
    }

    /// Restores what is changed, and says what that failed of.
    fn end(&mut self, why: Stopped) -> TuneRecord {
        let failed = self.changes.restore_all();
        let failed = failed
            .iter()
            .map(|error| format!("; not restored: {error}; `vmtax undo` tries again"));
        TuneRecord::Ended {
            why: why.why() + &failed.collect::<String>(),
        }
    }

    fn keep(&mut self) -> Result<(), Stopped> {
        self.changes.keep().map_err(Stopped::ended)
    }
}
