//! Limits of a running VM, which somebody set for a reason: on a terminal the user is asked before `vmtax tune` removes one.

use super::interrupt;
use crate::fault::{Fault, tell};
use rustix::event::{PollFd, PollFlags, poll};
use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use vmtax_findings::VmRates;
use vmtax_model::Plan;
use vmtax_rules::raised_limit;
use vmtax_studies::LimitAnswer;

/// Longest answer that is read, bytes.
const MAX_ANSWER: usize = 64;

/// Returns true if somebody can be asked: questions and answers are on a terminal.
pub(super) fn is_conversation() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks about each change of the plan that removes a limit; returns the answers other than yes, by the changes' actions.
pub(super) fn ask_about_limits(
    plan: &Plan,
    vm: &VmRates,
) -> Result<BTreeMap<String, LimitAnswer>, Fault> {
    let mut answers = BTreeMap::new();
    let candidates = plan.tune().map_or(&[][..], |spec| &spec.candidates);
    for change in candidates.iter().map(|candidate| &candidate.change) {
        let Some(raised) = raised_limit(vm, change) else {
            continue;
        };
        let question = format!("{}? [y]es, [r]aise: double it, [N]o: ", change.action);
        tell(&vmtax_report::printable(&question));
        let answer = match answer()?.trim() {
            "y" | "yes" => continue,
            "r" | "raise" => LimitAnswer::Raise(raised),
            _ => LimitAnswer::Keep,
        };
        answers.insert(change.action.clone(), answer);
    }
    Ok(answers)
}

/// Reads a line of the terminal; empty at its end, and after a signal.
fn answer() -> Result<String, Fault> {
    let (interrupt, stdin) = (interrupt()?, io::stdin());
    let mut fds = [
        PollFd::new(interrupt, PollFlags::IN),
        PollFd::new(&stdin, PollFlags::IN),
    ];
    let failed = |e: io::Error| Fault::file("reading the answer", e);
    rustix::io::retry_on_intr(|| poll(&mut fds, None)).map_err(|e| failed(e.into()))?;
    if interrupt.raised() {
        return Ok(String::new());
    }
    let mut line = [0; MAX_ANSWER];
    let length = rustix::io::read(&stdin, &mut line).map_err(|e| failed(e.into()))?;
    Ok(String::from_utf8_lossy(&line[..length]).into_owned())
}
