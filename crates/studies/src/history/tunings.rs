//! Changes on the host since the last tuning of the same workload or VM.

use super::entry::{Entry, Fact, Figure, KEPT, VM};
use super::ledger::{Ledger, LedgerError, failed};
use rusqlite::{OptionalExtension, params};
use std::collections::BTreeMap;
use vmtax_model::GuestTuneSpec;

/// The facts for which the result of a tuning holds.
const HOLDS_FOR: [&str; 3] = ["QEMU", "guest kernel", "host kernel"];

/// A tuning that is in the ledger.
struct Last {
    run: i64,
    folder: String,
    started: String,
    kept: String,
}

impl Ledger {
    /// Where the last tuning of the same workload, with the same settings to begin with, or of the same running VM, had another QEMU or
    /// kernel than `entry`: what it kept, what is otherwise now, and what is kept now. `None` where there is none, or nothing is otherwise.
    pub(super) fn since_last_tuning(&self, entry: &Entry) -> Result<Option<String>, LedgerError> {
        let Some(kept) = entry.facts.iter().find(|fact| fact.name == KEPT) else {
            return Ok(None);
        };
        let baseline = |variant: &str| variant == GuestTuneSpec::BASELINE;
        let (last, machine, of) = match entry.facts.iter().find(|fact| fact.name == VM) {
            Some(vm) => (
                self.last_of_vm(entry, &vm.value)?,
                "",
                format!("VM {}", vm.value),
            ),
            None => {
                let Some(figure) = entry
                    .figures
                    .iter()
                    .find(|figure| baseline(&figure.variant))
                else {
                    return Ok(None);
                };
                (
                    self.last_of_workload(entry, figure)?,
                    figure.machine.as_str(),
                    "this workload".to_owned(),
                )
            }
        };
        let Some(last) = last else { return Ok(None) };
        let facts = "SELECT name, value FROM fact WHERE run = ?1 AND ((machine = ?2 AND variant = ?3) OR machine = '')";
        let facts = self.select(
            facts,
            params![last.run, machine, GuestTuneSpec::BASELINE],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        let then: BTreeMap<String, String> = facts.into_iter().collect();
        let is_own = |fact: &&Fact| {
            fact.machine.is_empty() || (fact.machine == machine && baseline(&fact.variant))
        };
        let now: BTreeMap<&str, &str> = entry
            .facts
            .iter()
            .filter(is_own)
            .map(|fact| (fact.name.as_str(), fact.value.as_str()))
            .collect();
        let changes = HOLDS_FOR.iter().filter_map(|name| {
            let (then, now) = (then.get(*name)?, now.get(name)?);
            (then != now).then(|| format!("{name} {then} → {now}"))
        });
        let changes: Vec<String> = changes.collect();
        let Last {
            folder,
            started,
            kept: before,
            ..
        } = last;
        let day = started.get(..10).unwrap_or(&started);
        Ok((!changes.is_empty()).then(|| {
            format!(
                "the last tuning of {of} ({folder}, {day}) kept {before}; since then {}; now kept: {}",
                changes.join(", "),
                kept.value
            )
        }))
    }

    /// The last tuning before `entry` of the workload that this figure is of.
    fn last_of_workload(
        &self,
        entry: &Entry,
        figure: &Figure,
    ) -> Result<Option<Last>, LedgerError> {
        let last = "SELECT run.id, folder, started, fact.value FROM run
                    JOIN figure ON figure.run = run.id JOIN fact ON fact.run = run.id
                    WHERE figure.metric = ?1 AND figure.machine = ?2 AND figure.variant = ?3 AND figure.settings = ?4
                      AND fact.name = ?5 AND fact.machine = ?2
                      AND cpu = ?6 AND cpus = ?7 AND folder <> ?8 AND started <= ?9
                    ORDER BY started DESC LIMIT 1";
        self.last(
            last,
            params![
                figure.metric,
                figure.machine,
                figure.variant,
                figure.settings,
                KEPT,
                entry.cpu,
                entry.cpus,
                entry.folder,
                entry.started
            ],
        )
    }

    /// The last tuning before `entry` of this running VM.
    fn last_of_vm(&self, entry: &Entry, vm: &str) -> Result<Option<Last>, LedgerError> {
        let last = "SELECT run.id, folder, started, kept.value FROM run
                    JOIN fact ON fact.run = run.id JOIN fact AS kept ON kept.run = run.id
                    WHERE fact.name = ?1 AND fact.value = ?2 AND kept.name = ?3 AND folder <> ?4 AND started <= ?5
                    ORDER BY started DESC LIMIT 1";
        self.last(last, params![VM, vm, KEPT, entry.folder, entry.started])
    }

    fn last(&self, sql: &str, of: impl rusqlite::Params) -> Result<Option<Last>, LedgerError> {
        let last = self.connection.query_row(sql, of, |row| {
            Ok(Last {
                run: row.get(0)?,
                folder: row.get(1)?,
                started: row.get(2)?,
                kept: row.get(3)?,
            })
        });
        last.optional().map_err(failed(&self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::entry::{facts_of_tuned, kept};
    use vmtax_model::testing::{done, result};
    use vmtax_model::{
        Candidate, ChangeCost, Comparison, Estimate, GuestCandidate, GuestTune, GuestTunePart,
        GuestTunePhase, LiveChange, LiveMetric, Machine, Managed, Manager, Measure, Metric, Plan,
        Study, TrialRecord, TuneFindings, TuneRow, TuneVerdict, Variant, Verdict, VmFacts,
        WorkloadName, WorkloadSpec,
    };
    use vmtax_recording::RecordingsFolder;

    /// A tuning of the n-th day.
    fn tuning(day: u32, qemu: &str, kept: &str, settings: &str) -> Entry {
        let fact = |machine: &str, variant: &str, name: &str, value: &str| Fact {
            machine: machine.to_owned(),
            variant: variant.to_owned(),
            name: name.to_owned(),
            value: value.to_owned(),
        };
        let figure = Figure {
            metric: Metric::DiskRate.id().to_owned(),
            machine: "tcg".to_owned(),
            variant: GuestTuneSpec::BASELINE.to_owned(),
            step: String::new(),
            settings: settings.to_owned(),
            n: 8,
            value: Estimate {
                median: 1e4,
                interval: None,
            },
        };
        Entry {
            folder: format!("tuning-{day}"),
            started: format!("2026-11-{day:02}T12:00:00Z"),
            name: "tune".to_owned(),
            command: "vmtax tune".to_owned(),
            cpu: "test".to_owned(),
            cpus: 2,
            facts: vec![
                fact("", "", "host kernel", "6.1"),
                fact("tcg", GuestTuneSpec::BASELINE, "QEMU", qemu),
                // A candidate's own is not what the result holds for.
                fact("tcg", "qemu=9.0", "QEMU", "9.0"),
                fact("tcg", "", KEPT, kept),
            ],
            figures: vec![figure],
        }
    }

    #[test]
    fn another_qemu_since_the_last_tuning_of_the_same_is_said() {
        let runs = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(&RecordingsFolder::open(runs.path()).unwrap()).unwrap();
        let mut ledger = ledger;
        let said = |ledger: &Ledger, entry: &Entry| ledger.since_last_tuning(entry).unwrap();
        let first = tuning(1, "7.2 /a", "cache=none, 49 % less time", "{}");
        assert_eq!(said(&ledger, &first), None, "no tuning before");
        ledger.put(&first).unwrap();
        assert_eq!(said(&ledger, &first), None, "itself");
        assert_eq!(
            said(&ledger, &tuning(2, "7.2 /a", "nothing", "{}")),
            None,
            "the same QEMU"
        );
        assert_eq!(
            said(
                &ledger,
                &tuning(2, "10.0 /b", "nothing", "{\"depth\":\"8\"}")
            ),
            None,
            "another workload"
        );
        let second = tuning(2, "10.0 /b", "nothing", "{}");
        let expected = "the last tuning of this workload (tuning-1, 2026-11-01) kept cache=none, 49 % less time; since then \
                        QEMU 7.2 /a → 10.0 /b; now kept: nothing";
        assert_eq!(said(&ledger, &second).as_deref(), Some(expected));
        ledger.put(&second).unwrap();
        // The last one counts, not the first.
        assert_eq!(said(&ledger, &tuning(3, "10.0 /b", "nothing", "{}")), None);
        let mut upgraded = tuning(3, "10.0 /b", "nothing", "{}");
        upgraded.facts[0].value = "6.12".to_owned();
        assert!(
            said(&ledger, &upgraded).is_some_and(|line| line.contains("host kernel 6.1 → 6.12"))
        );
        let mut comparison = tuning(4, "11.0 /c", "nothing", "{}");
        comparison.facts.retain(|fact| fact.name != KEPT);
        assert_eq!(said(&ledger, &comparison), None, "it tunes nothing");
    }

    /// A tuning of a running VM on the n-th day.
    fn tuning_of_vm(
        day: u32,
        name: Option<&str>,
        managed: Option<&str>,
        version: &str,
    ) -> Option<Entry> {
        let managed = managed.map(|id| Managed {
            manager: Manager::Libvirt,
            id: id.to_owned(),
        });
        let vm = VmFacts {
            name: name.map(str::to_owned),
            managed,
            version: Some(version.to_owned()),
            ..VmFacts::unknown(7)
        };
        let change = LiveChange {
            action: "Remove the I/O limits of disk0".to_owned(),
            cost: ChangeCost::Live,
            metric: Some(LiveMetric::Latency),
            disk: None,
            settings: Vec::new(),
        };
        let candidate = Candidate {
            rule: String::new(),
            finding: String::new(),
            ceiling: 0.5,
            change,
        };
        let ratio = Estimate {
            median: 0.02,
            interval: None,
        };
        let comparison = Comparison {
            ratio,
            difference: None,
            rounds: 8,
            p: None,
            verdict: Verdict::Faster,
        };
        let row = TuneRow {
            candidate,
            verdict: TuneVerdict::Keep,
            why: None,
            screening: None,
            confirmation: Some(comparison),
        };
        let found = TuneFindings {
            vm,
            applied: true,
            metric: String::new(),
            total: Some(comparison),
            moved: Vec::new(),
            candidates: vec![row],
            is_on: true,
            not_tried: Vec::new(),
            ended: None,
            seconds: 60.0,
        };
        let mut entry = Entry {
            figures: Vec::new(),
            ..tuning(day, "", "", "")
        };
        entry.facts.truncate(1);
        entry.facts.extend(facts_of_tuned(&found)?);
        Some(entry)
    }

    #[test]
    fn another_qemu_since_the_last_tuning_of_the_same_vm_is_said() {
        let runs = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::open(&RecordingsFolder::open(runs.path()).unwrap()).unwrap();
        let said = |ledger: &Ledger, entry: &Entry| ledger.since_last_tuning(entry).unwrap();
        assert_eq!(
            tuning_of_vm(1, None, None, "7.2"),
            None,
            "a PID does not last"
        );
        ledger
            .put(&tuning_of_vm(1, Some("web01"), Some("18-6"), "7.2").unwrap())
            .unwrap();
        let same = tuning_of_vm(2, Some("renamed"), Some("18-6"), "7.2").unwrap();
        assert_eq!(said(&ledger, &same), None, "the same QEMU");
        let other = tuning_of_vm(2, Some("web01"), Some("19-7"), "10.0").unwrap();
        assert_eq!(said(&ledger, &other), None, "another VM of that name");
        let upgraded = tuning_of_vm(2, Some("renamed"), Some("18-6"), "10.0").unwrap();
        let expected = "the last tuning of VM libvirt 18-6 (tuning-1, 2026-11-01) kept \"Remove the I/O limits of disk0\", faster by 98 %; \
                        since then QEMU 7.2 → 10.0; now kept: \"Remove the I/O limits of disk0\", faster by 98 %";
        assert_eq!(
            said(&ledger, &upgraded).unwrap().replace('\u{a0}', " "),
            expected
        );
        // A workload's tuning is none of a VM.
        assert_eq!(said(&ledger, &tuning(3, "11.0", "nothing", "{}")), None);
    }

    #[test]
    fn what_a_tuning_kept_is_a_fact_of_it() {
        let candidate = GuestCandidate {
            name: "cache=none".to_owned(),
            set: BTreeMap::from([("cache".to_owned(), "none".to_owned())]),
            trap: String::new(),
            source: String::new(),
            cost: None,
        };
        let part = |phase, first_round, configurations| GuestTunePart {
            phase,
            configurations,
            first_round,
            rounds: 8,
        };
        let spec = GuestTuneSpec {
            metric: Metric::DiskRate,
            budget_s: 900,
            candidates: vec![candidate],
            not_tried: Vec::new(),
            like: None,
            job_notes: Vec::new(),
            parts: vec![
                part(GuestTunePhase::Screening, 0, vec![Vec::new(), vec![0]]),
                part(GuestTunePhase::Confirmation, 8, vec![vec![0], Vec::new()]),
            ],
        };
        let variants = vec![Variant {
            name: GuestTuneSpec::BASELINE.to_owned(),
            ..Variant::default()
        }];
        let study = Study::TuneGuest(GuestTune {
            spec: Box::new(spec),
            command: None,
        });
        let workloads = vec![WorkloadSpec::new(WorkloadName::Disk)];
        let plan = Plan {
            variants,
            study,
            ..Plan::new("tune", 1, vec![Machine::TCG], workloads)
        };
        let trials = |rate_of_candidate: f64| -> Vec<TrialRecord> {
            let boots = (0..16).flat_map(|round| {
                [
                    (round, "baseline", 1e4),
                    (round, "cache=none", rate_of_candidate),
                ]
            });
            boots
                .map(|(round, variant, rate)| {
                    let mut result = result(WorkloadSpec::new(WorkloadName::Disk));
                    result.measures.push(Measure {
                        metric: Metric::DiskRate,
                        value: rate,
                    });
                    TrialRecord {
                        round,
                        variant: variant.to_owned(),
                        ..done(Machine::TCG, result)
                    }
                })
                .collect()
        };
        let value = |rate| kept(&plan, &trials(rate)).unwrap().value;
        assert_eq!(
            value(2e4).replace('\u{a0}', " "),
            "cache=none, 50 % less time"
        );
        assert_eq!(value(9e3), "nothing");
        let compared = Plan::new("compare", 1, vec![Machine::TCG], Vec::new());
        assert_eq!(kept(&compared, &[]), None);
    }
}
