//! `fleet`: which hosts are outliers among those of their class, and which facts explain it.

use crate::charts::distributions::{CAPTION, Hosts, Lane, MAX_LANES};
use crate::engine::{
    Block, Cell, Figure, Notice, Origin, Report, Section, Table, Tone, figures, words,
};
use crate::number::{NONE, count, counted, percent, ratio};
use crate::text::{Joined, only_if};
use crate::view::verdict::{interval, p_value};
use vmtax_findings::{
    Estimate, FLEET_LEVEL, FactEffect, FactValue, FleetFindings, HostRow, HostVerdict,
    MetricOutlier,
};
use vmtax_model::shell_line;

/// Hosts that a terminal lists without details.
const MOST: usize = 20;
/// Hosts that the answer names.
const NAMED: usize = 3;
/// Typical hosts in the table where there is no outlier: those furthest from the median.
const FURTHEST: usize = 5;
/// Column that defines a class unless the user names another: the CPU model.
const MODEL: &str = "host_cpu_model_name";

/// The report. `dataset`: its folder as a shell takes it; `vmtax`: the version that draws it; `command`: what makes it again.
pub fn report<'a>(
    found: &'a FleetFindings,
    dataset: &str,
    vmtax: &str,
    command: &str,
) -> Report<'a> {
    let what = if is_model(found) { "model" } else { "class" };
    let classes = counted(found.classes.len() as u64, what).replace("classs", "classes");

    let [first, last] = &found.dates;
    let to = only_if(first != last, format!(" to {last}"));
    let basis = [
        counted(found.hosts.len() as u64, "host"),
        classes,
        counted(found.runs.into(), "run"),
        counted(found.metrics.into(), "metric"),
        counted(found.figures, "figure"),
        format!("{first}{to}"),
    ];
    let sections = [hosts(found), metrics(found), facts(found)];
    Report {
        study: "fleet",
        title: "Hosts compared with those of their class".to_owned(),
        origin: Origin {
            vmtax: vmtax.to_owned(),
            started: last.clone(),
            command: command.to_owned(),
        },
        answer: answer(found),
        basis: basis.into_iter().filter(|part| !part.is_empty()).collect(),
        next: next(found, dataset),
        sections: sections.into_iter().flatten().collect(),
        notices: vec![Notice::warnings(found.warnings.clone())],
        method: vec![found.method.clone()],
        ..Report::default()
    }
}

fn is_model(found: &FleetFindings) -> bool {
    found.class_by == [MODEL]
}

fn others(found: &FleetFindings) -> &'static str {
    match is_model(found) {
        true => "others of their model",
        false => "others of their class",
    }
}

