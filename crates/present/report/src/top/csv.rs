//! One interval as CSV (RFC 4180): a line for each VM. What is not known is empty.

use super::columns::largest;
use vmtax_model::{TopSample, VmRates};

/// A column: its name, with its unit, and its value.
type Field = (&'static str, fn(&VmRates) -> Option<f64>);

const FIELDS: &[Field] = &[
    ("pid", |vm| Some(f64::from(vm.pid))),
    ("interval_seconds", |vm| Some(vm.seconds)),
    ("stopped", |vm| {
        vm.state
            .is_some()
            .then(|| f64::from(u8::from(vm.stopped().is_some())))
    }),
    ("vcpus", |vm| Some(vm.vcpus as f64)),
    ("run_ratio", |vm| vm.run),
    ("ready_ratio", |vm| vm.ready),
    ("throttled_ratio", |vm| vm.throttled),
    ("exits_per_second", |vm| vm.exits.map(|exits| exits.per_s)),
    ("halted_ratio", |vm| vm.exits.map(|exits| exits.halted)),
    ("reads_per_second", |vm| vm.io.map(|io| io.reads_per_s)),
    ("writes_per_second", |vm| vm.io.map(|io| io.writes_per_s)),
    ("flushes_per_second", |vm| vm.io.map(|io| io.flushes_per_s)),
    ("read_bytes_per_second", |vm| {
        vm.io.map(|io| io.read_bytes_per_s)
    }),
    ("written_bytes_per_second", |vm| {
        vm.io.map(|io| io.written_bytes_per_s)
    }),
    ("blkavg_seconds", |vm| {
        vm.io.and_then(|io| io.blkavg_ns).map(|ns| ns / 1e9)
    }),
    ("kavg_seconds", |vm| {
        largest(vm, |disk| disk.kavg_ns).map(|ns| ns / 1e9)
    }),
    ("davg_seconds", |vm| {
        largest(vm, |disk| disk.davg_ns).map(|ns| ns / 1e9)
    }),
    ("gavg_seconds", |vm| vm.gavg_ns().map(|ns| ns / 1e9)),
    ("guest_steal_ratio", |vm| vm.guest.as_ref()?.steal),
    ("p99_seconds", |vm| {
        vm.io.and_then(|io| io.p99_ns).map(|ns| ns / 1e9)
    }),
    ("requests_in_flight", |vm| {
        vm.io.and_then(|io| io.in_flight).map(|count| count as f64)
    }),
    ("packets_per_second", |vm| {
        (!vm.nics.is_empty()).then(|| vm.packets_per_s())
    }),
    ("dropped_packets_per_second", |vm| {
        (!vm.nics.is_empty()).then(|| vm.drops_per_s())
    }),
    ("resident_bytes", |vm| Some(vm.memory_use.resident as f64)),
    ("swapped_bytes", |vm| Some(vm.memory_use.swapped as f64)),
    ("huge_page_bytes", |vm| Some(vm.memory_use.huge as f64)),
    ("major_faults_per_second", |vm| {
        Some(vm.memory_use.major_faults_per_s)
    }),
    ("memory_pressure_some_ratio", |vm| {
        vm.memory_use.pressure_some
    }),
    ("memory_pressure_full_ratio", |vm| {
        vm.memory_use.pressure_full
    }),
];

/// The first line.
pub fn csv_head() -> String {
    let names = FIELDS.iter().map(|(name, _)| *name);
    let all: Vec<&str> = ["time", "name"]
        .into_iter()
        .chain(names)
        .chain(["busiest_thread", "finding"])
        .collect();
    all.join(",") + "\r\n"
}

/// A line for each VM.
pub fn csv_rows(sample: &TopSample) -> String {
    let row = |vm: &VmRates| {
        let figures = FIELDS
            .iter()
            .map(|(_, value)| value(vm).map_or(String::new(), |value| value.to_string()));
        let busiest = vm
            .busiest()
            .map_or(String::new(), |thread| thread.role.label());
        let finding = vm
            .findings
            .first()
            .map_or("", |advice| advice.rule.as_str());
        let texts = [
            quoted(&sample.time),
            quoted(vm.name.as_deref().unwrap_or_default()),
        ];
        let all: Vec<String> = texts
            .into_iter()
            .chain(figures)
            .chain([quoted(&busiest), quoted(finding)])
            .collect();
        all.join(",") + "\r\n"
    };
    sample.vms.iter().map(row).collect()
}

/// A field, in quotes where it needs them.
fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_fields_of_the_head_and_unknown_ones_are_empty() {
        let vm = VmRates {
            pid: 7,
            name: Some("a,\"b".to_owned()),
            run: Some(0.5),
            ..VmRates::default()
        };
        let sample = TopSample {
            time: "t".to_owned(),
            vms: vec![vm],
            ..TopSample::default()
        };
        let (head, rows) = (csv_head(), csv_rows(&sample));
        let at = |name: &str| {
            head.trim_end()
                .split(',')
                .position(|field| field == name)
                .unwrap()
        };
        assert!(rows.starts_with("t,\"a,\"\"b\",7,"), "{rows}");
        // The quoted name has a comma of its own.
        let fields: Vec<&str> = rows.trim_end().split(',').collect();
        assert_eq!(fields.len(), head.trim_end().split(',').count() + 1);
        assert_eq!(
            (
                fields[at("run_ratio") + 1],
                fields[at("ready_ratio") + 1],
                fields[at("blkavg_seconds") + 1]
            ),
            ("0.5", "", "")
        );
        assert!(rows.ends_with("\r\n"));
    }
}
