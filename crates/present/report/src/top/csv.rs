//! One interval as CSV (RFC 4180): a line for each VM. What is not known is empty.

use super::counters::VM_COUNTERS;
use vmtax_model::{TopSample, VmRates};

/// The first line.
pub fn csv_head() -> String {
    let names = VM_COUNTERS.iter().map(|counter| counter.csv);
    let all: Vec<&str> = ["time", "name", "pid", "interval_seconds"]
        .into_iter()
        .chain(names)
        .chain(["busiest_thread", "finding"])
        .collect();
    all.join(",") + "\r\n"
}

/// A line for each VM.
pub fn csv_rows(sample: &TopSample) -> String {
    let row = |vm: &VmRates| {
        let figures = VM_COUNTERS.iter().map(|counter| {
            (counter.value)(vm).map_or(String::new(), |value| {
                counter.unit.in_csv(value).to_string()
            })
        });
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
            vm.pid.to_string(),
            vm.seconds.to_string(),
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
        let position_of = |name: &str| {
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
                fields[position_of("run_ratio") + 1],
                fields[position_of("ready_ratio") + 1],
                fields[position_of("blkavg_seconds") + 1]
            ),
            ("0.5", "", "")
        );
        assert!(rows.ends_with("\r\n"));
    }
}
