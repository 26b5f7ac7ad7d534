//! pgbench, the summary at its end.

use crate::tool_output::found::{Found, number};

pub(crate) fn read(output: &str, found: &mut Found) {
    let mut begun = false;
    for line in output.lines() {
        begun |= line.starts_with("transaction type:");
        let Some((name, value)) = line.split_once(" = ").filter(|_| begun) else { continue };
        let Some(figure) = number(value) else { continue };
        match name {
            // Before version 14 both are printed.
            "tps" if value.contains("including") => found.rate("pgbench", "transactions, connecting included", figure),
            "tps" => found.rate("pgbench", "transactions", figure),
            "latency average" => found.time("pgbench", "latency, mean", figure / 1e3),
            "latency stddev" => found.time("pgbench", "latency, deviation", figure / 1e3),
            _ => {}
        }
    }
}
