//! A published result's claims, tested against findings.

use super::evidence::{Evidence, Tested};
use super::published::{Claim, PublishedResult};
use vmtax_model::{ClaimRow, ClaimVerdict, HostFacts, REPORT_SCHEMA, ReproductionFindings};

/// The verdict on each of a published result's claims, and on the whole.
pub fn judge(case: &PublishedResult, host: &HostFacts, evidence: &dyn Evidence) -> ReproductionFindings {
    let row = |claim: &Claim| {
        let tested = evidence.test(&claim.check, host);
        let tested = tested.unwrap_or_else(|| Tested::untestable("the recording is of another study"));
        ClaimRow {
            what: claim.what.clone(),
            published: claim.published.clone(),
            measured: tested.measured,
            unit: tested.unit,
            verdict: tested.verdict,
            why: tested.why,
            metric: claim.check.metric(),
        }
    };
    let rows: Vec<ClaimRow> = case.tests.iter().map(row).collect();
    let any = |verdict| rows.iter().any(|r| r.verdict == verdict);
    let order = [ClaimVerdict::NotReproduced, ClaimVerdict::Reproduced, ClaimVerdict::Inconclusive];
    let verdict = order.into_iter().find(|verdict| any(*verdict)).unwrap_or(ClaimVerdict::NotTestable);
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
