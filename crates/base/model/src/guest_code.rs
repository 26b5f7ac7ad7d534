//! Code that a guest's vCPUs execute, as sampled from outside.

use crate::{Advice, SampleShare};
use serde::{Deserialize, Serialize};

/// A place in a guest's code where its CPUs were found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CodePlace {
    /// The guest's address of the next instruction; as JSON in hexadecimal, as numbers of it lose the kernel's last digits.
    #[serde(with = "hexadecimal")]
    pub address: u64,
    /// The privilege level: 0 is the guest's kernel, 3 its programs.
    pub level: u8,
    /// Of all looks.
    pub share: SampleShare,
    /// The instruction that was done last; empty where the code could not be read.
    pub done: String,
    /// The one that comes next; empty as well.
    pub next: String,
}

/// Where a guest's vCPUs were, whenever QEMU's monitor was asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GuestCode {
    /// Checks a CPU.
    pub looks: u64,
    /// Of those, at one that was halted.
    pub halted: SampleShare,
    /// Median time that QEMU took to answer, ns: the CPU was stopped for a part of that.
    pub look_ns: f64,
    /// Where the others were, the most frequent first; the first 100.
    pub places: Vec<CodePlace>,
    /// Known costs, the most frequent first.
    pub advice: Vec<Advice>,
}

/// Addresses as JSON strings in hexadecimal: "0xffffffff81000000".
mod hexadecimal {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(address: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{address:#x}"))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digits = text
            .strip_prefix("0x")
            .and_then(|digits| u64::from_str_radix(digits, 16).ok());
        digits.ok_or_else(|| D::Error::custom(format!("{text:?} is no address")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_kernels_keep_all_their_digits() {
        let place = CodePlace {
            address: 0xffff_ffff_8123_4567,
            level: 0,
            share: SampleShare::default(),
            done: String::new(),
            next: String::new(),
        };
        let json = serde_json::to_value(&place).unwrap();
        assert_eq!(json["address"], "0xffffffff81234567");
        assert_eq!(serde_json::from_value::<CodePlace>(json).unwrap(), place);
    }
}
