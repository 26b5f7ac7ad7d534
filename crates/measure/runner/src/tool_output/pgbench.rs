//! pgbench, the summary at its end.

use crate::tool_output::figures::{Figures, number};

pub(crate) fn read(output: &str, figures: &mut Figures) {
    let mut begun = false;
    for line in output.lines() {
        begun |= line.starts_with("transaction type:");
        let Some((name, value)) = line.split_once(" = ").filter(|_| begun) else {
            continue;
        };
        let Some(figure) = number(value) else {
            continue;
        };
        match name {
            // Before version 14 both are printed.
            "tps" if value.contains("including") => {
                figures.rate("pgbench", "transactions, connecting included", figure)
            }
            "tps" => figures.rate("pgbench", "transactions", figure),
            "latency average" => figures.time("pgbench", "latency, mean", figure / 1e3),
            "latency stddev" => figures.time("pgbench", "latency, deviation", figure / 1e3),
            _ => {}
        }
    }
}
