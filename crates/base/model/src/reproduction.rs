//! What a recording says to a published finding.

use crate::{Estimate, Verdict};
use serde::{Deserialize, Serialize, Serializer};

/// What a measured figure of a case counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClaimUnit {
    /// One cost over another.
    Ratio,
    /// Time.
    Nanoseconds,
    /// A share of a whole, in percent.
    Percent,
    /// How many.
    Count,
}

/// One claim of a case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClaimRow {
    /// What is claimed.
    pub what: String,
    /// The published figure, as people write it.
    pub published: String,
    /// What was measured; `None` where nothing was, or where it is no figure (`why` says it then).
    pub measured: Option<Estimate>,
    /// What `measured` counts.
    pub unit: ClaimUnit,
    /// Whether the claim stands: what was measured is the same, differs, or that is not shown.
    #[serde(serialize_with = "stands")]
    pub verdict: Verdict,
    /// What the verdict rests on, or why there is none.
    pub why: String,
}

/// A case held against a recording.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReproductionFindings {
    /// [`crate::SCHEMA`] of the writer.
    pub schema: u32,
    /// The case's name.
    pub name: String,
    /// In a few words.
    pub title: String,
    /// Where it was published.
    pub source: String,
    /// The finding in a sentence or two.
    pub claim: String,
    /// Does not hold, where one claim does not; holds, where one does and none does not.
    #[serde(serialize_with = "stands")]
    pub verdict: Verdict,
    /// Claim by claim.
    pub rows: Vec<ClaimRow>,
}

/// A claim's verdict with the words that a case's JSON has.
fn stands<S: Serializer>(verdict: &Verdict, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match verdict {
        Verdict::Same => "holds",
        Verdict::Slower | Verdict::Faster | Verdict::Differs => "does-not-hold-here",
        Verdict::NotShown | Verdict::TooFewRounds => "not-testable-here",
    })
}
