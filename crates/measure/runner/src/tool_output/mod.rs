//! What well-known measuring tools print, as named figures: sysbench, fio, Bonnie++, pgbench, hyperfine, perf bench,
//! stress-ng; and what a person finds by an expression. A tool is known by what it prints, not by the command's words,
//! which may be a script. The text is a stranger's: what is not understood is passed over, and names and their number are
//! bounded.

mod bonnie;
mod found;
mod json;
mod patterns;
mod perf;
mod pgbench;
mod stress;
mod sysbench;

pub use patterns::{PatternError, Patterns};

use found::Found;
use vmtax_model::Printed;

/// The figures of the tools that printed `output`, in the order of the tools above.
pub fn figures(output: &str) -> Vec<Printed> {
    let mut found = Found::default();
    sysbench::read(output, &mut found);
    json::read(output, &mut found);
    bonnie::read(output, &mut found);
    pgbench::read(output, &mut found);
    perf::read(output, &mut found);
    stress::read(output, &mut found);
    found.all()
}
