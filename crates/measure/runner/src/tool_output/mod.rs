//! Output of well-known measuring tools, read as named figures: sysbench, fio, Bonnie++, pgbench, hyperfine, perf
//! bench, stress-ng; and matches of the user's patterns. A tool is recognized by its output, not by the command, which
//! may be a script. The output is untrusted: unknown text is skipped, and the number and length of names are bounded.

mod reported;
mod text;

pub use reported::{exit_report, fio_jobs};

use regex_lite::{Regex, RegexBuilder};
use text::Figures;
use vmtax_model::{MetricPattern, Printed, Unit};

/// The figures of the tools that printed `output`, in the order of the tools above.
pub fn figures(output: &str) -> Vec<Printed> {
    let mut figures = Figures::default();
    text::sysbench(output, &mut figures);
    text::read_json(output, &mut figures);
    text::bonnie(output, &mut figures);
    text::pgbench(output, &mut figures);
    text::perf_bench(output, &mut figures);
    text::stress_ng(output, &mut figures);
    figures.all()
}

/// A pattern that is not a regular expression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "metric '{name}': '{pattern}' is not a regular expression: {why}. Example: --metric 'latency:lower=took (\\S+) ms'"
)]
pub struct PatternError {
    /// Name of the metric.
    pub name: String,
    /// Text of the pattern.
    pub pattern: String,
    /// Error of the pattern, as the regex library describes it.
    pub why: String,
}

/// Checks that patterns of metrics are regular expressions, before anything is run.
///
/// # Errors
/// [`PatternError`] for the first invalid one.
pub fn check_patterns(all: &[MetricPattern]) -> Result<(), PatternError> {
    Patterns::new(all).map(|_| ())
}

/// Compiled patterns of metrics.
#[derive(Debug, Default)]
pub struct Patterns(Vec<(MetricPattern, Regex)>);

impl Patterns {
    /// Compiles the patterns; `^` and `$` match at line boundaries.
    ///
    /// # Errors
    /// [`PatternError`] for the first invalid one.
    pub fn new(all: &[MetricPattern]) -> Result<Patterns, PatternError> {
        let one = |metric: &MetricPattern| {
            let regex = RegexBuilder::new(&metric.pattern).multi_line(true).build();
            let invalid = |e: regex_lite::Error| PatternError {
                name: metric.name.clone(),
                pattern: metric.pattern.clone(),
                why: e.to_string(),
            };
            Ok((metric.clone(), regex.map_err(invalid)?))
        };
        all.iter().map(one).collect::<Result<_, _>>().map(Patterns)
    }

    /// The first match of each in the first of these texts that has one; and what is missing, for people.
    pub fn find(&self, texts: &[&str]) -> (Vec<Printed>, Vec<String>) {
        let (mut found, mut missing) = (Vec::new(), Vec::new());
        for (metric, regex) in &self.0 {
            let captures = texts.iter().find_map(|text| regex.captures(text));
            let number = captures
                .as_ref()
                .and_then(|c| c.get(1).or_else(|| c.get(0)))
                .map(|m| m.as_str().trim());
            let value = number
                .and_then(|n| n.parse::<f64>().ok())
                .filter(|v| v.is_finite());
            let name = metric.name.clone();
            match (number, value) {
                (_, Some(value)) => {
                    found.push(Printed {
                        of: String::new(),
                        name,
                        unit: Unit::Count,
                        better: metric.better,
                        value,
                    });
                }
                (Some(text), None) => {
                    let text: String = text.chars().take(40).collect();
                    missing.push(format!(
                        "metric '{name}': it matched '{text}', which is not a number"
                    ));
                }
                (None, None) => missing.push(format!("metric '{name}': no match in the output")),
            }
        }
        (found, missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_group_of_the_first_match_is_the_number() {
        let patterns = |all: &[&str]| {
            Patterns::new(&all.iter().map(|t| t.parse().unwrap()).collect::<Vec<_>>())
        };
        let texts = ["took 12.5 ms\nthen 7 ms\n", "real 3\n"];
        let value_and_missing = |pattern: &str| {
            let (found, missing) = patterns(&[pattern]).unwrap().find(&texts);
            (found.first().map(|p| p.value), missing.concat())
        };
        assert_eq!(value_and_missing("x=took (\\S+) ms").0, Some(12.5));
        assert_eq!(value_and_missing("x=[0-9]+$").0, Some(3.0));
        assert_eq!(value_and_missing("x=^then (.) ms$").0, Some(7.0));
        assert_eq!(value_and_missing("x=^real (.*)").0, Some(3.0));
        assert!(value_and_missing("x=user (.*)").1.contains("no match"));
        assert!(
            value_and_missing("x=(took)")
                .1
                .contains("'took', which is not a number")
        );
        assert!(value_and_missing("x=(inf)|took").1.contains("not a number"));
        let error = patterns(&["x=1", "y=("]).unwrap_err();
        assert_eq!(error.name, "y");
    }
}
