//! Traces of vmtax in tracefs.

use std::fs;
use std::path::PathBuf;

/// tracefs, also where nobody has mounted it.
pub fn tracing() -> PathBuf {
    vmtax_observe::tracefs().unwrap()
}

/// Returns the trace instances and probe definitions of the process `pid`.
pub fn traces_of(pid: u32) -> Vec<String> {
    let instances = fs::read_dir(tracing().join("instances"))
        .into_iter()
        .flatten()
        .flatten();
    let names = instances.map(|e| e.file_name().into_string().unwrap());
    let mut traces: Vec<String> = names
        .filter(|name| name.starts_with(&format!("vmtax-{pid}-")))
        .collect();
    let defined = fs::read_to_string(tracing().join("uprobe_events")).unwrap_or_default();
    traces.extend(
        defined
            .lines()
            .filter(|l| l.contains(&format!(":vmtax_{pid}_")))
            .map(str::to_owned),
    );
    traces
}
