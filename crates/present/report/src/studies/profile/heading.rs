//! Heading of a profile: duration, samples, rate.

use crate::number::{count, counted};
use crate::text::plain;
use vmtax_model::ProfileFindings;

/// "sampled for 10.0 s · on-CPU samples: 900 (CPU cycles, 99 Hz)".
pub fn heading(findings: &ProfileFindings) -> String {
    let ProfileFindings {
        seconds,
        hz,
        samples,
        ..
    } = findings;
    if *samples == 0 {
        return "no on-CPU sample".to_owned();
    }
    let Some(by) = trigger(findings) else {
        return counted(*samples, "sample");
    };
    let rate = if *hz > 0 {
        format!(", {hz} Hz")
    } else {
        String::new()
    };
    let ended = if findings.ended {
        "; the process ended then"
    } else {
        ""
    };
    format!(
        "sampled for {seconds:.1} s{ended} · on-CPU samples: {} ({by}{rate})",
        count(*samples)
    )
}

/// By what samples were taken, "CPU cycles"; nothing where that is unknown.
pub fn trigger(findings: &ProfileFindings) -> Option<String> {
    // perf adds how precise it should be: "cycles:P".
    match findings.trigger.split(':').next().unwrap_or_default() {
        "" => None,
        "cycles" => Some("CPU cycles".to_owned()),
        "cpu-clock" => Some("perf cpu-clock".to_owned()),
        _ => Some(plain(&findings.trigger)),
    }
}
