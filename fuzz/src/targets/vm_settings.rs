//! Answers of a hostile QEMU when its settings are read, and its command line: a line of JSON, then an argument a line.

use serde_json::Value;

pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut lines = text.lines();
    let block: Value = lines
        .next()
        .and_then(|line| serde_json::from_str(line).ok())
        .unwrap_or_default();
    let arguments: Vec<String> = lines.map(str::to_owned).collect();
    let most = block.as_array().map_or(0, Vec::len) + arguments.len();
    let found = vmtax_vmm::qemu::settings::read_settings(&block, &arguments);
    assert!(
        found <= most,
        "{found} disks and shares of {most} entries and arguments"
    );
}
