//! Data that every report of layers takes from the findings: names of columns, rows side by side, times in one unit.

use crate::number::NONE;
use crate::text::{Joined, distinct, grouped, only_if};
use std::collections::BTreeSet;
use vmtax_findings::{Estimate, LayerColumn, LayerFindings, Row, State, Summary};
use vmtax_model::{
    Accelerator, Checkpoint, Layer, Machine, Plan, Variant, WorkloadName, WorkloadSpec,
};
use vmtax_recording::Recording;

/// A column in full: "Linux guest on tcg, aio=native"; of a running VM "vda, reads".
pub fn title(column: &LayerColumn) -> String {
    if column.from_host {
        return column.variant.clone();
    }
    let variant = only_if(!column.variant.is_empty(), format!(", {}", column.variant));
    let who = guest(column.machine);
    if column.is_accelerator_unknown {
        return format!("{who}{variant}");
    }
    let on = column
        .machine
        .accelerator()
        .map_or("the host", Accelerator::as_str);
    format!("{who} on {on}{variant}")
}

/// Returns the name of the time that no row accounts for.
pub fn unexplained(column: &LayerColumn) -> &'static str {
    match column.fio_requests {
        // The total is fio's own figure: the rest is between its clock and its system calls.
        Some(_) => "fio and system call",
        None => "unexplained",
    }
}

/// Returns the kind of guest that a machine is: "Linux guest", "micro-guest".
pub fn guest(machine: Machine) -> &'static str {
    if machine.has_kernel() {
        "Linux guest"
    } else {
        "micro-guest"
    }
}

/// The columns, Linux guests first and the micro-guest, their lower bound, behind them.
pub fn columns(findings: &LayerFindings) -> Vec<&LayerColumn> {
    let (guests, floor): (Vec<_>, Vec<_>) = findings
        .columns
        .iter()
        .partition(|column| column.machine.has_kernel());
    [guests, floor].concat()
}

/// A request without tracing, where that was measured; otherwise as traced.
pub fn undisturbed(column: &LayerColumn) -> &Summary {
    column.control.as_ref().unwrap_or(&column.traced)
}

/// The bare host, the micro-guest, the guests: each machine's first variant, with its median, ns.
pub fn medians(findings: &LayerFindings) -> Vec<(String, f64)> {
    let host = findings
        .host
        .iter()
        .map(|host| ("native".to_owned(), host.p50_ns));
    let by_machine = grouped(
        findings
            .columns
            .iter()
            .map(|column| (column.machine, column)),
    );
    let (guests, floor): (Vec<&LayerColumn>, Vec<_>) = by_machine
        .into_iter()
        .map(|(_, columns)| columns[0])
        .partition(|first| first.machine.has_kernel());
    let of_kind = |kind: Vec<&LayerColumn>| {
        let several = kind.len() > 1;
        let named = kind.into_iter().map(move |first| {
            let on = first.machine.accelerator().filter(|_| several);
            let on = on.map_or(String::new(), |accelerator| format!(" on {accelerator}"));
            (
                format!("{}{on}", guest(first.machine)),
                undisturbed(first).p50_ns,
            )
        });
        named.collect::<Vec<_>>()
    };
    host.chain(of_kind(floor)).chain(of_kind(guests)).collect()
}

/// Key by which rows of two columns are the same row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    from: Checkpoint,
    layer: Layer,
    state: State,
    label: String,
}

impl Key {
    fn new(row: &Row) -> Key {
        let (from, layer, state) = (row.from, row.layer, row.state);
        let label = row.label.clone();
        Key {
            from,
            layer,
            state,
            label,
        }
    }

    /// This row in a column.
    pub fn find<'a>(&self, column: &'a LayerColumn) -> Option<&'a Row> {
        column.rows.iter().find(|r| Key::new(r) == *self)
    }

    /// Returns the row in one text, see [`name`].
    pub fn name(&self) -> String {
        name(self.layer, &self.label, self.state)
    }
}

/// A row in one text: "QEMU: wake-up to virtqueue_pop (lock)".
pub fn name(layer: Layer, label: &str, state: State) -> String {
    let of_layer = only_if(label != layer.label(), format!("{}: ", layer.label()));
    let state = self::state(state);
    let state = only_if(!state.is_empty(), format!(" ({state})"));
    format!("{of_layer}{label}{state}")
}

/// The rows of a column that a request has.
pub fn taken(column: &LayerColumn) -> impl Iterator<Item = &Row> + Clone {
    column.rows.iter().filter(|row| row.count > 0)
}

