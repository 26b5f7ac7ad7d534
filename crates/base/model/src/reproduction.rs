//! The verdicts of a recording on the claims of a published result.

use crate::{Estimate, Metric};
use serde::{Deserialize, Serialize};

/// The unit of a claim's figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClaimUnit {
    /// One cost over another.
    Ratio,
    /// Time in nanoseconds.
    Nanoseconds,
    /// A fraction of a whole, in percent.
    Percent,
    /// Number of things.
    Count,
    /// The exponent of a size.
    Exponent,
}

/// Result of a recording for a published claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClaimVerdict {
    /// The interval of what was measured lies within the claim.
    Reproduced,
    /// It lies outside the claim.
    NotReproduced,
    /// It lies on both sides of the claim's bound, or the rounds are too few for one.
    Inconclusive,
    /// This host or this recording has no figure for the claim.
    NotTestable,
}

/// One claim of a published result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClaimRow {
    /// The claim, in words.
    pub what: String,
    /// The published figure, as people write it.
    pub published: String,
    /// Measured figure; `None` where nothing was measured, or where the result is no figure (`why` says it then).
    pub measured: Option<Estimate>,
    /// The unit of `measured`.
    pub unit: ClaimUnit,
    /// Result for the claim: reproduced, not reproduced, inconclusive or not testable.
    pub verdict: ClaimVerdict,
    /// Basis of the result, or the reason why there is none.
    pub why: String,
    /// Number of further rounds that would decide an inconclusive claim, about; `None` where no number of rounds is
    /// likely to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds_needed: Option<u32>,
    /// The metric that it is about, where it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<Metric>,
}

/// A published result compared with a recording.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReproductionFindings {
    /// [`crate::REPORT_SCHEMA`] of the writer.
    pub schema: u32,
    /// The name, as `vmtax reproduce` takes it.
    pub name: String,
    /// In a few words.
    pub title: String,
    /// Where it was published.
    pub source: String,
    /// The finding in a sentence or two.
    pub claim: String,
    /// Not reproduced where one claim is not; reproduced where one is and none is not; inconclusive where one is.
    pub verdict: ClaimVerdict,
    /// Claim by claim.
    pub rows: Vec<ClaimRow>,
}
