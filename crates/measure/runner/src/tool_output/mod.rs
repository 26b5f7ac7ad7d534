//! Output of well-known measuring tools, read as named figures: sysbench, fio, Bonnie++, pgbench, hyperfine, perf
//! bench, stress-ng; and matches of the user's patterns. A tool is recognized by its output, not by the command, which
//! may be a script. The output is untrusted: unknown text is skipped, and the number and length of names are bounded.

mod bonnie;
mod figures;
mod json;
mod patterns;
mod perf;
mod pgbench;
mod stress;
mod sysbench;

pub use patterns::{PatternError, Patterns};

use figures::Figures;
use vmtax_model::Printed;

/// The figures of the tools that printed `output`, in the order of the tools above.
pub fn figures(output: &str) -> Vec<Printed> {
    let mut figures = Figures::default();
    sysbench::read(output, &mut figures);
    json::read(output, &mut figures);
    bonnie::read(output, &mut figures);
    pgbench::read(output, &mut figures);
    perf::read(output, &mut figures);
    stress::read(output, &mut figures);
    figures.all()
}
