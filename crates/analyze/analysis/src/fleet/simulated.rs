//! Tests of the promises of a comparison of hosts, on simulated fleets with a planted truth. `-- --nocapture` prints
//! the figures of docs/fleet.md; bench/fleet.py has the full size.

use super::*;
use crate::coverage::normal;
use fastrand::Rng;
use std::sync::Arc;
use vmtax_findings::{Facts, FleetFigure, FleetRun, FleetSeries};
use vmtax_model::Better;

/// Differences between hosts and runs.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Noise {
    /// Log-normal, 5 % from figure to figure; hosts are alike.
    Quiet,
    /// Log-normal, 5 % from figure to figure, and hosts differ by 1 %.
    HostsDiffer,
    /// 5 %, and one run in eight is a fifth slower in everything.
    DisturbedRuns,
    /// Pareto, α = 1.5, added to each figure: no variance.
    HeavyTailed,
    /// 1 % from figure to figure, 5 % from run to run in everything.
    WholeRuns,
}

impl Noise {
    /// Returns the factor by which a host differs from others.
    fn of_host(self, random: &mut Rng) -> f64 {
        if self == Noise::HostsDiffer {
            (0.01 * normal(random)).exp()
        } else {
            1.0
        }
    }

    /// Returns the factor of everything in a run.
    fn of_run(self, random: &mut Rng) -> f64 {
        match self {
            Noise::DisturbedRuns if random.usize(..8) == 0 => 1.2,
            Noise::WholeRuns => (0.05 * normal(random)).exp(),
            _ => 1.0,
        }
    }

    /// Returns the factor of a figure.
    fn of_figure(self, random: &mut Rng) -> f64 {
        let spread = match self {
            Noise::WholeRuns => 0.01,
            _ => 0.05,
        };
        let tail = (1.0 - random.f64()).powf(-1.0 / 1.5) - 1.0;
        if self == Noise::HeavyTailed {
            1.0 + 0.05 * tail
        } else {
            (spread * normal(random)).exp()
        }
    }
}

const ALL: [Noise; 5] = [
    Noise::Quiet,
    Noise::HostsDiffer,
    Noise::DisturbedRuns,
    Noise::HeavyTailed,
    Noise::WholeRuns,
];

#[derive(Clone, Copy)]
struct Size {
    classes: usize,
    hosts: usize,
    runs: usize,
    metrics: usize,
}

const SMALL: Size = Size {
    classes: 2,
    hosts: 60,
    runs: 8,
    metrics: 8,
};

/// A fleet in which the first `slow` hosts take `factor` times as long, and alone have microcode 0x1.
fn simulated(size: Size, noise: Noise, slow: usize, factor: f64, random: &mut Rng) -> FleetData {
    let mut data = FleetData {
        series: (0..size.metrics).map(series).collect(),
        ..FleetData::default()
    };
    for host in 0..size.hosts {
        let class = host % size.classes;
        let level = noise.of_host(random) * if host < slow { factor } else { 1.0 };
        let microcode = if host < slow { "0x1" } else { "0x2" };
        let facts = Arc::new(host_facts(host, class, microcode, random));
        for run in 0..size.runs {
            let number = data.runs.len() as u32;
            let run = FleetRun {
                id: format!("{host}-{run}"),
                host: format!("host-{host}"),
                date: "2026-11-25".to_owned(),
                facts: Arc::clone(&facts),
            };
            data.runs.push(run);
            let whole = noise.of_run(random);
            for metric in 0..size.metrics {
                let noise = noise.of_figure(random);
                let cost = (1.0 + class as f64) * (1.0 + metric as f64) * level * whole * noise;
                let value = if metric % 2 == 0 { cost } else { 1.0 / cost };
                data.figures.push(FleetFigure {
                    run: number,
                    series: metric as u32,
                    trial: 0,
                    round: 0,
                    value,
                });
            }
        }
    }
    data
}

/// Returns the series of a metric: of each second one, more is better.
fn series(metric: usize) -> FleetSeries {
    FleetSeries {
        metric: format!("m{metric}"),
        machine: "kvm".to_owned(),
        variant: String::new(),
        size: None,
        workload: "syscalls".to_owned(),
        settings: String::new(),
        unit: "ns".to_owned(),
        better: Some(if metric % 2 == 0 {
            Better::Lower
        } else {
            Better::Higher
        }),
    }
}

