//! Deviations of each run from the typical host of its class, metric by metric.

use super::classes::Classes;
use super::outliers::{FEWEST_HOSTS, ascending};
use crate::overhead::median;
use std::collections::BTreeSet;
use vmtax_model::{Better, FleetData};

/// A run's deviation in one series: ln of its cost over that of the class's median host.
pub struct Deviation {
    pub series: u32,
    pub host: usize,
    pub run: u32,
    pub value: f64,
}

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

pub fn deviations(data: &FleetData, classes: &Classes) -> Deviations {
    let mut undirected = BTreeSet::new();
    let mut all = Vec::new();
    // The figures of a run's series stand together: a value each, the median over its trials.
    for trials in data
        .figures
        .chunk_by(|a, b| (a.run, a.series) == (b.run, b.series))
    {
        let (run, series) = (trials[0].run, trials[0].series);
        let Some(host) = classes.host_of[run as usize] else {
            continue;
        };
        let value = median(&ascending(trials.iter().map(|figure| figure.value))).ln();
        let value = match data.series[series as usize].better {
            Some(Better::Lower) => value,
            Some(Better::Higher) => -value,
            None => {
                undirected.insert(series);
                continue;
            }
        };
        all.push((
            Deviation {
                series,
                host,
                run,
                value,
            },
            trials.len() as u64,
        ));
    }
    let class = |d: &Deviation| classes.hosts[d.host].class;
    all.sort_by_key(|(d, _)| (d.series, class(d), d.host, d.run));
    let mut found = Deviations {
        all: Vec::with_capacity(all.len()),
        figures: 0,
        alone: 0,
        undirected,
    };
    let mut rest = all.into_iter().peekable();
    while let Some((first, count)) = rest.next() {
        let group = (first.series, class(&first));
        let mut members = vec![first];
        let mut figures = count;
        while let Some((next, count)) = rest.next_if(|(d, _)| (d.series, class(d)) == group) {
            members.push(next);
            figures += count;
        }
        let of_hosts = members.chunk_by(|a, b| a.host == b.host);
        let medians =
            ascending(of_hosts.map(|runs| median(&ascending(runs.iter().map(|d| d.value)))));
        if medians.len() < FEWEST_HOSTS {
            found.alone += figures;
            continue;
        }
        let typical = median(&medians);
        found.figures += figures;
        found.all.extend(members.into_iter().map(|d| Deviation {
            value: d.value - typical,
            ..d
        }));
    }
    found.all.sort_by_key(|d| (d.series, d.host, d.run));
    found
}
