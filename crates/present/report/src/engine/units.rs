//! One unit for figures that are compared: quantities written with units that fit each alone, brought to one of them.

use super::table::{Row, Table};
use std::collections::{BTreeMap, BTreeSet};
use vmtax_model::number::significant;

/// Units of one dimension, the smallest first.
struct Scale {
    units: &'static [&'static str],
    /// Factor from a unit to the next.
    step: f64,
}

const SCALES: [Scale; 4] = [
    Scale {
        units: &["ns", "µs", "ms", "s"],
        step: 1000.0,
    },
    Scale {
        units: &["/s", "k/s", "M/s", "G/s"],
        step: 1000.0,
    },
    Scale {
        units: &["B", "KiB", "MiB", "GiB", "TiB"],
        step: 1024.0,
    },
    Scale {
        units: &["KiB/s", "MiB/s", "GiB/s", "TiB/s"],
        step: 1024.0,
    },
];

/// A figure in a common unit is below this, and at least [`LEAST`]: beyond, units of their own are easier to read.
const BELOW: f64 = 10_000.0;
/// The smallest figure in a common unit, unless it is 0.
const LEAST: f64 = 0.1;

/// A number with its unit, or both ends of a range: "+1.2 ms", "10.0 to 12.0 µs".
#[derive(Debug, Clone, PartialEq)]
struct Quantity {
    scale: usize,
    numbers: Vec<Number>,
}

#[derive(Debug, Clone, PartialEq)]
struct Number {
    sign: String,
    value: f64,
    /// Position of its unit in the scale.
    unit: usize,
}

impl Quantity {
    /// Reads a text that is a quantity and nothing else.
    fn parse(text: &str) -> Option<Quantity> {
        let parts: Vec<&str> = text.split(" to ").collect();
        let (_, last_unit) = parts.last()?.split_once(' ')?;
        let find = |units: &[&str], name: &str| units.iter().position(|unit| *unit == name);
        let scale = SCALES
            .iter()
            .position(|scale| find(scale.units, last_unit).is_some())?;
        let number = |part: &&str| {
            let (number, unit) = part.split_once(' ').unwrap_or((part, last_unit));
            let unsigned = number.trim_start_matches(['+', '−', '-', '±']);
            Some(Number {
                sign: number[..number.len() - unsigned.len()].to_owned(),
                value: unsigned
                    .parse()
                    .ok()
                    .filter(|value: &f64| value.is_finite())?,
                unit: find(SCALES[scale].units, unit)?,
            })
        };
        Some(Quantity {
            scale,
            numbers: parts.iter().map(number).collect::<Option<_>>()?,
        })
    }

    /// The quantity as text in this unit.
    fn text(&self, unit: usize) -> String {
        let Scale { units, step } = &SCALES[self.scale];
        let number = |number: &Number| {
            let exponent = number.unit as i32 - unit as i32;
            let value = significant(number.value * step.powi(exponent));
            format!("{}{value}", number.sign)
        };
        let numbers: Vec<String> = self.numbers.iter().map(number).collect();
        format!("{} {}", numbers.join(" to "), units[unit])
    }
}

/// Returns quantities of one dimension as texts in one unit; `None` if they span too much for one. An empty text stands for a
/// quantity that has this unit.
fn in_one_unit(quantities: &[&Quantity]) -> Option<Vec<String>> {
    let scale = quantities.first()?.scale;
    let step = SCALES[scale].step;
    let numbers = || quantities.iter().flat_map(|one| &one.numbers);
    let values = numbers().map(|number| number.value * step.powi(number.unit as i32));
    let values: Vec<f64> = values.filter(|value| *value > 0.0).collect();
    let largest = values.iter().copied().fold(0.0, f64::max);
    let smallest = values.iter().copied().fold(f64::INFINITY, f64::min);
    let natural = numbers().filter(|number| number.value > 0.0);
    let natural = natural.map(|number| number.unit).max()?;
    let fits = |unit: &usize| {
        let size = step.powi(*unit as i32);
        largest / size < BELOW && smallest / size >= LEAST
    };
    let unit = [Some(natural), natural.checked_sub(1)];
    let unit = unit.into_iter().flatten().find(fits)?;
    let text = |one: &&Quantity| {
        let is_in_it = one.numbers.iter().all(|number| number.unit == unit);
        if is_in_it {
            String::new()
        } else {
            one.text(unit)
        }
    };
    Some(quantities.iter().map(text).collect())
}

