//! Statistics of domains from libvirt itself: `virsh domstats`, for which libvirt asks QEMU as it always does, and
//! taints nothing.

use super::answers::Answers;
use std::collections::BTreeMap;
use vmtax_model::{DiskCounters, RequestCounters, RunState};

/// More disks of a domain are not read.
const MAX_DISKS: usize = 256;

/// A domain's answers, and the files of its disks by the disks' names.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct DomainStats {
    pub answers: Answers,
    pub files: BTreeMap<String, String>,
}

/// The domains by their names.
pub(crate) fn parse(text: &str) -> BTreeMap<String, DomainStats> {
    let mut domains = BTreeMap::new();
    for part in text.split("Domain: '").skip(1) {
        let Some((name, fields)) = part.split_once("'\n") else {
            continue;
        };
        let fields: BTreeMap<&str, &str> = fields
            .lines()
            .filter_map(|line| line.trim_start().split_once('='))
            .collect();
        domains.insert(name.to_owned(), domain(&fields));
    }
    domains
}

fn domain(fields: &BTreeMap<&str, &str>) -> DomainStats {
    let number = |key: &str| fields.get(key)?.parse::<u64>().ok();
    let mut stats = DomainStats::default();
    stats.answers.state =
        number("state.state").map(|state| run_state(state, number("state.reason").unwrap_or(0)));
    stats.answers.balloon = number("balloon.current").and_then(|kib| kib.checked_mul(1024));
    let count = number("block.count")
        .and_then(|count| usize::try_from(count).ok())
        .unwrap_or(0);
    for at in 0..count.min(MAX_DISKS) {
        let text = |what: &str| {
            fields
                .get(format!("block.{at}.{what}").as_str())
                .map(|text| (*text).to_owned())
        };
        let disk_number = |what: &str| number(&format!("block.{at}.{what}"));
        let Some(name) = text("name") else { continue };
        // A drive without a medium has no counters.
        let requests = disk_number("rd.reqs").map(|_| {
            ["rd", "wr", "fl"].map(|kind| RequestCounters {
                count: disk_number(&format!("{kind}.reqs")).unwrap_or(0),
                bytes: disk_number(&format!("{kind}.bytes")).unwrap_or(0),
                total_ns: disk_number(&format!("{kind}.times")).unwrap_or(0),
            })
        });
        stats
            .files
            .extend(text("path").map(|path| (name.clone(), path)));
        stats.answers.disks.push(DiskCounters {
            name,
            qemu: requests,
            ..DiskCounters::default()
        });
    }
    stats
}

/// libvirt's `virDomainState` and `virDomainPausedReason`.
fn run_state(state: u64, reason: u64) -> RunState {
    let why = match (state, reason) {
        (1 | 2, _) => return RunState::Running,
        (3, 2) => "migrating",
        (3, 5) => "io-error",
        (3, 6) => "watchdog",
        // As QEMU has it: a device of the guest reported the panic.
        (3, 10) | (6, 1) => "guest-panicked",
        // As virsh has it: not by the user, nor for a migration, a snapshot or the like. QEMU's "internal-error" is one.
        (3, 0) => "paused (unknown)",
        (3, _) => "paused",
        (4, _) => "shutdown",
        (5, _) => "shut off",
        (6, _) => "crashed",
        (7, _) => "suspended",
        _ => "unknown",
    };
    RunState::Stopped(why.to_owned())
}

/// Returns the number of domains and disks in a text of `virsh domstats`, for fuzzing.
pub fn read_domain_stats(text: &str) -> usize {
    parse(text)
        .values()
        .map(|domain| 1 + domain.answers.disks.len())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TWO: &str = "Domain: 'a b'\n  state.state=1\n  state.reason=1\n  balloon.current=65536\n  block.count=2\n  \
                       block.0.name=vda\n  block.0.path=/var/a=b.raw\n  block.0.rd.reqs=7\n  block.0.rd.bytes=4096\n  \
                       block.0.rd.times=900\n  block.0.fl.reqs=2\n  block.0.fl.times=30\n  block.1.name=sda\n\n\
                       Domain: 'c'\n  state.state=3\n  state.reason=5\n\n";

    #[test]
    fn domains_have_their_disks_with_files_and_counters() {
        let domains = parse(TWO);
        let DomainStats { answers, files } = &domains["a b"];
        assert_eq!(
            (&answers.state, answers.balloon),
            (&Some(RunState::Running), Some(64 << 20))
        );
        let [reads, writes, flushes] = answers.disks[0].qemu.unwrap();
        assert_eq!((reads.count, reads.bytes, reads.total_ns), (7, 4096, 900));
        assert_eq!((writes.count, flushes.count, flushes.total_ns), (0, 2, 30));
        assert_eq!(
            (answers.disks.len(), answers.disks[1].qemu),
            (2, None),
            "no medium"
        );
        assert_eq!(files["vda"], "/var/a=b.raw");
        assert_eq!(
            domains["c"].answers.state,
            Some(RunState::Stopped("io-error".to_owned()))
        );
        let panicked = Some(RunState::Stopped("guest-panicked".to_owned()));
        assert_eq!(
            (Some(run_state(3, 10)), Some(run_state(6, 1))),
            (panicked.clone(), panicked)
        );
    }

    proptest! {
        #[test]
        fn any_text_is_survived(lines in proptest::collection::vec("(Domain: '|block\\.|count=|[0-9]{1,20}|rd\\.reqs=|.{0,9}|\n)", 0..60)) {
            read_domain_stats(&lines.concat());
        }
    }
}
