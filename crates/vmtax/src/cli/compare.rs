//! `vmtax compare`'s arguments.

use super::{MachineArgs, RecordArgs};
use clap::Args;
use std::path::PathBuf;
use vmtax_model::Machine;

#[derive(Debug, Args)]
pub struct CompareArgs {
    /// Sides, the first is the baseline: KEY=VALUE[,KEY=VALUE...], or `usual`; or folders of recordings
    #[arg(value_name = "SIDE")]
    pub sides: Vec<String>,
    /// Workloads and their options as WORKLOAD.OPTION=VALUE [default: cpu, memory, syscalls, seqread]
    #[arg(last = true, value_name = "WHAT")]
    pub what: Vec<String>,
    /// A side with this QEMU; given for each side
    #[arg(long, value_name = "QEMU")]
    pub qemu: Vec<String>,
    /// A side with this guest kernel: a file, or a release as `vmtax get kernel` takes it
    #[arg(long, value_name = "KERNEL")]
    pub kernel: Vec<String>,
    /// Set this on every side: KEY=VALUE
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// The machine of sides that do not name one: kvm, tcg, micro-kvm, micro-tcg
    /// [default: kvm where it runs kernels at speed, else tcg]
    #[arg(long, value_name = "M")]
    pub machine: Option<Machine>,
    /// The smallest difference that matters: 2%, or 0.02 [default: 2%]
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub detect: Option<f64>,
    /// Begin no round after so long: 90s, 10m, 2h [default: 10m]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub budget: Option<u32>,
    /// The most rounds [default: 40]
    #[arg(long, value_name = "N")]
    pub rounds: Option<u32>,
    /// How often a guest makes each workload in its turn [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=32))]
    pub repeats: Option<u32>,
    /// Seconds that each trial bounded by time lasts; system calls share them
    #[arg(long, value_name = "SECONDS")]
    pub time: Option<f64>,
    /// Follow seqread's requests too: by which layers the sides differ
    #[arg(long)]
    pub layers: bool,
    /// Look at each side's QEMU in one more run, and draw by which functions the sides differ; of one workload
    #[arg(long)]
    pub profile: bool,
    #[command(flatten)]
    pub machine_args: MachineArgs,
    /// Measure this recording's plan again, or take the recording given as SIDE, and end with 1 where a metric is worse by
    /// more than it may be
    #[arg(long, value_name = "BASELINE", conflicts_with_all = ["qemu", "kernel", "set", "what"])]
    pub check: Option<PathBuf>,
    /// By how much each metric may be worse, and how sure that has to be (TOML) [default: 5 %, 95 % sure]
    #[arg(long, value_name = "FILE", requires = "check")]
    pub thresholds: Option<PathBuf>,
    /// Write the check as JUnit XML
    #[arg(long, value_name = "FILE", requires = "check")]
    pub junit: Option<PathBuf>,
    /// Write the check as a Markdown table
    #[arg(long, value_name = "FILE", requires = "check")]
    pub markdown: Option<PathBuf>,
    /// Print the check as annotations of GitHub's workflows too
    #[arg(long, requires = "check")]
    pub github: bool,
    #[command(flatten)]
    pub record: RecordArgs,
}

/// "2%" or "0.02".
fn share(text: &str) -> Result<f64, String> {
    let number = |text: &str| text.trim().parse::<f64>().ok().filter(|v| v.is_finite() && *v > 0.0);
    match text.strip_suffix('%') {
        Some(percent) => number(percent).map(|p| p / 100.0),
        None => number(text),
    }
    .ok_or_else(|| "give a share above 0, as in 2% or 0.02".to_owned())
}

/// "90s", "10m", "2h", or seconds.
fn seconds(text: &str) -> Result<u32, String> {
    let (number, unit) = match text.strip_suffix(['s', 'm', 'h']) {
        Some(number) => (number, &text[number.len()..]),
        None => (text, "s"),
    };
    let factor = match unit {
        "h" => 3600,
        "m" => 60,
        _ => 1,
    };
    let number: Option<u32> = number.parse().ok();
    number
        .and_then(|n| n.checked_mul(factor))
        .filter(|s| *s > 0)
        .ok_or_else(|| "give a time, as in 90s, 10m or 2h".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_times_are_read() {
        assert_eq!((share("2%"), share("0.02"), share("150%")), (Ok(0.02), Ok(0.02), Ok(1.5)));
        assert_eq!((seconds("90s"), seconds("10m"), seconds("2h"), seconds("7")), (Ok(90), Ok(600), Ok(7200), Ok(7)));
        for bad in ["", "%", "-1%", "x", "nan", "0"] {
            assert!(share(bad).is_err(), "{bad}");
        }
        for bad in ["", "m", "-1m", "1d", "9999999h", "0s"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }
}
