//! Metrics that a comparison leaves open, with the reason, and what would decide more: the next command, and the number of
//! rounds that it takes.

use crate::number::{count, counted, duration, percent, ratio};
use crate::text::{Joined, distinct, grouped, listed, only_if};
use crate::view;
use vmtax_findings::{Against, CompareFindings, Compared, Verdict};
use vmtax_model::{Probes, WorkloadName};
use vmtax_recording::Recording;

/// Factor between a budget and the time that its rounds would take at the rate so far.
const BUDGET_MARGIN: f64 = 1.25;

/// The longest run that is proposed, s: a noise that takes more is to be reduced first.
const MAX_PROPOSED_S: u32 = 3600;

/// Of a difference the layers that cause it, where they can be traced. Else what decides more: the rounds that are estimated
/// to do for all metrics, else for those that only the correction for their number leaves open, else the checks of the
/// host.
pub(super) fn next(recording: &Recording, findings: &CompareFindings) -> Option<String> {
    let mut rows = findings.against.iter().flat_map(|against| &against.rows);
    let differs =
        |row: &Compared| matches!(row.comparison.verdict, Verdict::Slower | Verdict::Faster);
    let plan = &recording.plan;
    let is_of_disk =
        !plan.workloads.is_empty() && plan.workloads.iter().all(|w| w.name == WorkloadName::Disk);
    if is_of_disk && !plan.probes.contains(&Probes::Layers) && rows.any(differs) {
        let command = view::command_again(recording);
        return view::as_line(&view::with_option(&command, "--layers", None));
    }
    let open = undecided(findings);
    let corrected = open
        .iter()
        .copied()
        .filter(|row| row.is_left_open_by_correction());
    let corrected: Vec<&Compared> = corrected.collect();
    match more(findings, &open).or_else(|| more(findings, &corrected)) {
        _ if open.is_empty() => None,
        Some((rounds, _)) => with_more(recording, findings, rounds),
        None if findings.rounds < vmtax_analysis::MIN_ROUNDS => view::with_more_rounds(recording),
        // It is too noisy.
        None => Some(view::CHECK_HOST.to_owned()),
    }
}

/// The metrics of all variants without a decision.
fn undecided(findings: &CompareFindings) -> Vec<&Compared> {
    let rows = findings.against.iter().flat_map(|against| &against.rows);
    rows.filter(|row| !row.comparison.verdict.is_decided())
        .collect()
}

/// The command with so many more rounds, and the time for them; the checks of the host where they would take too long.
fn with_more(recording: &Recording, findings: &CompareFindings, more: u32) -> Option<String> {
    let rounds = findings.rounds + more;
    let takes_s = (f64::from(rounds) * findings.round_s * BUDGET_MARGIN).ceil() as u32;
    if takes_s > MAX_PROPOSED_S {
        return Some(view::CHECK_HOST.to_owned());
    }
    let command = view::command_again(recording);
    let mut command = view::with_option(&command, "--rounds", Some(&rounds.to_string()));
    let comparison = recording.plan.comparison();
    let budget_s = comparison.and_then(|comparison| comparison.budget_s);
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
    let needed = open.iter().map(|row| row.rounds_needed);
    let wanted = needed.collect::<Option<Vec<u32>>>()?.into_iter().max()?;
    // The estimate may be exceeded already: by chance, or since the difference is smaller.
    let left = wanted.saturating_sub(findings.rounds);
    let more = left.max(findings.rounds / 4).max(1);
    Some((more, f64::from(more) * findings.round_s))
}

/// The rounds that a running comparison is estimated to need, with so many seconds left.
pub fn estimated(findings: &CompareFindings, left_s: f64) -> String {
    let open = undecided(findings);
    let noise = percent(open.iter().map(|row| row.noise).fold(0.0, f64::max));
    let (done, wanted) = (findings.rounds, percent(findings.min_effect));
    let begin = format!("after {done} rounds a round's noise is up to ±{noise}");
    let left = format!("the time limit ends in {}", duration(left_s));
    match more(findings, &open) {
        Some((rounds, s)) => {
            let takes = format!("takes about {rounds} more, {}", duration(s));
            match s <= left_s {
                true => format!("{begin}: resolving {wanted} {takes}"),
                false => format!("{begin}: resolving {wanted} for every metric {takes}; {left}"),
            }
        }
        None => format!("{begin}: {wanted} cannot be resolved for every metric; {left}"),
    }
}