/// The rows of all columns in the order of the path, without those that no request has.
pub fn rows_of(columns: &[&LayerColumn]) -> Vec<Key> {
    let rows = columns.iter().flat_map(|column| taken(column));
    let mut all = distinct(rows.map(Key::new));
    all.sort_by_key(|key| key.from);
    all
}

/// Waits below this share of the whole, percent, would show as 0.0.
const NEGLIGIBLE: f64 = 0.05;

/// Returns true if a row is a wait that is next to nothing.
pub fn is_negligible(row: &Row) -> bool {
    row.state != State::Running && row.percent.abs() < NEGLIGIBLE
}

/// The layers that any request of these columns was in, with each column's mean, ns.
pub fn layers_of(columns: &[&LayerColumn]) -> Vec<(Layer, Vec<f64>)> {
    let rows = columns.iter().flat_map(|column| taken(column));
    let layers: BTreeSet<Layer> = rows.map(|row| row.layer).collect();
    let mean = |column: &LayerColumn, layer| {
        let rows = column.rows.iter().filter(|row| row.layer == layer);
        rows.map(|row| row.time.mean_ns).sum()
    };
    let means = |layer| columns.iter().map(|column| mean(column, layer)).collect();
    layers
        .into_iter()
        .map(|layer| (layer, means(layer)))
        .collect()
}

/// The percent of the whole that a column's requests spend in such rows.
fn percent(column: &LayerColumn, is_such: impl Fn(&&Row) -> bool) -> f64 {
    column.rows.iter().filter(is_such).map(|r| r.percent).sum()
}

/// The percent of the whole that a column's requests are in a layer.
pub fn percent_of(column: &LayerColumn, layer: Layer) -> f64 {
    percent(column, |r| r.layer == layer)
}

/// The percent of the whole that a column's requests are in a state within a layer.
pub fn percent_in(column: &LayerColumn, layer: Layer, state: State) -> f64 {
    percent(column, |r| r.layer == layer && r.state == state)
}

/// The state other than service time that more than half of a layer's time is, if any.
pub fn mostly(column: &LayerColumn, layer: Layer) -> Option<State> {
    let half = percent_of(column, layer) / 2.0;
    let states = column.rows.iter().filter(|r| r.layer == layer);
    states
        .map(|r| r.state)
        .find(|state| *state != State::Running && percent_in(column, layer, *state) > half)
}

/// The states that any request of a column was in, with their mean, ns, and percent of the whole; the longest first.
pub fn states_of(column: &LayerColumn) -> Vec<(State, f64, f64)> {
    let states: BTreeSet<State> = taken(column).map(|row| row.state).collect();
    let rows = |state| column.rows.iter().filter(move |row| row.state == state);
    let sum = |state| {
        let mean = rows(state).map(|row| row.time.mean_ns).sum();
        (state, mean, rows(state).map(|row| row.percent).sum())
    };
    let mut sums: Vec<(State, f64, f64)> = states.into_iter().map(sum).collect();
    sums.sort_by(|a, b| b.1.total_cmp(&a.1));
    sums
}

/// Returns the part of all the traced time that the slowest 1 % of the requests take, in percent; about 1 if none
/// stands out.
pub fn slowest_percent(column: &LayerColumn) -> f64 {
    let mean: f64 = column.tail.iter().map(|row| row.slowest_ns).sum();
    mean / column.traced.mean_ns
}

/// A state for tables of segments, where an empty one is service time.
pub fn state(state: State) -> &'static str {
    only_if(state != State::Running, state.label())
}

/// Returns the workload with its options: "disk block-size=4K".
pub fn workload(recording: &Recording) -> String {
    let words = recording.plan.workloads.iter().map(|w| {
        if let Some(job) = fio_job(w) {
            return job;
        }
        let pattern = access_pattern(w);
        let options = w.options.iter().filter(|(key, value)| {
            // Without a limit of time, which time=0 means, the count says how long it runs.
            (key.as_str(), value.as_str()) != ("time", "0")
                && !(pattern.is_some() && ["mode", "operation"].contains(&key.as_str()))
        });
        let options = options.map(|(key, value)| format!(" {key}={value}"));
        let pattern = pattern.map_or(String::new(), |rw| format!(" rw={rw}"));
        format!("{}{pattern}{}", w.name, options.collect::<String>())
    });
    words.joined(", ")
}