/// A quantity in a cell.
#[derive(Clone)]
struct Placed {
    /// Row of the heading above it; 0 without one.
    group: usize,
    row: usize,
    column: usize,
    quantity: Quantity,
}

impl Table {
    /// Returns the table with one unit for its figures of a dimension, below each heading; where they span too much for one,
    /// with one for each column, or for each row of a table that compares figures in rows.
    pub fn in_common_units(&self) -> Table {
        let mut groups: BTreeMap<(usize, usize), Vec<Placed>> = BTreeMap::new();
        for placed in self.quantities() {
            let key = (placed.group, placed.quantity.scale);
            groups.entry(key).or_default().push(placed);
        }
        let mut table = self.clone();
        for group in groups.into_values() {
            if table.unify(&group) {
                continue;
            }
            let line = |one: &Placed| {
                if self.compares_rows {
                    one.row
                } else {
                    one.column
                }
            };
            let lines: BTreeSet<usize> = group.iter().map(line).collect();
            for number in lines {
                let in_it = group.iter().filter(|one| line(one) == number);
                table.unify(&in_it.cloned().collect::<Vec<Placed>>());
            }
        }
        table
    }

    /// The quantities in columns of figures.
    fn quantities(&self) -> Vec<Placed> {
        let mut all = Vec::new();
        let mut group = 0;
        for (row, line) in self.rows.iter().enumerate() {
            let (Row::Cells(cells) | Row::First(cells)) = line else {
                group = row;
                continue;
            };
            for (column, (cell, head)) in cells.iter().zip(&self.columns).enumerate() {
                let quantity = Quantity::parse(&cell.text).filter(|_| head.figures && column > 0);
                all.extend(quantity.map(|quantity| Placed {
                    group,
                    row,
                    column,
                    quantity,
                }));
            }
        }
        all
    }

    /// Gives figures of one dimension the same unit; returns false if they span too much for one.
    fn unify(&mut self, quantities: &[Placed]) -> bool {
        let all: Vec<&Quantity> = quantities.iter().map(|one| &one.quantity).collect();
        let Some(texts) = in_one_unit(&all) else {
            return false;
        };
        for (placed, text) in quantities.iter().zip(texts) {
            self.put(placed, text);
        }
        true
    }

    /// Puts a text into a cell, unless it is empty.
    fn put(&mut self, place: &Placed, text: String) {
        let row = self.rows.get_mut(place.row);
        if let Some(Row::Cells(cells) | Row::First(cells)) = row {
            let cell = cells.get_mut(place.column).filter(|_| !text.is_empty());
            if let Some(cell) = cell {
                cell.text = text;
            }
        }
    }
}

