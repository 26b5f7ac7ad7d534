//! A command's time, part by part, from planted trials.

use vmtax_analysis::exec;
use vmtax_findings::*;
use vmtax_model::testing::{self, host};
use vmtax_model::*;

fn plan(rounds: u32) -> Plan {
    let machines = vec![Machine::NATIVE, Machine::TCG];
    let mut plan = Plan::new(
        "exec-x",
        rounds,
        machines,
        vec![WorkloadSpec::new(WorkloadName::Exec)],
    );
    plan.study = Study::Exec(Box::new(CommandSpec::new(vec!["x".into()], "/".into())));
    plan
}

/// Wall, user and kernel seconds, and how it ended.
fn trial(machine: Machine, round: u32, seconds: [f64; 3], status: i32) -> TrialRecord {
    let metrics = [Metric::ExecWall, Metric::ExecUser, Metric::ExecSystem];
    let measures = metrics
        .into_iter()
        .zip(seconds)
        .map(|(metric, value)| Measure { metric, value })
        .collect();
    let guest = machine.is_guest();
    let execution = Execution {
        status,
        left: 0,
        window_s: guest.then_some(seconds[0] + 0.01),
        busy_s: guest.then_some(seconds[1] + seconds[2] + 0.2),
        waited_s: None,
        stolen_s: guest.then_some(0.0),
        printed: vec![],
    };
    let timer = Timer {
        source: TimerSource::ClockGettime,
        mhz: 1000.0,
        error: 0.0,
        pair_ns: 0.0,
        reason: None,
    };
    let exec = testing::result(WorkloadSpec::new(WorkloadName::Exec));
    let result = TrialResult {
        measures,
        total_s: seconds[0],
        timer,
        ..exec
    };
    TrialRecord {
        number: round,
        round,
        wall_s: seconds[0] + 0.5,
        cpu_seconds: guest.then_some(CpuSeconds {
            guest: 3.0,
            qemu: 0.4,
            ready: 1.0,
            server: Some(0.3),
        }),
        execution: Some(execution),
        ..testing::done(machine, result)
    }
}

#[test]
fn the_parts_add_up_and_what_was_stolen_is_taken_off_the_others() {
    let trials: Vec<TrialRecord> = (0..6)
        .flat_map(|round| {
            let more = 0.1 * f64::from(round);
            let native = trial(Machine::NATIVE, round, [1.0 + more, 0.6, 0.3], 0);
            [
                native,
                trial(Machine::TCG, round, [6.0 + more, 2.0, 1.0], 0),
            ]
        })
        .collect();
    let found = exec(&plan(6), &host(KvmClass::Absent), &trials);
    let breakdown = &found.breakdowns[0];
    let sum: f64 = breakdown.rows.iter().map(|row| row.machine_s).sum();
    assert!(
        (sum + breakdown.unexplained_s - breakdown.machine_s).abs() < 1e-9,
        "{breakdown:?}"
    );
    assert!(
        (breakdown.machine_s - 6.25).abs() < 1e-9
            && (breakdown.native_s.unwrap() - 1.25).abs() < 1e-9
    );
    // The window was 10 ms longer than the command.
    assert!(
        (breakdown.unexplained_s + 0.01).abs() < 1e-9,
        "{breakdown:?}"
    );
    let row_of = |part| breakdown.rows.iter().find(|row| row.part == part).unwrap();
    let close = |part, expected: f64| {
        assert!(
            (row_of(part).machine_s - expected).abs() < 1e-9,
            "{:?}",
            row_of(part)
        )
    };
    // Of four seconds that the CPU was wanted, three ran.
    close(Part::User, 1.5);
    close(Part::Kernel, 0.75);
    close(Part::OtherGuest, 0.15);
    close(Part::Beyond, 3.0 - 2.4);
    close(Part::Steal, 1.0);
    close(Part::QemuThreads, 0.4);
    close(Part::ShareServer, 0.3);
    assert!((row_of(Part::Waiting).native_s.unwrap() - 0.35).abs() < 1e-9);
    assert_eq!((found.status(), found.differs()), (Some(0), false));
    // The wall time's overhead is paired as any metric's, and no timer is complained of.
    let wall = found
        .overheads
        .rows
        .iter()
        .find(|row| row.metric == Metric::ExecWall)
        .unwrap();
    assert_eq!(
        wall.machines[1].overhead.as_ref().unwrap().verdict,
        Verdict::Slower
    );
    assert!(
        !found
            .overheads
            .warnings
            .iter()
            .any(|w| matches!(w, Warning::NoTsc { .. }))
    );
}