/// "4 KiB disk read": the operation of a plan whose only workload is `disk`; else `None`.
pub fn operation(plan: &Plan) -> Option<String> {
    let [workload] = plan.workloads.as_slice() else {
        return None;
    };
    let operation = workload
        .options
        .get("operation")
        .map_or("read", String::as_str);
    let is_varied = |variant: &Variant| {
        let mut keys = variant.set.keys();
        keys.any(|key| key.starts_with("disk."))
    };
    let is_disk = workload.name == WorkloadName::Disk && !plan.variants.iter().any(is_varied);
    let of_kib = workload.block_size().filter(|bytes| bytes % 1024 == 0);
    let size = of_kib.map_or(String::new(), |bytes| format!("{}\u{a0}KiB ", bytes / 1024));
    is_disk.then(|| format!("{size}disk {operation}"))
}

/// The jobs of the workload `fio`, as its command line; `None` of any other workload.
fn fio_job(workload: &WorkloadSpec) -> Option<String> {
    let job = workload.options.get("job");
    job.filter(|_| workload.name == WorkloadName::Fio)
        .map(|job| format!("fio {job}"))
}

/// fio's word for the `mode` and `operation` of the workload `disk`, where one of them is set; `None` of any other workload.
fn access_pattern(workload: &WorkloadSpec) -> Option<&'static str> {
    if workload.name != WorkloadName::Disk {
        return None;
    }
    let disk_option = |key: &str| workload.options.get(key).map(String::as_str);
    match (disk_option("mode"), disk_option("operation")) {
        (None, None) => None,
        (Some("random"), Some("write")) => Some("randwrite"),
        (Some("random"), _) => Some("randread"),
        (_, Some("write")) => Some("write"),
        _ => Some("read"),
    }
}

/// Returns the number of rounds behind the figures.
pub fn rounds(findings: &LayerFindings) -> String {
    let done = findings.columns.iter().map(|column| column.rounds).min();
    super::rounds(done.unwrap_or(0), findings.rounds_planned)
}

/// Times of one table in one unit, so that they can be compared and added up by eye.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    /// Unit of the times: "µs".
    pub unit: &'static str,
    ns: f64,
    decimals: usize,
}

impl Scale {
    /// The unit and decimals in which `total_ns` has four digits or more, and a row of a thousandth of it still one.
    pub fn for_total(total_ns: f64) -> Scale {
        let (unit, ns) = match total_ns.abs() {
            t if t < 2e3 => ("ns", 1.0),
            t if t < 2e7 => ("µs", 1e3),
            t if t < 2e10 => ("ms", 1e6),
            _ => ("s", 1e9),
        };
        let decimals = match total_ns.abs() / ns {
            t if t < 2.0 => 3,
            t if t < 20.0 => 2,
            _ => 1,
        };
        Scale { unit, ns, decimals }
    }

    /// For all columns of a table.
    pub fn for_columns(columns: &[&LayerColumn]) -> Scale {
        let means = columns.iter().map(|column| column.traced.mean_ns);
        Scale::for_total(means.filter(|mean| mean.is_finite()).fold(0.0, f64::max))
    }

    /// The number alone. Zero and what rounds to it differ.
    pub fn number(&self, ns: f64) -> String {
        let least = 0.5 * 10f64.powi(-(i32::try_from(self.decimals).unwrap_or(0)));
        let v = ns / self.ns;
        if !v.is_finite() {
            NONE.to_owned()
        } else if v == 0.0 {
            "0".to_owned()
        } else if v.abs() < least {
            "~0".to_owned()
        } else if v < 0.0 {
            format!("−{:.*}", self.decimals, -v)
        } else {
            format!("{v:.*}", self.decimals)
        }
    }

    /// With its unit.
    pub fn text(&self, ns: f64) -> String {
        format!("{} {}", self.number(ns), self.unit)
    }

    /// A round value on an axis: no more digits than it has.
    pub fn tick(&self, ns: f64) -> String {
        let text = format!("{:.3}", ns / self.ns);
        let text = text.trim_end_matches('0').trim_end_matches('.');
        format!("{text} {}", self.unit)
    }

    /// The ends of an estimate's interval: "22.1–25.0".
    pub fn range(&self, estimate: &Estimate) -> String {
        estimate.interval.map_or(NONE.to_owned(), |i| {
            format!("{}–{}", self.number(i.low), self.number(i.high))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_a_table_share_a_unit_and_nothing_is_hidden_as_zero() {
        let scale = Scale::for_total(243_600.0);
        let texts = [46_800.0, 4.0, 0.0, -120.0, f64::NAN].map(|ns| scale.text(ns));
        assert_eq!(texts, ["46.8 µs", "~0 µs", "0 µs", "−0.1 µs", "– µs"]);
        assert_eq!(
            [900.0, 9_000.0, 56_000.0, 3.1e6].map(|t| Scale::for_total(t).text(t)),
            ["900.0 ns", "9.00 µs", "56.0 µs", "3100.0 µs"]
        );
    }
}
