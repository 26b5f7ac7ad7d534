//! Figures of a running VM's counters as JSON: objects and fields that [`Counter::json`] names.

use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use vmtax_model::{Counter, CounterMap};

/// Writes the objects. What is not known is null.
pub(crate) fn serialize<S: Serializer>(
    figures: &CounterMap<f64>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut objects: BTreeMap<&str, Fields> = BTreeMap::new();
    for counter in Counter::all() {
        let Some((object, field)) = counter.json.split_once('.') else {
            continue;
        };
        let number = figures
            .get(counter)
            .map(|value| match counter.unit.is_gauge() {
                true => Number::Whole(value as u64),
                false => Number::Rate(value),
            });
        let Fields(fields) = objects.entry(object).or_default();
        fields.push((field, number));
    }
    objects.serialize(serializer)
}

#[derive(Serialize)]
#[serde(untagged)]
enum Number {
    Whole(u64),
    Rate(f64),
}

/// Fields of an object, in order.
#[derive(Default)]
struct Fields(Vec<(&'static str, Option<Number>)>);

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, number)| (name, number)))
    }
}
