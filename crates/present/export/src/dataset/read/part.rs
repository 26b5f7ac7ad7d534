//! Part of a dataset that one thread reads: rows of some files, their texts by number.

use super::folder::TableFile;
use crate::table::{Group, Problem, Texts, for_each_group};
use std::collections::HashMap;

/// A series by the numbers of its texts (metric, unit, better, machine, variant, workload, settings), and its size.
pub type SeriesKey = ([u32; 7], Option<i64>);

/// A row of `figures`: texts and series by number.
pub struct Figure {
    pub run: u32,
    /// The number of the empty text where it is not known.
    pub host: u32,
    pub date: u32,
    pub series: u32,
    pub trial: u32,
    pub round: u32,
    pub value: f64,
}

/// A row of `facts`.
pub struct Fact {
    pub run: u32,
    pub name: u32,
    pub value: u32,
}

#[derive(Default)]
pub struct Part {
    pub texts: Texts,
    pub series: Vec<SeriesKey>,
    numbers: HashMap<SeriesKey, u32>,
    pub figures: Vec<Figure>,
    pub facts: Vec<Fact>,
    /// Files that are left out, with the reason.
    pub problems: Vec<(String, Problem)>,
    /// Figures without a logarithm: 0, negative, not finite, null.
    pub unusable: u64,
}

impl Part {
    pub fn read(figures: &[TableFile], facts: &[TableFile]) -> Part {
        let mut part = Part::default();
        for file in figures {
            part.file(file, |part, group| part.figures(file, group));
        }
        for file in facts {
            part.file(file, |part, group| part.facts(group));
        }
        part
    }

    /// A file whole or not at all: what a damaged one gave before its end is forgotten.
    fn file(
        &mut self,
        file: &TableFile,
        mut read: impl FnMut(&mut Part, &mut Group) -> Result<(), Problem>,
    ) {
        let before = (self.figures.len(), self.facts.len(), self.unusable);
        if let Err(problem) = for_each_group(&file.path, |group| read(self, group)) {
            self.figures.truncate(before.0);
            self.facts.truncate(before.1);
            self.unusable = before.2;
            self.problems
                .push((file.path.display().to_string(), problem));
        }
    }

    fn figures(&mut self, file: &TableFile, group: &mut Group) -> Result<(), Problem> {
        let texts = &mut self.texts;
        let [run, metric, machine] =
            ["run", "metric", "machine"].map(|name| group.needed_texts(name, texts));
        let (run, metric, machine) = (run?, metric?, machine?);
        let values = group.floats("value")?;
        let empty = texts.number("");
        let mut optional = |name| {
            Ok(group
                .texts(name, texts)?
                .unwrap_or_else(|| vec![empty; group.rows]))
        };
        let [unit, better, variant, workload, settings]: [Result<Vec<u32>, Problem>; 5] =
            ["unit", "better", "variant", "workload", "settings"].map(&mut optional);
        let (unit, better, variant, workload, settings) =
            (unit?, better?, variant?, workload?, settings?);
        let host = match &file.host {
            Some(host) => vec![texts.number(host); group.rows],
            // Of a compacted file.
            None => group
                .texts("host", texts)?
                .unwrap_or_else(|| vec![empty; group.rows]),
        };
        let date = file.date.as_ref().map_or(empty, |date| texts.number(date));
        let sizes = group.longs("size")?;
        let (trials, rounds) = (group.longs("trial")?, group.longs("round")?);
        for (i, value) in values.into_iter().enumerate() {
            let Some(value) = value.filter(|v| v.is_finite() && *v > 0.0) else {
                self.unusable += 1;
                continue;
            };
            let size = sizes.as_ref().and_then(|all| all[i]);
            let key = (
                [
                    metric[i],
                    unit[i],
                    better[i],
                    machine[i],
                    variant[i],
                    workload[i],
                    settings[i],
                ],
                size,
            );
            let next = self.series.len() as u32;
            let series = *self.numbers.entry(key).or_insert(next);
            if series == next {
                self.series.push(key);
            }
            let number = |all: &Option<Vec<Option<i64>>>| u32::try_from(all.as_ref()?[i]?).ok();
            let trial = number(&trials).unwrap_or(self.figures.len() as u32);
            let round = number(&rounds).unwrap_or(trial);
            self.figures.push(Figure {
                run: run[i],
                host: host[i],
                date,
                series,
                trial,
                round,
                value,
            });
        }
        Ok(())
    }

    fn facts(&mut self, group: &mut Group) -> Result<(), Problem> {
        let texts = &mut self.texts;
        let [run, name, value] =
            ["run", "name", "value"].map(|name| group.needed_texts(name, texts));
        let (run, name, value) = (run?, name?, value?);
        let empty = texts.number("");
        let machine = group.texts("machine", texts)?;
        let variant = group.texts("variant", texts)?;
        for i in 0..group.rows {
            // Of a comparison's variants there are several values.
            if variant.as_ref().is_some_and(|all| all[i] != empty) {
                continue;
            }
            let of = machine.as_ref().map_or(empty, |all| all[i]);
            let name = if of == empty {
                name[i]
            } else {
                let name = format!("{} ({})", texts.get(name[i]), texts.get(of));
                texts.number(&name)
            };
            self.facts.push(Fact {
                run: run[i],
                name,
                value: value[i],
            });
        }
        Ok(())
    }
}