/// Returns the rounds needed for the metrics that only the correction leaves open; one sentence for each variant.
pub(super) fn corrected(findings: &CompareFindings, against: &Against) -> Option<String> {
    let rows = against
        .rows
        .iter()
        .filter(|row| row.is_left_open_by_correction());
    let rows: Vec<&Compared> = rows.collect();
    let names = grouped(rows.iter().map(|row| (mostly(row), row.metric.to_string())));
    let names = names.into_iter().map(|(mostly, metrics)| {
        let verb = if metrics.len() == 1 { "is" } else { "are" };
        format!("{} {verb} {mostly}", listed(&metrics))
    });
    let names = names.joined("; ");
    let more = more(findings, &rows).map_or(String::new(), |(rounds, s)| {
        let time = only_if(s > 0.0, format!(", {}", duration(s)));
        let all = counted((findings.rounds + rounds).into(), "round");
        format!("; if this continues, about {all} in all ({rounds} more{time}) would decide")
    });
    let (compared, of) = (compared(findings), of_variant(findings, against));
    (!rows.is_empty()).then(|| format!("{of}{names}: too few rounds for {compared} (Holm){more}."))
}

/// "v2: ", where there are several variants.
fn of_variant(findings: &CompareFindings, against: &Against) -> String {
    let several = findings.against.len() > 1;
    only_if(several, format!("{}: ", against.variant))
}

/// "slower in 6 of 6 rounds".
fn mostly(row: &Compared) -> String {
    let is_faster = row.comparison.ratio.median < 1.0;
    let direction = if is_faster { "faster" } else { "slower" };
    let (ahead, all) = (row.rounds_ahead(), row.comparison.rounds);
    format!("{direction} in {ahead} of {}", counted(all.into(), "round"))
}

/// For how many of what the p are corrected.
pub(super) fn compared(findings: &CompareFindings) -> String {
    let rows = findings
        .against
        .iter()
        .map(|against| against.rows.len() as u64);
    counted(rows.sum(), "comparison")
}

/// Returns the rounds needed for the other metrics without a decision; one sentence for each variant.
pub(super) fn open(findings: &CompareFindings, against: &Against) -> Option<String> {
    let open = against
        .rows
        .iter()
        .filter(|r| !r.comparison.verdict.is_decided() && !r.is_left_open_by_correction());
    let open: Vec<&Compared> = open.collect();
    let noisiest = open.iter().max_by(|a, b| a.noise.total_cmp(&b.noise))?;
    let metrics = match open.as_slice() {
        [one] => format!("{} is", one.metric),
        several => format!("{} metrics are", several.len()),
    };
    let metrics = of_variant(findings, against) + &metrics;
    if noisiest.comparison.rounds <= 1 {
        return Some(format!(
            "{metrics} inconclusive: n = 1 per variant, so the run-to-run variance is unknown. At least {} rounds are needed.",
            vmtax_model::FEWEST_ROUNDS
        ));
    }
    let noise = percent(noisiest.noise);
    let noise = match open.len() {
        1 => format!("a round's noise is ±{noise}"),
        _ => format!("a round's noise is up to ±{noise} ({})", noisiest.metric),
    };
    let min_effect = percent(findings.min_effect);
    let more = match more(findings, &open) {
        Some((rounds, s)) => {
            let time = duration(s);
            format!(
                "about {rounds} more rounds, {time}, would be needed to detect a difference of {min_effect}"
            )
        }
        None if findings.round_s <= 0.0 => {
            "measure both in one `vmtax compare` with more --rounds".to_owned()
        }
        // Too few to estimate more.
        None if noisiest.comparison.rounds < vmtax_analysis::MIN_ROUNDS => {
            format!("at least {} rounds are needed", vmtax_model::FEWEST_ROUNDS)
        }
        None => format!(
            "more than {} rounds would be needed to detect a difference of {min_effect}: use a quieter host, or a larger --min-effect",
            count(vmtax_analysis::MAX_ROUNDS.into())
        ),
    };
    Some(format!("{metrics} inconclusive: {noise}; {more}."))
}

