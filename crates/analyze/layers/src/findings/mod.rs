//! Findings over all trials of a plan, or of single traced runs, of a command or of a running VM, whose common code is here.

pub(crate) mod column_sums;
pub(crate) mod command;
pub(crate) mod distribution;
pub(crate) mod plan;
pub(crate) mod vm;

use self::column_sums::ColumnSums;
use self::distribution::RoundMedians;
use crate::trial::TrialData;
use crate::trial::joined_trial::JoinedTrial;
use vmtax_findings::{Advice, LayerColumn, LayerFindings, REPORT_SCHEMA};
use vmtax_model::{HostFacts, Machine, Plan};
use vmtax_rules::Evidence;

/// Columns of one traced run each, without advice and warnings.
fn of_columns(columns: Vec<LayerColumn>, method: &str) -> LayerFindings {
    LayerFindings {
        schema: REPORT_SCHEMA,
        rounds_planned: 1,
        host: None,
        advice: Vec::new(),
        columns,
        differences: Vec::new(),
        method: method.to_owned(),
        warnings: Vec::new(),
    }
}

/// Advice about the column with the largest total time. Its gain is at most the part of the run in which such requests, or
/// packets (`what`), were in flight: `in_flight` of a machine, 0 to 1; larger values count as 1, NaN as 0.
fn advice(
    plan: &Plan,
    host: &HostFacts,
    columns: &[LayerColumn],
    what: &str,
    in_flight: impl Fn(Machine) -> Option<f64>,
) -> Vec<Advice> {
    let Some(main) = columns
        .iter()
        .max_by(|a, b| total_ns(a).total_cmp(&total_ns(b)))
    else {
        return Vec::new();
    };
    let columns = std::slice::from_ref(main);
    let mut advice = vmtax_rules::advice(&Evidence {
        plan: Some(plan),
        host: Some(host),
        columns,
        ..Evidence::default()
    });
    let part = in_flight(main.machine)
        .filter(|part| !part.is_nan())
        .map_or(0.0, |part| part.min(1.0));
    for advice in &mut advice {
        advice.gain *= part;
        let of_run = format!(
            " {what} are in flight for {:.1} % of the run: faster ones save at most that.",
            part * 100.0
        );
        advice.finding.push_str(&of_run);
    }
    advice
}

/// Returns the total time of all requests of a column, in ns.
fn total_ns(column: &LayerColumn) -> f64 {
    column.traced.mean_ns * column.matched.joined as f64
}

/// For how many ticks at least one of these lasts, each given by its begin and end.
fn in_flight(spans: impl Iterator<Item = (u64, u64)>) -> u64 {
    let mut spans: Vec<(u64, u64)> = spans.collect();
    spans.sort_unstable();
    let (mut sum, mut until) = (0, 0);
    for (from, to) in spans {
        sum += to.saturating_sub(from.max(until));
        until = until.max(to);
    }
    sum
}

/// For how long of a run everything was seen, from the guest's first event until a buffer became full, seconds.
fn observed_s(wall_s: f64, read: &TrialData) -> f64 {
    let full = read
        .losses
        .iter()
        .filter(|loss| loss.to == u64::MAX)
        .map(|loss| loss.from)
        .min();
    let seen = full
        .zip(read.first)
        .map(|(full, first)| full.saturating_sub(first) as f64 / read.mhz / 1e6);
    seen.map_or(wall_s, |seen| seen.min(wall_s))
}

/// The sums of one traced run.
fn of_run(trial: &JoinedTrial) -> ColumnSums {
    let mut sums = ColumnSums::default();
    sums.add(0, trial);
    sums.traced_medians = RoundMedians::of_round(0, sums.total.latency());
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::column_sums::column;
    use vmtax_findings::{Estimate, Row, State, Summary};
    use vmtax_model::{Checkpoint, Layer};

    #[test]
    fn time_with_several_in_flight_counts_once() {
        let time_in_flight = |spans: &[(u64, u64)]| in_flight(spans.iter().copied());
        assert_eq!(time_in_flight(&[]), 0);
        assert_eq!(time_in_flight(&[(10, 20), (40, 50)]), 20);
        // In any order: one inside another, one that overlaps, one that follows at once.
        assert_eq!(
            time_in_flight(&[(30, 40), (12, 15), (10, 20), (18, 30)]),
            30
        );
        // A completion before its issue, as clocks may have it, is no time.
        assert_eq!(time_in_flight(&[(20, 10)]), 0);
    }

    /// Advice is about traced requests, and a run is more than its requests.
    #[test]
    fn the_gain_of_advice_is_at_most_what_requests_are_of_the_run() {
        let mut main = column(Machine::TCG, "writes", &ColumnSums::default());
        let time = Summary {
            mean_ns: 80e3,
            ..Summary::default()
        };
        main.traced = Summary {
            mean_ns: 100e3,
            ..Summary::default()
        };
        (main.matched.operations, main.matched.joined) = (1, 1);
        main.rows = vec![Row {
            from: Checkpoint::KvmNotify,
            to: Checkpoint::QemuWake,
            layer: Layer::Notify,
            state: State::Runnable,
            label: String::new(),
            time,
            mean: Estimate {
                median: time.mean_ns,
                interval: None,
            },
            percent: 80.0,
            count: 1,
            below_bound: false,
            events: None,
            corrected_ns: None,
        }];
        let plan = Plan::new("exec", 1, vec![Machine::TCG], Vec::new());
        let host = vmtax_model::testing::host(vmtax_model::KvmClass::Absent);
        let small = column(Machine::KVM, "reads", &ColumnSums::default());
        let columns = [small, main];
        let advice_for = |part: f64| {
            advice(&plan, &host, &columns, "Packets", |machine| {
                (machine == Machine::TCG).then_some(part)
            })
        };
        let (whole, tenth) = (advice_for(1.0), advice_for(0.1));
        assert!(!whole.is_empty() && whole[0].gain > 0.5, "{whole:?}");
        assert!(
            (tenth[0].gain - whole[0].gain / 10.0).abs() < 1e-9,
            "{tenth:?}"
        );
        assert!(
            tenth[0].finding.ends_with(
                "Packets are in flight for 10.0 % of the run: faster ones save at most that."
            ),
            "{tenth:?}"
        );
        assert_eq!(
            (advice_for(7.0)[0].gain, advice_for(f64::NAN)[0].gain),
            (whole[0].gain, 0.0),
            "a run without a length"
        );
        assert!(advice(&plan, &host, &[], "Packets", |_| Some(1.0)).is_empty());
    }
}
