//! Runs sorted into hosts, hosts into classes; and the deviations of each run from the typical host of its class, metric by
//! metric.

use super::outliers::FEWEST_HOSTS;
use crate::estimate::{ascending, median, median_of};
use std::collections::{BTreeMap, BTreeSet};
use vmtax_findings::{FleetData, FleetRun};
use vmtax_model::Better;
use vmtax_model::number::counted;

/// The facts that say which machine a host is: they explain nothing.
pub const IDENTITY: [&str; 2] = ["host_id", "host_name"];

/// A host: a name with a machine ID, in one class. One that changed its hardware is two.
pub struct Host {
    pub name: String,
    pub class: usize,
    /// Indices of the host's runs in the data.
    pub runs: Vec<usize>,
}

/// Hosts in classes.
pub struct Classes {
    pub names: Vec<String>,
    pub hosts: Vec<Host>,
    /// Of each run its host.
    pub host_of: Vec<Option<usize>>,
}

/// Indices of runs by machine ID and class.
type Units<'a> = BTreeMap<(&'a str, String), Vec<usize>>;

/// Names with how many more there are: "a, b, c and 4 more".
pub fn named<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    let more = names.len().saturating_sub(3);
    let first = names
        .iter()
        .take(3)
        .map(|name| name.chars().take(64).collect::<String>())
        .collect::<Vec<_>>()
        .join(", ");
    if more == 0 {
        first
    } else {
        format!("{first} and {more} more")
    }
}

/// The class of a run: its values of these facts; `None` where one is not known.
fn class(run: &FleetRun, by: &[String]) -> Option<String> {
    let values = by
        .iter()
        .map(|fact| run.facts.get(fact).map(String::as_str))
        .collect::<Option<Vec<_>>>()?;
    Some(values.join(", "))
}

/// Runs of a name without a machine ID are those of its only one, where there is one.
fn with_known_id(mut units: Units<'_>) -> Units<'_> {
    let ids: BTreeSet<&str> = units
        .keys()
        .map(|(id, _)| *id)
        .filter(|id| !id.is_empty())
        .collect();
    if let (1, Some(id)) = (ids.len(), ids.first()) {
        let without: Vec<String> = units
            .keys()
            .filter(|(id, _)| id.is_empty())
            .map(|(_, class)| class.clone())
            .collect();
        for class in without {
            let runs = units.remove(&("", class.clone())).unwrap_or_default();
            units.entry((id, class)).or_default().extend(runs);
        }
    }
    units
}

/// Sorts the runs into hosts, and these into classes by the facts `by`.
pub fn classes(data: &FleetData, by: &[String], warnings: &mut Vec<String>) -> Classes {
    let of_name = units_by_name(data, by, warnings);
    let mut names: Vec<String> = of_name
        .values()
        .flat_map(|units| units.keys())
        .map(|(_, class)| class.clone())
        .collect();
    names.sort();
    names.dedup();
    let mut classes = Classes {
        names,
        hosts: Vec::new(),
        host_of: vec![None; data.runs.len()],
    };
    let (mut changed, mut shared) = (Vec::new(), Vec::new());
    for (name, units) in of_name {
        let units = with_known_id(units);
        let hardware: BTreeSet<&String> = units.keys().map(|(_, class)| class).collect();
        if machine_ids(&units).len() > 1 {
            shared.push(name);
        } else if hardware.len() > 1 {
            changed.push(name);
        }
        classes.add_hosts(name, units);
    }
    if !changed.is_empty() {
        warnings.push(format!(
            "{} changed {}: each counts as two ({}). Check that no two machines have the same name.",
            counted(changed.len() as u64, "host"),
            by.join(" or "),
            named(changed)
        ));
    }
    if !shared.is_empty() {
        warnings.push(format!(
            "{} with more than one machine ID: each ID counts as a host ({}). These are two machines, or one that was installed \
             again: give each machine a name of its own.",
            counted(shared.len() as u64, "name"),
            named(shared)
        ));
    }
    classes
}

/// Sorts the runs by the names of their hosts, then by machine ID and class, and warns of runs without a class.
fn units_by_name<'a>(
    data: &'a FleetData,
    by: &[String],
    warnings: &mut Vec<String>,
) -> BTreeMap<&'a str, Units<'a>> {
    let mut of_name: BTreeMap<&str, Units<'_>> = BTreeMap::new();
    let mut unclassed = BTreeSet::new();
    let mut without = 0;
    for (i, run) in data.runs.iter().enumerate() {
        match class(run, by) {
            Some(class) => {
                let id = run.facts.get("host_id").map_or("", String::as_str);
                of_name
                    .entry(&run.host)
                    .or_default()
                    .entry((id, class))
                    .or_default()
                    .push(i);
            }
            None => {
                without += 1;
                unclassed.insert(run.host.as_str());
            }
        }
    }
    if without > 0 {
        warnings.push(format!(
            "{} of {} left out: no fact {} ({}). Export the recordings again, or name other facts \
             with --class.",
            counted(without as u64, "run"),
            counted(unclassed.len() as u64, "host"),
            by.join(", "),
            named(unclassed),
        ));
    }
    of_name
}

