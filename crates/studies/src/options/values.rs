//! Sizes, durations, fractions and machines as a command line has them, and why options mean no plan.

use std::io;
use vmtax_configuration::TwinError;
use vmtax_model::{Machine, Pinning, PlanError, parse_size};
use vmtax_runner::RunError;
use vmtax_vmm::FindError;
use vmtax_workload::WorkloadError;

/// No plan can be made of a study's options.
#[derive(Debug, thiserror::Error)]
pub enum OptionsError {
    /// The plan that they mean is invalid, or no machine or workload has a name.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A workload has no such option, or does not take the value.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// No running VM has the name.
    #[error(transparent)]
    Vm(#[from] FindError),
    /// There is no twin of what they name.
    #[error(transparent)]
    Twin(#[from] TwinError),
    /// This host does not have a QEMU, a kernel, a tree or the CPUs that they name.
    #[error(transparent)]
    Named(#[from] Box<RunError>),
    /// A file or folder that they name cannot be used.
    #[error("{what}: {source}")]
    File {
        /// The operation that failed, with its file.
        what: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// This host has no machine on which the claims can be tested.
    #[error("{0}")]
    NotTestable(String),
    /// They do not go together, or say nothing.
    #[error("{0}")]
    Usage(String),
}

impl OptionsError {
    pub(crate) fn usage<T>(what: impl Into<String>) -> Result<T, OptionsError> {
        Err(OptionsError::Usage(what.into()))
    }

    pub(crate) fn file(what: impl Into<String>, source: io::Error) -> OptionsError {
        OptionsError::File {
            what: what.into(),
            source,
        }
    }
}

/// A machine by its name.
pub(crate) fn machine(text: &str) -> Result<Machine, String> {
    match text {
        "micro" => Err("write micro-kvm or micro-tcg".to_owned()),
        name => name
            .parse()
            .map_err(|_| "write native, kvm, tcg, micro-kvm or micro-tcg".to_owned()),
    }
}

/// A placement of a guest's threads by its name.
pub(crate) fn pinning(text: &str) -> Result<Pinning, String> {
    text.parse()
        .map_err(|_| format!("write {}", Pinning::NAMES.join(", ")))
}

/// Bytes, with an optional suffix.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    parse_size(text).ok_or_else(|| "write a size: 64M, 5G, or a number of bytes".to_owned())
}

/// MiB: a size with a suffix, or a bare number of MiB.
pub(crate) fn mebibytes(text: &str) -> Result<u32, String> {
    let whole = |bytes: &u64| bytes % (1 << 20) == 0;
    let size = || u32::try_from(parse_size(text).filter(whole)? >> 20).ok();
    let bare = text.parse().ok();
    bare.or_else(size)
        .ok_or_else(|| "write a size of whole MiB: 512M, 2G, or a number of MiB".to_owned())
}

/// Seconds above 0, from "500ms", "90s", "1.5m", "2h", or a bare number.
pub fn duration(text: &str) -> Result<f64, String> {
    match duration_or_zero(text)? {
        seconds if seconds > 0.0 => Ok(seconds),
        _ => Err(DURATION.to_owned()),
    }
}

/// As [`duration`], or 0.
pub(crate) fn duration_or_zero(text: &str) -> Result<f64, String> {
    let units = [("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    let (number, factor) = units
        .iter()
        .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor)))
        .unwrap_or((text, 1.0));
    let seconds = number.trim().parse::<f64>().ok().map(|n| n * factor);
    // A day of seconds fits many times; what is beyond is a slip.
    seconds
        .filter(|s| (0.0..=1e9).contains(s))
        .ok_or_else(|| DURATION.to_owned())
}

/// [`duration`] in whole seconds.
pub(crate) fn seconds(text: &str) -> Result<u32, String> {
    match duration(text)? {
        whole if whole.fract() == 0.0 => Ok(whole as u32),
        _ => Err(DURATION.to_owned()),
    }
}

/// Whole milliseconds of a duration in seconds.
pub(crate) fn milliseconds(seconds: f64) -> u64 {
    (seconds * 1e3).round() as u64
}

const DURATION: &str = "write a duration: 90s, 10m, 2h, or a number of seconds";

/// A fraction above 0: "2%" or "0.02".
pub fn fraction(text: &str) -> Result<f64, String> {
    let (number, of) = match text.strip_suffix('%') {
        Some(percent) => (percent, 100.0),
        None => (text, 1.0),
    };
    match number.trim().parse::<f64>() {
        // Whoever writes 2 means 2 %.
        Ok(number) if of == 1.0 && number >= 1.0 && number.is_finite() => Err(format!(
            "{number} is {} %: write {number}% or {}",
            100.0 * number,
            number / 100.0
        )),
        Ok(number) if number.is_finite() && number > 0.0 => Ok(number / of),
        _ => Err("write a fraction above 0: 2% or 0.02".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_units() {
        assert_eq!(
            (fraction("2%"), fraction("0.02"), fraction("150%")),
            (Ok(0.02), Ok(0.02), Ok(1.5))
        );
        assert_eq!(
            fraction("2"),
            Err("2 is 200 %: write 2% or 0.02".to_owned())
        );
        assert_eq!(
            (seconds("90s"), seconds("10m"), seconds("2h"), seconds("7")),
            (Ok(90), Ok(600), Ok(7200), Ok(7))
        );
        assert_eq!(
            (duration("0.5"), duration("500ms"), duration("1.5m")),
            (Ok(0.5), Ok(0.5), Ok(90.0))
        );
        assert_eq!(
            (mebibytes("512"), mebibytes("2G"), mebibytes("64MiB")),
            (Ok(512), Ok(2048), Ok(64))
        );
        assert_eq!(
            (bytes("64M"), bytes("5GiB"), bytes("7")),
            (Ok(64 << 20), Ok(5 << 30), Ok(7))
        );
        assert_eq!(
            (machine("kvm"), duration_or_zero("0")),
            (Ok(Machine::KVM), Ok(0.0))
        );
        for bad in ["", "%", "-1%", "x", "nan", "0"] {
            assert!(fraction(bad).is_err(), "{bad}");
        }
        for bad in ["", "m", "-1m", "1d", "9999999h", "0s", "0.5", "nan"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
        for bad in ["", "G", "1K", "2Q", "iB", "5iB", "99999999G"] {
            assert!(mebibytes(bad).is_err(), "{bad}");
        }
        assert!(machine("micro").is_err() && machine("xen").is_err());
    }
}
