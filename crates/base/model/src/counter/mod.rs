//! Counters and figures of a running VM, with an entry for each: what it is, where it is read, how it is shown. Samples,
//! rates, columns, CSV, JSON, OpenMetrics, the details of a VM and docs/top.md take it from there.

mod table;

pub use table::{Counter, CounterSource, CounterUnit};

use crate::setting::is_same;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use table::TABLE;

impl Counter {
    /// Returns the entry of this name.
    ///
    /// # Panics
    /// Where there is none: in a constant, which does not compile then.
    pub const fn named(name: &str) -> &'static Counter {
        let mut entry = 0;
        while entry < TABLE.len() {
            if is_same(TABLE[entry].name, name) {
                return &TABLE[entry];
            }
            entry += 1;
        }
        panic!("no counter has this name")
    }

    /// Every entry.
    pub fn all() -> impl Iterator<Item = &'static Counter> + Clone {
        TABLE.iter()
    }

    /// The entries with a field of CSV, in its order.
    pub fn shown() -> impl Iterator<Item = &'static Counter> + Clone {
        Counter::all().filter(|counter| !counter.what.is_empty())
    }

    /// The entries with a column, from left to right: between the VM's name, which comes first, and the busiest thread.
    pub fn columns() -> impl Iterator<Item = &'static Counter> + Clone {
        Counter::all().filter(|counter| !counter.column.is_empty())
    }

    /// Returns the name of its field of CSV.
    pub fn csv(&self) -> String {
        format!("{}{}", self.name, self.unit.suffix())
    }

    /// Returns the name of the samples of its metric.
    pub fn sample_name(&self) -> String {
        match self.unit.is_gauge() {
            true => self.metric.to_owned(),
            false => format!("{}_total", self.metric),
        }
    }
}

/// Values by the name of their counter, as numbers of one moment (times in ns) or figures of an interval. What is not known
/// is absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CounterMap<T>(BTreeMap<String, T>);

impl<T: Copy> CounterMap<T> {
    /// Returns the value of a counter; `None` where it is not known.
    pub fn get(&self, counter: &Counter) -> Option<T> {
        self.0.get(counter.name).copied()
    }
}

impl CounterMap<u64> {
    /// Reads every counter whose source `number` knows.
    pub fn read(number: impl Fn(CounterSource) -> Option<u64>) -> CounterMap<u64> {
        Counter::all()
            .filter_map(|counter| Some((counter.name, number(counter.source)?)))
            .collect()
    }

    /// Returns the counter of one source; nothing where its number is not known.
    pub fn of(source: CounterSource, number: Option<u64>) -> CounterMap<u64> {
        CounterMap::read(|known| number.filter(|_| known == source))
    }

    /// Adds the numbers of another source: the sum of those that both have.
    pub fn add(&mut self, other: CounterMap<u64>) {
        for (name, number) in other.0 {
            let sum = self.0.entry(name).or_default();
            *sum = sum.saturating_add(number);
        }
    }
}

impl<T> FromIterator<(&'static str, T)> for CounterMap<T> {
    fn from_iter<I: IntoIterator<Item = (&'static str, T)>>(values: I) -> CounterMap<T> {
        let named = values.into_iter();
        CounterMap(
            named
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_texts_are_there() {
        let mut names = BTreeSet::new();
        for counter in Counter::all() {
            let texts = [counter.column, counter.json, counter.metric].map(str::to_owned);
            let own = [counter.name.to_owned(), counter.csv()].into_iter();
            for (kind, name) in own.chain(texts).enumerate() {
                assert!(
                    name.is_empty() || names.insert((kind, name.clone())),
                    "{name} twice"
                );
            }
            let Counter { name, column, .. } = counter;
            assert_eq!(counter.metric.is_empty(), counter.help.is_empty(), "{name}");
            assert_eq!(column.is_empty(), counter.explanation.is_empty(), "{name}");
            assert!(column.is_empty() || !counter.what.is_empty(), "{name}");
            assert!(
                counter.json.is_empty() || counter.json.contains('.'),
                "{name}"
            );
        }
    }

    #[test]
    fn numbers_of_two_sources_are_added() {
        let map = |numbers: &[(&'static str, u64)]| numbers.iter().copied().collect();
        let mut all: CounterMap<u64> = map(&[("huge_page", 4), ("resident", u64::MAX)]);
        all.add(map(&[("huge_page", 2), ("resident", 1), ("exits", 3)]));
        assert_eq!(
            all,
            map(&[("huge_page", 6), ("resident", u64::MAX), ("exits", 3)])
        );
    }
}
