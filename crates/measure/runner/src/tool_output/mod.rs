//! What well-known measuring tools print, as named figures: sysbench, fio, Bonnie++, pgbench, hyperfine, perf bench,
//! stress-ng; and what a person finds by an expression. A tool is known by what it prints, not by the command's words,
//! which may be a script. The text is a stranger's: what is not understood is passed over, and names and their number are
//! bounded.

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