/// Returns texts with one unit, if all are quantities of one dimension and do not span too much; else as they are.
pub fn alike(texts: &[String]) -> Vec<String> {
    let quantities: Option<Vec<Quantity>> =
        texts.iter().map(|text| Quantity::parse(text)).collect();
    let quantities = quantities.unwrap_or_default();
    let is_one_dimension = quantities
        .iter()
        .all(|one| one.scale == quantities[0].scale);
    let all: Vec<&Quantity> = quantities.iter().collect();
    let alike = in_one_unit(&all).filter(|_| is_one_dimension);
    let alike = alike.into_iter().flatten();
    let mut changed: Vec<String> = texts.to_vec();
    for (text, other) in changed.iter_mut().zip(alike) {
        if !other.is_empty() {
            *text = other;
        }
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::table::{figures, words};

    fn texts(all: &[&str]) -> Option<Vec<String>> {
        let quantities: Vec<Quantity> = all
            .iter()
            .map(|text| Quantity::parse(text).unwrap())
            .collect();
        let texts = in_one_unit(&quantities.iter().collect::<Vec<_>>())?;
        let or_itself = texts.into_iter().zip(all);
        let or_itself = or_itself.map(|(text, old)| {
            if text.is_empty() {
                (*old).to_owned()
            } else {
                text
            }
        });
        Some(or_itself.collect())
    }

    #[test]
    fn figures_of_a_similar_size_have_one_unit() {
        let cases: [(&[&str], &[&str]); 6] = [
            (&["46.0 ms", "881 µs"], &["46.0 ms", "0.881 ms"]),
            (&["6.78 s", "159.2 ms"], &["6.78 s", "0.1592 s"]),
            // In seconds the smaller would begin with zeros.
            (&["2.31 s", "1.234 ms"], &["2310 ms", "1.234 ms"]),
            (&["13.48 k/s", "401 /s"], &["13.48 k/s", "0.401 k/s"]),
            (
                &["+1.200 to +1.400 ms", "−900 to −800 µs", "0 ns"],
                &["+1.200 to +1.400 ms", "−0.900 to −0.800 ms", "0 ms"],
            ),
            (&["2.00 GiB", "512 MiB"], &["2.00 GiB", "0.500 GiB"]),
        ];
        for (given, expected) in cases {
            assert_eq!(texts(given).unwrap(), expected);
        }
    }

    #[test]
    fn texts_that_are_not_all_quantities_of_one_dimension_stay() {
        let all =
            |texts: &[&str]| alike(&texts.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(all(&["46.0 ms", "881 µs"]), ["46.0 ms", "0.881 ms"]);
        assert_eq!(all(&["46.0 ms", "881 /s"]), ["46.0 ms", "881 /s"]);
        assert_eq!(all(&["46.0 ms", "12 %"]), ["46.0 ms", "12 %"]);
        assert!(all(&[]).is_empty());
    }

    #[test]
    fn figures_that_span_too_much_keep_their_units() {
        assert_eq!(texts(&["49.6 ns", "108.2 µs"]), None);
        assert_eq!(texts(&["12 µs", "46.0 s"]), None);
        assert_eq!(texts(&["0 ns"]), None);
    }

    #[test]
    fn other_texts_are_no_quantities() {
        for text in [
            "",
            "–",
            "12",
            "×1.3",
            "12 rounds",
            "a to b ms",
            "1 ms to 2 B",
            "NaN s",
            "1 ms (2 ms)",
            "µs",
        ] {
            assert_eq!(Quantity::parse(text), None, "{text}");
        }
    }
    fn cells(table: &Table) -> Vec<Vec<&str>> {
        let rows = table.rows.iter().filter_map(|row| match row {
            Row::Group(_) => None,
            Row::Cells(cells) | Row::First(cells) => {
                Some(cells.iter().map(|cell| cell.text.as_str()).collect())
            }
        });
        rows.collect()
    }

    fn table(rows: &[[&str; 3]]) -> Table {
        let columns = vec![words("name"), figures("native"), figures("kvm")];
        Table::new("", columns).rows(rows.iter().map(|row| row.to_vec()))
    }

    #[test]
    fn figures_below_a_heading_have_one_unit_or_each_column_has() {
        let whole = table(&[["a", "46.0 ms", "881 µs"], ["b", "1.000 ms", "×2"]]);
        assert_eq!(
            cells(&whole.in_common_units()),
            [["a", "46.0 ms", "0.881 ms"], ["b", "1.000 ms", "×2"]]
        );
        let columns = table(&[["a", "49.6 ns", "1.2 ms"], ["b", "1.000 µs", "700 µs"]]);
        assert_eq!(
            cells(&columns.in_common_units()),
            [["a", "49.6 ns", "1.2 ms"], ["b", "1000 ns", "0.700 ms"]]
        );
        let compared = table(&[["a", "5.33 ms", "713 µs"], ["b", "49.6 ns", "60.0 ns"]]);
        assert_eq!(
            cells(&compared.of_metrics().in_common_units()),
            [["a", "5.33 ms", "0.713 ms"], ["b", "49.6 ns", "60.0 ns"]],
            "a row compares the figures of one metric"
        );
        let mut groups = table(&[["a", "900 ns", "1.5 µs"]]);
        groups.group("next");
        groups.row(vec!["b", "900 ms", "2.0 s"]);
        assert_eq!(
            cells(&groups.in_common_units()),
            [["a", "0.900 µs", "1.5 µs"], ["b", "0.900 s", "2.0 s"]]
        );
        let apart = table(&[["a", "20 ns", "1 ns"], ["b", "46 ms", "2.0 s"]]);
        assert_eq!(cells(&apart.in_common_units()), cells(&apart));
    }
}
