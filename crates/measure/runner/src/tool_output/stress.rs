//! stress-ng's YAML (`--yaml /dev/stdout`): it has one form, so that its lines are enough.

use crate::tool_output::figures::{Figures, number};

pub(crate) fn read(output: &str, figures: &mut Figures) {
    let (mut in_metrics, mut stressor) = (false, String::new());
    for line in output.lines() {
        // Sections begin at the margin.
        if line.starts_with(|c: char| c.is_ascii_alphabetic()) {
            in_metrics = line == "metrics:";
        }
        let Some((key, value)) = line.trim().split_once(": ").filter(|_| in_metrics) else {
            continue;
        };
        match (key, number(value)) {
            ("- stressor", _) => stressor = value.trim().to_owned(),
            ("bogo-ops-per-second-real-time", Some(rate)) => {
                figures.rate("stress-ng", &format!("{stressor}, by wall time"), rate);
            }
            ("bogo-ops-per-second-usr-sys-time", Some(rate)) => {
                figures.rate("stress-ng", &format!("{stressor}, by CPU time"), rate);
            }
            _ => {}
        }
    }
}
