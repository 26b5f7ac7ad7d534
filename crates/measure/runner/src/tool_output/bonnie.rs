//! Bonnie++ 1.97 and newer: its line of comma separated values, as `bon_csv2html(1)` has them.

use crate::tool_output::figures::{Figures, number};

/// Operations by the place of their field, from the first that is a rate; the names are those of our own workload.
const BLOCKS: [(usize, &str); 5] = [
    (0, "character write"),
    (2, "block write"),
    (4, "rewrite"),
    (6, "character read"),
    (8, "block read"),
];
const SEEKS: usize = 10;
const NAMES: [(usize, &str); 6] = [
    (17, "creates, in order"),
    (19, "stats, in order"),
    (21, "deletes, in order"),
    (23, "creates, at random"),
    (25, "stats, at random"),
    (27, "deletes, at random"),
];
const OF: &str = "Bonnie++";

pub(crate) fn read(output: &str, figures: &mut Figures) {
    for fields in output
        .lines()
        .map(|line| line.trim().split(',').collect::<Vec<_>>())
    {
        let first = match fields.as_slice() {
            // Format version 1.98 has two fields more before its rates.
            ["1.98", ..] if fields.len() >= 50 => 9,
            ["1.96" | "1.97", ..] if fields.len() >= 48 => 7,
            _ => continue,
        };
        // What was not done is empty, and what was done too fast is '+++++'.
        let number_at = |place: usize| fields.get(first + place).and_then(|field| number(field));
        for (place, name) in BLOCKS {
            number_at(place)
                .into_iter()
                .for_each(|kib| figures.bandwidth(OF, name, kib / 1024.0));
        }
        number_at(SEEKS)
            .into_iter()
            .for_each(|rate| figures.rate(OF, "random seeks", rate));
        for (place, name) in NAMES {
            number_at(place)
                .into_iter()
                .for_each(|rate| figures.rate(OF, name, rate));
        }
    }
}
