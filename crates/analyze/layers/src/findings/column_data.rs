//! Data of the trials of one machine in one variant.

use super::column_sums::ColumnSums;
use super::round_medians::RoundMedians;
use vmtax_model::Latency;

/// Data of one machine in one variant, over its trials.
#[derive(Debug, Clone, Default)]
pub(crate) struct ColumnData {
    pub sums: ColumnSums,
    /// Operations without probes, all rounds together.
    pub control: Latency,
    pub control_medians: RoundMedians,
    pub traced_medians: RoundMedians,
}