/// Groups of metrics that the reason of an inconclusive result names.
const NAMED: usize = 4;

/// Why metrics of these variants are inconclusive: what does not differ is equivalent.
pub(super) fn why_open(variants: &[Against]) -> String {
    let rows = variants.iter().flat_map(|against| &against.rows);
    let open = rows
        .filter(|row| row.comparison.verdict == Verdict::Inconclusive && row.comparison.rounds > 1);
    let (corrected, noisy): (Vec<&Compared>, Vec<_>) =
        open.partition(|row| row.is_left_open_by_correction());
    let noise = noisy.iter().map(|row| row.noise).max_by(f64::total_cmp);
    let noise = noise.map(percent).map(|noise| match corrected.is_empty() {
        true => format!("noise: up to ±{noise} per round"),
        false => format!(
            "{} not significant: noise up to ±{noise} per round",
            noisy.len()
        ),
    });
    let groups = variants
        .iter()
        .flat_map(|against| ahead(against, variants.len() > 1));
    let groups: Vec<String> = groups.collect();
    let others = groups.len().saturating_sub(NAMED);
    let others = (others > 0).then(|| format!("and {others} more"));
    let without =
        (!corrected.is_empty()).then(|| "significant only without Holm correction".to_owned());
    let groups = groups.into_iter().take(NAMED).chain(others);
    let all: Vec<String> = groups.chain(without).chain(noise).collect();
    only_if(!all.is_empty(), format!(" ({})", all.join("; ")))
}

/// "v2: 3 slower in 7 of 7 rounds, ×1.250 to ×1.313": a variant's metrics that only the correction leaves open, by direction.
fn ahead(against: &Against, has_name: bool) -> Vec<String> {
    let rows = against.rows.iter();
    let rows = rows.filter(|row| row.is_left_open_by_correction());
    let variant = only_if(has_name, format!("{}: ", against.variant));
    let group = |(mostly, rows): (String, Vec<&Compared>)| {
        let which = match rows.as_slice() {
            [row] => row.metric.to_string(),
            several => several.len().to_string(),
        };
        let ratios = rows.iter().map(|row| row.comparison.ratio.median);
        let [least, most] = [f64::min, f64::max].map(|pick| ratios.clone().reduce(pick).map(ratio));
        let ratios = distinct(least.into_iter().chain(most)).join(" to ");
        format!("{variant}{which} {mostly}, {ratios}")
    };
    let groups = grouped(rows.map(|row| (mostly(row), row)));
    groups.into_iter().map(group).collect()
}

/// "; about 5 more rounds (45 s) would decide", where that can be estimated of all metrics without a decision, else of those that
/// only the correction leaves open; else empty.
pub(super) fn rounds_to_decide(findings: &CompareFindings) -> String {
    let open = undecided(findings);
    let corrected = open.iter().copied();
    let corrected: Vec<&Compared> = corrected
        .filter(|row| row.is_left_open_by_correction())
        .collect();
    if open.is_empty() {
        return String::new();
    }
    let (rounds, which) = match (more(findings, &open), more(findings, &corrected)) {
        (Some(all), _) => (all, String::new()),
        (None, Some(some)) if corrected.len() == 1 => (some, format!(" {}", corrected[0].metric)),
        (None, Some(some)) if !corrected.is_empty() => {
            (some, format!(" {} of them", corrected.len()))
        }
        _ => return String::new(),
    };
    let (rounds, s) = rounds;
    let time = only_if(s > 0.0, format!(" ({})", duration(s)));
    let number = counted(rounds.into(), "more round");
    format!("; about {number}{time} would decide{which}")
}
