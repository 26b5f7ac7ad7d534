//! Proposal that would decide more of a comparison: the next command, and the number of rounds that it takes.

use crate::number::{duration, percent};
use crate::view;
use vmtax_model::{CompareFindings, Compared, Probes, Verdict, WorkloadName};
use vmtax_recording::Recording;

/// Factor between a budget and the time that its rounds would take at the rate so far.
const BUDGET_MARGIN: f64 = 1.25;

/// The longest run that is proposed, s: a noise that takes more is to be reduced first.
const MAX_PROPOSED_S: u32 = 3600;

/// The command that checks the host, which is too noisy.
const CHECK_HOST: &str = "vmtax doctor";

/// Of a difference the layers that cause it, where they can be traced. Else what decides more: the rounds that are estimated
/// to do for all metrics, else for those that only the correction for their number leaves open, else the checks of the
/// host.
pub(super) fn next(recording: &Recording, findings: &CompareFindings) -> Option<String> {
    let rows = findings.against.iter().flat_map(|against| &against.rows);
    let differs =
        |row: &Compared| matches!(row.comparison.verdict, Verdict::Slower | Verdict::Faster);
    let plan = &recording.plan;
    let is_of_disk =
        !plan.workloads.is_empty() && plan.workloads.iter().all(|w| w.name == WorkloadName::Disk);
    if is_of_disk && !plan.probes.contains(&Probes::Layers) && rows.clone().any(differs) {
        return view::as_line(&view::with_option(
            &recording.manifest.command,
            "--layers",
            None,
        ));
    }
    let open: Vec<&Compared> = rows
        .filter(|row| !row.comparison.verdict.is_decided())
        .collect();
    let corrected: Vec<&Compared> = open
        .iter()
        .copied()
        .filter(|row| row.is_left_open_by_correction())
        .collect();
    match more(findings, &open).or_else(|| more(findings, &corrected)) {
        _ if open.is_empty() => None,
        Some((rounds, _)) => with_more(recording, findings, rounds),
        None if findings.rounds < vmtax_analysis::MIN_ROUNDS => view::with_more_rounds(recording),
        None => Some(CHECK_HOST.to_owned()),
    }
}

/// The command with so many more rounds, and the time for them; the checks of the host where they would take too long.
fn with_more(recording: &Recording, findings: &CompareFindings, more: u32) -> Option<String> {
    let rounds = findings.rounds + more;
    let takes_s = (f64::from(rounds) * findings.round_s * BUDGET_MARGIN).ceil() as u32;
    if takes_s > MAX_PROPOSED_S {
        return Some(CHECK_HOST.to_owned());
    }
    let mut command = view::with_option(
        &recording.manifest.command,
        "--rounds",
        Some(&rounds.to_string()),
    );
    let budget_s = recording
        .plan
        .comparison()
        .and_then(|comparison| comparison.budget_s);
    if budget_s.is_some_and(|budget_s| budget_s < takes_s) {
        let time = match takes_s {
            0..=600 => format!("{takes_s}s"),
            _ => format!("{}m", takes_s.div_ceil(60)),
        };
        command = view::with_option(&command, "--budget", Some(&time));
    }
    view::as_line(&command)
}

/// Returns the number of further rounds that would decide all of these, and the seconds that they take.
pub(super) fn more(findings: &CompareFindings, open: &[&Compared]) -> Option<(u32, f64)> {
    let wanted = open
        .iter()
        .map(|r| r.rounds_needed)
        .collect::<Option<Vec<u32>>>()?
        .into_iter()
        .max()?;
    // The estimate may be exceeded already: by chance, or since the difference is smaller.
    let more = wanted
        .saturating_sub(findings.rounds)
        .max(findings.rounds / 4)
        .max(1);
    Some((more, f64::from(more) * findings.round_s))
}

/// The rounds that a running comparison is estimated to need, with so many seconds left.
pub fn estimated(findings: &CompareFindings, left_s: f64) -> String {
    let open: Vec<&Compared> = findings
        .against
        .iter()
        .flat_map(|a| &a.rows)
        .filter(|r| !r.comparison.verdict.is_decided())
        .collect();
    let noise = open.iter().map(|r| r.noise).fold(0.0, f64::max);
    let wanted = percent(findings.min_effect);
    let begin = format!(
        "after {} rounds a round's noise is up to ±{}",
        findings.rounds,
        percent(noise)
    );
    match more(findings, &open) {
        Some((rounds, s)) if s <= left_s => {
            format!(
                "{begin}: resolving {wanted} takes about {rounds} more, {}",
                duration(s)
            )
        }
        Some((rounds, s)) => format!(
            "{begin}: resolving {wanted} for every metric takes about {rounds} more, {}; the time limit ends in {}",
            duration(s),
            duration(left_s)
        ),
        None => format!(
            "{begin}: {wanted} cannot be resolved for every metric; the time limit ends in {}",
            duration(left_s)
        ),
    }
}
