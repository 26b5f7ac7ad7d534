//! The command line of `vmtax top`.

use clap::Args;
use clap::builder::RangedU64ValueParser;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
#[command(
    after_help = "Levels: 0 reads counters from the host's kernel, from libvirt, and over QMP sockets that no other client is connected to, and changes nothing. \
1 also asks QEMU's monitor (through libvirt) and QEMU's guest agent, which taints a libvirt domain (custom-monitor, custom-ga-command), \
and sets QEMU's latency histograms, which are removed at the end. 2 also traces VM exits (KVM, root). The header shows what the level costs. See docs/top.md.

Examples:
  vmtax top
  vmtax top web01 --level 1
  vmtax top --batch --samples 3
  vmtax top --json --samples 1 | jq '.vms[] | {name, findings}'
  vmtax top web01 --level 2 --duration 5 --batch
  vmtax top --openmetrics 9177
  vmtax top --explain %RDY"
)]
pub struct TopArgs {
    /// VMs: a PID, a libvirt domain or UUID, a Proxmox ID, a QMP socket, a unique part of a name [default: all]
    #[arg(value_name = "VM")]
    pub vms: Vec<String>,
    /// Print a table for each interval instead of the live screen
    #[arg(long)]
    pub batch: bool,
    /// Print a line of JSON for each interval
    #[arg(long, conflicts_with_all = ["batch", "csv"])]
    pub json: bool,
    /// Print a line of CSV for each VM and interval
    #[arg(long, conflicts_with = "batch")]
    pub csv: bool,
    /// Write OpenMetrics text for Prometheus into a file, or serve it on 127.0.0.1:PORT
    #[arg(long, value_name = "FILE|PORT", value_parser = exposition)]
    pub openmetrics: Option<Exposition>,
    /// Time between updates, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = interval)]
    pub interval: Duration,
    /// Number of updates [default: until Ctrl-C]
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<u64>::new().range(1..))]
    pub samples: Option<u64>,
    /// Observe one interval of this length, then exit
    #[arg(long, value_name = "SECONDS", value_parser = interval, conflicts_with_all = ["interval", "samples"])]
    pub duration: Option<Duration>,
    /// What is observed: 0 counters; 1 also latency histograms; 2 also traces of VM exits
    #[arg(long, value_name = "LEVEL", default_value_t = 0, value_parser = RangedU64ValueParser::<u8>::new().range(0..=2))]
    pub level: u8,
    /// Explain a column
    #[arg(long, value_name = "COLUMN", exclusive = true)]
    pub explain: Option<String>,
}

/// Where OpenMetrics text goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exposition {
    /// A file that is replaced after each interval.
    File(PathBuf),
    /// A port of the loopback address.
    Port(u16),
}

fn exposition(text: &str) -> Result<Exposition, String> {
    match text.parse::<u64>() {
        Ok(port) => match u16::try_from(port) {
            Ok(port) if port > 0 => Ok(Exposition::Port(port)),
            _ => Err("a port is 1 to 65535; for a file of that name give ./NAME".to_owned()),
        },
        Err(_) => Ok(Exposition::File(text.into())),
    }
}

/// Seconds, as a decimal number, with or without their unit.
fn interval(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .trim_end_matches('s')
        .parse()
        .map_err(|_| "give seconds, as 2 or 0.5".to_owned())?;
    // The kernel counts CPU time in steps of up to 10 ms: shorter intervals would show these.
    let is_fit = (0.1..=86_400.0).contains(&seconds);
    is_fit
        .then(|| Duration::from_secs_f64(seconds))
        .ok_or_else(|| "give 0.1 to 86400 seconds".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_a_port_and_anything_else_a_file() {
        assert_eq!(exposition("9177"), Ok(Exposition::Port(9177)));
        assert_eq!(exposition("./9177"), Ok(Exposition::File("./9177".into())));
        assert!(exposition("0").is_err() && exposition("70000").is_err());
    }

    #[test]
    fn intervals_are_between_a_tenth_of_a_second_and_a_day() {
        assert_eq!(
            (interval("0.5"), interval("10s")),
            (Ok(Duration::from_millis(500)), Ok(Duration::from_secs(10)))
        );
        for wrong in ["0", "-1", "NaN", "inf", "1e9", "x", ""] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }
}
