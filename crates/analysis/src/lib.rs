//! From trials to findings: medians, taxes, intervals.