/// Returns the machine IDs of units; an empty one stands for runs without an ID.
fn machine_ids<'a>(units: &Units<'a>) -> BTreeSet<&'a str> {
    units.keys().map(|(id, _)| *id).collect()
}

impl Classes {
    /// Adds a host for each unit of a name; of several, each has its machine ID or a number behind the name.
    fn add_hosts(&mut self, name: &str, units: Units<'_>) {
        let ids = machine_ids(&units).len();
        let count = units.len();
        for (at, ((id, class), runs)) in units.into_iter().enumerate() {
            let which = if id.is_empty() || ids == 1 {
                (at + 1).to_string()
            } else {
                id.to_owned()
            };
            let name = if count > 1 {
                format!("{name} [{which}]")
            } else {
                name.to_owned()
            };
            for run in &runs {
                self.host_of[*run] = Some(self.hosts.len());
            }
            let class = self.names.binary_search(&class).unwrap_or(0);
            self.hosts.push(Host { name, class, runs });
        }
    }
}

/// A run's deviation in one series: ln of its cost over that of the class's median host.
pub struct Deviation {
    pub series: u32,
    pub host: usize,
    pub run: u32,
    pub value: f64,
}

/// Deviations of all runs, and what is left out.
pub struct Deviations {
    /// In the order of series, hosts and runs.
    pub all: Vec<Deviation>,
    /// Figures behind them.
    pub figures: u64,
    /// Figures of series that too few hosts of a class have.
    pub alone: u64,
    /// Metrics of which nobody knows which way is better.
    pub undirected: BTreeSet<u32>,
}

/// Returns the deviations of all figures of classes with enough hosts.
pub fn deviations(data: &FleetData, classes: &Classes) -> Deviations {
    let mut found = Deviations {
        all: Vec::new(),
        figures: 0,
        alone: 0,
        undirected: BTreeSet::new(),
    };
    let mut costs = costs(data, classes, &mut found.undirected);
    let group = |d: &Deviation| (d.series, classes.hosts[d.host].class);
    costs.sort_by_key(|(d, _)| (group(d), d.host, d.run));
    for members in costs.chunk_by(|(a, _), (b, _)| group(a) == group(b)) {
        let figures: u64 = members.iter().map(|(_, count)| count).sum();
        let of_hosts = members.chunk_by(|(a, _), (b, _)| a.host == b.host);
        let medians = of_hosts.map(|runs| median_of(runs.iter().map(|(d, _)| d.value)));
        let medians = ascending(medians);
        if medians.len() < FEWEST_HOSTS {
            found.alone += figures;
            continue;
        }
        let typical = median(&medians);
        found.figures += figures;
        found.all.extend(members.iter().map(|(d, _)| Deviation {
            value: d.value - typical,
            ..*d
        }));
    }
    found.all.sort_by_key(|d| (d.series, d.host, d.run));
    found
}

/// Returns the cost of each run in each series, as logarithm: the median over its trials, with their number. Adds the series
/// of which nobody knows which way is better.
fn costs(
    data: &FleetData,
    classes: &Classes,
    undirected: &mut BTreeSet<u32>,
) -> Vec<(Deviation, u64)> {
    let mut all = Vec::new();
    // The figures of a run's series stand together.
    for trials in data
        .figures
        .chunk_by(|a, b| (a.run, a.series) == (b.run, b.series))
    {
        let (run, series) = (trials[0].run, trials[0].series);
        let Some(host) = classes.host_of[run as usize] else {
            continue;
        };
        let value = median_of(trials.iter().map(|figure| figure.value)).ln();
        let value = match data.series[series as usize].better {
            Some(Better::Lower) => value,
            Some(Better::Higher) => -value,
            None => {
                undirected.insert(series);
                continue;
            }
        };
        let cost = Deviation {
            series,
            host,
            run,
            value,
        };
        all.push((cost, trials.len() as u64));
    }
    all
}