/// Returns the facts of a host, some of them random.
fn host_facts(host: usize, class: usize, microcode: &str, random: &mut Rng) -> Facts {
    let facts = [
        ("host_cpu_model_name", format!("CPU {class}")),
        ("host_cpu_microcode", microcode.to_owned()),
        ("host_id", host.to_string()),
        (
            "cpu_governor",
            ["performance", "schedutil"][random.usize(..2)].to_owned(),
        ),
        ("kernel_release", format!("6.{}", random.usize(..5))),
        (
            "halt_poll_ns",
            ["0", "200000"][usize::from(random.usize(..10) > 0)].to_owned(),
        ),
    ];
    facts
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

fn by_model(data: &FleetData) -> FleetFindings {
    fleet(data, &["host_cpu_model_name".to_owned()], 0.02)
}

/// In how many of `fleets` an outlier, and a fact, is named.
fn alarms(fleets: u32, size: Size, noise: Noise) -> (f64, f64) {
    let mut random = Rng::with_seed(11);
    let (mut outliers, mut facts) = (0, 0);
    for _ in 0..fleets {
        let found = by_model(&simulated(size, noise, 0, 1.0, &mut random));
        outliers += u32::from(found.has_outliers() || !found.metric_outliers.is_empty());
        facts += u32::from(found.cause().is_some());
    }
    (
        f64::from(outliers) / f64::from(fleets),
        f64::from(facts) / f64::from(fleets),
    )
}

#[test]
fn fleets_without_an_outlier_seldom_show_one() {
    for noise in ALL {
        for (hosts, runs, fleets) in [(12, 8, 400), (60, 3, 200), (60, 8, 200)] {
            let (outliers, facts) = alarms(
                fleets,
                Size {
                    hosts,
                    runs,
                    ..SMALL
                },
                noise,
            );
            println!(
                "no outlier, {noise:?}, {hosts} hosts, {runs} runs: {:.1} % name one, {:.1} % a fact",
                outliers * 100.0,
                facts * 100.0
            );
            // 5 % and what chance adds in so few fleets.
            let most = 0.05 + 3.0 * (0.05_f64 * 0.95 / f64::from(fleets)).sqrt();
            assert!(
                outliers <= most && facts <= most,
                "{noise:?} {hosts} {runs}: {outliers} {facts}"
            );
        }
    }
}

#[test]
fn slow_hosts_are_found_with_the_fact_that_they_have_in_common() {
    // At least so many of the slow hosts, and so often the fact.
    for (noise, hosts, facts) in [
        (Noise::Quiet, 0.95, 0.95),
        (Noise::HostsDiffer, 0.5, 0.95),
        (Noise::DisturbedRuns, 0.55, 0.9),
        (Noise::HeavyTailed, 0.5, 0.9),
        (Noise::WholeRuns, 0.0, 0.5),
    ] {
        let mut random = Rng::with_seed(5);
        let (mut found_hosts, mut wrong, mut found_facts, mut covered) = (0, 0, 0, 0);
        let fleets = 100;
        for _ in 0..fleets {
            let found = by_model(&simulated(SMALL, noise, 5, 1.08, &mut random));
            let is_slow = |name: &str| (0..5).any(|host| name == format!("host-{host}"));
            let slow: Vec<&HostRow> = found.with(HostVerdict::Slower).collect();
            found_hosts += slow.iter().filter(|row| is_slow(&row.host)).count();
            let others = found
                .hosts
                .iter()
                .filter(|row| is_outlier(row.verdict) && !is_slow(&row.host))
                .count();
            let metrics = found
                .metric_outliers
                .iter()
                .filter(|o| !is_slow(&found.hosts[o.host].host))
                .count();
            wrong += usize::from(others + metrics > 0);
            let cause = found
                .cause()
                .filter(|fact| fact.fact == "host_cpu_microcode");
            found_facts += usize::from(cause.is_some());
            let shift = cause.and_then(|fact| {
                fact.values
                    .iter()
                    .find(|value| value.value == "0x1")?
                    .ratio?
                    .interval
            });
            covered += usize::from(shift.is_some_and(|i| i.low <= 1.08 && 1.08 <= i.high));
        }
        println!(
            "5 of 60 hosts 8 % slower, {noise:?}: {:.1} % of them found, the fact in {found_facts} of {fleets} fleets (interval right in \
             {covered}), another host named in {wrong}",
            found_hosts as f64 / f64::from(fleets) / 5.0 * 100.0
        );
        let share = |n: usize| n as f64 / f64::from(fleets);
        assert!(
            share(found_hosts) / 5.0 >= hosts && share(found_facts) >= facts,
            "{noise:?}"
        );
        assert!(share(wrong) <= 0.11, "{noise:?}: {wrong}");
        assert!(
            covered * 100 >= found_facts * 85,
            "{noise:?}: {covered} of {found_facts}"
        );
    }
}

#[test]
fn one_slow_disk_is_named_with_its_metric() {
    let mut random = Rng::with_seed(7);
    let mut data = simulated(SMALL, Noise::Quiet, 0, 1.0, &mut random);
    for figure in data
        .figures
        .iter_mut()
        .filter(|f| f.run / 8 == 3 && f.series == 2)
    {
        figure.value *= 1.3;
    }
    let found = by_model(&data);
    assert!(!found.has_outliers(), "{:?}", found.hosts[0]);
    let [outlier] = &found.metric_outliers[..] else {
        panic!("{:?}", found.metric_outliers)
    };
    assert_eq!(
        (
            found.hosts[outlier.host].host.as_str(),
            outlier.series.metric.as_str()
        ),
        ("host-3", "m2")
    );
    assert!((1.2..1.4).contains(&outlier.ratio.median), "{outlier:?}");
}

#[test]
fn one_run_is_too_few_and_said_to_be() {
    let size = Size {
        runs: 1,
        metrics: 40,
        ..SMALL
    };
    let found = by_model(&simulated(
        size,
        Noise::Quiet,
        2,
        1.3,
        &mut Rng::with_seed(1),
    ));
    assert!(!found.has_outliers());
    let names: Vec<&str> = found
        .with(HostVerdict::TooFewRuns)
        .map(|row| row.host.as_str())
        .collect();
    assert_eq!(names.len(), 2, "{names:?}");
}

#[test]
fn a_fact_that_divides_a_class_explains_it_without_outliers() {
    let mut random = Rng::with_seed(2);
    // 18 of 60: the class has two levels, and no host is far from all others.
    let found = by_model(&simulated(SMALL, Noise::Quiet, 18, 1.08, &mut random));
    let cause = found.cause().unwrap();
    assert_eq!(cause.fact, "host_cpu_microcode");
    assert!(cause.explained.median > 0.5, "{:?}", cause.explained);
    let value = cause.values[1].ratio.unwrap();
    assert!((1.06..1.10).contains(&value.median), "{value:?}");
    assert!(found.facts.iter().all(|fact| fact.fact != "host_id"));
}

#[test]
fn of_a_fact_with_a_value_for_each_host_200_are_compared() {
    let serials: Vec<String> = (0..250).map(|host| host.to_string()).collect();
    let host = |serial| super::facts::ExplainedHost {
        class: 0,
        deviation: 0.0,
        is_subject: false,
        is_outlier: false,
        values: vec![serial],
    };
    let hosts: Vec<super::facts::ExplainedHost> =
        serials.iter().map(|serial| host(serial.as_str())).collect();
    let found = super::facts::facts(&["serial"], &hosts);
    assert_eq!(
        found[0]
            .values
            .iter()
            .filter(|value| value.ratio.is_some())
            .count(),
        200
    );
}

#[test]
fn hosts_that_change_hardware_are_two_and_nothing_panics_on_odd_data() {
    let mut data = simulated(SMALL, Noise::Quiet, 0, 1.0, &mut Rng::with_seed(3));
    let mut facts = (*data.runs[0].facts).clone();
    facts.insert("host_cpu_model_name".to_owned(), "CPU 1".to_owned());
    data.runs[0].facts = Arc::new(facts);
    data.runs[479].facts = Arc::default();
    let found = by_model(&data);
    assert_eq!(found.hosts.len(), 61);
    assert!(found.hosts.iter().any(|row| row.host == "host-0 [2]"));
    let warned = |text: &str| found.warnings.iter().any(|warning| warning.contains(text));
    assert!(
        warned("1 host changed host_cpu_model_name") && warned("no fact host_cpu_model_name"),
        "{:?}",
        found.warnings
    );
    // All alike to the last bit, nothing at all, one host.
    data.figures
        .iter_mut()
        .for_each(|figure| figure.value = 1.0);
    assert!(!by_model(&data).has_outliers());
    assert!(by_model(&FleetData::default()).hosts.is_empty());
    data.runs.truncate(8);
    data.figures.retain(|figure| figure.run < 8);
    let alone = by_model(&data);
    assert!(
        alone.hosts.is_empty() && alone.warnings.iter().any(|w| w.contains("not compared")),
        "{:?}",
        alone.warnings
    );
}
