//! How a profile was sampled.

use crate::number::counted;
use crate::text::plain;
use vmtax_model::ProfileFindings;

/// "sampled for 10.0 s, 99 Hz on CPU by CPU cycles: 900 samples".
pub fn heading(findings: &ProfileFindings) -> String {
    let ProfileFindings { seconds, hz, samples, .. } = findings;
    if *samples == 0 {
        return "no sample on CPU".to_owned();
    }
    let Some(by) = trigger(findings) else { return counted(*samples, "sample") };
    let rate = if *hz > 0 { format!("{hz} Hz on CPU") } else { "samples on CPU".to_owned() };
    let ended = if findings.ended { "; the process ended then" } else { "" };
    format!("sampled for {seconds:.1} s, {rate} by {by}: {}{ended}", counted(*samples, "sample"))
}

/// By what samples were taken, "CPU cycles"; nothing where that is unknown.
pub fn trigger(findings: &ProfileFindings) -> Option<String> {
    // perf adds how precise it should be: "cycles:P".
    match findings.trigger.split(':').next().unwrap_or_default() {
        "" => None,
        "cycles" => Some("CPU cycles".to_owned()),
        "cpu-clock" => Some("perf's cpu-clock".to_owned()),
        _ => Some(plain(&findings.trigger)),
    }
}