#[test]
fn what_a_command_prints_is_paired_as_metrics_are() {
    let named = |name: &str, better, value| Printed {
        of: "t".into(),
        name: name.into(),
        unit: Unit::PerSecond,
        better,
        value,
    };
    let all = |machine: Machine, round: u32| {
        let (rate, other) = if machine.is_guest() {
            (50.0, 3.0)
        } else {
            (100.0, 1.0)
        };
        // Each round of the host is another.
        let drift = 1.0 + f64::from(round);
        let mut trial = trial(machine, round, [1.0, 0.5, 0.1], 0);
        trial.execution.as_mut().unwrap().printed = vec![
            named("rate", Some(Better::Higher), rate * drift),
            named("other", None, other * drift),
        ];
        trial
    };
    let trials: Vec<TrialRecord> = (0..6)
        .flat_map(|round| [Machine::NATIVE, Machine::TCG].map(|machine| all(machine, round)))
        .collect();
    let found = exec(&plan(6), &host(KvmClass::Absent), &trials);
    let overhead = |row: &PrintedRow| row.machines[1].overhead.unwrap();
    let [rate, other] = found.printed.as_slice() else {
        panic!("{:?}", found.printed)
    };
    assert_eq!(
        (
            overhead(rate).ratio.median,
            overhead(rate).verdict,
            overhead(rate).rounds
        ),
        (2.0, Verdict::Slower, 6)
    );
    assert_eq!(
        (overhead(other).ratio.median, overhead(other).verdict),
        (3.0, Verdict::Differs)
    );
    assert_eq!(rate.machines[0].spread.as_ref().unwrap().values.len(), 6);
    // What one round alone printed has no pair.
    let mut fewer = trials.clone();
    for trial in fewer.iter_mut().filter(|t| t.machine.is_guest()) {
        trial.execution.as_mut().unwrap().printed.truncate(1);
    }
    assert_eq!(
        exec(&plan(6), &host(KvmClass::Absent), &fewer).printed[1].machines[1].overhead,
        None
    );
}

#[test]
fn a_guest_without_accounts_has_no_breakdown_and_ends_are_told_apart() {
    let mut failed = trial(Machine::TCG, 0, [1.0, 0.5, 0.1], 137);
    failed.cpu_seconds = None;
    let found = exec(
        &plan(1),
        &host(KvmClass::Absent),
        &[trial(Machine::NATIVE, 0, [1.0, 0.5, 0.1], 0), failed],
    );
    assert!(found.breakdowns.is_empty());
    assert_eq!((found.status(), found.differs()), (Some(137), true));
}

#[test]
fn a_native_wait_for_a_cpu_is_a_part_of_its_own_and_no_more_than_the_time_off_the_cpu() {
    let trials = |waited_s: [Option<f64>; 2]| -> Vec<TrialRecord> {
        let native = |round: u32| {
            let mut native = trial(Machine::NATIVE, round, [1.0, 0.6, 0.2], 0);
            native.execution.as_mut().unwrap().waited_s = waited_s[round as usize];
            [native, trial(Machine::TCG, round, [6.0, 2.0, 1.0], 0)]
        };
        (0..2).flat_map(native).collect()
    };
    let natively = |waited_s, part| {
        let found = exec(&plan(2), &host(KvmClass::Absent), &trials(waited_s));
        let row = found.breakdowns[0].rows.iter().find(|row| row.part == part);
        row.unwrap().native_s
    };
    let close = |found: Option<f64>, expected: f64| {
        assert!((found.unwrap() - expected).abs() < 1e-9, "{found:?}");
    };
    // Of 0.2 s off the CPU; two threads may wait at once.
    let waited = [Some(0.1), Some(0.7)];
    close(natively(waited, Part::Steal), 0.15);
    close(natively(waited, Part::Waiting), 0.05);
    // Older recordings do not have it.
    assert_eq!(natively([Some(0.1), None], Part::Steal), None);
    close(natively([None, None], Part::Waiting), 0.2);
}

#[test]
fn a_run_that_is_far_from_the_others_is_an_outlier() {
    let found = |walls: &[f64]| {
        let trials: Vec<TrialRecord> = (0..)
            .zip(walls)
            .map(|(round, wall)| trial(Machine::NATIVE, round, [*wall, 0.1, 0.1], 0))
            .collect();
        let found = exec(&plan(walls.len() as u32), &host(KvmClass::Absent), &trials);
        let rounds = found.outliers.iter().map(|run| (run.round, run.median_s));
        rounds.collect::<Vec<_>>()
    };
    assert_eq!(found(&[9.0, 1.0, 1.01, 0.99, 1.0, 1.02]), [(0, 1.005)]);
    // As far as usual; near, however steady the others are; too few to tell.
    assert_eq!(found(&[1.0, 1.3, 0.8, 1.1, 1.9, 0.7]), []);
    assert_eq!(found(&[1.0, 1.0, 1.0, 1.0, 1.04]), []);
    assert_eq!(found(&[1.0, 1.0, 1.0, 9.0]), []);
}
