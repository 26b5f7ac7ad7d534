//! The kernel's own counters: the `stats` file of each CPU's buffer.

/// Numbers of events that one CPU's buffer did not keep. Source: `tracing_stats_read` in `kernel/trace/trace.c`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuStats {
    /// The instance of tracefs.
    pub instance: String,
    /// Number of the CPU.
    pub cpu: u32,
    /// Events overwritten before they were read.
    pub overrun: u64,
    /// Events dropped because the buffer was full.
    pub dropped: u64,
    /// Events lost because others interrupted them too often.
    pub commit_overrun: u64,
}

/// Reads lines `INSTANCE.cpuN`, each followed by that buffer's `stats`. Lines that it does not know are left out.
pub fn parse(text: &str) -> Vec<CpuStats> {
    let mut stats: Vec<CpuStats> = Vec::new();
    for line in text.lines() {
        match line.split_once(':') {
            None => {
                if let Some((instance, cpu)) = instance_and_cpu(line.trim()) {
                    stats.push(CpuStats {
                        instance: instance.to_owned(),
                        cpu,
                        ..CpuStats::default()
                    });
                }
            }
            Some((key, value)) => {
                let (Some(cpu), Ok(value)) = (stats.last_mut(), value.trim().parse()) else {
                    continue;
                };
                match key.trim() {
                    "overrun" => cpu.overrun = value,
                    "dropped events" => cpu.dropped = value,
                    "commit overrun" => cpu.commit_overrun = value,
                    _ => {}
                }
            }
        }
    }
    stats
}

/// The two parts of `INSTANCE.cpuN`.
pub(crate) fn instance_and_cpu(name: &str) -> Option<(&str, u32)> {
    let (instance, cpu) = name.rsplit_once(".cpu")?;
    Some((instance, cpu.parse().ok()?)).filter(|_| !instance.is_empty())
}
