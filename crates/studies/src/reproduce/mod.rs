//! Reproductions of published results: plans, claims, and what a recording says about each claim.

mod evidence;
mod options;
mod published;

pub use evidence::{Evidence, Tested};
pub use options::{Asked, ReproduceOptions};
pub use published::{Check, Claim, PublishedError, PublishedResult, Quick, all, find};

use vmtax_model::{
    ClaimRow, ClaimVerdict, FEWEST_ROUNDS, HostFacts, REPORT_SCHEMA, ReproductionFindings,
};

/// Rounds that are worth asking for.
const MOST_ROUNDS: f64 = 500.0;
/// An estimate of the rounds needed is itself uncertain.
const MARGIN: f64 = 1.25;

/// The verdict on each of a published result's claims, and on the whole, after so many rounds.
pub fn judge(
    case: &PublishedResult,
    host: &HostFacts,
    rounds: u32,
    evidence: &dyn Evidence,
) -> ReproductionFindings {
    let row = |claim: &Claim| {
        let tested = evidence.test(&claim.check, host);
        let tested =
            tested.unwrap_or_else(|| Tested::untestable("the recording is of another study"));
        ClaimRow {
            what: claim.what.clone(),
            published: claim.published.clone(),
            measured: tested.measured,
            unit: tested.unit,
            verdict: tested.verdict,
            rounds_needed: rounds_needed(&tested, rounds),
            why: tested.why,
            metric: claim.check.metric(),
        }
    };
    let rows: Vec<ClaimRow> = case.tests.iter().map(row).collect();
    let any = |verdict| rows.iter().any(|r| r.verdict == verdict);
    let order = [
        ClaimVerdict::NotReproduced,
        ClaimVerdict::Reproduced,
        ClaimVerdict::Inconclusive,
    ];
    let verdict = order
        .into_iter()
        .find(|verdict| any(*verdict))
        .unwrap_or(ClaimVerdict::NotTestable);
    ReproductionFindings {
        schema: REPORT_SCHEMA,
        name: case.name.clone(),
        title: case.title.clone(),
        source: case.source.clone(),
        claim: case.claim.clone(),
        verdict,
        rows,
    }
}

/// Returns the number of further rounds that would decide an inconclusive claim; `None` for a decided one, and where
/// too many would be needed.
fn rounds_needed(tested: &Tested, rounds: u32) -> Option<u32> {
    if tested.verdict != ClaimVerdict::Inconclusive {
        return None;
    }
    if rounds < FEWEST_ROUNDS {
        return Some(FEWEST_ROUNDS - rounds);
    }
    let all = f64::from(rounds) * tested.times? * MARGIN;
    (all <= MOST_ROUNDS).then(|| (all.ceil() as u32).saturating_sub(rounds).max(1))
}