/// "a, b, c and 2 more".
fn names(hosts: &[&str]) -> String {
    let first = hosts.iter().take(NAMED).copied().joined(", ");
    match hosts.len().saturating_sub(NAMED) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// By how much a ratio of costs is from 1.
fn by(ratio: f64) -> String {
    percent((ratio - 1.0).abs())
}

fn answer(found: &FleetFindings) -> String {
    if found.hosts.is_empty() {
        return "No hosts can be compared: a class needs 5 hosts with the same workload and settings."
            .to_owned();
    }
    let (all, others) = (count(found.hosts.len() as u64), others(found));
    let outliers = [
        outliers(found, HostVerdict::Slower, "slower"),
        outliers(found, HostVerdict::Faster, "faster"),
    ];
    let outliers = outliers.into_iter().flatten().joined("; ");
    let candidates = found.with(HostVerdict::TooFewRuns).count();
    let said = match (candidates, found.metric_outliers.is_empty()) {
        _ if !outliers.is_empty() => outliers,
        (0, true) => format!("None of {all} hosts is significantly slower or faster than {others}"),
        (0, false) => outliers_in_metrics(found),
        _ => format!(
            "{candidates} of {all} hosts may differ from {others}, but have too few runs: measure them again"
        ),
    };
    match found.cause() {
        Some(cause) => format!("{said}. {}.", cause_text(found, cause)),
        None if found.has_outliers() => {
            format!("{said}. No recorded host property (fact) explains it.")
        }
        None => format!("{said}."),
    }
}

/// "2 of 40 hosts are slower than others of their model by 12 %: a, b"; `None` where no host has this verdict.
fn outliers(found: &FleetFindings, verdict: HostVerdict, word: &str) -> Option<String> {
    let hosts: Vec<&HostRow> = found.with(verdict).collect();
    let mut ratios: Vec<f64> = hosts.iter().map(|host| host.ratio.median).collect();
    ratios.sort_by(f64::total_cmp);
    let by = by(*ratios.get(ratios.len() / 2)?);
    let named: Vec<&str> = hosts.iter().map(|host| host.host.as_str()).collect();
    let (names, others) = (names(&named), others(found));
    let (n, all) = (hosts.len(), count(found.hosts.len() as u64));
    let are = if n == 1 { "is" } else { "are" };
    Some(format!(
        "{n} of {all} hosts {are} {word} than {others} by {by}: {names}"
    ))
}

/// "1 of 40 hosts is an outlier in single metrics: a".
fn outliers_in_metrics(found: &FleetFindings) -> String {
    let hosts = found
        .metric_outliers
        .iter()
        .map(|one| found.hosts[one.host].host.as_str());
    let mut hosts: Vec<&str> = hosts.collect();
    hosts.dedup();
    let (n, all, names) = (hosts.len(), count(found.hosts.len() as u64), names(&hosts));
    let are = if n == 1 {
        "is an outlier"
    } else {
        "are outliers"
    };
    format!("{n} of {all} hosts {are} in single metrics: {names}")
}

fn cause_text(found: &FleetFindings, cause: &FactEffect) -> String {
    let share = percent(cause.explained.median);
    let range = share_interval(&cause.explained);
    let range = range.map_or(String::new(), |text| format!(", 95 % CI {text}"));
    let named = value(cause).map_or(String::new(), |value| format!(" {}", shown(&value.value)));
    let what = only_if(!found.has_outliers(), " of the difference between hosts");
    let same: Vec<&str> = cause.same_as.iter().map(String::as_str).collect();
    let same = only_if(
        !same.is_empty(),
        format!("; {} divides the hosts in the same way", names(&same)),
    );
    let fact = &cause.fact;
    format!("The host property that explains most{what}: {fact}{named} ({share}{range}{same})")
}

/// The value of a fact that matters: that of most outliers, else the one furthest from the most common.
fn value(fact: &FactEffect) -> Option<&FactValue> {
    let far = |value: &FactValue| value.ratio.map_or(0.0, |ratio| ratio.median.ln().abs());
    let values = fact.values.iter();
    values.max_by(|a, b| a.outliers.cmp(&b.outliers).then(far(a).total_cmp(&far(b))))
}

/// A value of a fact.
fn shown(value: &str) -> &str {
    if value.is_empty() {
        "(not known)"
    } else {
        value
    }
}

fn share_interval(share: &Estimate) -> Option<String> {
    let ends = share.interval.map(|i| [i.low, i.high].map(percent))?;
    Some(ends.join(" to "))
}

/// Names of facts are the dataset's: only such as vmtax gives become words of a command.
fn next(found: &FleetFindings, dataset: &str) -> Vec<String> {
    let is_plain = |name: &&String| {
        name.bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    };
    let fact = found.cause().map(|cause| &cause.fact).filter(is_plain);
    let command = |fact: &String| {
        let facts = found.class_by.iter().chain([fact]);
        let facts = facts.map(String::as_str).joined(",");
        let class = shell_line(&["--class".to_owned(), facts]);
        format!("vmtax fleet {dataset} {class}")
    };
    fact.map(command).into_iter().collect()
}

fn lanes<'a>(
    found: &'a FleetFindings,
    names: &[&'a str],
    name: impl Fn(usize) -> &'a str,
) -> Hosts<'a> {
    let lane = |wanted: &&'a str| {
        let hosts = found.hosts.iter().enumerate();
        let hosts = hosts.filter(|(i, _)| name(*i) == *wanted);
        Lane {
            name: shown(wanted),
            hosts: hosts.map(|(_, host)| host).collect(),
        }
    };
    Hosts(names.iter().take(MAX_LANES).map(lane).collect())
}

fn hosts(found: &FleetFindings) -> Option<Section<'_>> {
    let is_outlier = |host: &&HostRow| host.verdict != HostVerdict::Typical;
    let (title, listed) = match found.hosts.iter().filter(is_outlier).count() {
        0 => (
            "Hosts furthest from their class",
            found.hosts.len().min(FURTHEST),
        ),
        outliers => ("Outliers", outliers),
    };
    let class = |host: &HostRow| found.classes[host.class].name.as_str();
    let table = Table::of("Hosts", found.hosts.iter().take(listed))
        .column(words("host").cut(24, 12), |host| {
            Cell::strong(host.host.as_str())
        })
        .column(words("class").cut(28, 10).spare(2), |host| {
            found.classes[host.class].name.as_str()
        })
        .column(figures("runs").spare(1), |host| host.runs.to_string())
        .column(figures("cost"), |host| ratio(host.ratio.median))
        .column(figures("95 % CI").spare(3), |host| interval(&host.ratio))
        .column(figures("p"), |host| p_value(host.p))
        .column(words("result"), |host| verdict(host.verdict));
    let hidden = found.classes.len().saturating_sub(MAX_LANES);
    let hidden = only_if(hidden > 0, format!(" {hidden} more classes are not drawn."));
    let names: Vec<&str> = found
        .classes
        .iter()
        .map(|class| class.name.as_str())
        .collect();
    let chart = lanes(found, &names, |i| class(&found.hosts[i]));
    let note = "cost: relative to the class's median host, median over metrics and runs; p: corrected for all hosts and metrics.";
    let figure = Figure {
        caption: format!("{CAPTION}{hidden}"),
        ..Figure::new(chart)
    };
    let listed = found.hosts.iter().take(listed);
    let missing = no_interval(listed.map(|host| &host.ratio));
    let notes = [note.to_owned()].into_iter().chain(missing).collect();
    let table = table.done().most(MOST).notes(notes);
    let blocks = [Block::Figure(figure), Block::Table(table)];
    (!found.hosts.is_empty()).then(|| Section::new(title, blocks))
}

/// The reason why a cell has no interval; `None` where all have one.
fn no_interval<'a>(mut ratios: impl Iterator<Item = &'a Estimate>) -> Option<String> {
    ratios
        .any(|ratio| ratio.interval.is_none())
        .then(|| "–: fewer than 6 runs, too few for a 95 % CI.".to_owned())
}

fn verdict(verdict: HostVerdict) -> Cell {
    let (text, tone) = match verdict {
        HostVerdict::Slower => ("slower", Tone::Bad),
        HostVerdict::Faster => ("faster", Tone::Good),
        HostVerdict::TooFewRuns => ("too few runs", Tone::Warn),
        HostVerdict::Typical => ("typical", Tone::Soft),
    };
    Cell::from(text).tone(tone)
}

/// Hosts that are outliers in single metrics.
fn metrics(found: &FleetFindings) -> Option<Section<'_>> {
    let place = |o: &&MetricOutlier| {
        let series = &o.series;
        let size = series.size.map_or(String::new(), |size| format!(" {size}"));
        let text = format!("{} {}{size}", series.machine, series.variant);
        text.trim_end().to_owned()
    };
    let title = "Hosts that are outliers in single metrics";
    let table = Table::of(title, &found.metric_outliers)
        .column(words("host").cut(24, 12), |o| {
            found.hosts[o.host].host.as_str()
        })
        .column(words("metric").cut(24, 12), |o| o.series.metric.as_str())
        .column(words("machine").cut(12, 6).spare(1), place)
        .column(figures("cost"), |o| ratio(o.ratio.median))
        .column(figures("95 % CI").spare(2), |o| interval(&o.ratio))
        .column(figures("p"), |o| p_value(o.p))
        .column(words("result"), |o| verdict(o.verdict));
    let missing = no_interval(found.metric_outliers.iter().map(|one| &one.ratio));
    let table = table.done().most(MOST).notes(missing.into_iter().collect());
    (!found.metric_outliers.is_empty()).then(|| Section::new("Outliers in single metrics", [table]))
}

fn facts(found: &FleetFindings) -> Option<Section<'_>> {
    let first = found.facts.first()?;
    let what = match found.has_outliers() {
        true => "the outliers' difference",
        false => "the difference between hosts",
    };
    let table = Table::of("Host properties", &found.facts)
        .column(words("host property (fact)").cut(28, 14), |fact| {
            match fact.p <= FLEET_LEVEL {
                true => Cell::strong(fact.fact.as_str()),
                false => Cell::from(fact.fact.as_str()).tone(Tone::Soft),
            }
        })
        .column(figures("explains"), |fact| percent(fact.explained.median))
        .column(figures("95 % CI").spare(2), |fact| {
            share_interval(&fact.explained).unwrap_or_else(|| NONE.to_owned())
        })
        .column(figures("p"), |fact| p_value(fact.p))
        .column(words("value").cut(24, 10), |fact| {
            value(fact).map_or(NONE, |value| shown(&value.value))
        })
        .column(figures("hosts").spare(1), |fact| {
            value(fact).map_or(0, |value| value.hosts).to_string()
        })
        .column(figures("outliers").spare(3), |fact| {
            value(fact).map_or(0, |value| value.outliers).to_string()
        })
        .column(figures("cost of value").spare(1), |fact| {
            let cost = value(fact).and_then(|value| value.ratio);
            cost.map_or(NONE.to_owned(), |cost| ratio(cost.median))
        });
    let note = format!(
        "explains: the share of {what} that disappears when only hosts with the same value are compared; p: corrected for all properties, \
         above {FLEET_LEVEL} inconclusive; value: that of most outliers; its cost is relative to hosts with the most common value."
    );
    let table = Block::Table(table.done().most(MOST).notes(vec![note]));
    let is_drawn = found.cause().is_some() && found.first_fact.len() == found.hosts.len();
    let chart = is_drawn.then(|| Block::Figure(by_value(found, first)));
    let title = format!("Host properties (facts) that explain {what}");
    Some(Section::new(title, chart.into_iter().chain([table])))
}

/// The hosts in a lane for each value of the fact that explains most.
fn by_value<'a>(found: &'a FleetFindings, first: &'a FactEffect) -> Figure<'a> {
    let names: Vec<&str> = first
        .values
        .iter()
        .map(|value| value.value.as_str())
        .collect();
    let chart = lanes(found, &names, |i| found.first_fact[i].as_str());
    Figure {
        title: first.fact.clone(),
        caption: CAPTION.to_owned(),
        ..Figure::new(chart)
    }
}
